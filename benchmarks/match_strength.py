"""How well `match` tells what is in a video from what is not: right and wrong pairs of question and video.

    python benchmarks/match_strength.py qa.json --videos DIR --scorer tags

The same videos stand on both sides, so that a measure which merely knows rich videos from poor ones gets 0.5.
A short video is asked its own questions and those of other videos. A long one is cut into windows of two
minutes: a question is right for a window with most of one of its intervals, wrong for one without any part
of them. Questions with `"kind": "clip"` ask about clips that long files are made of, and make no wrong pairs
with short videos.

match_questions.json has questions that no video answers, asked of every video: nonsense and abstract ones,
none of which should be called strong, and in "fresh" more of both, written after everything was chosen.
"absent" asks the short videos for objects that are in none of them. "inside" and "outside" are words of the
vocabulary of `tags` and others, on which its thresholds for knowing a word were chosen.

"right" says how often a verdict is right: of reporting questions whose answer is in the video, with reading,
how often one of the first eight ranks shows the answer; and how many evidence and context frames do.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from machine import options, write
from reading import asked as asked_with_kinds

from framenest import MEC, Session
from framenest.config import ScorerConfig
from framenest.evaluation.grounded_questions import GroundedQuestion, inside, load_questions
from framenest.scorers.feature_store import Features

LONG, WINDOW = 600.0, 120.0
SHOWN = 8
Pair = tuple[str, bool, float, str, str, bool]
"""What was asked of (a video or a window), whether it is right, value, verdict, part, whether it has a known
word."""
VERDICTS = ("strong", "weak", "none", "cannot tell")


def pairs_of(video: str, questions: list[GroundedQuestion], clips: set[str], session: Session) -> list[Pair]:
    """Every question that is clearly right or wrong for a video or its windows."""
    decoder = session.open(video)
    index = MEC(session=session).index(decoder)
    probes = session.features(decoder, session.scorer, index.config.thumbnail).get(index.frames, "probes")
    found = []
    if decoder.info.duration < LONG:
        for question in questions:
            right = question.video == video
            if right or question.question not in clips:
                found.append((video, right, probes, question))
    else:
        mine = [question for question in questions if question.video == video]
        for start in np.arange(0, decoder.info.duration - WINDOW / 2, WINDOW).tolist():
            inside = index.frames[(index.seconds >= start) & (index.seconds < start + WINDOW)]
            for question in mine:
                shares = [
                    (min(end, start + WINDOW) - max(begin, start)) / (end - begin)
                    for begin, end in question.intervals
                ]
                if max(shares) > 0.9 or max(shares) <= 0:
                    found.append((f"{video} {start:g}", max(shares) > 0.9, probes.take(inside), question))
    return [pair for one in found if (pair := _measured(*one, session)) is not None]


def _measured(
    where: str, right: bool, probes: Features, question: GroundedQuestion, session: Session
) -> Pair | None:
    scorer: Any = session.scorer
    match = scorer.match_strength(probes.encoded, question.question)
    if match is None:
        return None
    return where, right, match.value, match.verdict, question.part, bool(match.known)


def unanswerable(videos: list[str], asked: dict[str, list[str]], session: Session) -> dict[str, Any]:
    """Verdicts on questions that no video answers, asked of every video, and those called strong."""
    scorer: Any = session.scorer
    found: dict[str, Any] = {}
    for kind in ("nonsense", "abstract", "fresh", "absent"):
        counts, strong = dict.fromkeys(VERDICTS, 0), []
        asked_of = 0
        for video in videos:
            decoder = session.open(video)
            if kind == "absent" and decoder.info.duration >= LONG:
                continue
            asked_of += 1
            index = MEC(session=session).index(decoder)
            probes = session.features(decoder, scorer, index.config.thumbnail).get(index.frames, "probes")
            for question in asked[kind]:
                verdict = scorer.match_strength(probes.encoded, question).verdict
                counts[verdict] += 1
                strong += [f"{Path(video).name}: {question}"] if verdict == "strong" else []
        found[kind] = {
            "questions": len(asked[kind]),
            "videos": asked_of,
            "verdicts": counts,
            "strong": strong,
        }
    return found


def words_known(asked: dict[str, list[str]], session: Session) -> dict[str, Any]:
    """How many words inside and outside the vocabulary the scorer says that it knows, and the errors."""
    scorer: Any = session.scorer
    found = {}
    for kind in ("inside", "outside"):
        known = [word for word in asked[kind] if scorer.known_words(word)[0]]
        wrong = known if kind == "outside" else sorted({*asked[kind]} - {*known})
        found[kind] = {"words": len(asked[kind]), "known": len(known), "wrong": wrong}
    return found


def share(count: int, of: int) -> dict[str, Any]:
    """A share with its 95 % interval (Wilson)."""
    if not of:
        return {"right": 0, "of": 0}
    p, z2 = count / of, 1.96**2
    middle, half = p + z2 / 2 / of, 1.96 * (p * (1 - p) / of + z2 / 4 / of**2) ** 0.5
    ends = [(middle + sign * half) / (1 + z2 / of) for sign in (-1, 1)]
    return {"right": count, "of": of, "share": p, "low": max(0.0, ends[0]), "high": ends[1]}


def right(file: str, scorer: str) -> dict[str, Any]:
    """How often each verdict is right within eight ranks, and how often each role is."""
    session = Session(scorer, scoring=ScorerConfig(ocr="on"))
    mec, result = MEC(preset="residual", session=session), {}
    rows = asked_with_kinds(file, "report")
    for which in ("qa", "own"):
        verdicts: dict[str, list[bool]] = {verdict: [] for verdict in VERDICTS}
        roles: dict[str, list[bool]] = {"evidence": [], "context": []}
        for question in (question for question, kind, _ in rows if kind == which):
            ranking = mec.rank(question.video, question.question)
            seconds = ranking.seconds[:SHOWN]
            hits = inside(seconds, question.intervals)
            verdicts[ranking.stats.match.verdict].append(bool(hits.any()))
            near = inside(seconds, tuple((start - 1, end + 1) for start, end in question.intervals))
            for role, hit in zip(ranking.roles, near.tolist(), strict=False):
                roles[role].append(hit)
        result[which] = {name: share(sum(hits), len(hits)) for name, hits in (verdicts | roles).items()}
    return result


def auc(pairs: list[Pair]) -> dict[str, Any]:
    """How often a right pair is above a wrong one of the same video, with its 95 % interval."""
    wrong = defaultdict(list)
    for where, right, value, *_ in pairs:
        if not right:
            wrong[where].append(value)
    wins = np.array(
        [
            np.mean([(value > other) + 0.5 * (value == other) for other in wrong[where]])
            for where, right, value, *_ in pairs
            if right and wrong[where]
        ]
    )
    rng = np.random.default_rng(0)
    means = [wins[rng.integers(0, len(wins), len(wins))].mean() for _ in range(1000)]
    return {
        "auc": float(wins.mean()),
        "low": float(np.percentile(means, 2.5)),
        "high": float(np.percentile(means, 97.5)),
        "right_pairs": len(wins),
    }


def verdicts(pairs: list[Pair]) -> dict[str, dict[str, float]]:
    """Shares of each verdict among right and wrong pairs; a video counts as much on both sides."""
    shares: dict[str, dict[str, float]] = {}
    rights = defaultdict(int)
    wrongs = defaultdict(int)
    for where, right, *_ in pairs:
        (rights if right else wrongs)[where] += 1
    for side in (True, False):
        weights: dict[str, float] = defaultdict(float)
        for where, right, _, verdict, *_ in pairs:
            if right == side and rights[where] and wrongs[where]:
                weights[verdict] += 1.0 if side else rights[where] / wrongs[where]
        total = sum(weights.values())
        shares["right" if side else "wrong"] = {v: weights[v] / total for v in VERDICTS}
    return shares


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--videos", help="where the videos lie; default: beside the file")
    parser.add_argument("--scorer", default="tags")
    asked = parser.parse_args()
    questions = load_questions(str(asked.questions), videos=asked.videos)
    rows = json.loads(asked.questions.read_text())
    clips = {row["question"] for row in rows if row.get("kind") == "clip"}
    session = Session(asked.scorer)
    videos = list(dict.fromkeys(question.video for question in questions))
    pairs = [pair for video in videos for pair in pairs_of(video, questions, clips, session)]
    result: dict[str, Any] = {"scorer": asked.scorer, "questions": len(questions)}
    for part in ("tune", "report"):
        some = [pair for pair in pairs if pair[4] == part]
        result[part] = auc(some) | {"verdicts": verdicts(some)}
        known = [pair for pair in some if pair[5]]
        if known:
            result[part]["a_word_is_known"] = auc(known)
        print(part, json.dumps(result[part]))
    if any(pair[5] for pair in pairs):  # a scorer with a vocabulary
        unanswered = json.loads(Path(__file__).with_name("match_questions.json").read_text())
        result["no_answer"] = unanswerable(videos, unanswered, session)
        result["words"] = words_known(unanswered, session)
        print(json.dumps([result["no_answer"], result["words"]]))
        result["right"] = right(str(asked.questions), asked.scorer)
    print(write(f"match_strength_{asked.scorer}", result))


if __name__ == "__main__":
    main()
