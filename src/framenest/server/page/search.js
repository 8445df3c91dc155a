// Moments of all videos that match a query, as a grid that fills while the server searches.
import { call, Refused } from "./api.js";
import { rowsOf } from "./lists.js";
import { clock, el, plural } from "./view.js";

const PAUSE = 250; // milliseconds between looks at a search

/** The results in a section: show(search) draws them. index(videos and files) is called for what is not indexed yet. */
export function results(section, index) {
  const at = (id) => section.querySelector(`#${id}`);
  let rest = []; // what could be indexed
  at("index-rest").addEventListener("click", () => index(rest));
  const update = rowsOf(section.querySelector("ul"), (moment) => ({ root: el("li", {}, tile(moment)), update() {} }));
  return ({ id, query, searched, left_out: left, moments, summary, job }) => {
    const over = (job?.state ?? "done") === "done";
    const videos = new Set(moments.map(({ video }) => video)).size;
    const found = moments.length ? `${plural(moments.length, "moment")} in ${plural(videos, "video")}` : over ? "Nothing found" : "Searching";
    at("found-title").textContent = `${found} for “${query}”`;
    rest = left.filter(({ why }) => why === "not indexed yet").map(({ name, video }) => (video ? { id: video, name } : { path: name }));
    const others = left.filter(({ why }) => why !== "not indexed yet");
    const told = [
      over ? summary : "",
      `${searched} of ${plural(searched + left.length, "video")} searched`,
      rest.length ? `${rest.length} not indexed yet` : "",
      ...others.slice(0, 3).map(({ name, why }) => `${name}: ${why}`),
      others.length > 3 ? `${others.length - 3} more could not be searched` : "",
    ];
    at("searched").textContent = told.filter(Boolean).join("; ");
    at("index-rest").hidden = !rest.length;
    at("index-rest").textContent = rest.length === 1 ? "Index it and search again" : `Index all ${rest.length} and search again`;
    update(moments.map((moment) => [`${id} ${moment.video} ${moment.frame}`, { ...moment, query }]));
  };
}

/** A moment: a link to the ranking of its video for the query, opened there. */
function tile({ query, video, name, start, end, time, frame, source, confident, why, image }) {
  const span = [...new Set([clock(start, true), clock(end, true)])].join(" – ");
  const reason = `${source[0].toUpperCase()}${source.slice(1)}: ${why}`;
  const to = new URLSearchParams({ in: video, frame, time, why: reason, q: query });
  return el("a", { href: `#${to}` },
    el("span", { class: "shot" }, el("img", { src: `${image}?size=240`, alt: "", loading: "lazy", decoding: "async" }), el("time", {}, span)),
    el("span", { class: "name", title: name }, name),
    el("span", { class: "reason" }, el("b", {}, confident ? source : `weak, ${source}`), why));
}

/** Looks at a search until it is over; show(search) is called each time, and false ends it. */
export async function follow(search, show) {
  while (show(search) && ["queued", "running"].includes(search.job?.state)) {
    await new Promise((later) => setTimeout(later, PAUSE));
    search = await call("GET", `/searches/${search.id}`);
  }
  if (search.job?.state === "failed") throw new Refused(409, search.job.error);
}
