// Lists that change while people look at them: the queue, and the videos with their earlier questions.
import { call, progressOf } from "./api.js";
import { clock, el, plural } from "./view.js";

/** Updates the rows of a list in place, so that focus and what is open stay. */
export function rowsOf(list, make) {
  const rows = new Map(); // key → {root, update(item)}
  return (items) => {
    const wanted = new Set(items.map(([key]) => key));
    for (const [key, { root }] of rows) {
      if (wanted.has(key)) continue;
      root.remove();
      rows.delete(key);
    }
    items.forEach(([key, item], place) => {
      if (!rows.has(key)) rows.set(key, make(item));
      const row = rows.get(key);
      row.update(item);
      if (list.children[place] !== row.root) list.insertBefore(row.root, list.children[place] ?? null);
    });
  };
}

const button = (text, onclick, more = {}) => el("button", { type: "button", class: "small", onclick, ...more }, text);

/** Text that is set only when it changes, so that screen readers do not say it again. */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The queue: show(jobs, nameOf) draws it; `cancel(job)` is called when a person wants a job gone. */
export function queue(section, cancel) {
  const gone = new Set(); // cancelled here; not shown again while the server still lists it
  const update = rowsOf(section.querySelector("ul"), ([first]) => {
    let job = first;
    const what = el("b");
    const doing = el("span", { class: "doing" });
    const bar = el("progress", { max: 1, "aria-label": "Progress" });
    const stop = button("Cancel", () => {
      gone.add(job.id);
      root.remove();
      cancel(job);
    });
    const root = el("li", {}, el("div", { class: "what" }, what, doing), bar, stop);
    return {
      root,
      update([now, name]) {
        job = now;
        const { text, share } = progressOf(job);
        write(what, job.kind === "index" ? `Index ${name}` : (job.question ?? "Without a question"));
        const where = { index: "", search: "all videos: " }[job.kind] ?? `${name}: `;
        write(doing, `${where}${job.waits_for ? "waiting for the index of its video" : text}`);
        bar.hidden = job.state === "queued";
        if (share === null) bar.removeAttribute("value");
        else bar.value = share;
        stop.setAttribute("aria-label", `Cancel: ${what.textContent}`);
      },
    };
  });
  return (jobs, nameOf) => {
    const shown = jobs.filter((job) => !gone.has(job.id));
    section.hidden = shown.length === 0;
    update(shown.map((job) => [job.id, [job, nameOf(job.video)]]));
  };
}

/** The files of the folder that can be registered: new ones, and those that have changed since they were. */
export function unregistered(files, videos) {
  const current = videos.filter((video) => video.origin === "folder" && video.state !== "gone");
  const known = new Set(current.map((video) => video.name));
  return files.filter((file) => !known.has(file.path));
}

const STATES = {
  new: "not indexed",
  queued: "waiting",
  indexing: "indexing",
  ready: "ready",
  failed: "failed",
  gone: "file changed or missing",
};

/**
 * The videos: show(videos, files, jobs) draws them. on: {choose(video or file), index(video or file),
 * indexAll(videos and files), remove(video)}, each may be a promise.
 */
export function library(details, on) {
  const update = rowsOf(details.querySelector("ul"), (item) => (item.path ? fileRow(item, on) : videoRow(item.video, on)));
  const [filter, all] = [details.querySelector("#filter"), details.querySelector("#index-all")];
  let waiting = []; // what "index all" would index
  let last = [[], [], []];
  filter.addEventListener("input", () => show(...last));
  all.addEventListener("click", () => on.indexAll(waiting));
  return show;

  function show(...now) {
    last = now;
    const [videos, files, jobs] = now;
    const others = unregistered(files, videos);
    const wanted = (name) => name.toLowerCase().includes(filter.value.trim().toLowerCase());
    const [found, more] = [videos.filter(({ name }) => wanted(name)), others.filter(({ path }) => wanted(path))];
    waiting = [...found.filter(({ state }) => state === "new"), ...more];
    all.hidden = waiting.length < 2;
    write(all, `Index all ${waiting.length}`);
    details.querySelector("#counted").textContent = [
      videos.length ? String(videos.length) : others.length ? "" : "none yet",
      others.length ? `${plural(others.length, "file")} in the folder to index` : "",
    ].filter(Boolean).join(", ");
    const jobOf = (video) => jobs.find((job) => job.video === video.id && job.state === "running");
    update([
      ...found.map((video) => [`id:${video.id}`, { video, job: jobOf(video) }]),
      ...more.map((file) => [`path:${file.path}`, file]),
    ]);
  }
}

