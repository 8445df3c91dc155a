"""A scorer that knows how red, green and blue frames are, and can search by it; no model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from framenest.frames import ImageSpec
from media import encode_video
from plugin_packages import write_metadata

COLOURS = {"red": (230, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 230), "grey": (120, 120, 120)}


class ColourScorer:
    """Features are how much redder, greener and bluer than grey a picture is; queries name colours."""

    name, version, relevance = "colour", "1", "share of the colour"
    inputs = (ImageSpec.squash(8, 8),)

    @classmethod
    def load(cls, checkpoint, store, config, progress):
        return cls()

    def encode(self, frames):
        means = frames.pixels[0].mean(axis=(1, 2), dtype=np.float32) / 255
        return {"colour": means - means.min(axis=1, keepdims=True)}

    def match(self, encoded, question, *, reference=None):
        return np.clip(encoded["colour"] @ self.search_query(question), 0, 1)

    def labels(self, encoded, question, reference):
        return [f"{list(COLOURS)[colour.argmax()]} {colour.max():.2f}" for colour in encoded["colour"]]

    def search_vectors(self, encoded):
        return encoded["colour"]

    def search_query(self, query):
        return np.float32([colour in query.lower() for colour in list(COLOURS)[:3]])


def install_colour_scorer(site: Path) -> dict[str, str]:
    """What a process needs in its environment so that it finds the scorer "colour"."""
    write_metadata(site, "colour", "1.0", {"framenest.scorers": {"colour": "colour_scorer:ColourScorer"}})
    return {"PYTHONPATH": f"{site}:{Path(__file__).parent}"}


def coloured_video(path: Path, *stretches: tuple[str, float], size: tuple[int, int] = (96, 64)) -> Path:
    """A video at 25 fps that shows one colour after another, each for so many seconds."""
    pictures = []
    for colour, seconds in stretches:
        pictures += [np.full((size[1], size[0], 3), COLOURS[colour], np.uint8)] * round(25 * seconds)
    return encode_video(path, pictures)
