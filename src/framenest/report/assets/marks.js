// What every part of the view uses: elements without markup strings, times, numbers, the colours of ranks.

export const STEPS = [8, 16, 32, 64, 128, 256];

/** The band of a rank: 0 for 1–8, 1 for 9–16, 2 for 17–32, … at most 5; 6 where there are no ranks. */
export function bandOf(rank) {
  if (rank === null) return 6;
  const band = STEPS.findIndex((step) => rank <= step);
  return band < 0 ? 5 : band;
}

export function bandName(band, length) {
  const from = band === 0 ? 1 : STEPS[band - 1] + 1;
  const to = band === 5 ? length : Math.min(STEPS[band], length);
  return from === to ? `${from}` : `${from}–${to}`;
}

/** 83.25 → "1:23.2"; 83.26 → "1:23.3"; 3683.5 → "1:01:23.5"; whole: without tenths.
 * Rounded to the tenth that models are told, as Python does: toFixed alone would round a quarter up. */
export function clock(seconds, whole = false) {
  const tenths = Math.round(seconds.toFixed(1) * 10) - (seconds % 1 === 0.25 ? 1 : 0);
  const rest = tenths % 600;
  const minutes = Math.floor(tenths / 600);
  const two = (n) => String(n).padStart(2, "0");
  const tail = two(Math.floor(rest / 10)) + (whole ? "" : `.${rest % 10}`);
  const hours = Math.floor(minutes / 60);
  return hours ? `${hours}:${two(minutes % 60)}:${tail}` : `${minutes}:${tail}`;
}

export const count = (n) => n.toLocaleString("en-US");
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** An element. Text becomes text nodes, never markup; on… are listeners, others attributes. */
export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** An SVG element; a whole picture keeps its proportions where paper makes it smaller. */
export function svg(name, attributes = {}, ...children) {
  const viewBox = name === "svg" ? `0 0 ${attributes.width} ${attributes.height}` : null;
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), { viewBox, ...attributes }, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(key, value === true ? "" : value);
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** A picture of a frame, or an empty box of its shape where there is none. */
export function picture(view, frame, size, alt) {
  const { width, height } = view.data.video;
  const url = view.image(frame, size);
  return url
    ? el("img", { src: url, alt, width, height, loading: "lazy", decoding: "async", draggable: "false" })
    : el("span", { class: "no-picture", role: "img", "aria-label": alt });
}

export const rankText = (rank) => (rank === null ? "chosen" : `rank ${rank}`);

/** Why a frame was chosen: its role, and what made its relevance or what it adds. */
export function reasonOf({ question, roles, reasons }, place) {
  if (place === null) return "";
  return question === null ? reasons[place] : `${roles[place]}: ${reasons[place]}`;
}
