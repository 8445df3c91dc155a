// A dialog with all keys and all words of the page.
import { el } from "./marks.js";
import { TERMS } from "./terms.js";

/** {root, open()} */
export function help(plays, data) {
  const keys = [
    [["+", "−"], "one frame more, one less"],
    [["←", "→"], "the same, on the slider; from frame to frame, among the frames"],
    [["Page Up", "Page Down"], "the next of the budgets with a button, on the slider"],
    [["Home", "End"], "the smallest and the largest budget; the first and the last frame"],
    [["Enter"], "keep a frame in the detail"],
    [["Esc"], "let it go"],
    [["?"], "this"],
  ];
  const gestures = [
    ["Drag", "over the timeline to look closer"],
    ...(plays ? [["Double click", "on a frame to play the video from there"]] : []),
  ];
  const root = el(
    "dialog",
    { class: "help", "aria-label": "Keys and words", onclick: (event) => event.target === root && root.close() },
    el(
      "div",
      {},
      el("button", { type: "button", class: "shut", "aria-label": "Close", onclick: () => root.close() }, "×"),
      el("h2", {}, "Keys"),
      el(
        "dl",
        {},
        keys.map(([names, what]) => [
          el(
            "dt",
            {},
            names.map((name) => el("kbd", {}, name)),
          ),
          el("dd", {}, what),
        ]),
        gestures.map(([name, what]) => [el("dt", {}, name), el("dd", {}, what)]),
      ),
      el("h2", {}, "Words"),
      el(
        "dl",
        {},
        Object.entries({ ...TERMS, ...termsOf(data) }).map(([name, about]) => [el("dt", {}, name), el("dd", {}, about)]),
      ),
    ),
  );
  return { root, open: () => root.showModal() };
}

/** The words of the rules that ranked: {name: about}. */
const termsOf = (data) =>
  Object.fromEntries(data.rankings.flatMap(({ rule }) => rule?.terms ?? []).map(({ name, about }) => [name, about]));
