"""Benchmarks: their questions, their videos, the option that an answer names, and their scores."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from framenest.config import RelevanceText
from framenest.errors import ConfigError, StoreError, VideoError
from framenest.lmm.prompt import DIRECTLY
from framenest.method.mec import with_options
from framenest.records import read_rows
from framenest.selectors import FILE, check_selector
from framenest.video.source import VIDEO_SUFFIXES


class QueryText:
    """The text that selectors score: `question` or `question+options`, with exceptions by selector.

    The paper uses the same question text for all; WFS-SB's released code also scores the options, written
    as in the benchmark's files:

    >>> text = QueryText("wfs-sb=question+options")
    >>> str(text), text.kind("wfs-sb"), text.kind("mec:no-zoom")
    ('question,wfs-sb=question+options', 'question+options', 'question')
    """

    def __init__(self, text: str) -> None:
        """From comma-separated KIND and SELECTOR=KIND; `mec` also applies to `mec:SETTINGS`."""
        known = get_args(RelevanceText)
        self._kinds = {"": "question"}  # "" is the default
        for part in filter(None, (part.strip() for part in text.split(","))):
            selector, _, kind = part.rpartition("=")
            if kind not in known:
                raise ConfigError(
                    f"query = {part!r}; it must be one of {', '.join(known)}, or SELECTOR=… with one of them"
                )
            if selector:
                check_selector(selector)
            self._kinds[selector] = kind

    def __str__(self) -> str:
        return ",".join(f"{name}={kind}" if name else kind for name, kind in sorted(self._kinds.items()))

    def kind(self, selector: str) -> str:
        """The kind of text for a selector."""
        own = self._kinds
        return own.get(selector) or own.get(selector.partition(":")[0]) or own[""]


class MediaFolder:
    """Finds files below a folder by the names that annotations use: a path, a file name, or a stem.

    suffixes: of the files that a stem may mean; a video often has subtitles beside it.
    """

    def __init__(self, root: str | Path, suffixes: Collection[str] = VIDEO_SUFFIXES) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise StoreError(f"{self.root}: no such folder")
        self._by_name: dict[str, Path] = {}
        for file in sorted(f for f in self.root.rglob("*") if f.is_file()):
            self._by_name.setdefault(file.name, file)
            if file.suffix.lower() in suffixes:
                self._by_name.setdefault(file.stem, file)

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return (self.root / name).is_file() or Path(name).name in self._by_name

    def find(self, name: str) -> Path:
        """The file of a name; VideoError if there is none.

        >>> MediaFolder(".").find("kiln").name
        'kiln.mp4'
        """
        if not self.has(name):
            raise VideoError(f"{name}: no such file in {self.root}")
        direct = self.root / name
        return direct if direct.is_file() else self._by_name[Path(name).name]


LETTERS = "ABCDEFGHIJ"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class BenchmarkQuestion:
    """One multiple-choice question.

    video: the file as the benchmark names it, with or without a suffix. asked: the question with its
    options, as shown to the model. options: without their letters. answer: the right option's letter.
    category: what scores are broken down by (duration, group type, task). group, structure: which questions
    Video-MME-v2 scores together, and how they build on each other. subtitles: the subtitle file, with or
    without a suffix. with_options: the question with its options, as selectors score it.
    """

    id: str
    video: str
    question: str
    asked: str
    options: tuple[str, ...]
    answer: str
    category: str
    group: str = ""
    structure: str = ""
    subtitles: str = ""
    with_options: str = ""

    @property
    def prompt(self) -> str:
        """Question, options and the paper's instruction."""
        return f"{self.asked}\n{DIRECTLY}"

    def query(self, text: QueryText, selector: str) -> str:
        """The text that a selector scores. A file of frame lists is searched by the question alone."""
        if text.kind(selector) == "question" or selector.startswith(FILE):
            return self.question
        return self.with_options


def load_benchmark(dataset: str, annotations: str | Path) -> list[BenchmarkQuestion]:
    """Read a benchmark's own annotation file, or a folder of such files (MLVU).

    >>> row = {"id": "a_0", "video_path": "a.mp4", "question": "What is red?", "candidates": ["Car", "Cup"],
    ...        "correct_choice": 1, "duration_group": 15}
    >>> _ = Path("lvb_val.json").write_text(json.dumps([row]))
    >>> print(load_benchmark("longvideobench", "lvb_val.json")[0].prompt)
    What is red?
    A. Car
    B. Cup
    Answer with the option's letter from the given choices directly.
    """
    if dataset not in READERS:
        raise ConfigError(f"there is no benchmark {dataset!r}; choose from {', '.join(READERS)}")
    file = Path(annotations)
    try:
        found = [READERS[dataset](row) for row in read_rows(file) if not _open_ended(dataset, row)]
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ConfigError(f"{file}: not the annotations of {dataset} ({error!r})") from error
    if not found:
        raise ConfigError(f"{file}: no questions in this file")
    seen: Counter[str] = Counter()
    for place, question in enumerate(found):  # number repeated ids
        seen[question.id] += 1
        if seen[question.id] > 1:
            found[place] = replace(question, id=f"{question.id} #{seen[question.id]}")
    return found


