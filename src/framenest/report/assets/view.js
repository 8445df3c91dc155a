// The report view. One call draws it all:
//
//   const view = render(root, data, { image, play, budget });
//
//   root    an element with the class "framenest"; its content is replaced
//   data    what framenest.report.document() gives: {format, video, rankings}; docs/report.md describes it
//   image   (frame, size) → URL of a picture, size "small" or "large"; null where there is none
//   play    optional (frame, seconds) → plays the video there; adds a button to the frame's detail, and a
//           double click on a frame calls it too
//   budget  optional first budget; 8 unless told
//
//   view.setBudget(16)    moves the slider
//   view.state            {budget, current, pinned, hovered}; read only
//   view.destroy()        empties the root and takes the listeners away
//
// Nothing is fetched here but what `image` names, and no text of the data becomes markup.
import { bandOf, el } from "./marks.js";
import { chosen, longest, steps, summary } from "./budget.js";
import { timeline } from "./timeline.js";
import { grid } from "./grid.js";
import { detail } from "./detail.js";
import { head, making, table } from "./facts.js";

export function render(root, data, { image, play = null, budget = 8 }) {
  const length = longest(data);
  const state = { budget: Math.min(budget, length), current: 0, pinned: null, hovered: null };
  const view = { data, image, play, state, hover, pin, look, setBudget, destroy };

  const time = timeline(view);
  const grids = data.rankings.map((result, i) => grid(view, result, i));
  const why = detail(view);
  const numbers = table(view);
  const bar = budgetBar(length, (k) => setBudget(k));

  root.replaceChildren(
    head(data),
    bar.root,
    el("div", { class: "columns" },
      el("main", {}, time.root, grids.map((g) => g.root), making(data), numbers.root),
      why.root),
    el("footer", {}, "Made by Framenest: one ranking, and every budget is a prefix of it. ", themeButton()));
  if (play) root.addEventListener("dblclick", played);
  document.addEventListener("keydown", keys);
  bar.update(state.budget, data);
  grids.forEach((g) => g.update());
  time.draw();
  show();

  function setBudget(k) {
    const wanted = Math.min(Math.max(1, Math.round(k)), length);
    if (wanted === state.budget) return;
    state.budget = wanted;
    if (state.pinned && !holds(state.pinned)) state.pinned = null;
    state.hovered = null;
    bar.update(wanted, data);
    time.update();
    grids.forEach((g) => g.update());
    numbers.update();
    show();
  }

  const holds = (mark) => chosen(data.rankings[mark.result], state.budget).frames.some((m) => m.frame === mark.frame);

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
    if (reveal && state.pinned) grids[mark.result].reveal(mark.frame);
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
    const marks = chosen(data.rankings[state.current], state.budget).frames;
    const best = marks.find((mark) => mark.rank === 1) ?? marks[0];
    return best ? { ...best, result: state.current } : null;
  }

  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select")) return;
    const step = { "+": 1, "=": 1, "-": -1 }[event.key];
    if (step) setBudget(state.budget + step);
    else if (event.key === "Escape" && state.pinned) pin(null);
  }

  function played(event) {
    const frame = Number(event.target.closest?.("[data-frame]")?.dataset.frame);
    const mark = data.rankings.flatMap((r) => chosen(r, state.budget).frames).find((m) => m.frame === frame);
    if (mark) play(mark.frame, mark.seconds);
  }

  function destroy() {
    document.removeEventListener("keydown", keys);
    root.removeEventListener("dblclick", played);
    root.replaceChildren();
  }
  return view;
}

/** The slider, buttons for the usual budgets, and one line that says what the budget holds. */
function budgetBar(length, change) {
  // The slider moves by octaves, so that 8 to 16 has as much room as 128 to 256; keys still go by one.
  const octaves = Math.max(Math.log2(length), 1e-6);
  const slider = el("input", { type: "range", min: 0, max: octaves, step: "any", id: "budget",
    oninput: () => change(2 ** Number(slider.value)), onkeydown: keyed });
  const number = el("b", { class: "number" });
  const said = el("p", { class: "said", role: "status" });
  const usual = steps(length);
  const buttons = usual.map((k) => el("button", { type: "button", onclick: () => change(k) }, String(k)));
  const root = el("section", { class: "budget", "aria-label": "Frame budget" },
    el("label", { for: "budget" }, "Budget ", number), slider,
    el("div", { class: "steps", role: "group", "aria-label": "Usual budgets" }, buttons), said);
  slider.style.setProperty("--track", track(length, octaves));
  let now = 1;

  function keyed(event) {
    const next = usual.find((k) => k > now) ?? length;
    const last = [...usual].reverse().find((k) => k < now) ?? 1;
    const wanted = { ArrowRight: now + 1, ArrowUp: now + 1, ArrowLeft: now - 1, ArrowDown: now - 1,
      PageUp: next, PageDown: last, Home: 1, End: length }[event.key];
    if (wanted === undefined) return;
    event.preventDefault();
    change(wanted);
  }

  function update(k, data) {
    now = k;
    slider.value = String(Math.log2(k));
    slider.setAttribute("aria-valuetext", `${k} of ${length} frames`);
    slider.style.setProperty("--done", along(Math.log2(k) / octaves));
    number.textContent = String(k);
    for (const button of buttons) button.setAttribute("aria-pressed", String(Number(button.textContent) === k));
    said.textContent = data.rankings.length > 1 ? `${k} frames of each` : summary(data.rankings[0], chosen(data.rankings[0], k));
  }
  return { root, update };
}

/** Where the middle of the slider's thumb, 22 px wide, is at a share of the way. */
const along = (share) => `calc(11px + (100% - 22px) * ${share.toFixed(4)})`;

/** The slider's track in the colours of the ranks. */
function track(length, octaves) {
  let from = "0%";
  const stops = steps(length).map((k) => {
    const to = along(Math.log2(k) / octaves);
    const stop = `var(--band${bandOf(k)}) ${from} ${to}`;
    from = to;
    return stop;
  });
  return `linear-gradient(to right, ${stops.join(", ")})`;
}

function themeButton() {
  const order = ["light dark", "light", "dark"];
  const names = ["as the system", "light", "dark"];
  let at = 0;
  const button = el("button", { type: "button", class: "theme", onclick: () => {
    at = (at + 1) % order.length;
    document.documentElement.style.colorScheme = order[at];
    button.textContent = `Colours: ${names[at]}`;
  } }, `Colours: ${names[0]}`);
  return button;
}
