// Why a frame was chosen: its place, its evidence, and the terms of the rule that ranked it.
import { bandOf, clock, el, picture, rankText } from "./marks.js";
import { term } from "./terms.js";

export function detail(view) {
  const body = el("div", { class: "why" });
  const spoken = el("p", { class: "spoken", role: "status" }); // for screen readers, when a frame is kept
  const close = el(
    "button",
    { type: "button", class: "close", "aria-label": "Close", onclick: () => view.pin(null) },
    "×",
  );
  const root = el("aside", { class: "detail panel", "aria-label": "Why this frame" }, close, body, spoken);
  let drawn = null; // what the body shows; it is not drawn again under a finger that is about to press in it

  function show(mark) {
    const { pinned } = view.state;
    root.classList.toggle("open", Boolean(pinned));
    spoken.textContent = pinned ? said(view.data.rankings[pinned.result], pinned) : "";
    const key = mark ? `${mark.result} ${mark.frame} ${mark.rank}` : "";
    if (key === drawn) return;
    drawn = key;
    body.replaceChildren(
      ...(mark
        ? content(mark)
        : [el("h2", {}, "Why this frame"), el("p", { class: "quiet" }, "No frame at this budget.")]),
    );
  }

  function content(mark) {
    const result = view.data.rankings[mark.result];
    const { place } = mark;
    const from =
      place === null ? [] : [" · ", term(result.ranks.zoom[place] ? "zoom frame" : "probe")];
    const parts = [
      el(
        "div",
        { class: "large" },
        picture(view, mark.frame, "large", `The frame at ${clock(mark.seconds)}`),
      ),
      el(
        "h2",
        {},
        el("b", { class: `badge band${bandOf(mark.rank)}` }, mark.rank === null ? "chosen" : `#${mark.rank}`),
        clock(mark.seconds),
      ),
      el("p", { class: "quiet" }, `frame ${mark.frame}`, from),
    ];
    if (view.play)
      parts.push(
        el(
          "button",
          { type: "button", class: "play", onclick: () => view.play(mark.frame, mark.seconds) },
          "▶ Play from here",
        ),
      );
    parts.push(
      place === null
        ? el("p", { class: "quiet" }, `${result.selector} says no more about it.`)
        : reasons(result, place),
    );
    if (place !== null && result.said?.[place])
      parts.push(el("p", { class: "quiet" }, "Said at this time: "), el("q", {}, result.said[place]));
    return parts;
  }

  return { root, show };
}

const said = ({ rule }, { rank, seconds, place }) =>
  `${rankText(rank)} at ${clock(seconds)}. ${(place !== null && rule.because[place]) || ""}`;

/** Why a rank was chosen, as its rule says it: a sentence, what makes up its utility, and its evidence. */
function reasons({ rule, ranks, curves }, place) {
  const { about } = rule.terms.find(({ name }) => name === "utility") ?? {};
  const used = rule.parts.filter(({ weights }) => !weights || weights[place] !== 0);
  const parts = used.map((part) => ({ ...part, value: part.values[place], weight: part.weights?.[place] }));
  const evidence = curves
    .filter(({ weight }) => weight > 0)
    .map((curve) => ({ ...curve, value: ranks[curve.name][place] }));
  return el(
    "div",
    {},
    rule.because[place] ? el("p", { class: "because" }, rule.because[place]) : null,
    parts.length ? makeup(term("utility", "utility", about), ranks.utility[place], parts, rule.joins) : null,
    makeup(term("evidence"), ranks.evidence[place], evidence, "sum"),
  );
}

/** What a number is made of, as a table: value × weight = part of a sum, with one bar, or the factors of a product. */
function makeup(name, total, parts, joins) {
  const sum = joins === "sum";
  const table = el(
    "table",
    {},
    el("caption", {}, name, el("b", {}, total.toFixed(3))),
    el(
      "tbody",
      {},
      parts.map((part, i) =>
        el(
          "tr",
          {},
          el(
            "th",
            { scope: "row" },
            sum ? el("i", { class: part.name }) : i ? "× " : "",
            term(part.name, part.name, part.about || undefined),
          ),
          el("td", {}, part.value.toFixed(3)),
          sum ? el("td", { class: "quiet" }, `× ${part.weight.toFixed(2)}`) : null,
          sum ? el("td", {}, (part.value * part.weight).toFixed(3)) : null,
        ),
      ),
    ),
  );
  return el("div", { class: "sum" }, table, sum ? bar(parts) : null);
}

function bar(parts) {
  const pieces = parts.map(({ name, value, weight }) => {
    const piece = el("i", { class: name });
    piece.style.width = `${Math.max(0, value * weight) * 100}%`;
    return piece;
  });
  return el("div", { class: "bar", "aria-hidden": "true" }, pieces);
}
