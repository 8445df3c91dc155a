// Words that need explaining, and the tip that explains them: on hover, on focus, on tap.
import { el } from "./marks.js";

export const TERMS = {
  budget: "How many frames the model is shown. Every budget takes the first ranks of the same ranking.",
  ranks: "A frame's place in the ranking. Rank 1 comes first: every budget has it.",
  new: "Not in the smaller budget that this one is compared with.",
  question: "What the frames were ranked for.",
  selector: "What chose the frames. mec makes one ranking; most others choose anew for every budget.",
  scorer: "The model that says how well a frame matches the question.",
  preset: "A named set of settings, followed by the settings that differ from it.",
  "look for": "What to look for beside the question, described as it would be seen.",
  match:
    "How strongly anything in the video matches the question: strong, weak or none; cannot tell if the scorer knows no word of it.",
  "evidence frame": "It matches the question, as far as the scorer can tell. Other frames are context.",
  role: "Evidence matches the question; context is what else the model should see.",
  reason: "What made the relevance of an evidence frame, or what a context frame adds.",
  budgets: "The budgets that this file holds.",
  probe: "A frame scored for every question. Probes are spread evenly over the video.",
  "zoom frame": "A frame scored for this question only, next to a promising probe.",
  "active segments": "Parts of the video with the most evidence. Zoom frames are taken there.",
  "looked at": "The frames that were decoded and scored: probes (above) and zoom frames (below).",
  "not seen": "The longest gap between two probes. Anything shorter may be missed.",
  note: "Something to know about the video file, or a problem in it.",
  evidence: "How much a frame is worth on its own: the weighted sum of the cues below.",
  relevance: "How well the frame matches the question, according to the scorer.",
  change: "How much the image differs from the neighbouring probes.",
  observability: "How sharp and well exposed the image is.",
  speech: "How well what is said at this time answers the question.",
  from: "Whether the frame is a probe or a zoom frame.",
  time: "Time since the first frame.",
  frame: "The frame's number in the video, from 0.",
};

/** The stages of a ranking. */
export const STAGES = {
  load: "Loading the scorer.",
  timeline: "Reading the time of each frame.",
  decode: "Decoding frames of the video.",
  encode: "Encoding the images with the scorer.",
  match: "Comparing the images with the question.",
  text: "Reading text on screen.",
  rerank: "Scoring the best candidates again.",
  cues: "Computing change and observability.",
  transcript: "Reading the transcript and encoding it.",
  zoom: "Choosing zoom frames.",
  order: "Putting the candidates in order.",
};

/** A word with its explanation; plain text where there is none. */
export function term(name, text = name, about = TERMS[name]) {
  return about ? el("button", { type: "button", class: "term", "data-about": about }, text) : text;
}

/** The tip of a view: {root, hide() → whether it was open}. Listens to all terms inside `view`. */
export function tips(view) {
  const root = el("p", { class: "tip", role: "tooltip", id: "tip", hidden: true });
  let of = null; // the term it explains
  let place = 0; // where on the screen that was
  let kept = false; // opened by a tap: stays until the next one
  let leaving = 0;

  function show(found, keep = false) {
    clearTimeout(leaving);
    if (of !== found) of?.removeAttribute("aria-describedby");
    of = found;
    kept = keep;
    root.textContent = found.dataset.about;
    root.hidden = false;
    found.setAttribute("aria-describedby", "tip");
    (found.closest("dialog") ?? view).append(root); // a dialog covers everything outside it
    const box = found.getBoundingClientRect();
    place = box.top;
    const left = Math.min(box.left, innerWidth - root.offsetWidth - 8);
    const below = box.bottom + 6 + root.offsetHeight < innerHeight;
    root.style.left = `${Math.max(8, left)}px`;
    root.style.top = `${below ? box.bottom + 6 : box.top - 6 - root.offsetHeight}px`;
  }

  function hide() {
    clearTimeout(leaving);
    const open = of !== null;
    of?.removeAttribute("aria-describedby");
    of = null;
    root.hidden = true;
    return open;
  }

  const leave = () => {
    clearTimeout(leaving);
    leaving = setTimeout(() => kept || hide(), 200); // time to move onto the tip itself
  };
  const scrolled = () => of && Math.abs(of.getBoundingClientRect().top - place) > 4 && hide();
  const termOf = (event) => event.target.closest?.(".term");
  const mouse = (event) => event.pointerType === "mouse";
  const listeners = {
    pointerover: (event) => mouse(event) && termOf(event) && !kept && show(termOf(event)),
    pointerout: (event) => mouse(event) && termOf(event) && leave(),
    focusin: (event) => termOf(event)?.matches(":focus-visible") && show(termOf(event)),
    focusout: (event) => termOf(event) && hide(),
    click: (event) => {
      const found = termOf(event);
      if (found && !(kept && of === found)) show(found, true);
      else if (!root.contains(event.target)) hide();
    },
  };
  for (const [name, listener] of Object.entries(listeners)) view.addEventListener(name, listener);
  root.addEventListener("pointerenter", () => clearTimeout(leaving));
  root.addEventListener("pointerleave", leave);
  document.addEventListener("scroll", scrolled, { passive: true, capture: true });
  return {
    root,
    hide,
    destroy() {
      hide();
      document.removeEventListener("scroll", scrolled, { capture: true });
      for (const [name, listener] of Object.entries(listeners)) view.removeEventListener(name, listener);
    },
  };
}
