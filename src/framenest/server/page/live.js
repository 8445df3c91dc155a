// The live page: choose or upload a video, ask, watch it work, look at the ranking and use it.
import { call, over, progressOf, Refused, save, upload } from "./api.js";
import { library, queue, unregistered } from "./lists.js";
import { player } from "./player.js";
import { follow, results } from "./search.js";
import { clock, el, plural, render } from "./view.js";

const at = (id) => document.getElementById(id);
const form = at("ask");
const intro = [...at("report").children];
const SIZES = { small: 180, large: 480, full: 1080 }; // pixels of the short side
const BUSY = 1000; // milliseconds between looks at the queue while something is in it
const IDLE = 15_000;
const MOMENTS = 24; // that a search shows
const NAMED = 20; // links outside the folder that are named
let view = null;
let shown = null; // {ranking, video, name, play} on the page
let current = 0; // counts what was asked for, so that late answers to earlier questions are dropped
let working = null; // the job that Cancel would cancel
let known = { videos: [], files: [] };
let active = []; // jobs that wait or run, oldest first
let looks = 0; // counts how often somebody wanted to look at the queue
let answers = false; // whether the server has a model that answers
let wake = () => {}; // ends the pause between two looks

const showQueue = queue(at("queue"), (job) => attempt(() => cancel(job)));
const showFound = results(at("found"), (items) => attempt((still) => indexRest(items, still)));
const showVideos = library(at("videos"), {
  choose: (item, entry) => attempt((still) => pick(item, entry, still)),
  index: (item) => attempt((still) => begin(item, still)),
  indexAll: (items) => attempt(() => beginAll(items)),
  remove: (video) => attempt((still) => remove(video, still)),
});

start();

async function start() {
  at("sign-in").addEventListener("submit", signIn);
  at("sign-out").addEventListener("click", signOut);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(ask);
  });
  at("search").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(find);
  });
  at("video").addEventListener("change", () => {
    wholeVideo();
    attempt(choose);
  });
  at("file").addEventListener("change", () => attempt(take));
  at("cancel").addEventListener("click", () => {
    const job = working; // which is nobody's once the attempt begins
    if (job) attempt(() => cancel(job));
  });
  at("answer").addEventListener("click", answer);
  addEventListener("hashchange", () => attempt(fromAddress));
  try {
    await list();
  } catch (error) {
    if (error.status !== 401) return trouble(error);
    at("sign-in").hidden = false;
    at("report").hidden = true;
    return;
  }
  const health = await call("GET", "/health");
  at("status").textContent = `scorer ${health.scorer}`;
  at("sign-out").hidden = !health.token;
  answers = health.answer_model !== null;
  setPreset(health.preset);
  form.hidden = at("search").hidden = false;
  at("videos").hidden = false;
  at("videos").open = !location.hash;
  watch();
  if (location.hash) await attempt(fromAddress);
}

async function signIn(event) {
  event.preventDefault();
  try {
    await call("POST", "/session", { token: at("token").value });
    location.reload();
  } catch (error) {
    at("sign-in").querySelector(".trouble").textContent = error.message;
  }
}

async function signOut() {
  await call("DELETE", "/session");
  history.replaceState(null, "", "/"); // the address names a question
  location.reload();
}

/** Run a step; only the latest one may change the page. */
async function attempt(step) {
  const mine = ++current;
  trouble(null);
  work(null);
  try {
    await step(() => mine === current);
  } catch (error) {
    if (mine === current) trouble(error);
  } finally {
    if (mine === current) work(null);
  }
}

function trouble(error) {
  at("trouble").textContent = error ? error.message : "";
  if (error && !(error instanceof Refused)) console.error(error);
}

/** Look at the queue and the videos now; work may begin and end between two looks of `watch`. */
function look() {
  looks += 1;
  wake();
}

