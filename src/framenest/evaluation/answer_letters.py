"""The letter that a model answered, once its reasoning is stripped (lmm.answer)."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
