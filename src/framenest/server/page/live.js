// The live page: choose or upload a video, ask, watch it work, look at the ranking.
import { call, over, Refused, upload } from "./api.js";
import { player } from "./player.js";
import { clock, el, render } from "./view.js";

const at = (id) => document.getElementById(id);
const form = at("ask");
const SIZES = { small: 180, large: 480 };
let view = null;
let shown = null; // {ranking, video} on the page
let current = 0; // counts what was asked for, so that late answers to earlier questions are dropped
let working = null; // the job that Cancel would cancel

start();

async function start() {
  at("sign-in").addEventListener("submit", signIn);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(ask);
  });
  at("video").addEventListener("change", () => attempt(choose));
  at("file").addEventListener("change", () => attempt(take));
  at("cancel").addEventListener("click", () => working && call("DELETE", `/jobs/${working.id}`).catch(() => {}));
  at("answer").addEventListener("click", answer);
  addEventListener("hashchange", () => attempt(fromAddress));
  try {
    await list();
  } catch (error) {
    if (error.status === 401) at("sign-in").hidden = false;
    else trouble(error);
    return;
  }
  const health = await call("GET", "/health");
  at("status").textContent = `scorer ${health.scorer}`;
  at("answering").dataset.offered = health.answers;
  form.hidden = false;
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

/** Run a step; only the latest one may change the page. */
async function attempt(step) {
  const mine = ++current;
  trouble(null);
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

/** The videos to choose from: registered ones, then files of the folder that are not registered yet. */
async function list(chosen = null) {
  const [videos, files] = await Promise.all([call("GET", "/videos"), call("GET", "/files")]);
  const known = new Set(videos.filter((video) => video.origin === "folder").map((video) => video.name));
  const option = (value, text) => el("option", { value, selected: value === chosen }, text);
  const length = (video) => (video.duration === null ? "" : ` (${clock(video.duration, true)})`);
  const ready = videos.map((video) => option(`id:${video.id}`, video.name + length(video)));
  const others = files.filter((file) => !known.has(file.path)).map((file) => option(`path:${file.path}`, file.path));
  at("video").replaceChildren(
    option("", ready.length + others.length ? "choose a video" : "no video yet; upload one"),
    ready.length ? el("optgroup", { label: "Videos" }, ready) : "",
    others.length ? el("optgroup", { label: "In the folder" }, others) : "");
}

/** The id of the chosen video; a file of the folder is registered, and indexed while the user types. */
async function chosenVideo() {
  const [kind, value] = at("video").value.split(/:(.*)/s);
  if (!kind) throw new Refused(0, "choose a video first, or upload one");
  if (kind === "id") return value;
  const made = await call("POST", "/videos", { path: value });
  await list(`id:${made.video.id}`);
  return made.video.id;
}

async function choose(still) {
  if (!at("video").value) return;
  await indexed(await chosenVideo(), still);
}

async function take(still) {
  const [file] = at("file").files;
  if (!file) return;
  const made = await upload(file, (share) => still() && work({ stage: "uploading", done: Math.round(share * 100), total: 100 }, false));
  at("file").value = "";
  await list(`id:${made.video.id}`);
  await indexed(made.video.id, still);
}

/** Show the index being made, and the questions asked before. */
async function indexed(video, still) {
  const asked = await call("GET", `/rankings?video=${video}`);
  const questions = new Set(asked.filter((entry) => entry.ready && entry.question).map((entry) => entry.question));
  at("asked").replaceChildren(...[...questions].map((value) => el("option", { value })));
  const jobs = await call("GET", "/jobs");
  const job = jobs.find((entry) => entry.target === `index:${video}` && ["queued", "running"].includes(entry.state));
  if (job) await over(job, (state) => still() && work(state));
  await list(`id:${video}`);
}

async function ask(still) {
  const question = at("question").value.trim();
  if (!question) throw new Refused(0, "type a question first");
  const video = await chosenVideo();
  const asked = await call("POST", "/rankings", { video, question });
  if (asked.job) await over(asked.job, (state) => still() && work(state));
  if (!still()) return;
  history.pushState(null, "", `#${asked.ranking}`);
  await show(asked.ranking, still);
}

/** The ranking that the address names, so that a link or a reload brings it back. */
async function fromAddress(still) {
  const id = location.hash.slice(1);
  if (id && id !== shown?.ranking) await show(id, still);
}

async function show(id, still) {
  const [facts, data] = await Promise.all([call("GET", `/rankings/${id}`), call("GET", `/rankings/${id}/report`)]);
  if (!still()) return;
  const budget = view?.state.budget ?? 8;
  view?.destroy();
  shown = { ranking: id, video: facts.video };
  at("question").value = facts.question ?? "";
  await list(`id:${facts.video}`);
  const play = player(at("player"), `/videos/${facts.video}/file`, data.video);
  view = render(at("report"), data, {
    image: (frame, size) => `/videos/${facts.video}/frames/${frame}?size=${SIZES[size]}`,
    play,
    budget,
  });
  at("answering").hidden = at("answering").dataset.offered !== "true" || !facts.question;
  at("answered").textContent = "";
  document.title = `${facts.question ?? data.video.name} · Framenest`;
}

async function answer() {
  const [{ ranking }, k] = [shown, view.state.budget];
  at("answer").disabled = true;
  at("answered").textContent = `Asking with ${k} frames…`;
  try {
    const said = await call("POST", `/rankings/${ranking}/answer`, { k });
    if (shown.ranking === ranking) at("answered").textContent = `${said.answer} — ${said.model}, ${k} frames`;
  } catch (error) {
    at("answered").textContent = error.message;
  } finally {
    at("answer").disabled = false;
  }
}

/** Show how far a job is; null hides it. */
function work(job, cancellable = true) {
  at("work").hidden = job === null;
  working = cancellable ? job : null;
  if (job === null) return;
  const doing = { queued: "waiting for its turn", probes: "looking at probes", zoom: "zooming in" };
  const stage = job.state === "queued" ? "queued" : job.stage ?? "beginning";
  if (job.total) at("bar").value = job.done / job.total;
  else at("bar").removeAttribute("value");
  at("cancel").hidden = !cancellable;
  at("stage").textContent = `${doing[stage] ?? stage}${job.total ? `, ${job.done} of ${job.total}` : ""}`;
}