/** Look at the queue, often while something is in it; at the videos, too, when it has changed or `look` asks. */
async function watch() {
  for (let seen = looks; ; ) {
    const asked = looks !== seen;
    seen = looks;
    try {
      const before = active.map((job) => `${job.id} ${job.state}`).join();
      active = (await call("GET", "/jobs?active=true&limit=1000")).reverse();
      const changed = active.map((job) => `${job.id} ${job.state}`).join() !== before;
      if (asked || changed) await list();
      else draw();
    } catch (error) {
      if (error.status === 401) return location.reload(); // signed out in another window
    }
    if (looks === seen) {
      const pause = new Promise((later) => setTimeout(later, active.length ? BUSY : IDLE));
      await Promise.race([pause, new Promise((now) => (wake = now))]);
    }
    while (document.hidden) await new Promise((now) => document.addEventListener("visibilitychange", now, { once: true }));
  }
}

function draw() {
  const names = new Map(known.videos.map((video) => [video.id, video.name]));
  showQueue(active, (video) => names.get(video) ?? "a removed video");
  showVideos(known.videos, known.files, active);
}

/** The videos to choose from: registered ones, then files of the folder that are not registered yet. */
async function list() {
  const [videos, { files, outside }] = await Promise.all([call("GET", "/videos"), call("GET", "/files")]);
  known = { videos, files };
  const before = at("video").value; // as it is now: someone may have chosen while this was fetched
  const registered = videos.find(({ origin, state, name }) => origin === "folder" && state !== "gone" && before === `path:${name}`);
  const chosen = registered ? `id:${registered.id}` : before;
  draw();
  const more = outside.length > NAMED ? ` and ${outside.length - NAMED} more` : "";
  at("outside").hidden = !outside.length;
  at("outside").textContent =
    `${plural(outside.length, "link leads", "links lead")} outside the folder and cannot be used: ${outside.slice(0, NAMED).join(", ")}${more}`;
  const option = (value, text) => el("option", { value, selected: value === chosen }, text);
  const length = (video) => (video.duration === null ? "" : ` (${clock(video.duration, true)})`);
  const ready = videos.filter((video) => video.state !== "gone").map((video) => option(`id:${video.id}`, video.name + length(video)));
  const others = unregistered(files, videos).map((file) => option(`path:${file.path}`, file.path));
  const wanted = el("select", {},
    option("", ready.length + others.length ? "choose a video" : "no video yet; upload one"),
    ready.length ? el("optgroup", { label: "Videos" }, ready) : "",
    others.length ? el("optgroup", { label: "In the folder" }, others) : "");
  const value = wanted.value;
  const said = (select) => [...select.options].map((one) => `${one.value} ${one.text}`).join("\n");
  if (said(wanted) !== said(at("video"))) at("video").replaceChildren(...wanted.childNodes); // else it may be open
  at("video").value = value;
}

/** The id of the chosen video; a file of the folder is registered, and indexed while the user types. */
async function chosenVideo() {
  const [kind, value] = at("video").value.split(/:(.*)/s);
  if (!kind) throw new Refused(0, "choose a video first, or upload one");
  return kind === "id" ? value : (await register(value)).video.id;
}

async function register(path) {
  const made = await call("POST", "/videos", { path });
  await list();
  look();
  return made;
}

async function choose(still) {
  leave();
  if (!at("video").value) return;
  await indexed(await chosenVideo(), still);
}

async function take(still) {
  const [file] = at("file").files;
  if (!file) return;
  const tell = (share) => still() && progress(`uploading, ${Math.round(100 * share)} %`, share);
  const made = await upload(file, tell);
  at("file").value = "";
  await list();
  look();
  if (!still()) return;
  at("video").value = `id:${made.video.id}`;
  wholeVideo();
  leave();
  await indexed(made.video.id, still);
}

/** A video or file of the list becomes the chosen one; so does an earlier question that has no ranking. */
async function pick(item, entry, still) {
  at("video").value = item.path ? `path:${item.path}` : `id:${item.id}`;
  wholeVideo();
  if (entry) fill(entry);
  at("question").focus();
  await choose(still);
}