/** A frame from its first third; the first ones are often black. */
const thumbnail = ({ id, num_frames }) => `/videos/${id}/frames/${Math.floor(num_frames / 3)}?size=90`;

function fileRow(file, on) {
  const root = el("li", {},
    el("div", { class: "line" },
      el("span", { class: "thumb" }),
      el("button", { type: "button", class: "name", onclick: () => on.choose(file) }, file.path),
      el("span", { class: "long" }),
      el("span", { class: "state new" }, STATES.new),
      el("span", { class: "buttons" }, button("Index", () => on.index(file), { "aria-label": `Index ${file.path}` }))));
  return { root, update() {} };
}

function videoRow(first, on) {
  let video = first;
  const name = el("button", { type: "button", class: "name", onclick: () => on.choose(video) }, video.name);
  const thumb = el("span", { class: "thumb" });
  const long = el("span", { class: "long" });
  const state = el("span");
  const asked = button("", () => toggle(), { "aria-expanded": "false" });
  const again = button("Index", () => on.index(video), { "aria-label": `Index ${video.name}` });
  const remove = button("Delete", () => confirm(true), { "aria-label": `Delete ${video.name}` });
  const why = el("p", { class: "quiet why" });
  const sure = el("div", { class: "sure", hidden: true });
  const questions = el("ul", { class: "questions", hidden: true, "aria-label": `Questions on ${video.name}` });
  const root = el("li", {},
    el("div", { class: "line" }, thumb, name, long, state, el("span", { class: "buttons" }, asked, again, remove)),
    why, sure, questions);
  let listed = null; // how many questions are in the list

  function confirm(open) {
    sure.hidden = !open;
    remove.hidden = open;
    if (!open) return remove.focus();
    const also = ["", " and its question"][video.questions] ?? ` and its ${video.questions} questions`;
    const file = video.origin === "folder" ? "The file itself stays in the folder." : "The uploaded file is deleted.";
    const yes = button("Delete", () => on.remove(video), { class: "small danger" });
    sure.replaceChildren(el("span", {}, `Delete ${video.name}${also}? ${file}`), yes, button("Keep", () => confirm(false)));
    yes.focus();
  }

  async function toggle(open = questions.hidden) {
    questions.hidden = !open;
    asked.setAttribute("aria-expanded", String(open));
    if (!open) return;
    listed = video.questions;
    const all = await call("GET", `/rankings?video=${video.id}`);
    questions.replaceChildren(...all.map((entry) => question(entry, video, on)));
  }

  return {
    root,
    update({ video: now, job }) {
      video = now;
      const share = job ? progressOf(job).share : null;
      const there = video.num_frames && video.state === "ready";
      if (there && !thumb.firstChild) thumb.append(el("img", { src: thumbnail(video), alt: "", loading: "lazy" }));
      const added = new Date(1000 * video.created).toLocaleDateString([], { dateStyle: "medium" });
      write(long, `${video.duration === null ? "" : `${clock(video.duration, true)} · `}${added}`);
      write(state, STATES[video.state] + (video.state === "indexing" && share !== null ? ` ${Math.round(100 * share)} %` : ""));
      state.className = `state ${video.state}`;
      write(asked, plural(video.questions, "question"));
      asked.hidden = video.questions === 0;
      name.disabled = video.state === "gone";
      again.hidden = !["new", "failed"].includes(video.state);
      write(why, video.error ?? "");
      if (!questions.hidden && listed !== video.questions) toggle(true);
    },
  };
}

/** An earlier question: a link to its ranking, or, where that was not made, a button that asks it again. */
function question(entry, video, on) {
  const text = entry.question ?? "Without a question";
  const when = new Date(1000 * entry.created).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  const options = entry.options.length ? `, ${plural(entry.options.length, "answer")} to choose from` : "";
  return el("li", {},
    entry.ready
      ? el("a", { href: `#${entry.id}`, dir: "auto" }, text)
      : el("button", { type: "button", class: "link", dir: "auto", onclick: () => on.choose(video, entry) }, text),
    el("small", {}, ` ${when}${options}${entry.ready ? "" : ", not made"}`));
}
