// The head of the page, how the rankings were made, and all ranks as a table.
import { clock, count, el, plural } from "./marks.js";
import { STAGES, term } from "./terms.js";

export function head(data) {
  const { video, rankings } = data;
  const asked = [...new Set(rankings.map((r) => r.question))];
  const title = asked.length > 1 ? `${asked.length} questions` : (asked[0] ?? "Without a question");
  const options = asked.length === 1 ? (rankings[0].options ?? []) : [];
  const facts = [el("b", {}, video.name), el("span", {}, clock(video.duration))];
  if (rankings.length > 1) facts.push(el("span", {}, `${rankings.length} results on one time axis`));
  for (const { label, stats } of rankings) {
    const whose = rankings.length > 1 ? `${label}: ` : "";
    if (stats.match) facts.push(el("span", {}, whose, term("match"), ` ${stats.match.text}`));
  }
  return el(
    "header",
    { class: "head" },
    el("h1", { dir: "auto", class: title.length > 140 ? "long" : null }, title),
    options.length
      ? el(
          "ol",
          { class: "options", type: "A" },
          options.map((option) => el("li", {}, option)),
        )
      : null,
    el("p", { class: "facts" }, facts),
  );
}

const some = (n, name) => [`${count(n)} `, term(name, n === 1 ? name : `${name}s`)];
const lookedAtText = ({ probes, zoom }) => [some(probes, "probe"), " + ", some(zoom, "zoom frame")];

function presetText(result) {
  const changed = Object.entries(result.changed).map(([name, value]) => `${name} ${value}`);
  return [result.preset, ...changed].join(", ");
}

/** How each result was made: what was looked at, what not, where the seconds went. */
export function making(data) {
  const { num_frames, fps, constant_rate, width, height, codec } = data.video;
  const rate = `${Number(fps.toPrecision(4))} fps${constant_rate ? "" : " on average"}`;
  return el(
    "section",
    { class: "making", "aria-label": "How it was made" },
    el("h2", {}, "How it was made"),
    el("p", { class: "quiet" }, `The video: ${plural(num_frames, "frame")}, ${rate}, ${width}×${height}, ${codec}.`),
    el(
      "div",
      { class: "cards" },
      data.rankings.map((result) => oneMaking(result, data)),
    ),
  );
}

function oneMaking(result, data) {
  const { stats } = result;
  const rows = [
    ["selector", result.selector],
    ["scorer", result.scorer],
  ];
  if (result.kind === "ranking") {
    rows.push(["preset", presetText(result)]);
    if (result.look_for?.length) rows.push(["look for", result.look_for.join("; ")]);
    if (stats.match) rows.push(["match", stats.match.text]);
    rows.push([
      "looked at",
      [lookedAtText(stats), stats.decoded ? `, ${count(stats.decoded)} decoded for it` : ", all known before"],
    ]);
    rows.push(["not seen", `up to ${stats.largest_gap_seconds.toFixed(2)} s between two probes`]);
    rows.push(["ranks", plural(result.ranks.frames.length, "frame")]);
  } else {
    rows.push(["budgets", Object.keys(result.budgets).join(", ")]);
    if (stats.candidates) rows.push(["looked at", plural(stats.candidates, "frame")]);
  }
  if (result.question !== null && data.rankings.length > 1) rows.unshift(["question", result.question]);
  if (stats.substitutes) rows.push(["note", `${plural(stats.substitutes, "frame")} would not decode`]);
  for (const note of data.video.notes) rows.push(["note", note]);
  return el(
    "div",
    { class: "card-of" },
    data.rankings.length > 1 ? el("h3", {}, result.label) : null,
    el(
      "dl",
      {},
      rows.map(([name, value]) => [el("dt", {}, term(name)), el("dd", {}, value)]),
    ),
    timings(stats),
  );
}

function timings(stats) {
  const stages = Object.entries(stats.seconds ?? {}).filter(([, value]) => value >= 0.005);
  if (!stages.length)
    return stats.wall_seconds === undefined
      ? null
      : el("p", { class: "quiet" }, `${stats.wall_seconds.toFixed(2)} s in all`);
  const most = Math.max(...stages.map(([, value]) => value));
  return el(
    "table",
    { class: "timings" },
    el("caption", {}, "Seconds by stage"),
    el(
      "tbody",
      {},
      stages.map(([stage, value]) => {
        const bar = el("i");
        bar.style.width = `${(value / most) * 100}%`;
        return el(
          "tr",
          {},
          el("th", { scope: "row" }, term(stage, stage, STAGES[stage])),
          el("td", { class: "spent", "aria-hidden": "true" }, bar),
          el("td", {}, value.toFixed(2)),
        );
      }),
    ),
  );
}

/** Every frame of the budget as a row; drawn when opened. */
export function table(view) {
  const body = el("div", {
    class: "scroll",
    tabindex: "0",
    role: "region",
    "aria-label": "All frames of this budget",
  });
  const root = el(
    "details",
    { class: "numbers", ontoggle: () => update() },
    el("summary", {}, "The numbers"),
    body,
  );
  function update() {
    if (!root.open) return;
    body.replaceChildren(
      ...view.data.rankings.map((result) =>
        tableOf(result, view.chosen(result), view.data.rankings.length > 1),
      ),
    );
  }
  return { root, update };
}

function tableOf(result, at, several) {
  const ranked = result.kind === "ranking";
  const marks = ranked ? [...at.frames].sort((a, b) => a.rank - b.rank) : at.frames;
  const known = ranked ? [...result.curves, ...result.rule.terms] : [];
  const columns = known.filter(({ name }) => result.ranks[name]);
  const about = (title) => known.find(({ name }) => name === title)?.about;
  const titles = ["rank", "time", "frame", ...(ranked ? ["from", "role", "reason", ...columns.map(({ name }) => name)] : [])];
  return el(
    "table",
    {},
    several ? el("caption", {}, result.label) : null,
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        titles.map((title) => el("th", { scope: "col" }, term(title === "rank" ? "ranks" : title, title, about(title)))),
      ),
    ),
    el(
      "tbody",
      {},
      marks.map((mark) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, mark.rank === null ? "–" : String(mark.rank)),
          el("td", {}, clock(mark.seconds)),
          el("td", {}, String(mark.frame)),
          ranked
            ? [
                el("td", {}, result.ranks.zoom[mark.place] ? "zoom" : "probe"),
                el("td", {}, result.roles[mark.place]),
                el("td", { class: "text" }, result.reasons[mark.place]),
                columns.map(({ name, is_rank }) =>
                  el("td", {}, result.ranks[name][mark.place].toFixed(is_rank ? 0 : 3)),
                ),
              ]
            : null,
        ),
      ),
    ),
  );
}
