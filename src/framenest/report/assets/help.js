// A dialog with all keys and all words of the page.
import { el } from "./marks.js";
import { TERMS } from "./terms.js";

/** {root, open()} */
export function help(data) {
  const keys = [
    [["+", "−"], "one frame more or less"],
    [["←", "→"], "on the slider: one frame more or less; in the frames: the next frame"],
    [["Page Up", "Page Down"], "on the slider: the next budget with a button"],
    [["Home", "End"], "the smallest or largest budget; the first or last frame"],
    [["Enter"], "show a frame large; then ← and → show the others"],
    [["Esc"], "close it"],
    [["?"], "this"],
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
        el("dt", {}, "Drag"),
        el("dd", {}, "over the timeline to zoom in"),
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
