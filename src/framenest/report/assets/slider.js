// The budget: a slider, buttons for the usual budgets, and one line that says what the budget holds.
import { bandOf, el } from "./marks.js";
import { longest, steps, summary, usualSteps } from "./budget.js";
import { term } from "./terms.js";

/** {root, update()}; `openHelp` shows all keys. */
export function budgetBar(view, openHelp) {
  const { data } = view;
  const length = longest(data);
  const change = (k) => view.setBudget(k);
  // The slider moves by octaves, so that 8 to 16 has as much room as 128 to 256; keys still go by one.
  const octaves = Math.max(Math.log2(length), 1e-6);
  const slider = el("input", {
    type: "range",
    min: 0,
    max: octaves,
    step: "any",
    id: "budget",
    oninput: () => change(2 ** Number(slider.value)),
    onkeydown: keyed,
  });
  const number = el("b", { class: "number" });
  const said = el("p", { class: "said", role: "status" });
  const usual = steps(data);
  const buttons = usual.map((k) => el("button", { type: "button", onclick: () => change(k) }, String(k)));
  const root = el(
    "section",
    { class: "budget", "aria-label": "Frame budget" },
    el(
      "div",
      { class: "label" },
      el("label", { for: "budget", class: "spoken" }, "Budget"),
      term("budget", "Budget"),
      number,
    ),
    slider,
    el("div", { class: "steps", role: "group", "aria-label": "Usual budgets" }, buttons),
    el(
      "button",
      { type: "button", class: "ask-help", "aria-label": "Keys and words", title: "Keys and words", onclick: openHelp },
      "?",
    ),
    said,
    el(
      "p",
      { class: "hint", "aria-hidden": "true" },
      el("kbd", {}, "+"),
      el("kbd", {}, "−"),
      " one frame more or less",
      el("kbd", {}, "?"),
      " all keys",
    ),
  );
  slider.style.setProperty("--track", track(length, octaves));
  let now = 1;

  function keyed(event) {
    const next = usual.find((k) => k > now) ?? length;
    const last = [...usual].reverse().find((k) => k < now) ?? 1;
    const wanted = {
      ArrowRight: now + 1,
      ArrowUp: now + 1,
      ArrowLeft: now - 1,
      ArrowDown: now - 1,
      PageUp: next,
      PageDown: last,
      Home: 1,
      End: length,
    }[event.key];
    if (wanted === undefined) return;
    event.preventDefault();
    change(wanted);
  }

  function update() {
    const k = view.state.budget;
    now = k;
    slider.value = String(Math.log2(k));
    slider.setAttribute("aria-valuetext", `${k} of ${length} frames`);
    slider.style.setProperty("--done", along(Math.log2(k) / octaves));
    number.textContent = String(k);
    for (const button of buttons)
      button.setAttribute("aria-pressed", String(Number(button.textContent) === k));
    said.textContent =
      data.rankings.length > 1
        ? `up to ${k} frames of each`
        : summary(data.rankings[0], view.chosen(data.rankings[0]));
  }
  return { root, update };
}

/** Where the middle of the slider's thumb, 22 px wide, is at a share of the way. */
const along = (share) => `calc(11px + (100% - 22px) * ${share.toFixed(4)})`;

/** The slider's track in the colours of the ranks. */
function track(length, octaves) {
  let from = "0%";
  const stops = usualSteps(length).map((k) => {
    const to = along(Math.log2(k) / octaves);
    const stop = `var(--band${bandOf(k)}) ${from} ${to}`;
    from = to;
    return stop;
  });
  return `linear-gradient(to right, ${stops.join(", ")})`;
}
