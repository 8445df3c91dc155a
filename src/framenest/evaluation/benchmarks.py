"""Multiple-choice questions of the four benchmarks, from the rows of their own annotation files.

Each reader takes a row as the benchmark's authors publish it, and as lmms-eval's copy of the data set
has it where the two differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from framenest.lmm.prompt import DIRECTLY

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


def _videomme(row: Row) -> BenchmarkQuestion:
    """Video-MME: `options` are "A. …" texts; broken down by `duration` (short, medium, long)."""
    options = [str(option) for option in row["options"]]
    return BenchmarkQuestion(
        id=str(row["question_id"]),
        video=str(row["videoID"]),
        question=str(row["question"]),
        asked="\n".join([str(row["question"]), *options]),
        options=tuple(_without_letter(option) for option in options),
        answer=_letter(row["answer"], len(options)),
        category=str(row["duration"]),
        subtitles=str(row["videoID"]),
    )


def _videomme_v2(row: Row) -> BenchmarkQuestion:
    """Video-MME-v2: eight options in one text, four questions to a video that are scored together."""
    given = row["options"]
    options = given.strip().split("\n") if isinstance(given, str) else [str(option) for option in given]
    return BenchmarkQuestion(
        id=str(row["question_id"]),
        video=str(row["video_id"]),
        question=str(row["question"]),
        asked="\n".join([str(row["question"]), *options]),
        options=tuple(_without_letter(option) for option in options),
        answer=_letter(row["answer"], len(options)),
        category=str(row["group_type"]),
        group=str(row["video_id"]),
        structure=str(row["group_structure"]),
        subtitles=str(row["video_id"]),
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


def _without_letter(option: str) -> str:
    return re.sub(r"^\s*\(?[A-J][.):]\s*", "", option).strip()


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
