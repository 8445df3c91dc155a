// The timeline: rows on one axis, with pointing and zooming.
import { clock, el, picture, rankText } from "./marks.js";
import { drawAxis, scale, span } from "./axis.js";
import { LANE, curves, lane, lookedAt, markDots, noCues, row, strip } from "./rows.js";

const NAMES = 134; // width of the names' column in pixels, as in timeline.css
const FAR = 24; // pixels from a mark at which the pointer still means it
const DRAG = 8; // pixels from which on a press is a drag

export function timeline(view) {
  const whole = span(view.data);
  const rows = el("div", { class: "rows" });
  const crosshair = el("div", { class: "crosshair", hidden: true });
  const brush = el("div", { class: "brush", hidden: true });
  const card = el("div", { class: "card", hidden: true, "aria-hidden": "true" });
  const root = el(
    "section",
    { class: "timeline", "aria-label": "Timeline" },
    rows,
    crosshair,
    brush,
    card,
  );
  let seconds = whole; // the part that is shown
  let at = scale(seconds, 100);
  let lanes = [];
  let pressed = null; // where a drag began
  let dragged = false;

  /** wide: pixels of the whole, if not what the page gives it. */
  function draw(wide = root.clientWidth) {
    const narrow = wide < 620;
    at = scale(seconds, Math.max(120, wide - (narrow ? 24 : 24 + NAMES)));
    const current = view.data.rankings[view.state.current];
    lanes = view.data.rankings.map((result, i) => lane(view, result, i, at));
    rows.replaceChildren(
      row("video", strip(view, at, seconds)),
      ...lanes.map((made) => made.row),
      ...(current.kind === "ranking"
        ? [lookedAt(current, at), ...curves(current, at)]
        : [noCues(current)]),
      row(zoomButtons(), drawAxis(seconds, at)),
    );
    root.classList.toggle("narrow", narrow);
    root.classList.toggle("zoomed", seconds !== whole);
    update();
  }

  function update() {
    for (const made of lanes) made.update();
    for (const dots of rows.querySelectorAll("[data-dots]")) markDots(view, dots, at);
    point(view.state.hovered ?? view.state.open);
  }

  /** Show a frame on all rows: the line through them, its ticks. */
  function point(mark) {
    for (const made of lanes) made.point(mark);
    crosshair.hidden = !mark || mark.seconds < seconds[0] || mark.seconds > seconds[1];
    if (mark) crosshair.style.left = `${plotLeft() + at.x(mark.seconds)}px`;
  }

  const plotLeft = () =>
    rows.querySelector(".plot").getBoundingClientRect().left - root.getBoundingClientRect().left;
  const xOf = (event) => event.clientX - root.getBoundingClientRect().left - plotLeft();

  function find(event) {
    const x = xOf(event);
    if (x < -8 || x > at.width + 8) return null;
    const over = event.target.closest?.("[data-lane]");
    const index = over ? Number(over.dataset.lane) : view.state.current;
    let best = null;
    for (const mark of view.chosen(view.data.rankings[index]).frames) {
      const away = Math.abs(at.x(mark.seconds) - x);
      if (best === null || away < best.away) best = { away, mark: { ...mark, result: index } };
    }
    return best && best.away < FAR ? best.mark : null;
  }

  function zoomTo(from, to) {
    const least = Math.min(whole[1] - whole[0], Math.max(0.5, (whole[1] - whole[0]) / 2000));
    const wide = Math.max(to - from, least);
    const start = Math.min(Math.max(from, whole[0]), whole[1] - wide);
    seconds = wide >= whole[1] - whole[0] ? whole : [start, start + wide];
    draw();
  }

  /** By a factor, around the middle. */
  function zoomBy(factor) {
    const middle = (seconds[0] + seconds[1]) / 2;
    const half = ((seconds[1] - seconds[0]) * factor) / 2;
    zoomTo(middle - half, middle + half);
    rows.querySelector(factor < 1 ? ".zoom-in" : ".zoom-out").focus();
  }

  function zoomButtons() {
    const out = el(
      "button",
      {
        type: "button",
        class: "zoom-out",
        "aria-label": "Zoom out",
        "aria-disabled": String(seconds === whole),
        onclick: () => zoomBy(4),
      },
      "−",
    );
    const into = el(
      "button",
      { type: "button", class: "zoom-in", "aria-label": "Zoom in", onclick: () => zoomBy(1 / 4) },
      "+",
    );
    return el(
      "div",
      { class: "name zooms", role: "group", "aria-label": "Zoom" },
      out,
      into,
      el("small", {}, "or drag"),
    );
  }

  rows.addEventListener("pointerdown", (event) => {
    dragged = false;
    const drags = event.button === 0 && event.pointerType !== "touch" && !event.target.closest("button");
    pressed = drags && xOf(event) >= 0 ? xOf(event) : null;
  });
  rows.addEventListener("pointermove", (event) => {
    if (pressed !== null && event.buttons) {
      dragged ||= Math.abs(xOf(event) - pressed) > DRAG;
      if (dragged) return drawBrush(xOf(event));
    }
    const mark = event.target.closest("button") ? null : find(event);
    view.hover(mark);
    showCard(mark);
  });
  rows.addEventListener("pointerup", (event) => {
    if (dragged) zoomTo(...[at.seconds(pressed), at.seconds(xOf(event))].sort((a, b) => a - b));
    pressed = null;
    brush.hidden = true;
  });
  rows.addEventListener("pointerleave", () => {
    pressed = null;
    brush.hidden = true;
    view.hover(null);
    showCard(null);
  });
  rows.addEventListener("dblclick", (event) => event.target.closest("button") ?? zoomTo(...whole));
  rows.addEventListener("click", (event) => {
    const mark = dragged ? null : find(event);
    if (mark && !event.target.closest("button")) view.open(mark);
  });

  function drawBrush(x) {
    const [from, to] = [pressed, Math.min(Math.max(x, 0), at.width)].sort((a, b) => a - b);
    brush.hidden = false;
    brush.style.left = `${plotLeft() + from}px`;
    brush.style.width = `${to - from}px`;
    showCard(null);
  }

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

  new ResizeObserver(() => view.state.paper || draw()).observe(root);
  return { root, draw, update, point };
}