def _open_ended(dataset: str, row: Row) -> bool:
    """MLVU has tasks without options; its macro accuracy is over the others."""
    return dataset == "mlvu" and "video_name" not in row and not row.get("candidates")


def _videomme(row: Row) -> BenchmarkQuestion:
    """Video-MME: `options` are "A. …" strings; the category is `duration` (short, medium, long)."""
    return _lettered(row, str(row["videoID"]), category=str(row["duration"]))


def _videomme_v2(row: Row) -> BenchmarkQuestion:
    """Video-MME-v2: eight options in one string; the four questions of a video are scored together."""
    video, structure = str(row["video_id"]), str(row["group_structure"])
    return _lettered(row, video, category=str(row["group_type"]), group=video, structure=structure)


def _lettered(row: Row, video: str, **more: str) -> BenchmarkQuestion:
    """A row of either Video-MME, whose options start with their letters."""
    given, question = row["options"], str(row["question"])
    options = given.strip().split("\n") if isinstance(given, str) else [str(option) for option in given]
    return BenchmarkQuestion(
        id=str(row["question_id"]),
        video=video,
        question=question,
        asked="\n".join([question, *options]),
        options=tuple(re.sub(r"^\s*\(?[A-J][.):]\s*", "", option).strip() for option in options),
        answer=_letter(row["answer"], len(options)),
        subtitles=video,
        with_options=with_options(question, options),
        **more,
    )


def _longvideobench(row: Row) -> BenchmarkQuestion:
    """LongVideoBench: `candidates`, or option0 to option4 with "N/A"; the category is `duration_group`."""
    if row.get("candidates") is not None:
        options = [str(option) for option in row["candidates"]]
    else:
        options = [str(row[name]) for i in range(5) if row.get(name := f"option{i}") not in (None, "N/A")]
    return BenchmarkQuestion(
        id=str(row["id"]),
        video=str(row["video_path"]),
        question=str(row["question"]),
        asked="\n".join([str(row["question"]), *(f"{LETTERS[i]}. {text}" for i, text in enumerate(options))]),
        options=tuple(options),
        answer=_letter(LETTERS[int(row["correct_choice"])], len(options)),
        category=str(int(row["duration_group"])),
        subtitles=str(row.get("subtitle_path", "")),
        with_options=with_options(str(row["question"]), options),
    )


def _mlvu(row: Row) -> BenchmarkQuestion:
    """MLVU: `candidates` and the answer's text; in lmms-eval's copy (`video_name`), the question has them."""
    if row.get("video_name") is None:
        question, options = str(row["question"]), [str(option) for option in row["candidates"]]
        asked = "\n".join([question, *(f"({LETTERS[i]}) {text}" for i, text in enumerate(options))])
        answer = LETTERS[options.index(str(row["answer"]))]
        video, task = str(row["video"]), str(row["question_type"])
    else:
        asked, answer = str(row["question"]), str(row["answer"])
        found = list(re.finditer(r"^[ \t]*\([A-J]\)(.*)$", asked, re.M))  # an option may be empty
        if not found:
            raise ValueError(f"no options (A), (B), … in the question {asked!r}")
        question, options = asked[: found[0].start()].strip(), [option[1].strip() for option in found]
        video, task = str(row["video_name"]), str(row["task_type"])
    return BenchmarkQuestion(
        id=str(row.get("question_id") or f"{video}: {question}"),
        video=video,
        question=question,
        asked=asked,
        options=tuple(options),
        answer=_letter(answer, len(options)),
        category=task,
        with_options=asked if asked.endswith("\n") else asked + "\n",
    )


def _letter(answer: Any, count: int) -> str:
    letter = str(answer).strip().upper()
    if len(letter) != 1 or letter not in LETTERS[:count]:
        raise ValueError(f"the answer {answer!r} is not one of its {count} options")
    return letter


READERS: dict[str, Callable[[Row], BenchmarkQuestion]] = {
    "videomme": _videomme,
    "videomme-v2": _videomme_v2,
    "longvideobench": _longvideobench,
    "mlvu": _mlvu,
}


