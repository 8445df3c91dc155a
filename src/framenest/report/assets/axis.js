// The time axis that all rows share.
import { clock, svg } from "./marks.js";

const STRIDES = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400];

/** The seconds that the page shows: all of the video, or the part that every result looked at. */
export function span(data) {
  const ends = data.rankings.map((r) => {
    if (r.kind !== "ranking" || !r.pool.seconds.length || !r.window) return [0, data.video.duration];
    return r.window;
  });
  const from = Math.min(...ends.map((e) => e[0]));
  const to = Math.max(...ends.map((e) => e[1]));
  return [from, to > from ? to : from + 1];
}

/** Seconds to pixels and back, with a little room at both ends. */
export function scale([from, to], width) {
  const room = 6;
  const inner = Math.max(1, width - 2 * room);
  return {
    width,
    x: (seconds) => room + ((seconds - from) / (to - from)) * inner,
    seconds: (x) => from + (Math.min(Math.max(x - room, 0), inner) / inner) * (to - from),
  };
}

/** The labelled axis as a picture. */
export function drawAxis([from, to], at) {
  const wanted = Math.max(2, Math.floor(at.width / 90));
  const longest = STRIDES[STRIDES.length - 1];
  const stride =
    STRIDES.find((s) => (to - from) / s <= wanted) ?? longest * Math.ceil((to - from) / wanted / longest);
  const first = Math.ceil(from / stride - 1e-9);
  const axis = svg("svg", { width: at.width, height: 22, "aria-hidden": "true", class: "axis" });
  // At most as many as fit: of far times, t + stride may equal t.
  for (let tick = 0; tick <= wanted && (first + tick) * stride <= to + 1e-9; tick++) {
    const t = (first + tick) * stride;
    const x = at.x(t);
    axis.append(svg("line", { x1: x, x2: x, y1: 0, y2: 5 }));
    const anchor = x < 20 ? "start" : x > at.width - 24 ? "end" : "middle";
    axis.append(
      svg(
        "text",
        { x: anchor === "start" ? 2 : anchor === "end" ? at.width - 2 : x, y: 17, "text-anchor": anchor },
        clock(t, stride >= 1),
      ),
    );
  }
  return axis;
}
