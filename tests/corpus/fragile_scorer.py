"""A scorer whose process dies on white pictures and hangs on black ones; no model."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

import numpy as np

from framenest.frames import ImageSpec
from media import encode_video
from plugin_packages import write_metadata

COLOURS = {"white": 255, "black": 0}


class FragileScorer:
    """Features are the means of pictures."""

    name, version, relevance = "fragile", "1", "mean"
    inputs = (ImageSpec.squash(8, 8),)

    @classmethod
    def load(cls, checkpoint, store, config, progress):
        return cls()

    def encode(self, frames):
        means = frames.pixels[0].mean(axis=(1, 2, 3))
        if (means > 250).any():
            ctypes.string_at(0)  # reads where nothing is
        if (means < 5).any():
            time.sleep(3600)
        if ((means > 120) & (means < 121)).any():
            raise ValueError("grey")
        return {"mean": means.astype(np.float32)}

    def match(self, encoded, question, *, reference=None):
        if question == "crash":
            ctypes.string_at(0)
        return encoded["mean"] / 255


def install_fragile_scorer(site: Path) -> None:
    """So that "fragile" is found by processes that have `site` on their path, and this folder."""
    write_metadata(site, "fragile", "1.0", {"framenest.scorers": {"fragile": "fragile_scorer:FragileScorer"}})


def one_colour(path: Path, value: int, count: int = 40) -> Path:
    """A video in which nothing but one colour is seen."""
    return encode_video(path, [np.full((64, 96, 3), value, np.uint8)] * count)
