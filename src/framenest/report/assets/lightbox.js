// A frame, large, in a dialog, and why it was chosen: its evidence, and the terms of the rule that ranked it.
import { bandOf, clock, el, picture, rankText, reasonOf } from "./marks.js";
import { term } from "./terms.js";

/** {root, show(mark)}: shows a chosen frame, or closes for null. Arrow keys go on in time order. */
export function lightbox(view) {
  const stage = el("div", { class: "stage" });
  const body = el("div", { class: "because-of" });
  const spoken = el("p", { class: "spoken", role: "status" });
  const turn = (name, sign, by) =>
    el("button", { type: "button", class: `turn ${name}`, "aria-label": `${name} frame`, onclick: () => go(by) }, sign);
  const [back, next] = [turn("previous", "‹", -1), turn("next", "›", 1)];
  const close = el("button", { type: "button", class: "shut", "aria-label": "Close", onclick: () => root.close() }, "×");
  const root = el(
    "dialog",
    {
      class: "lightbox",
      "aria-label": "Frame",
      onclick: (event) => event.target === root && root.close(),
      onclose: () => view.open(null),
      onkeydown: keyed,
    },
    el("div", {}, el("div", { class: "picture" }, stage, back, next), body, spoken, close),
  );
  let shown = null;

  const marks = () => view.chosen(view.data.rankings[shown.result]).frames;
  const place = () => marks().findIndex(({ frame }) => frame === shown.frame);
  function go(by) {
    const mark = marks()[Math.min(Math.max(0, place() + by), marks().length - 1)];
    view.open({ ...mark, result: shown.result });
  }

  function keyed(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    go(by);
  }

  function show(mark) {
    if (!mark) return root.close();
    if (root.open && shown?.frame === mark.frame && shown.result === mark.result) return;
    shown = mark;
    const large = picture(view, mark.frame, "full", `The frame at ${clock(mark.seconds)}`);
    const known = view.image(mark.frame, "large"); // stands in until the larger one has arrived
    if (known) large.style.backgroundImage = `url("${known}")`;
    stage.replaceChildren(large);
    body.replaceChildren(...content(mark));
    body.scrollTop = 0;
    // Disabled buttons would lose the focus, and with it the arrow keys.
    back.setAttribute("aria-disabled", String(place() === 0));
    next.setAttribute("aria-disabled", String(place() === marks().length - 1));
    if (!root.open) root.showModal();
    spoken.textContent = said(view.data.rankings[mark.result], mark);
  }

  function content(mark) {
    const result = view.data.rankings[mark.result];
    const { place: at } = mark;
    const from = at === null ? [] : [" · ", term(result.ranks.zoom[at] ? "zoom frame" : "probe")];
    const outside = place() < 0; // a frame that a search found and the budget lacks
    const badge = el("b", { class: `badge band${bandOf(mark.rank)}` }, mark.rank !== null ? `#${mark.rank}` : outside ? "found" : "chosen");
    const where = outside ? `not one of the ${marks().length} frames` : `${place() + 1} of ${marks().length} in time order`;
    const because = mark.why ?? reasonOf(result, at);
    return [
      el("h2", {}, badge, clock(mark.seconds)),
      el("p", { class: "quiet" }, `${where} · frame ${mark.frame}`, from),
      because ? el("p", { class: "because" }, because) : "",
      view.play ? el("button", { type: "button", class: "play", onclick: () => view.play(mark) }, "▶ Play from here") : "",
      at !== null ? reasons(result, at) : outside ? "" : el("p", { class: "quiet" }, `${result.selector} says no more about it.`),
      ...(at !== null && result.said?.[at]
        ? [el("p", { class: "quiet" }, "Said at this time: "), el("q", {}, result.said[at])]
        : []),
    ];
  }

  return { root, show };
}

const said = (result, { rank, seconds, place }) =>
  `${rankText(rank)} at ${clock(seconds)}. ${reasonOf(result, place)}`;

/** What makes up the utility of a rank, and its evidence. */
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
