// The timeline: a strip of the video, one lane per result, what was looked at, the cues; all on one axis.
import { bandOf, clock, el, picture, plural, rankText, svg } from "./marks.js";
import { chosen } from "./budget.js";
import { drawAxis, scale, span } from "./axis.js";

const LANE = 70;
const HEIGHTS = [1, 0.8, 0.62, 0.47, 0.34, 0.24, 0.62]; // of a tick, by band: the earlier the rank, the taller
const CUES = ["evidence", "relevance", "change", "observability"];

export function timeline(view) {
  const seconds = span(view.data);
  const rows = el("div", { class: "rows" });
  const crosshair = el("div", { class: "crosshair", hidden: true });
  const card = el("div", { class: "card", hidden: true, "aria-hidden": "true" });
  const root = el("section", { class: "timeline panel", "aria-label": "Timeline" }, rows, crosshair, card);
  let at = scale(seconds, 100);
  let lanes = [];
  let nearest = null;

  function draw() {
    const narrow = root.clientWidth < 620;
    const width = Math.max(120, root.clientWidth - (narrow ? 24 : 24 + 134));
    at = scale(seconds, width);
    const current = view.data.rankings[view.state.current];
    lanes = view.data.rankings.map((result, i) => lane(view, result, i, at));
    rows.replaceChildren(
      row("video", strip(view, at, seconds)),
      ...lanes.map((made) => made.row),
      ...(current.kind === "ranking" ? [lookedAt(current, at), ...cues(view, current, at)] : [noCues(current)]),
      row("", drawAxis(seconds, at)),
    );
    root.classList.toggle("narrow", narrow);
    update();
  }

  function update() {
    for (const made of lanes) made.update();
    for (const dots of rows.querySelectorAll("[data-dots]")) markDots(view, dots, at);
    point(view.state.hovered ?? view.state.pinned);
  }

  /** Show a frame on all rows: the line through them, its ticks. */
  function point(mark) {
    for (const made of lanes) made.point(mark);
    crosshair.hidden = !mark;
    if (mark) crosshair.style.left = `${plotLeft() + at.x(mark.seconds)}px`;
  }

  const plotLeft = () => {
    const plot = rows.querySelector(".plot");
    return plot.getBoundingClientRect().left - root.getBoundingClientRect().left;
  };

  function find(event) {
    const x = event.clientX - root.getBoundingClientRect().left - plotLeft();
    if (x < -8 || x > at.width + 8) return null;
    const over = event.target.closest?.("[data-lane]");
    const index = over ? Number(over.dataset.lane) : view.state.current;
    let best = null;
    for (const mark of chosen(view.data.rankings[index], view.state.budget).frames) {
      const away = Math.abs(at.x(mark.seconds) - x) - (mark.rank === null ? 0 : 2 / mark.rank);
      if (best === null || away < best.away) best = { away, mark: { ...mark, result: index } };
    }
    return best && best.away < 24 ? best.mark : null;
  }

  rows.addEventListener("pointermove", (event) => {
    nearest = find(event);
    view.hover(nearest);
    showCard(nearest);
  });
  rows.addEventListener("pointerleave", () => {
    nearest = null;
    view.hover(null);
    showCard(null);
  });
  rows.addEventListener("click", (event) => {
    const mark = find(event);
    if (mark && !event.target.closest("button")) view.pin(mark, { reveal: true });
  });

  function showCard(mark) {
    card.hidden = !mark;
    if (!mark) return;
    const label = `${rankText(mark.rank)} · ${clock(mark.seconds)}`;
    card.replaceChildren(picture(view, mark.frame, "small", ""), el("span", {}, label));
    const x = plotLeft() + at.x(mark.seconds);
    const half = card.offsetWidth / 2;
    card.style.left = `${Math.min(Math.max(x, half + 4), root.clientWidth - half - 4)}px`;
    card.style.top = `${lanes[mark.result].row.offsetTop + LANE + 26}px`;
  }

  new ResizeObserver(draw).observe(root);
  return { root, draw, update, point };
}

function row(name, plot, note = null, more = {}) {
  const title = typeof name === "string" ? el("span", { class: "name" }, name, note && el("small", {}, note)) : name;
  return el("div", { class: "row", ...more }, title, el("div", { class: "plot" }, plot));
}

/** Pictures over time, from the frames that the page has: what happens where. */
function strip(view, at, [from, to]) {
  const known = new Map();
  for (const result of view.data.rankings) {
    const lists = result.kind === "ranking" ? [result.ranks] : Object.values(result.budgets);
    for (const list of lists) list.frames.forEach((frame, i) => known.set(frame, list.seconds[i]));
  }
  const wide = Math.max(4, Math.min(16, Math.round(at.width / 66)));
  const film = el("div", { class: "film", "aria-hidden": "true" });
  for (let i = 0; i < wide; i++) {
    const middle = from + ((i + 0.5) / wide) * (to - from);
    let best = null;
    for (const [frame, seconds] of known) {
      if (best === null || Math.abs(seconds - middle) < Math.abs(known.get(best) - middle)) best = frame;
    }
    if (best !== null) film.append(picture(view, best, "small", ""));
  }
  return film;
}

