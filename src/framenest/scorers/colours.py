"""Names of colours: which a question asks for, and how much of a picture has each."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from framenest.frames import Pixels
from framenest.scorers.question_text import COMMON

COLOURS = ("black", "white", "grey", "red", "orange", "yellow", "green", "blue", "purple", "pink", "brown")
OTHER_NAMES = {
    "gray": "grey", "gold": "yellow", "golden": "yellow", "beige": "brown", "turquoise": "blue"
}  # fmt: skip
COLOUR_BLOCKS = 32
"""A picture is named in this many blocks on each side: smaller spots say little about what a frame shows."""
_HUES = ((12, "red"), (40, "orange"), (68, "yellow"), (165, "green"), (255, "blue"), (300, "purple"),
         (345, "pink"), (361, "red"))  # fmt: skip
"""Degrees of hue below which a colour has a name."""


def colour_names(pixels: NDArray[np.floating]) -> NDArray[np.int64]:
    """(…,) the places in COLOURS of pixels (…, 3) in [0, 255].

    >>> [COLOURS[place] for place in colour_names(np.array([[220.0, 20, 20], [90, 50, 20], [250, 250, 250]]))]
    ['red', 'brown', 'white']
    """
    red, green, blue = np.moveaxis(pixels / 255, -1, 0)
    most = np.maximum(np.maximum(red, green), blue)
    spread = most - np.minimum(np.minimum(red, green), blue)
    width = np.maximum(spread, 1e-6)
    by_part = [(green - blue) / width % 6, (blue - red) / width + 2, (red - green) / width + 4]
    hue = 60 * np.select([most == red, most == green], by_part[:2], by_part[2])
    saturation = spread / np.maximum(most, 1e-6)
    places = np.array([COLOURS.index(name) for _, name in _HUES])
    names: NDArray[np.int64] = places[np.searchsorted([below for below, _ in _HUES[:-1]], hue, side="right")]
    is_red, is_orange = (names == COLOURS.index(name) for name in ("red", "orange"))
    names[is_orange & (most < 0.6)] = COLOURS.index("brown")
    names[is_red & (saturation < 0.55) & (most > 0.65)] = COLOURS.index("pink")
    names[saturation < 0.18] = COLOURS.index("grey")
    names[(saturation < 0.18) & (most > 0.75)] = COLOURS.index("white")
    names[most < 0.2] = COLOURS.index("black")
    return names


def colour_shares(images: Pixels) -> NDArray[np.float32]:
    """(n, 11) the share of each image (n, h, w, 3) that has each colour; sides of COLOUR_BLOCKS or more."""
    count, height, width, _ = images.shape
    rows, columns = height // COLOUR_BLOCKS, width // COLOUR_BLOCKS
    whole = images[:, : rows * COLOUR_BLOCKS, : columns * COLOUR_BLOCKS]
    blocks = whole.reshape(count, COLOUR_BLOCKS, rows, COLOUR_BLOCKS, columns, 3).mean(axis=(2, 4))
    names = colour_names(blocks)
    shares = [(names == place).mean(axis=(1, 2)) for place in range(len(COLOURS))]
    return np.stack(shares, axis=1).astype(np.float32)


def colours_of(question: str, texts: Sequence[str]) -> dict[str, str]:
    """The colours that a question asks for, by its words. texts: its terms, so no "golden retriever".

    Before another word, orange is a colour, elsewhere a fruit.

    >>> colours_of("When is the gold car beside the orange?", ["gold", "car", "beside", "orange"])
    {'gold': 'yellow'}
    >>> colours_of("Who wears an orange coat?", ["wears", "orange", "coat"])
    {'orange': 'orange'}
    """
    words = [*re.findall(r"[^\W\d_]+", question.casefold()), "", "", ""]
    fruit = True
    if "orange" in words:
        after, then = words[words.index("orange") + 1 :][:2]
        fruit = then not in COLOURS if after in ("and", "or") else not after or after in COMMON
    names = {text: OTHER_NAMES.get(text, text) for text in texts}
    return {
        text: name for text, name in names.items() if name in COLOURS and not (text == "orange" and fruit)
    }
