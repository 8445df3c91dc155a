"""Answers to letters, and letters to benchmark scores."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence

from framenest.evaluation.benchmarks import BenchmarkQuestion

_PHRASE = r"(?:answer|option|choice)\b(?:\s+(?:is|would\s+be|should\s+be))?"

_GOES_ON = r"because|since|as|for|due|from|based|according|which"  # after a letter; no article stands there


def chosen_letter(text: str, options: Sequence[str]) -> str | None:
    """The letter of the option that an answer names, or None where it names none or several.

    >>> chosen_letter("The best answer is (C).", ["a dog", "a cat", "a cup", "a car"])
    'C'
    >>> chosen_letter("It shows a cup.", ["a dog", "a cat", "a cup", "a car"])
    'C'
    >>> chosen_letter("A or B, I cannot tell", ["a dog", "a cat", "a cup", "a car"])
    """
    text = text.strip()
    letters = "ABCDEFGHIJ"[: len(options)]
    either = f"[{letters}{letters.lower()}]"
    alone = re.fullmatch(rf"\W*(?:(?:{_PHRASE})\W*)?({either})\W*", text, re.I)
    if alone:
        return alone.group(1).upper()
    for pattern in (
        rf"\\boxed\{{\W*([{letters}])\W*\}}",
        rf"(?i:{_PHRASE})\s*[:=]?\s*[*(\[\"']*([{letters}])\b(?!\s+(?!(?:{_GOES_ON})\b)[a-z])",
        rf"^\W*([{letters}])\W*$",
    ):
        found = re.findall(pattern, text, re.M)
        if found:
            return str(found[-1])
    begins = re.match(rf"\W*([{letters}])\s*(?:[.):\]*]|\n)", text)
    if begins:
        return begins.group(1)
    marked = set(re.findall(rf"[(\[*]([{letters}])[)\]*]", text))
    if len(marked) == 1:
        return str(marked.pop())
    return _by_text(text, options, letters) or _by_lone_letter(text, letters)


def _by_text(text: str, options: Sequence[str], letters: str) -> str | None:
    """The one option whose words stand in the answer."""
    plain = _words(text)
    named = [i for i, option in enumerate(options) if _words(option).strip() and _words(option) in plain]
    return letters[named[0]] if len(named) == 1 else None


def _by_lone_letter(text: str, letters: str) -> str | None:
    """The one capital letter that stands by itself; an "A" before a word is an article."""
    alone = set(
        re.findall(
            rf"\b([{letters}])\b(?!')", re.sub(rf"\bA(?=\s+(?!(?:or|and|nor|{_GOES_ON})\b)[a-z])", "", text)
        )
    )
    return str(alone.pop()) if len(alone) == 1 else None


def _words(text: str) -> str:
    words = " ".join(re.findall(r"[^\W_]+", text.lower()))
    return f" {words} "


Marks = Sequence[tuple[BenchmarkQuestion, bool]]
"""Questions and whether each was answered correctly."""

Scores = Mapping[str, float | None]
"""By name; None where no question of that kind was answered."""

CHAIN = (0.0, 100 / 16, 400 / 16, 900 / 16, 100.0)
"""Points for 0 to 4 correct answers: the square of their share."""
CHAINS: dict[str, tuple[float, ...]] = {
    "[1, 2, 3, 4]": CHAIN,
    "[1, [2, 3], 4]": (0.0, 100 / 12, 400 / 12, 700 / 12, 100.0),
    "[[1, 2], 3, 4]": (0.0, 10.0, 20.0, 50.0, 100.0),
}
"""Points for a run of correct answers from the first question, by how the questions build on each other."""


def accuracy(marks: Marks) -> float:
    """Share of correct answers.

    >>> accuracy([(None, True), (None, False), (None, False), (None, True)])
    50.0
    """
    return 100.0 * sum(correct for _, correct in marks) / len(marks)


def by_category(marks: Marks) -> dict[str, float]:
    """Accuracy of each category, in the order in which they first come."""
    names = dict.fromkeys(question.category for question, _ in marks)
    return {name: accuracy([m for m in marks if m[0].category == name]) for name in names}


def macro(marks: Marks) -> float:
    """Mean accuracy of the categories: each counts the same, however many questions it has."""
    scores = by_category(marks)
    return sum(scores.values()) / len(scores)


def group_score(kind: str, structure: str, correct: Sequence[bool]) -> float:
    """Points for the four answers of a group of Video-MME-v2, in the order of its questions.

    A "relevance" group earns the square of its share of correct answers. In a "logic" group only the run
    of correct answers from the first question counts; questions that stand side by side in the structure
    may stand for each other at its beginning.

    >>> group_score("relevance", "None", [True, False, True, False])
    25.0
    >>> group_score("logic", "[1, 2, 3, 4]", [True, False, True, True])
    6.25
    """
    if len(correct) != 4:
        raise ValueError(f"a group has four questions, not {len(correct)}")
    if kind == "relevance":
        return CHAIN[sum(correct)]
    if kind != "logic":
        raise ValueError(f"there is no group type {kind!r}")
    form = str(ast.literal_eval(structure))
    if form not in CHAINS:
        raise ValueError(f"there is no group structure {structure!r}")
    run = next((i for i, right in enumerate(correct) if not right), 4)
    if form == "[1, [2, 3], 4]" and run == 1 and correct[2]:
        run = 2
    if form == "[[1, 2], 3, 4]" and run == 0 and correct[1]:
        run = 1
    return CHAINS[form][run]


def nonlinear(marks: Marks) -> float | None:
    """Mean points of Video-MME-v2's groups; groups of which a question is missing are left out."""
    groups: dict[str, list[tuple[BenchmarkQuestion, bool]]] = {}
    for mark in marks:
        groups.setdefault(mark[0].group, []).append(mark)
    points = []
    for members in groups.values():
        if len(members) == 4:
            members.sort(key=lambda mark: int(mark[0].id.rpartition("-")[2]))
            first = members[0][0]
            points.append(group_score(first.category, first.structure, [correct for _, correct in members]))
    return sum(points) / len(points) if points else None