/** A part that was chosen is one of another video. */
function wholeVideo() {
  at("start").value = at("end").value = "";
}

/** The result of another video, or of a search, goes when one is chosen; the browser's Back brings it back. */
function leave() {
  const other = shown ? at("video").value !== `id:${shown.video}` : !at("found").hidden;
  if (other) clear((address) => history.pushState(null, "", address));
}

/** Index a video of the list, or a file of the folder. */
async function begin(item, still) {
  const made = item.path ? await register(item.path) : await call("POST", `/videos/${item.id}/index`);
  look();
  if (made.job) await over(made.job, (job) => still() && work(job));
  look();
}

/** Index what the list shows and is not indexed yet; a file that is refused does not stop the others. */
async function beginAll(items) {
  const refused = [];
  for (const { id, path, name } of items) {
    try {
      await (path ? call("POST", "/videos", { path }) : call("POST", `/videos/${id}/index`));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      refused.push(`${path ?? name}: ${error.message}`);
      if (error.status === 429) break; // the queue is full
    }
    look();
  }
  await list();
  if (refused.length) throw new Refused(0, refused.join("\n"));
}

async function remove(video, still) {
  await call("DELETE", `/videos/${video.id}`);
  if (shown?.video === video.id) clear((address) => history.replaceState(null, "", address));
  await list();
  look();
  if (!at("found").hidden) await find(still); // its moments are gone
}

async function cancel(job) {
  await call("DELETE", `/jobs/${job.id}`);
  look();
  throw new Refused(0, "this was cancelled");
}

/** Show the index being made, which begins now where none is, and the questions asked before. */
async function indexed(video, still) {
  if (known.videos.find(({ id }) => id === video)?.state === "new") await call("POST", `/videos/${video}/index`);
  look();
  const asked = await call("GET", `/rankings?video=${video}`);
  const questions = new Set(asked.filter((entry) => entry.ready && entry.question).map((entry) => entry.question));
  at("asked").replaceChildren(...[...questions].map((value) => el("option", { value })));
  const jobs = await call("GET", "/jobs?active=true");
  const job = jobs.find((entry) => entry.target === `index:${video}`);
  if (job) await over(job, (state) => still() && work(state));
  look();
  if (still()) await list();
}

async function ask(still) {
  const question = at("question").value.trim();
  if (!question) throw new Refused(0, "type a question first");
  const lines = (id) => at(id).value.split("\n").map((line) => line.trim()).filter(Boolean);
  const [options, look_for, preset] = [lines("options"), lines("look-for"), at("preset").value];
  const video = await chosenVideo();
  const part = {};
  for (const end of ["start", "end"]) if (at(end).value.trim()) part[end] = at(end).value.trim();
  const asked = await call("POST", "/rankings", { video, question, options, look_for, preset, ...part });
  look();
  if (asked.job) await over(asked.job, (job, first) => still() && work(job, first));
  look();
  if (!still()) return;
  history.pushState(null, "", `#${asked.ranking}`);
  await show(asked.ranking, null, still);
}

/** Search all videos. */
async function find(still) {
  const query = at("query").value.trim();
  if (!query) throw new Refused(0, "type what to search for first");
  const search = await call("POST", "/searches", { query, n: MOMENTS });
  look();
  if (!still()) return;
  const address = `#search=${search.id}`;
  if (location.hash !== address) history.pushState(null, "", address);
  await showSearch(search, still);
}

/** The results of a search, as they come. */
async function showSearch(search, still) {
  clear();
  at("query").value = search.query;
  at("found").hidden = false;
  at("videos").open = false;
  at("report").hidden = true;
  document.title = `${search.query} · Framenest`;
  await follow(search, (now) => {
    if (still()) showFound(now);
    if (still()) work(["queued", "running"].includes(now.job?.state) ? now.job : null);
    return still();
  });
  look();
}

