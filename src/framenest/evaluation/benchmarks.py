"""Questions of the paper's benchmarks, as lmms-eval's rows hold them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from framenest.method.mec import with_options

Row = Mapping[str, Any]


@dataclass(frozen=True)
class BenchmarkQuestion:
    """One multiple-choice question.

    question: without its options. asked: with its options, as shown to the model. with_options: with its
    options, as WFS-SB's released code scores it.
    """

    question: str
    asked: str
    with_options: str


def _videomme(row: Row) -> BenchmarkQuestion:
    """Both Video-MME: the options start with their letters; in Video-MME-v2 they are one string."""
    listed, question = row["options"], str(row["question"])
    options = listed.strip().split("\n") if isinstance(listed, str) else [str(option) for option in listed]
    return BenchmarkQuestion(question, "\n".join([question, *options]), with_options(question, options))


def _longvideobench(row: Row) -> BenchmarkQuestion:
    """LongVideoBench: option0 to option4, with "N/A" for those that a question lacks."""
    question = str(row["question"])
    options = [str(row[name]) for i in range(5) if row.get(name := f"option{i}") not in (None, "N/A")]
    lettered = (f"{letter}. {text}" for letter, text in zip("ABCDE", options, strict=False))
    return BenchmarkQuestion(question, "\n".join([question, *lettered]), with_options(question, options))


def _mlvu(row: Row) -> BenchmarkQuestion:
    """MLVU: the question has its options as lines "(A) …"."""
    asked = str(row["question"])
    first = re.search(r"^[ \t]*\([A-J]\)", asked, re.M)
    if first is None:
        raise ValueError(f"no options (A), (B), … in the question {asked!r}")
    return BenchmarkQuestion(asked[: first.start()].strip(), asked, asked.removesuffix("\n") + "\n")


READERS: dict[str, Callable[[Row], BenchmarkQuestion]] = {
    "videomme": _videomme,
    "videomme-v2": _videomme,
    "longvideobench": _longvideobench,
    "mlvu": _mlvu,
}
