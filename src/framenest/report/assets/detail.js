// Why a frame was chosen: its place, its evidence, and the terms of the rule that ranked it.
import { bandOf, clock, el, picture, rankText } from "./marks.js";
import { term } from "./terms.js";

const REASONS = [
  ["evidence", "it matches the question"],
  ["coverage", "it lies far in time from the frames before it"],
  ["diversity", "it looks unlike the frames before it"],
];

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
      parts.push(el("p", { class: "quiet" }, "Said while it is on: "), el("q", {}, result.said[place]));
    return parts;
  }

  return { root, show };
}

const partsOf = ({ ranks }, place) =>
  REASONS.map(([name, why], i) => {
    const [value, weight] = [ranks[name][place], ranks.weights[place][i]];
    return { name, why, value, weight, part: value * weight };
  });

const said = (result, { rank, seconds, place }) =>
  `${rankText(rank)} at ${clock(seconds)}. ${place === null ? "" : because(result, place)}`;

const percent = (share) => `${Math.round(share * 100)} %`;

/** What the residual rule multiplies: evidence, and the shares of it that no chosen frame shows. */
const factorsOf = ({ ranks, floor }, place) => [
  ["evidence", ranks.evidence[place] + floor, ` + ${floor}`],
  ["event not shown yet", 1 - ranks.same_event[place]],
  ["look not shown yet", 1 - ranks.same_look[place]],
];

function residualBecause({ ranks }, place) {
  const shown = 1 - (1 - ranks.same_event[place]) * (1 - ranks.same_look[place]);
  const by = ranks.shown_by[place];
  if (!by || shown < 0.005) return "Its evidence is not shown by any frame before it.";
  const how = ranks.same_look[place] > ranks.same_event[place] ? "looks the same" : "is near in time";
  return `${percent(1 - shown)} of its evidence is new; rank ${by}, which ${how}, shows the rest.`;
}

/** One sentence for people who do not want numbers. */
function because(result, place) {
  if (place === 0) return "First of all, because it has the most evidence.";
  if (result.rule === "residual") return residualBecause(result, place);
  const most = partsOf(result, place).reduce((a, b) => (b.part > a.part ? b : a));
  const unasked = most.name === "evidence" && !result.curves.some(({ name, weight }) => name === "relevance" && weight > 0);
  return `Mostly because ${unasked ? "much changes there and it is well visible" : most.why}.`;
}

function reasons(result, place) {
  const { ranks } = result;
  const evidence = result.curves
    .filter(({ weight }) => weight > 0)
    .map(({ name, weight, about }) => ({
      name,
      about,
      value: ranks[name][place],
      weight,
      part: ranks[name][place] * weight,
    }));
  return el(
    "div",
    {},
    el("p", { class: "because" }, because(result, place)),
    result.rule === "residual"
      ? product(ranks.utility[place], factorsOf(result, place))
      : bars("utility", ranks.utility[place], partsOf(result, place).slice(0, place === 0 ? 1 : 3)),
    bars("evidence", ranks.evidence[place], evidence),
  );
}

/** A sum as one bar of parts, and its parts as a table: value × weight = part. */
function bars(name, total, parts) {
  const bar = el(
    "div",
    { class: "bar", "aria-hidden": "true" },
    parts.map(({ name: part, part: width }) => {
      const piece = el("i", { class: part });
      piece.style.width = `${Math.max(0, width) * 100}%`;
      return piece;
    }),
  );
  const table = el(
    "table",
    {},
    el("caption", {}, term(name), el("b", {}, total.toFixed(3))),
    el(
      "tbody",
      {},
      parts.map((part) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, el("i", { class: part.name }), term(part.name, part.name, part.about)),
          el("td", {}, part.value.toFixed(3)),
          el("td", { class: "quiet" }, `× ${part.weight.toFixed(2)}`),
          el("td", {}, part.part.toFixed(3)),
        ),
      ),
    ),
  );
  return el("div", { class: "sum" }, table, bar);
}

/** A product as a table of its factors. */
const product = (total, factors) =>
  el(
    "div",
    { class: "sum" },
    el(
      "table",
      {},
      el("caption", {}, term("utility"), el("b", {}, total.toFixed(3))),
      el(
        "tbody",
        {},
        factors.map(([name, value, added = ""], i) =>
          el(
            "tr",
            {},
            el("th", { scope: "row" }, i ? "× " : "", term(name), added),
            el("td", {}, value.toFixed(3)),
          ),
        ),
      ),
    ),
  );
