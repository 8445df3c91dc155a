// The budget: a slider, buttons for the usual budgets, and one line that says what the budget holds.
import { bandOf, el } from "./marks.js";
import { chosen, steps, summary } from "./budget.js";

/** {root, update(budget, data)}; `change(budget)` is called when a person moves it. */
export function budgetBar(length, change) {
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
  const usual = steps(length);
  const buttons = usual.map((k) => el("button", { type: "button", onclick: () => change(k) }, String(k)));
  const root = el(
    "section",
    { class: "budget", "aria-label": "Frame budget" },
    el("label", { for: "budget" }, "Budget ", number),
    slider,
    el("div", { class: "steps", role: "group", "aria-label": "Usual budgets" }, buttons),
    said,
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

  function update(k, data) {
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
        : summary(data.rankings[0], chosen(data.rankings[0], k));
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
