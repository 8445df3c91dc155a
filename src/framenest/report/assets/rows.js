// The rows of the timeline: a strip of the video, one lane per result, what was looked at, the cues.
import { bandOf, clock, el, picture, plural, svg } from "./marks.js";
import { term } from "./terms.js";

export const LANE = 70;
const HEIGHTS = [1, 0.8, 0.62, 0.47, 0.34, 0.24, 0.62]; // of a tick, by band: the earlier the rank, the taller

export function row(name, plot, note = null, more = {}) {
  const title =
    typeof name === "string"
      ? el("span", { class: "name" }, term(name), note && el("small", {}, note))
      : name;
  return el("div", { class: "row", ...more }, title, el("div", { class: "plot" }, plot));
}

/** Pictures over time, from the frames that the page has: what happens where. */
export function strip(view, at, [from, to]) {
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

export function lane(view, result, index, at) {
  const picture = svg("svg", { width: at.width, height: LANE, role: "img", class: "lane" });
  for (const [start, end] of result.active ?? []) {
    const x = at.x(start);
    picture.append(
      svg("rect", { class: "active", x, y: 0, width: Math.max(1, at.x(end) - x), height: LANE }),
    );
  }
  const ghosts = svg("g", { class: "ghosts" });
  const ticks = svg("g", { class: "ticks" });
  const pointer = svg("g", { class: "pointer" });
  picture.append(
    svg("line", { class: "ground", x1: 0, x2: at.width, y1: LANE - 0.5, y2: LANE - 0.5 }),
    ghosts,
    ticks,
    pointer,
  );
  const several = view.data.rankings.length > 1;
  const name = several
    ? el(
        "button",
        { type: "button", class: "name", title: result.label, onclick: () => view.look(index) },
        result.label,
      )
    : el(
        "span",
        { class: "name" },
        term("ranks"),
        el("small", {}, "shaded: ", term("active segments")),
      );
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
      const now = view.chosen(result);
      // Drawn from the last rank to the first, so that the first are on top.
      const order = [...now.frames].sort((a, b) => (b.rank ?? 0) - (a.rank ?? 0));
      ticks.replaceChildren(...order.map((mark) => tick(mark, mark.added ? "added" : "kept")));
      ghosts.replaceChildren(...now.dropped.map((mark) => tick({ ...mark, rank: null }, "dropped")));
      picture.setAttribute(
        "aria-label",
        `${plural(now.frames.length, "frame")} over time: ${now.frames
          .slice(0, 32)
          .map((m) => clock(m.seconds))
          .join(", ")}`,
      );
      if (several) name.setAttribute("aria-pressed", String(index === view.state.current));
      made.classList.toggle("current", several && index === view.state.current);
    },
    point(mark) {
      const here = mark && view.chosen(result).frames.find((m) => m.frame === mark.frame);
      pointer.replaceChildren(...(here ? [tick(here, "pointed")] : []));
    },
  };
}

export function lookedAt(result, at) {
  const { pool, stats } = result;
  const picture = svg("svg", {
    width: at.width,
    height: 24,
    role: "img",
    class: "looked",
    "aria-label": `${plural(stats.probes, "probe")} and ${plural(stats.zoom, "zoom frame")} over time`,
  });
  pool.seconds.forEach((seconds, i) => {
    const x = at.x(seconds);
    const zoom = pool.zoom[i];
    picture.append(
      svg("line", { class: zoom ? "zoom" : "probe", x1: x, x2: x, y1: zoom ? 12 : 3, y2: zoom ? 21 : 10 }),
    );
  });
  return row("looked at", picture, [term("probe", "probes"), ", ", term("zoom frame", "zoom frames")]);
}

/** A row for each curve of the document; those that the settings give no weight are left out. */
export function curves(result, at) {
  const { pool } = result;
  return result.curves.filter(({ weight }) => weight !== 0).map(({ name, weight, values, about }) => {
    const main = name === "evidence"; // it has the chosen frames on it
    const height = main ? 54 : 36;
    const top = Math.max(...values, 1e-9);
    const y = (value) => height - 2 - (value / top) * (height - 6);
    const points = pool.seconds.map((seconds, i) => `${at.x(seconds).toFixed(1)},${y(values[i]).toFixed(1)}`);
    const first = at.x(pool.seconds[0]).toFixed(1);
    const last = at.x(pool.seconds[pool.seconds.length - 1]).toFixed(1);
    const picture = svg(
      "svg",
      {
        width: at.width,
        height,
        role: "img",
        class: `cue ${name}`,
        "aria-label": `${name} over time, at most ${top.toFixed(2)}`,
      },
      svg("path", { class: "area", d: `M${first},${height} L${points.join(" L")} L${last},${height} Z` }),
      svg("path", { class: "curve", d: `M${points.join(" L")}` }),
    );
    if (main) picture.append(svg("g", { "data-dots": "", "data-top": top, "data-height": height }));
    const share = weight === null ? "" : `× ${weight}, `;
    const title = el(
      "span",
      { class: "name" },
      term(name, name, about),
      el("small", {}, `${share}max ${top.toFixed(2)}`),
    );
    return row(title, picture);
  });
}

/** The chosen frames on the evidence curve. */
export function markDots(view, group, at) {
  const result = view.data.rankings[view.state.current];
  const top = Number(group.dataset.top);
  const height = Number(group.dataset.height);
  const marks = view.chosen(result).frames;
  group.replaceChildren(
    ...[...marks].reverse().map((mark) =>
      svg("circle", {
        class: `dot band${bandOf(mark.rank)}`,
        r: mark.rank <= 32 ? 3 : 2,
        cx: at.x(mark.seconds),
        cy: height - 2 - (result.ranks.evidence[mark.place] / top) * (height - 6),
      }),
    ),
  );
}

export function noCues(result) {
  return row(
    "cues",
    el(
      "p",
      { class: "quiet" },
      `A selection file holds the frames that ${result.selector} chose, not its scores.`,
    ),
  );
}
