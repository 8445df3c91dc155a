// The report view. One call draws it all:
//
//   const view = render(root, data, { image, play, budget, changed });
//
//   root    an element with the class "framenest"; its content is replaced
//   data    what framenest.report.document() gives: {format, video, rankings}; docs/report.md describes it
//   image   (frame, size) → URL of a picture, size "small" or "large"; null where there is none
//   play    optional (frame, seconds) → plays the video there; adds a button to the frame's detail, and a
//           double click on a frame calls it too
//   budget  optional first budget; 8 unless told
//   changed optional (budget) → called whenever another budget is shown
//
//   view.setBudget(16)    moves the slider
//   view.state            {budget, current, pinned, hovered}; read only
//   view.destroy()        empties the root and takes the listeners away
//
// Nothing is fetched here but what `image` names, and no text of the data becomes markup.
import { el } from "./marks.js";
import { chosen, longest } from "./budget.js";
import { budgetBar } from "./slider.js";
import { timeline } from "./timeline.js";
import { grid } from "./grid.js";
import { detail } from "./detail.js";
import { head, making, table } from "./facts.js";
import { help } from "./help.js";
import { tips } from "./terms.js";

const MORE = 16;

export function render(root, data, { image, play = null, budget = 8, changed = () => {} }) {
  const length = longest(data);
  const state = { budget: Math.min(budget, length), than: null, current: 0, pinned: null, hovered: null };
  const shownOf = (result) => chosen(result, state.budget, state.than);
  const view = { data, image, play, state, chosen: shownOf, hover, pin, look, setBudget, destroy };

  const time = timeline(view);
  const grids = data.rankings.map((result, i) => grid(view, result, i));
  const why = detail(view);
  const numbers = table(view);
  const guide = help(Boolean(play), data);
  const bar = budgetBar(view, guide.open);
  const tip = tips(root);
  const more = moreButton();

  root.replaceChildren(
    head(data),
    bar.root,
    el(
      "div",
      { class: "columns" },
      el(
        "main",
        {},
        time.root,
        grids.map((g) => g.root),
        more.root,
        making(data),
        numbers.root,
      ),
      why.root,
    ),
    el("footer", {}, "Made by Framenest: one ranking, and every budget is a prefix of it. ", themeButton()),
    guide.root,
    tip.root,
  );
  if (play) root.addEventListener("dblclick", played);
  document.addEventListener("keydown", keys);
  bar.update();
  more.update();
  grids.forEach((g) => g.update());
  time.draw();
  show();

  /** Frames that the budget `than` lacks are marked as new; by default, the next smaller of the usual ones. */
  function setBudget(k, than = null) {
    const wanted = Math.min(Math.max(1, Math.round(k)), length);
    if (wanted === state.budget && than === state.than) return;
    Object.assign(state, { budget: wanted, than });
    if (state.pinned && !holds(state.pinned)) state.pinned = null;
    state.hovered = null;
    bar.update();
    more.update();
    time.update();
    grids.forEach((g) => g.update());
    numbers.update();
    show();
    changed(wanted);
  }

  /** 16 frames more, marked as new; none are taken away. */
  function moreButton() {
    const button = el("button", {
      type: "button",
      onclick: () => setBudget(state.budget + MORE, state.budget),
    });
    const ranked = data.rankings.some((result) => result.kind === "ranking");
    return {
      root: el("div", { class: "more", hidden: !ranked }, button),
      update() {
        const left = length - state.budget;
        button.disabled = left === 0;
        button.textContent = left ? `${Math.min(MORE, left)} more` : `All ${length} frames are shown`;
      },
    };
  }

  const holds = (mark) =>
    shownOf(data.rankings[mark.result]).frames.some((m) => m.frame === mark.frame);

  function hover(mark) {
    state.hovered = mark;
    show();
  }

  /** Keep a frame in the detail; again, or null, lets it go. */
  function pin(mark, { reveal = false } = {}) {
    const same = mark && state.pinned?.frame === mark.frame && state.pinned.result === mark.result;
    state.pinned = same ? null : mark;
    if (mark && mark.result !== state.current) look(mark.result);
    show();
    const covers = getComputedStyle(why.root).position === "fixed"; // on small screens the detail lies over the frames
    if (state.pinned && (reveal || covers)) grids[mark.result].reveal(mark.frame);
  }

  /** Show the cues of another result. */
  function look(index) {
    state.current = index;
    time.draw();
  }

  function show() {
    const mark = state.hovered ?? state.pinned;
    time.point(mark);
    grids.forEach((g) => g.point(mark));
    why.show(mark ?? first());
  }

  /** What the detail shows while nothing is pointed at: the best frame. */
  function first() {
    const marks = shownOf(data.rankings[state.current]).frames;
    const best = marks.find((mark) => mark.rank === 1) ?? marks[0];
    return best ? { ...best, result: state.current } : null;
  }

  function keys(event) {
    const typing = event.target.closest?.("input:not([type=range]), textarea, select");
    if (event.ctrlKey || event.metaKey || event.altKey || typing || guide.root.open) return;
    const step = { "+": 1, "=": 1, "-": -1 }[event.key];
    if (step) setBudget(state.budget + step);
    else if (event.key === "?") guide.open();
    else if (event.key === "Escape" && !tip.hide() && state.pinned) pin(null);
  }

  function played(event) {
    const frame = Number(event.target.closest?.("[data-frame]")?.dataset.frame);
    const mark = data.rankings.flatMap((r) => shownOf(r).frames).find((m) => m.frame === frame);
    if (mark) play(mark.frame, mark.seconds);
  }

  function destroy() {
    document.removeEventListener("keydown", keys);
    tip.destroy();
    root.removeEventListener("dblclick", played);
    root.replaceChildren();
  }
  return view;
}

function themeButton() {
  const order = ["light dark", "light", "dark"];
  const names = ["as the system", "light", "dark"];
  let at = 0;
  const button = el(
    "button",
    {
      type: "button",
      class: "theme",
      onclick: () => {
        at = (at + 1) % order.length;
        document.documentElement.style.colorScheme = order[at];
        button.textContent = `Colours: ${names[at]}`;
      },
    },
    `Colours: ${names[0]}`,
  );
  return button;
}