_PHRASE = r"(?:answer|option|choice)\b(?:\s+(?:is|would\s+be|should\s+be))?"
_GOES_ON = r"because|since|as|for|due|from|based|according|which"  # the letter before it is not an article


def chosen_letter(text: str, options: Sequence[str]) -> str | None:
    """The letter of the option that an answer names; None if it names none or several.

    >>> chosen_letter("The best answer is (C).", ["a dog", "a cat", "a cup", "a car"])
    'C'
    >>> chosen_letter("It shows a cup.", ["a dog", "a cat", "a cup", "a car"])
    'C'
    >>> chosen_letter("A or B, I cannot tell", ["a dog", "a cat", "a cup", "a car"])
    """
    text = text.strip()
    letters = LETTERS[: len(options)]
    if alone := re.fullmatch(rf"\W*(?:(?:{_PHRASE})\W*)?([{letters}])\W*", text, re.I):
        return alone[1].upper()
    for pattern in (
        rf"\\boxed\{{\W*([{letters}])\W*\}}",
        rf"(?i:{_PHRASE})\s*[:=]?\s*[*(\[\"']*([{letters}])\b(?!\s+(?!(?:{_GOES_ON})\b)[a-z])",
        rf"^\W*([{letters}])\W*$",
    ):
        if found := re.findall(pattern, text, re.M):
            return str(found[-1])
    if begins := re.match(rf"\W*([{letters}])\s*(?:[.):\]*]|\n)", text):
        return begins[1]
    marked = set(re.findall(rf"[(\[*]([{letters}])[)\]*]", text))
    if len(marked) == 1:
        return str(marked.pop())
    words = enumerate(map(_words, options))
    named = [letters[i] for i, option in words if option.strip() and option in _words(text)]
    if len(named) == 1:
        return named[0]
    without_articles = re.sub(rf"\bA(?=\s+(?!(?:or|and|nor|{_GOES_ON})\b)[a-z])", "", text)
    lone = set(re.findall(rf"\b([{letters}])\b(?!')", without_articles))
    return str(lone.pop()) if len(lone) == 1 else None


def _words(text: str) -> str:
    return " ".join(["", *re.findall(r"[^\W_]+", text.lower()), ""])


Marks = Sequence[tuple[BenchmarkQuestion, bool]]  # questions and whether each was answered correctly

CHAIN = (0.0, 100 / 16, 400 / 16, 900 / 16, 100.0)
"""Points for 0 to 4 correct answers: the square of their share."""
CHAINS: dict[str, tuple[float, ...]] = {
    "[1, 2, 3, 4]": CHAIN,
    "[1, [2, 3], 4]": (0.0, 100 / 12, 400 / 12, 700 / 12, 100.0),
    "[[1, 2], 3, 4]": (0.0, 10.0, 20.0, 50.0, 100.0),
}
"""Points for a run of correct answers from the first question, by group structure."""


def accuracy(marks: Marks) -> float:
    """Share of correct answers.

    >>> accuracy([(None, True), (None, False), (None, False), (None, True)])
    50.0
    """
    return 100.0 * sum(correct for _, correct in marks) / len(marks)


def accuracy_in(category: str, marks: Marks) -> float | None:
    """Accuracy of one category; None if no question of it was answered."""
    found = [mark for mark in marks if mark[0].category == category]
    return accuracy(found) if found else None


def macro(marks: Marks) -> float:
    """Mean accuracy of the categories, each with equal weight."""
    categories = dict.fromkeys(question.category for question, _ in marks)
    return sum(accuracy_in(category, marks) or 0.0 for category in categories) / len(categories)


def group_score(kind: str, structure: str, correct: Sequence[bool]) -> float:
    """Points for the four answers of a group of Video-MME-v2, in the order of its questions.

    A "relevance" group earns the square of its share of correct answers. In a "logic" group only the run
    of correct answers from the first question counts; in a nested pair of the structure, the second may
    replace the first.

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
    """Mean points of Video-MME-v2's complete groups."""
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


MAIN_TABLE: dict[str, tuple[str, Callable[[Marks], float | None]]] = {
    "Short": ("videomme", partial(accuracy_in, "short")),
    "Medium": ("videomme", partial(accuracy_in, "medium")),
    "Long": ("videomme", partial(accuracy_in, "long")),
    "Overall": ("videomme", accuracy),
    "Non-Lin.": ("videomme-v2", nonlinear),
    "Micro Acc.": ("videomme-v2", accuracy),
    "LVB": ("longvideobench", accuracy),
    "MLVU": ("mlvu", macro),
}
"""The columns of the paper's main table: the benchmark of each, and its score in percent."""