/** Index what a search left out, and search again. */
async function indexRest(items, still) {
  const refused = await beginAll(items).catch((error) => error);
  const next = async () => (await call("GET", "/jobs?active=true&limit=1000")).findLast(({ kind }) => kind === "index");
  for (let job; still() && (job = await next()); ) await over(job, (now) => still() && work(now)).catch(() => {}); // the search says why
  if (still()) await find(still);
  if (refused) throw refused;
}

/** The ranking of a video for a query, opened at a moment that a search found. */
async function openMoment(where, still) {
  const asked = await call("POST", "/rankings", { video: where.get("in"), question: where.get("q") });
  if (asked.job) await over(asked.job, (job, first) => still() && work(job, first));
  const moment = { frame: Number(where.get("frame")), seconds: Number(where.get("time")), why: where.get("why") };
  if (still()) await show(asked.ranking, null, still, moment);
}

/** What the address names, so that a link, a reload or Back brings it back: a ranking and its budget, a search, or a moment. */
async function fromAddress(still) {
  const where = new URLSearchParams(location.hash.slice(1));
  const [id, k] = location.hash.slice(1).split("&k=");
  if (id && id === shown?.ranking) return Number(k) && view.setBudget(Number(k));
  try {
    if (where.has("search")) await showSearch(await call("GET", `/searches/${where.get("search")}`), still);
    else if (where.has("in")) await openMoment(where, still);
    else if (id) await show(id, Number(k) || null, still);
    else clear();
  } catch (error) {
    if (still()) clear(); // what it shows is not what the address names
    throw error;
  }
}

function fill({ question, options, look_for, preset, start, end }) {
  at("question").value = question ?? "";
  at("options").value = options.join("\n");
  at("look-for").value = look_for.join("\n");
  at("start").value = start ? time(start) : "";
  at("end").value = end === null ? "" : time(end);
  setPreset(preset);
  at("choices").open = options.length + look_for.length > 0 || start > 0 || end !== null;
}

/** Seconds as people write them, and exactly, so that asking again asks the same. */
const time = (seconds) => (Number.isInteger(10 * seconds) ? clock(seconds, Number.isInteger(seconds)) : String(seconds));

/** Choose a preset; one that the page does not offer, such as an ablation, becomes a choice. */
function setPreset(name) {
  if (![...at("preset").options].some(({ value }) => value === name)) at("preset").append(el("option", { value: name }, name));
  at("preset").value = name;
}

async function show(id, budget, still, moment = null) {
  const [facts, data] = await Promise.all([call("GET", `/rankings/${id}`), call("GET", `/rankings/${id}/report`), list()]);
  if (!still()) return;
  const first = budget ?? view?.state.budget ?? lastBudget();
  view?.destroy();
  at("found").hidden = true;
  at("report").hidden = false;
  const play = player(at("player"), `/videos/${facts.video}/file`, data.video);
  shown = { ranking: id, video: facts.video, name: data.video.name, play };
  fill(facts);
  at("video").value = `id:${facts.video}`;
  if (at("video").selectedIndex < 0) at("video").value = ""; // its file is gone
  view = render(at("report"), data, {
    image: (frame, size) => `/videos/${facts.video}/frames/${frame}?size=${SIZES[size]}`,
    play,
    budget: first,
    changed: remember,
    exports: exports(),
  });
  remember(view.state.budget);
  if (moment) view.open({ rank: null, place: null, ...moment, ...view.chosen(data.rankings[0]).frames.find(({ frame }) => frame === moment.frame), result: 0 });
  at("videos").open = false;
  at("answering").hidden = !answers;
  at("answer").disabled = !facts.question;
  at("answered").hidden = true;
  document.title = `${facts.question ?? data.video.name} · Framenest`;
}

/** Keep the budget: in the address for this ranking, and for the next visit. */
function remember(budget) {
  history.replaceState(null, "", `#${shown.ranking}&k=${budget}`);
  lastBudget(budget);
}

/** The budget of the last visit; 8 where there was none, or the browser keeps nothing. */
function lastBudget(set) {
  try {
    if (set) localStorage.setItem("framenest.budget", set);
    return Number(localStorage.getItem("framenest.budget")) || 8;
  } catch {
    return 8;
  }
}

