"""What reading and colours change, by kind of question: the scorer `tags` before and after.

    python benchmarks/reading.py qa.json [--part report]

The questions of a set, whose kinds question_kinds.json tells, and our own on the same videos
(own_questions.json), half of which were held out. Before is `tags` without colours and without reading, in
the same run. Writes results/reading.json and prints its table.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from machine import HERE, options, write
from quality import rounded

from framenest import Session
from framenest.config import ScorerConfig
from framenest.evaluation.grounded_questions import GroundedQuestion, load_questions
from framenest.evaluation.recall import Floats, collect, interval_of_mean
from framenest.scorers.calibration import Calibrated
from framenest.scorers.colours import COLOURS, OTHER_NAMES
from framenest.scorers.tags import TagScorer
from framenest.session import local_directory

BUDGETS = (1, 2, 4, 8, 16, 32, 64)
RULES = {"mec:residual": "mec:residual", "mec": "mec", "min-gap": "min-gap"}
SEEDS = 4


class WithoutColours(TagScorer):
    """`tags` as it was; its features are the same."""

    match = Calibrated.match


def asked(file: str, part: Any) -> list[tuple[GroundedQuestion, str, str]]:
    """Questions with the set and the kind of each."""
    kinds = json.loads((HERE / "question_kinds.json").read_text())
    rows = []
    for question in load_questions(file, part=part):
        words = set(re.findall("[a-z]+", question.question.lower()))
        kind = "colour" if words & {*COLOURS, *OTHER_NAMES} else "seen"
        kind = next((name for name in ("written", "count") if question.question in kinds[name]), kind)
        rows.append((question, "qa", kind))
    for row in json.loads((HERE / "own_questions.json").read_text()):
        if row["half"] == part:
            kind = {"negation": "count"}.get(row["kind"], row["kind"])
            spans = tuple((start, end) for start, end in row["intervals"])
            video = str(Path(file).parent / row["video"])
            rows.append((GroundedQuestion(video, row["question"], spans), "own", kind))
    return rows


def hits(
    rows: list[tuple[GroundedQuestion, str, str]],
    session: Session,
    seeds: int = 1,
    rules: dict[str, str] = RULES,
) -> dict[str, Floats]:
    """(questions, budgets) by rule: the share of the seeds that have a frame with the answer."""
    found = {}
    questions = [question for question, *_ in rows]
    for rule, outcomes in collect(questions, rules, BUDGETS, session, seeds=seeds).items():
        values = np.array([[one.by_budget[k]["hit"] for k in BUDGETS] for one in outcomes], dtype=float)
        found[rule] = values.reshape(len(rows), seeds, -1).mean(axis=1)
    return found


def by_kind(rows: list[tuple[GroundedQuestion, str, str]], before: Floats, after: Floats) -> dict[str, Any]:
    groups = {"all": np.ones(len(rows), bool)}
    for place in (1, 2):
        for name in dict.fromkeys(row[place] for row in rows):
            groups[name] = np.array([row[place] == name for row in rows])
    for name in dict.fromkeys(row[2] for row in rows):
        groups[f"qa, {name}"] = np.array([row[1:] == ("qa", name) for row in rows])
    return {
        name: {
            "questions": int(group.sum()),
            "before": dict(zip(map(str, BUDGETS), rounded(before[group].mean(axis=0)), strict=True)),
            "after": dict(zip(map(str, BUDGETS), rounded(after[group].mean(axis=0)), strict=True)),
            "difference": {
                str(k): rounded([change.mean(), *interval_of_mean(change)])
                for k, change in zip(BUDGETS, (after - before)[group].T, strict=True)
            },
        }
        for name, group in groups.items()
        if group.any()
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("questions", help="a question set with videos")
    parser.add_argument("--part", default="report", choices=["tune", "report"])
    parser.add_argument("--cache", help="a folder for features")
    parser.add_argument("--no-noise", action="store_true", help="leave out noisy truth")
    given = parser.parse_args()
    rows = asked(given.questions, given.part)

    def session(scorer: Any, ocr: Any) -> Session:
        return Session(scorer, store=given.cache, progress=False, scoring=ScorerConfig(ocr=ocr))

    store = local_directory(session(None, "none").store)
    before = hits(rows, session(WithoutColours(store), "none"))
    after = hits(rows, session("tags", "on"))
    sets = {f"tags, {rule}": by_kind(rows, before[rule], after[rule]) for rule in RULES}
    if not given.no_noise:
        rule = {"mec:residual": "mec:residual"}
        noisy = [
            hits(rows, session("noisy-truth:1", ocr), SEEDS, rule)["mec:residual"] for ocr in ("none", "on")
        ]
        sets["noisy truth, SNR 1, mec:residual"] = by_kind(rows, *noisy)
    written = {"part": given.part, "budgets": BUDGETS, "seeds_of_noise": SEEDS, "sets": sets}
    name = "reading" if given.part == "report" else "reading_tune"
    print(write(name, written).read_text())


if __name__ == "__main__":
    main()