function lane(view, result, index, at) {
  const picture = svg("svg", { width: at.width, height: LANE, role: "img", class: "lane" });
  for (const [start, end] of result.active ?? []) {
    const x = at.x(start);
    picture.append(svg("rect", { class: "active", x, y: 0, width: Math.max(1, at.x(end) - x), height: LANE }));
  }
  const ghosts = svg("g", { class: "ghosts" });
  const ticks = svg("g", { class: "ticks" });
  const pointer = svg("g", { class: "pointer" });
  picture.append(svg("line", { class: "ground", x1: 0, x2: at.width, y1: LANE - 0.5, y2: LANE - 0.5 }), ghosts, ticks, pointer);
  const several = view.data.rankings.length > 1;
  const name = several
    ? el("button", { type: "button", class: "name", title: result.label, onclick: () => view.look(index) }, result.label)
    : el("span", { class: "name" }, "ranks", el("small", {}, "shaded: active segments"));
  const made = row(name, picture, null, { "data-lane": index, class: several ? "row several" : "row" });

  function tick(mark, extra = "") {
    const band = bandOf(mark.rank);
    const high = HEIGHTS[band] * (LANE - 8);
    const x = at.x(mark.seconds);
    return svg("line", { class: `tick band${band} ${extra}`, x1: x, x2: x, y1: LANE - high, y2: LANE });
  }

  return {
    row: made,
    update() {
      const now = chosen(result, view.state.budget);
      // Drawn from the last rank to the first, so that the first are on top.
      const order = [...now.frames].sort((a, b) => (b.rank ?? 0) - (a.rank ?? 0));
      ticks.replaceChildren(...order.map((mark) => tick(mark, mark.added ? "added" : "kept")));
      ghosts.replaceChildren(...now.dropped.map((mark) => tick({ ...mark, rank: null }, "dropped")));
      picture.setAttribute("aria-label", `${plural(now.frames.length, "frame")} over time: ${now.frames.slice(0, 32).map((m) => clock(m.seconds)).join(", ")}`);
      if (several) name.setAttribute("aria-pressed", String(index === view.state.current));
      made.classList.toggle("current", several && index === view.state.current);
    },
    point(mark) {
      const here = mark && chosen(result, view.state.budget).frames.find((m) => m.frame === mark.frame);
      pointer.replaceChildren(...(here ? [tick(here, "pointed")] : []));
    },
  };
}

function lookedAt(result, at) {
  const { pool, stats } = result;
  const picture = svg("svg", { width: at.width, height: 24, role: "img", class: "looked",
    "aria-label": `${plural(stats.probes, "probe")} and ${plural(stats.zoom, "zoom frame")} over time` });
  pool.seconds.forEach((seconds, i) => {
    const x = at.x(seconds);
    const zoom = pool.zoom[i];
    picture.append(svg("line", { class: zoom ? "zoom" : "probe", x1: x, x2: x, y1: zoom ? 12 : 3, y2: zoom ? 21 : 10 }));
  });
  return row("looked at", picture, "probes, below zoom frames");
}

function cues(view, result, at) {
  const { pool, cue_weights: weights } = result;
  return CUES.filter((cue) => cue === "evidence" || weights[cue] > 0).map((cue) => {
    const height = cue === "evidence" ? 54 : 36;
    const top = Math.max(...pool[cue], 1e-9);
    const y = (value) => height - 2 - (value / top) * (height - 6);
    const points = pool.seconds.map((seconds, i) => `${at.x(seconds).toFixed(1)},${y(pool[cue][i]).toFixed(1)}`);
    const first = at.x(pool.seconds[0]).toFixed(1);
    const last = at.x(pool.seconds[pool.seconds.length - 1]).toFixed(1);
    const picture = svg("svg", { width: at.width, height, role: "img", class: `cue ${cue}`,
      "aria-label": `${cue} over time, at most ${top.toFixed(2)}` },
      svg("path", { class: "area", d: `M${first},${height} L${points.join(" L")} L${last},${height} Z` }),
      svg("path", { class: "curve", d: `M${points.join(" L")}` }));
    if (cue === "evidence") picture.append(svg("g", { "data-dots": "", "data-top": top, "data-height": height }));
    const share = cue === "evidence" ? "" : `weighs ${weights[cue]}, `;
    return row(cue, picture, `${share}up to ${top.toFixed(2)}`);
  });
}

/** The chosen frames on the evidence curve. */
function markDots(view, group, at) {
  const result = view.data.rankings[view.state.current];
  const top = Number(group.dataset.top);
  const height = Number(group.dataset.height);
  const marks = chosen(result, view.state.budget).frames;
  group.replaceChildren(...[...marks].reverse().map((mark) => svg("circle", {
    class: `dot band${bandOf(mark.rank)}`, r: mark.rank <= 32 ? 3 : 2,
    cx: at.x(mark.seconds), cy: height - 2 - (result.ranks.evidence[mark.place] / top) * (height - 6),
  })));
}

function noCues(result) {
  return row("cues", el("p", { class: "quiet" }, `A selection file holds the frames that ${result.selector} chose, not its scores.`));
}
