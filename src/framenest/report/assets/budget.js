// Which frames a budget holds. Pure: no element is touched here.
import { STEPS } from "./marks.js";

/** The largest budget that the slider offers. */
export function longest(data) {
  return Math.max(
    ...data.rankings.map((r) => (r.kind === "ranking" ? r.ranks.frames.length : lastBudget(r))),
  );
}

export const budgetsOf = (selection) =>
  Object.keys(selection.budgets)
    .map(Number)
    .sort((a, b) => a - b);
const lastBudget = (selection) => Math.max(...budgetsOf(selection));

/** Where the colours of ranks change: 8, 16, … and all. */
export function usualSteps(length) {
  return [...STEPS.filter((step) => step < length), length];
}

/** The budgets worth a button: the usual ones, and those that a file was asked for. */
export function steps(data) {
  const asked = data.rankings.flatMap((r) => (r.kind === "selection" ? budgetsOf(r) : []));
  return [...new Set([...usualSteps(longest(data)), ...asked])].sort((a, b) => a - b);
}

/** What a budget is compared with: the next smaller of 8, 16, 32, …; 0 below 8. */
export const baseline = (budget) => STEPS.filter((step) => step < budget).pop() ?? 0;

/**
 * The frames of a result at a budget, in time order:
 * {frames: [{frame, seconds, rank, place, added}], held, before, kept, dropped: [{frame, seconds}]}.
 *
 * `added` marks frames that the budget `before` (0: none) did not have, `dropped` are those it had and this one
 * lacks: none, ever, in a ranking. A selection answers with its largest list within the budget, `held`.
 * A ranking is compared with the budget `than`, or with the next smaller of the usual ones.
 */
export function chosen(result, budget, than = null) {
  return result.kind === "ranking" ? ofRanking(result.ranks, budget, than) : ofSelection(result, budget);
}

function ofRanking(ranks, budget, than) {
  const held = Math.min(budget, ranks.frames.length);
  const before = than !== null && than < held ? than : baseline(held);
  const frames = [];
  for (let place = 0; place < held; place++) {
    frames.push({
      frame: ranks.frames[place],
      seconds: ranks.seconds[place],
      rank: place + 1,
      place,
      added: before > 0 && place >= before,
    });
  }
  return { frames: inTime(frames), held, before, kept: Math.min(before, held), dropped: [] };
}

function ofSelection(selection, budget) {
  const fitting = budgetsOf(selection).filter((k) => k <= budget);
  if (!fitting.length) return { frames: [], held: 0, before: 0, kept: 0, dropped: [] };
  const held = fitting.pop();
  const before = fitting.pop() ?? 0;
  const now = selection.budgets[held];
  const old = before ? selection.budgets[before] : { frames: [], seconds: [] };
  const had = new Set(old.frames);
  const has = new Set(now.frames);
  const frames = now.frames.map((frame, i) => ({
    frame,
    seconds: now.seconds[i],
    rank: now.ranks ? now.ranks[i] : null,
    place: null,
    added: before > 0 && !had.has(frame),
  }));
  const dropped = old.frames
    .map((frame, i) => ({ frame, seconds: old.seconds[i] }))
    .filter(({ frame }) => !has.has(frame));
  return { frames: inTime(frames), held, before, kept: had.size - dropped.length, dropped };
}

const inTime = (frames) => frames.sort((a, b) => a.frame - b.frame);

/** One line on what the budget holds: "16 frames: 8 kept from budget 8, 8 new; 2 match the question, 14 add context". */
export function summary(result, at) {
  const matching = at.frames.filter(({ place }) => result.roles?.[place] === "evidence").length;
  const others = at.frames.length - matching;
  const roles = `; ${matching} ${matching === 1 ? "matches" : "match"} the question, ${others} ${others === 1 ? "adds" : "add"} context`;
  return contents(result, at) + (result.roles && result.question !== null ? roles : "");
}

function contents(result, at) {
  if (!at.held) return `no list for this budget; its smallest budget is ${budgetsOf(result)[0]}`;
  const text = `${at.frames.length} ${at.frames.length === 1 ? "frame" : "frames"}`;
  const list = result.kind === "selection" ? `, its list for ${at.held}` : "";
  if (!at.before) return text + list;
  const had = at.kept + at.dropped.length;
  const added = at.frames.length - at.kept;
  if (at.dropped.length) {
    return `${text}${list}: keeps ${at.kept} of the ${had} it chose for ${at.before}, drops ${at.dropped.length}, ${added} new`;
  }
  return `${text}${list}: all ${at.kept} of budget ${at.before} kept, ${added} new`;
}
