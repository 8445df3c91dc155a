// Talking to the server: JSON in, JSON out, errors with what the server said.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function call(method, path, body) {
  const answer = await fetch(path, {
    method,
    headers: body === undefined ? {} : { "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  return said(answer.status, await answer.text(), answer.headers.get("retry-after"));
}

/** Saves what the server answers as a file of that name. */
export async function save(path, name) {
  const answer = await fetch(path);
  if (!answer.ok) said(answer.status, await answer.text(), answer.headers.get("retry-after"));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser may still be reading it
}

/** Sends a file; tell(share) is called with how much of it is there. */
export function upload(file, tell) {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest(); // fetch does not say how far an upload is
    request.open("POST", `/videos/upload?name=${encodeURIComponent(file.name.slice(-255))}`);
    request.upload.onprogress = (event) => tell(event.loaded / Math.max(1, event.total));
    request.onerror = () => failed(new Refused(0, "the upload was interrupted"));
    request.onload = () => {
      try {
        done(said(request.status, request.responseText, request.getResponseHeader("retry-after")));
      } catch (error) {
        failed(error);
      }
    };
    request.send(file);
  });
}

/** Looks at a job until it is over; tell(job, first) is called each time, first: the job that it waits for. */
export async function over(job, tell) {
  while (job.state === "queued" || job.state === "running") {
    tell(job, job.waits_for ? await call("GET", `/jobs/${job.waits_for}`) : null);
    await new Promise((later) => setTimeout(later, 250));
    job = await call("GET", `/jobs/${job.id}`);
  }
  if (job.state !== "done") throw new Refused(409, job.error ?? `this was ${job.state}`);
}

const DOING = { probes: "scoring probes", zoom: "zooming in", videos: "looking into the best videos" };

/** What a job does, in words, and how far it is, from 0 to 1; null where that is not known. */
export function progressOf(job) {
  if (job.state === "queued") return { text: "waiting for its turn", share: null };
  const stage = DOING[job.stage] ?? job.stage ?? "beginning";
  if (!job.total) return { text: stage, share: null };
  return { text: `${stage}, ${job.done} of ${job.total}${left(job)}`, share: job.done / job.total };
}

const seen = new Map(); // when this page first saw a stage of a job, and how far it was then

/** How long a stage will still take, from how fast it went since this page saw it first. */
function left(job) {
  const key = `${job.id} ${job.stage}`;
  if (!seen.has(key)) seen.set(key, { time: Date.now(), done: job.done });
  const { time, done } = seen.get(key);
  const seconds = ((Date.now() - time) / 1000) * ((job.total - job.done) / (job.done - done));
  if (!(seconds >= 1 && seconds < Infinity)) return "";
  return seconds < 90 ? `, about ${Math.round(seconds)} s left` : `, about ${Math.round(seconds / 60)} min left`;
}

function said(status, text, wait) {
  const data = text ? JSON.parse(text) : null;
  if (status >= 200 && status < 300) return data;
  throw new Refused(status, `${data?.detail ?? `the server answers ${status}`}${wait ? ` (in ${wait} s)` : ""}`);
}
