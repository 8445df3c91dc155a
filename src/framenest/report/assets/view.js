// The report view. One call draws it all:
//
//   const view = render(root, data, { image, play, budget, changed, exports });
//
//   root    an element with the class "framenest"; its content is replaced
//   data    what framenest.report.document() gives: {format, video, rankings}; docs/report.md describes it
//   image   (frame, size) → URL of a picture, size "small", "large" or "full"; null where there is none
//   play    optional (frame, seconds) → plays the video there; adds a button to a frame that is shown large
//   budget  optional first budget; 8 unless told
//   changed optional (budget) → called whenever another budget is shown
//   exports optional elements for the menu Export
//
//   view.setBudget(16)    moves the slider
//   view.state            {budget, current, open, hovered}; read only
//   view.destroy()        empties the root and takes the listeners away
//
// Nothing is fetched here but what `image` names, and no text of the data becomes markup.
import { el } from "./marks.js";
import { chosen, longest } from "./budget.js";
import { budgetBar } from "./slider.js";
import { timeline } from "./timeline.js";
import { grid } from "./grid.js";
import { lightbox } from "./lightbox.js";
import { head, making, table } from "./facts.js";
import { help } from "./help.js";
import { tips } from "./terms.js";

const MORE = 16;
const PAPER = 700; // pixels that the timeline is wide on paper, before it is fitted to it

export function render(root, data, { image, play = null, budget = 8, changed = () => {}, exports = [] }) {
  const length = longest(data);
  const state = { budget: Math.min(budget, length), than: null, current: 0, open: null, hovered: null, paper: false };
  const shownOf = (result) => chosen(result, state.budget, state.than);
  const view = { data, image, play: play && playFrom, exports, state, chosen: shownOf, hover, open, look, toPaper, setBudget, destroy };

  const time = timeline(view);
  const grids = data.rankings.map((result, i) => grid(view, result, i));
  const large = lightbox(view);
  const numbers = table(view);
  const guide = help(data);
  const bar = budgetBar(view, guide.open);
  const tip = tips(root);
  const more = moreButton();
  const title = el("summary", {}, "Why these frames", el("small", {}, "the timeline, the curves, and how the ranking was made"));
  const why = el("details", { class: "why panel" }, title, time.root, making(data), numbers.root);
  let unfolded = []; // for printing

  root.replaceChildren(
    head(data),
    bar.root,
    el(
      "main",
      {},
      grids.map((g) => g.root),
      more.root,
      why,
    ),
    el("footer", {}, "Made by Framenest: one ranking, and every budget is a prefix of it. ", themeButton()),
    guide.root,
    large.root,
    tip.root,
  );
  document.addEventListener("keydown", keys);
  addEventListener("beforeprint", unfold);
  addEventListener("afterprint", fold);
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
    if (state.open && !holds(state.open)) state.open = null;
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

  /** Show a frame large; null closes it, and the focus goes to its tile. */
  function open(mark) {
    const last = state.open;
    Object.assign(state, { open: mark, hovered: null });
    if (mark && mark.result !== state.current) look(mark.result);
    show();
    if (!mark && last) grids[last.result].focus(last.frame);
  }

  /** Show the cues of another result. */
  function look(index) {
    state.current = index;
    time.draw();
  }

  function show() {
    const mark = state.hovered ?? state.open;
    time.point(mark);
    grids.forEach((g) => g.point(mark));
    large.show(state.open);
  }

  function playFrom({ frame, seconds }) {
    open(null); // nothing outside a dialog can be used
    play(frame, seconds);
  }

  function keys(event) {
    if (event.key === "Escape" && tip.hide()) return event.preventDefault();
    const typing = event.target.closest?.("input:not([type=range]), textarea, select");
    if (event.ctrlKey || event.metaKey || event.altKey || typing || root.querySelector("dialog[open]")) return;
    const step = { "+": 1, "=": 1, "-": -1 }[event.key];
    if (step) setBudget(state.budget + step);
    else if (event.key === "?") guide.open();
  }

  /** Paper has no folds, and its own width. */
  function unfold() {
    if (state.paper) return;
    unfolded = [why, numbers.root].filter((part) => !part.open);
    for (const part of unfolded) part.open = true;
    numbers.update();
    state.paper = true; // the screen's width does not count now
    time.draw(PAPER);
  }

  /** Print once every picture has arrived; the browser's own command does not wait for those of a server. */
  async function toPaper() {
    unfold();
    const arrived = (image) => Object.assign(image, { loading: "eager" }).decode().catch(() => {});
    await Promise.all([...root.querySelectorAll("main img")].map(arrived));
    print();
  }

  function fold() {
    for (const part of unfolded) part.open = false;
    state.paper = false;
    time.draw();
  }

  function destroy() {
    document.removeEventListener("keydown", keys);
    removeEventListener("beforeprint", unfold);
    removeEventListener("afterprint", fold);
    tip.destroy();
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
