"""lmms-eval 0.7.3's own prompts, token limits and reading of answers, quirks included, without lmms-eval."""

from __future__ import annotations

import random
import re
from typing import Literal

from framenest.evaluation.benchmarks import LETTERS, BenchmarkQuestion
from framenest.lmm.prompt import DIRECTLY

Wording = Literal["paper", "lmms-eval"]
Parse = Literal["framenest", "lmms-eval"]

ANSWER_TOKENS = {"videomme": 16, "videomme-v2": 64, "longvideobench": 32, "mlvu": 16}
_SELECT = (
    "Select the best answer to the following multiple-choice question based on the {}. Respond with only the "
    "letter ({}) of the correct option."
)
_AROUND = {  # for models without a prompt of their own, such as qwen3_5; MLVU's is that of the dev set
    "videomme": (_SELECT.format("video and the subtitles", "A, B, C, or D") + "\n", f"\n\n{DIRECTLY}"),
    "videomme-v2": ("Question: ", "\n" + _SELECT.format("video", "A, B, C, D, E, F, G, or H")),
    "longvideobench": ("", f"\n{DIRECTLY}\n"),
    "mlvu": ("", "\nOnly give the best option.\nBest option: ("),
}


def prompt(question: BenchmarkQuestion, dataset: str, wording: Wording) -> str:
    """What a model is asked: the paper's prompt, or that of lmms-eval's task."""
    before, after = _AROUND[dataset]
    return question.prompt if wording == "paper" else f"{before}{question.asked}{after}"


def letter(text: str, question: BenchmarkQuestion, dataset: str) -> str | None:
    """The letter that lmms-eval reads from an answer; None if it finds none.

    On LongVideoBench it then draws one. Here the seed is the question's id: a resumed run draws the same.
    """
    text, options = text.strip(), question.options
    if dataset == "videomme-v2":
        said = [i for i, option in enumerate(options) if option.strip(". \n").lower() in text.lower()]
        return _anchored(text) or (LETTERS[said[0]] if len(said) == 1 else None)
    if dataset == "longvideobench":
        found = re.search("[A-E]", re.sub(_PREFIXES, "", text))
        return found[0] if found else random.Random(question.id).choice(LETTERS[: len(options)])
    return _ranked(text)


_NAMED = ("answer", "choice", *(f"{b} {a}" for b in ("correct", "best") for a in ("answer", "option")))
_PHRASES = [f"{the}{named} is" for the in ("", "the ") for named in (*_NAMED, "correct choice")]
_PHRASES += ["i choose", "i select", "i pick", "my answer is", "my choice is"]
_PHRASES += ["옵션", "정답은", "답은", "답:", "答案是", "答案为", "选", "答えは"]


def _ranked(text: str) -> str | None:
    """Video-MME and MLVU: A to D in the most telling of several forms; within a form, the last."""
    for mark in ",.!?;:'\"":
        text = text.strip(mark)
    text, bare = f" {text} ", text.strip()
    for own, beside in ((bare[:1], bare[1:2]), (bare[-1:], bare[-2:-1])):  # at the start, at the end
        if own in tuple("ABCD") and not beside.isalpha():
            return own
    lower = text.lower()
    after = [lower.find(phrase) + len(phrase) for phrase in _PHRASES if phrase in lower]
    forms = [[(text.find(choice, place), choice) for place in after for choice in "ABCD"]]
    for form in ("({})", "{}.", "{}:", "{})", "{} ", "{}"):
        forms.append([(text.rfind(form.format(choice)), choice) for choice in "ABCD"])
    return next((best[1] for places in forms if (best := max(places, default=(-1, "")))[0] >= 0), None)


_PREFIXES = "The (?:best|correct) (?:answer|option) is|The answer is|The answer|Best (?:answer|option):"


def _anchored(text: str) -> str | None:
    """Video-MME-v2: a letter that stands alone on the last or first line, after a phrase, or in bold."""
    alone = r"[ \t]*(?:\*\*[ \t]*)?([A-H])(?:[ \t]*\*\*)?[ \t]*"
    found = re.search(rf"(?:^|\n){alone}[.)]?[ \t]*$", text, re.I)
    if found := found or re.match(rf"{alone}(?:[.)]|\r?\n|$)", text, re.I):
        return found[1].upper()
    phrase = rf"{_PREFIXES}|Final Answer:|Answer:|Option:|\b(?:answer|option)(?:\s+(?:is|would\s+be)|\s*:)"
    if said := re.findall(rf"(?:{phrase})[\s:*]*([A-H])\b", text, re.I):
        return str(said[-1]).upper()
    bold = {choice.upper() for choice in re.findall(r"\*\*\s*([A-H])(?=\s*\*\*|[.)])", text, re.I)}
    return bold.pop() if len(bold) == 1 else None