/** Back to the empty page; `go` sets the address, which stays without it. */
function clear(go = () => {}) {
  view?.destroy();
  [view, shown] = [null, null];
  at("report").replaceChildren(...intro);
  at("player").querySelector("button").click();
  at("answering").hidden = at("found").hidden = true;
  at("report").hidden = false;
  at("videos").open = true;
  go("/");
  document.title = "Framenest";
}

async function answer() {
  const [{ ranking, play }, k] = [shown, view.state.budget];
  const body = { k, max_side: Number(at("side").value), cite: at("cite").checked };
  at("answer").disabled = true;
  at("answered").hidden = false;
  at("answered").textContent = `Asking with ${k} frames…`;
  try {
    const said = await call("POST", `/rankings/${ranking}/answer`, body);
    if (shown?.ranking !== ranking) return;
    const facts = [`${said.model}, ${said.k} frames, ${said.seconds.toFixed(1)} s`, ...said.not_shown.map((time) => `cites ${time}, which was not shown`)];
    const note = el("small", { class: "quiet" }, facts.join("; "));
    at("answered").replaceChildren(...linked(said, play), " ", note);
  } catch (error) {
    if (shown?.ranking === ranking) at("answered").textContent = error.message;
  } finally {
    at("answer").disabled = false;
  }
}

/** An answer whose times play the video from there. */
function linked({ answer: text, cited }, play) {
  const letters = [...text]; // as the server counts: characters, not halves of them
  const parts = [];
  let from = 0;
  for (const { start, end, frame, seconds } of cited) {
    const time = letters.slice(start, end).join("");
    parts.push(letters.slice(from, start).join(""));
    parts.push(el("button", { type: "button", class: "link", title: `Play from ${clock(seconds)}`, onclick: () => play(frame, seconds) }, time));
    from = end;
  }
  return [...parts, letters.slice(from).join("")];
}

const STYLES = {
  openai: "OpenAI-compatible servers",
  gpt: "OpenAI's models, with detail",
  gemini: "Gemini, with detail",
  "vllm-video": "vLLM, as one video",
  qwen: "Qwen3-VL and Qwen3.5",
  "hf-video": "transformers, as one video",
  internvl: "InternVL",
  "llava-onevision": "LLaVA-OneVision-2",
};

/** What the menu Export offers beside the view's own: the ranking, and its frames as messages. */
function exports() {
  const style = el("select", { id: "style" }, Object.entries(STYLES).map(([value, name]) => el("option", { value }, name)));
  const saved = el("span", { class: "quiet", role: "status" });
  const button = (name, onclick) => el("button", { type: "button", onclick }, name);
  const keep = async (ending, what) => {
    const name = `${shown.name.replace(/^.*\//, "").replace(/\.[^.]*$/, "")}${ending}.json`;
    saved.textContent = "making it…";
    try {
      await save(`/rankings/${shown.ranking}/${what}`, name);
      saved.textContent = `saved ${name}`;
    } catch (error) {
      saved.textContent = error.message;
    }
  };
  const messages = () => keep(`-${view.state.budget}-${style.value}`, `messages?k=${view.state.budget}&style=${style.value}`);
  return [
    button("Download the ranking", () => keep("", "file")),
    el("label", {}, "The frames as messages for", style),
    button("Download the messages", messages),
    saved,
  ];
}

/** Show how far a job is, or the one that it waits for; null hides it. */
function work(job, first = null) {
  at("work").hidden = job === null;
  working = job;
  if (job === null) return;
  const { text, share } = progressOf(first ?? job);
  progress(first ? `the video is indexed first: ${text}` : text, share);
  at("cancel").hidden = false;
}

function progress(text, share) {
  at("work").hidden = false;
  at("cancel").hidden = true;
  if (share === null) at("bar").removeAttribute("value");
  else at("bar").value = share;
  at("stage").textContent = text;
}
