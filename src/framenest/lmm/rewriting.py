"""Rewriting: a model turns a question into descriptions of what to look for, before any frame is chosen."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from framenest.errors import ModelError
from framenest.frames import VideoInfo
from framenest.lmm.answer import Answerer
from framenest.lmm.prompt import lettered
from framenest.lmm.request import Request
from framenest.lmm.tokens import CHARACTERS, Tokens
from framenest.method.discovery import LookFor
from framenest.method.prefix import Prefix

MOST = 4
LONGEST = 200  # characters of a description
INSTRUCTION = (
    "A question will be asked about a video that you cannot see yet. Write two to four short descriptions of "
    "what single frames that help to answer it would show, each as a caption of a picture: things, people, "
    "places and actions that can be seen, no questions, no guesses of the answer. One on each line."
)
_BULLET = re.compile(r"^\s*(?:[-*•–]+|\(?\d{1,2}[.):])\s*")


def rewrite(answerer: Answerer, video: VideoInfo, question: str, options: Sequence[str] = ()) -> LookFor:
    """Have a model write what to look for: one short call, without pictures.

    Args:
        answerer: who answers the question afterwards; a `Client`, or anything with its `answer`.
        video: which video it is about; only its name is kept, nothing of it is sent.
        question: what will be asked.
        options: the answers to choose from.

    Returns:
        Two to four descriptions, joined by any, with the model's name; for `MEC.rank(look_for=…)`.

    Raises:
        ModelError: the model gave no answer, or no descriptions.

    >>> rewrite(client, ranking.video, "What happens after firing?").texts
    ('A kiln.',)
    """
    text = "\n".join([INSTRUCTION, "", f"Question: {question}", *lettered(options)])
    request = Request(
        style="openai",
        prefix=Prefix(video, 0, np.zeros(0, np.int64), np.zeros(0), None),
        messages=[{"role": "user", "content": [{"type": "text", "text": text}]}],
        extra_body={},
        pictures=[],
        processor={},
        markers=[],
        tokens=Tokens(0, 0, len(text) // CHARACTERS),
    )
    answer = answerer.answer(request)
    found = descriptions(answer.text)
    if not found:
        raise ModelError(
            f"{answer.model} wrote no descriptions to look for; ask without --rewrite, or give --look-for"
        )
    return LookFor(found, written_by=answer.model)


def descriptions(answer: str) -> tuple[str, ...]:
    """The descriptions in a model's answer, without bullets, quotes, headings and repeats; at most four.

    >>> descriptions("Sure, here they are:\\n1. A glowing kiln.\\n2. “Cups on a shelf”\\n")
    ('A glowing kiln.', 'Cups on a shelf')
    """
    lines = [_BULLET.sub("", line).strip(" \t*\"'“”‘’") for line in answer.splitlines()]
    wanted = [line[:LONGEST] for line in lines if line and not line.endswith(":")]
    return tuple(dict.fromkeys(wanted))[:MOST]
