"""Names of colours: which a question asks for, and how much of a picture has each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from PIL import Image

from framenest.frames import Floats, Ints, Pixels
from framenest.scorers.question_text import COMMON

COLOURS = ("black", "white", "grey", "red", "orange", "yellow", "green", "blue", "purple", "pink", "brown")
BLACK, WHITE, GREY, RED, ORANGE, YELLOW, GREEN, BLUE, PURPLE, PINK, BROWN = range(len(COLOURS))
OTHER_NAMES = {"gray": "grey", "gold": "yellow", "golden": "yellow", "beige": "white", "turquoise": "blue"}
BLOCKS = 32  # on each side of a picture; smaller spots say little about what a frame shows
HUES = (12, 40, 68, 165, 255, 300, 345)  # degrees at which the next name begins
BY_HUE = np.array([RED, ORANGE, YELLOW, GREEN, BLUE, PURPLE, PINK, RED])


def colour_places(image: Pixels) -> Ints:
    """(32, 32) the places in COLOURS of the blocks of an image (h, w, 3)."""
    blocks = Image.fromarray(image).resize((BLOCKS, BLOCKS), Image.Resampling.BOX).convert("HSV")
    hue, saturation, value = np.moveaxis(np.asarray(blocks) / 255, -1, 0)
    names: Ints = BY_HUE[np.searchsorted(HUES, 360 * hue, side="right")]
    pale = saturation < 0.18
    names[(names == ORANGE) & (value < 0.6)] = BROWN
    names[(names == RED) & (saturation < 0.55) & (value > 0.65)] = PINK
    names[pale] = np.where(value[pale] > 0.75, WHITE, GREY)
    names[value < 0.2] = BLACK
    return names


def colour_shares(images: Iterable[Pixels]) -> Floats:
    """(n, 11) the share of each of n images that has each colour."""
    counts = [np.bincount(colour_places(image).ravel(), minlength=len(COLOURS)) for image in images]
    return np.array(counts, np.float32).reshape(-1, len(COLOURS)) / np.float32(BLOCKS**2)


def colours_of(question: str, terms: Sequence[str]) -> dict[str, int]:
    """The colours that a question asks for: its words and their places. terms: of the question, by meaning.

    An orange is a fruit unless a word for a thing follows. "golden retriever" is a term, and no colour.

    >>> colours_of("When is the gold car beside the orange?", ["gold", "car", "orange"])
    {'gold': 5}
    """
    before, _, rest = question.casefold().partition("orange")
    after, then, *_ = [*rest.split(), "", ""]
    alone = then not in COLOURS if after in ("and", "or") else len(after) < 3 or after in COMMON
    fruit = alone and before.split()[-1:] in (["a"], ["an"], ["the"])
    names = {term: OTHER_NAMES.get(term, term) for term in terms if not (term == "orange" and fruit)}
    return {term: COLOURS.index(name) for term, name in names.items() if name in COLOURS}
