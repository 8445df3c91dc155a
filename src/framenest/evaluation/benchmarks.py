"""Benchmarks: their questions and their videos."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from framenest.errors import ConfigError, StoreError, VideoError
from framenest.lmm.prompt import DIRECTLY
from framenest.method.mec import with_options
from framenest.records import read_rows
from framenest.selectors import FILE, check_selector
from framenest.video.source import VIDEO_SUFFIXES

KINDS = ("question", "question+options")


@dataclass(frozen=True)
class QueryText:
    """`question` or `question+options` for all selectors, and exceptions by selector.

    The paper has the same question text for all; WFS-SB's released code scores the choices, too:

    >>> text = QueryText.parse("question,wfs-sb=question+options")
    >>> text.kind("wfs-sb"), text.kind("mec:no-zoom")
    ('question+options', 'question')
    """

    default: str = "question"
    exceptions: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> QueryText:
        """From KIND and SELECTOR=KIND between commas; what is said of `mec` holds for `mec:SETTINGS`, too."""
        default, exceptions = cls.default, {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            selector, _, kind = part.rpartition("=")
            if kind not in KINDS:
                raise ConfigError(
                    f"query = {part!r}; it must be one of {', '.join(KINDS)}, or SELECTOR=… with one of them"
                )
            if selector:
                check_selector(selector)
                exceptions[selector] = kind
            else:
                default = kind
        return cls(default, tuple(sorted(exceptions.items())))

    def __str__(self) -> str:
        return ",".join([self.default, *(f"{selector}={kind}" for selector, kind in self.exceptions)])

    def kind(self, selector: str) -> str:
        """What a selector scores frames for."""
        own = dict(self.exceptions)
        return own.get(selector) or own.get(selector.partition(":")[0]) or self.default


class MediaFolder:
    """Files below a folder by the names that annotations use: a path, a file name, or one without suffix.

    suffixes: which files may stand for a name without one; subtitles and notes often lie beside a video.
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

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those that are not here, each once."""
        return [name for name in dict.fromkeys(names) if self._path(name) is None]

    def find(self, name: str) -> Path:
        """The file that a name means; VideoError where there is none.

        >>> MediaFolder(".").find("kiln").name
        'kiln.mp4'
        """
        found = self._path(name)
        if found is None:
            raise VideoError(f"{name}: no such file in {self.root}")
        return found

    def _path(self, name: str) -> Path | None:
        direct = self.root / name
        return direct if direct.is_file() else self._by_name.get(Path(name).name)


LETTERS = "ABCDEFGHIJ"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class BenchmarkQuestion:
    """One multiple-choice question.

    video: the file as the benchmark names it, with or without a suffix. asked: the question with its
    choices, as shown to the model. options: the choices without their letters. answer: a letter.
    category: what scores are broken down by (duration, kind of group, task). group and structure:
    which questions Video-MME-v2 scores together, and how they build on each other. subtitles: the
    subtitle file, without a suffix where the benchmark gives none.

    >>> row = {"id": "a_0", "video_path": "a.mp4", "question": "What is red?", "candidates": ["Car", "Cup"],
    ...        "correct_choice": 1, "duration_group": 15}
    >>> print(READERS["longvideobench"](row).prompt)
    What is red?
    A. Car
    B. Cup
    Answer with the option's letter from the given choices directly.
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

    @property
    def prompt(self) -> str:
        """What the model is asked: question, choices and the paper's instruction, the same for all."""
        return f"{self.asked}\n{DIRECTLY}"

    def query(self, text: QueryText, selector: str) -> str:
        """What a selector scores relevance for: the question, or the question and its choices.

        Lists of frames that were made elsewhere are found by the question alone.
        """
        if text.kind(selector) == "question" or selector.startswith(FILE):
            return self.question
        return with_options(self.question, self.options)


def load_benchmark(dataset: str, annotations: str | Path) -> list[BenchmarkQuestion]:
    """The questions of a benchmark from its own annotation file (or folder, as MLVU has it).

    >>> row = {"id": "a_0", "video_path": "a.mp4", "question": "What is red?", "candidates": ["Car", "Cup"],
    ...        "correct_choice": 1, "duration_group": 15}
    >>> _ = Path("lvb_val.json").write_text(json.dumps([row]))
    >>> load_benchmark("longvideobench", "lvb_val.json")[0].answer
    'B'
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
    for place, question in enumerate(found):  # each gets an id of its own: a repeated one a number
        seen[question.id] += 1
        if seen[question.id] > 1:
            found[place] = replace(question, id=f"{question.id} #{seen[question.id]}")
    return found


def _open_ended(dataset: str, row: Row) -> bool:
    """MLVU has tasks without choices; its macro accuracy is over the others."""
    return dataset == "mlvu" and "video_name" not in row and not row.get("candidates")


def _videomme(row: Row) -> BenchmarkQuestion:
    """Video-MME: `options` are "A. …" texts; broken down by `duration` (short, medium, long)."""
    return _lettered(row, str(row["videoID"]), category=str(row["duration"]))


def _videomme_v2(row: Row) -> BenchmarkQuestion:
    """Video-MME-v2: eight options in one text, four questions to a video that are scored together."""
    video, structure = str(row["video_id"]), str(row["group_structure"])
    return _lettered(row, video, category=str(row["group_type"]), group=video, structure=structure)


def _lettered(row: Row, video: str, **more: str) -> BenchmarkQuestion:
    """A row of either Video-MME, whose options begin with their letters."""
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
        **more,
    )


def _longvideobench(row: Row) -> BenchmarkQuestion:
    """LongVideoBench: `candidates`, or option0 to option4 with "N/A"; broken down by `duration_group`."""
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
    )


def _mlvu(row: Row) -> BenchmarkQuestion:
    """MLVU: `candidates` and the answer's text; or, in lmms-eval's copy, choices inside the question."""
    if row.get("candidates") is not None:
        question, options = str(row["question"]), [str(option) for option in row["candidates"]]
        asked = "\n".join([question, *(f"({LETTERS[i]}) {text}" for i, text in enumerate(options))])
        answer = LETTERS[options.index(str(row["answer"]))]
        video, task = str(row["video"]), str(row["question_type"])
    else:
        asked, answer = str(row["question"]), str(row["answer"])
        choices = list(re.finditer(r"^\s*\(([A-J])\)\s*(.*)$", asked, re.M))
        if not choices:
            raise ValueError(f"no choices as (A), (B) in the question {asked!r}")
        question, options = asked[: choices[0].start()].strip(), [c.group(2).strip() for c in choices]
        video, task = str(row["video_name"]), str(row["task_type"])
    return BenchmarkQuestion(
        id=str(row.get("question_id") or f"{video}: {question}"),
        video=video,
        question=question,
        asked=asked,
        options=tuple(options),
        answer=_letter(answer, len(options)),
        category=task,
    )


def _letter(answer: Any, count: int) -> str:
    letter = str(answer).strip().upper()
    if len(letter) != 1 or letter not in LETTERS[:count]:
        raise ValueError(f"the answer {answer!r} is none of its {count} options")
    return letter


READERS: dict[str, Callable[[Row], BenchmarkQuestion]] = {
    "videomme": _videomme,
    "videomme-v2": _videomme_v2,
    "longvideobench": _longvideobench,
    "mlvu": _mlvu,
}