def _videomme(marks: Marks) -> Scores:
    parts = by_category(marks)
    return {**{name: parts.get(name) for name in ("short", "medium", "long")}, "overall": accuracy(marks)}


def _videomme_v2(marks: Marks) -> Scores:
    kinds = {
        f"nonlinear {kind}": nonlinear([m for m in marks if m[0].category == kind])
        for kind in ("relevance", "logic")
    }
    return {"nonlinear": nonlinear(marks), "micro": accuracy(marks), **kinds}


def _longvideobench(marks: Marks) -> Scores:
    parts = by_category(marks)
    by_duration = {f"{seconds} s": parts[seconds] for seconds in sorted(parts, key=int)}
    return {"overall": accuracy(marks), **by_duration}


def _mlvu(marks: Marks) -> Scores:
    return {"macro": macro(marks), "micro": accuracy(marks), **dict(sorted(by_category(marks).items()))}


SCORES: dict[str, Callable[[Marks], Scores]] = {
    "videomme": _videomme,
    "videomme-v2": _videomme_v2,
    "longvideobench": _longvideobench,
    "mlvu": _mlvu,
}
"""All scores of a benchmark; those of the paper's main table first."""

MAIN_TABLE = {
    "Short": ("videomme", "short"),
    "Medium": ("videomme", "medium"),
    "Long": ("videomme", "long"),
    "Overall": ("videomme", "overall"),
    "Non-Lin.": ("videomme-v2", "nonlinear"),
    "Micro Acc.": ("videomme-v2", "micro"),
    "LVB": ("longvideobench", "overall"),
    "MLVU": ("mlvu", "macro"),
}
"""The columns of the paper's main table."""
