// The chosen frames as pictures in time order. One tab stop; arrow keys move inside.
import { bandName, bandOf, clock, el, picture, rankText, reasonOf } from "./marks.js";
import { summary } from "./budget.js";
import { copyButton, menu } from "./menu.js";
import { term } from "./terms.js";

export function grid(view, result, index) {
  const several = view.data.rankings.length > 1;
  const said = el("p", { class: "said" });
  const list = el("div", {
    class: "tiles",
    role: "group",
    "aria-label": `Chosen frames in time order${several ? `, ${result.label}` : ""}`,
  });
  const heading = el("h2", {}, several ? result.label : "Frames in time order");
  const root = el(
    "section",
    { class: "frames panel" },
    el("header", {}, heading, several ? said : null, legend(result), exports()),
    list,
  );
  const { width, height } = view.data.video; // tiles of upright videos are narrower, or they would be very tall
  list.style.setProperty(
    "--shape",
    Math.min(1.2, Math.max(0.5, Math.sqrt(width / height / (16 / 9)))).toFixed(2),
  );
  const tiles = new Map(); // frame → {element, mark}
  let drawn = false;

  function tile(mark) {
    const element = el(
      "button",
      {
        type: "button",
        "aria-haspopup": "dialog",
        tabindex: "-1",
        "data-frame": mark.frame,
        onpointerenter: () => view.hover(of(mark.frame)),
        onpointerleave: () => view.hover(null),
        onfocus: () => view.hover(of(mark.frame)),
        onblur: () => view.hover(null),
        onclick: () => view.open(of(mark.frame)),
      },
      el("span", { class: "shot" }),
      el("span", { class: "under" }, el("b"), el("time", {}, clock(mark.seconds))),
      el("span", { class: "reason" }),
    );
    return element;
  }
  function exports() {
    const all = (of) => view.chosen(result).frames.map(of).join(", ");
    return menu(
      "Export",
      copyButton("Copy frames", "The frame numbers, in time order", () => all(({ frame }) => frame)),
      copyButton("Copy times", "The frames' seconds, in time order", () => all(({ seconds }) => seconds)),
      index ? [] : [el("button", { type: "button", onclick: () => view.toPaper() }, "Print, or save as PDF"), view.exports],
    );
  }
  const of = (frame) => ({ ...tiles.get(frame).mark, result: index });

  function update() {
    const at = view.chosen(result);
    said.textContent = summary(result, at);
    const shown = at.frames.length * (several ? 4 : 1); // smaller where results are to be compared
    list.dataset.size = shown <= 8 ? "l" : shown <= 32 ? "m" : "s";
    const size = shown <= 32 ? "large" : "small";
    const wanted = new Set(at.frames.map((mark) => mark.frame));
    for (const [frame, { element }] of tiles) {
      if (wanted.has(frame)) continue;
      element.remove();
      tiles.delete(frame);
    }
    let after = null;
    for (const mark of at.frames) {
      const known = tiles.get(mark.frame);
      const element = known?.element ?? tile(mark);
      if (!known && drawn) element.classList.add("arriving");
      const sharp = known?.size === "large" ? "large" : size; // a sharper picture that is there stays
      tiles.set(mark.frame, { element, mark, size: sharp });
      describe(element, mark, sharp, known?.size);
      const next = after ? after.nextSibling : list.firstChild;
      if (next !== element) list.insertBefore(element, next);
      after = element;
    }
    if (!list.querySelector('[tabindex="0"]')) list.firstChild?.setAttribute("tabindex", "0");
    drawn = true;
    point(view.state.hovered ?? view.state.open);
  }

  function describe(element, mark, size, before) {
    element.querySelector("b").textContent = mark.rank === null ? "" : `#${mark.rank}`;
    element.classList.remove("added", "kept", ...[0, 1, 2, 3, 4, 5, 6].map((b) => `band${b}`));
    element.classList.toggle("match", result.roles?.[mark.place] === "evidence");
    element.classList.add(`band${bandOf(mark.rank)}`, mark.added ? "added" : "kept");
    const because = reasonOf(result, mark.place);
    element.querySelector(".reason").textContent = because;
    const words = `${rankText(mark.rank)}, at ${clock(mark.seconds)}, frame ${mark.frame}${mark.added ? ", new in this budget" : ""}`;
    element.setAttribute("aria-label", because ? `${words}. ${because}` : words);
    const image = element.querySelector("img");
    if (before === undefined) element.querySelector(".shot").replaceChildren(picture(view, mark.frame, size, ""));
    else if (before !== size && image) image.src = view.image(mark.frame, size); // shows the old one meanwhile
  }

  /** Show a frame among the tiles. */
  function point(mark) {
    for (const [frame, { element }] of tiles) element.classList.toggle("pointed", mark?.frame === frame);
  }

  /** Move the focus to a frame, if it is on one of these. */
  function focus(frame) {
    const [from, to] = [document.activeElement, tiles.get(frame)?.element];
    if (!to || from === to || !list.contains(from)) return;
    from.setAttribute("tabindex", "-1");
    to.setAttribute("tabindex", "0");
    to.focus();
  }

  list.addEventListener("keydown", (event) => {
    const all = [...list.children];
    const place = all.indexOf(document.activeElement);
    if (place < 0) return;
    const columns = all.filter((t) => t.offsetTop === all[0].offsetTop).length;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    const target =
      event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : step ? place + step : null;
    if (target === null || !all[target]) return;
    event.preventDefault();
    focus(Number(all[target].dataset.frame));
  });

  return { root, update, point, focus };
}

function legend(result) {
  if (result.kind !== "ranking") return null;
  const length = result.ranks.frames.length;
  const bands = [...new Set(result.ranks.frames.map((_, place) => bandOf(place + 1)))];
  return el(
    "ul",
    { class: "legend", "aria-label": "Colours of ranks" },
    el("li", {}, term("ranks")),
    bands.map((band) => el("li", { class: `band${band}` }, el("i"), bandName(band, length))),
    el("li", { class: "new-mark" }, term("new")),
    result.question === null ? null : el("li", { class: "match-mark" }, term("evidence frame", "evidence")),
  );
}
