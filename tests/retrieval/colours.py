"""A searchable scorer and its videos: stretches of plain colours, and queries that name a colour."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from framenest.frames import FrameBatch, ImageSpec
from media import encode_video

COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200), "grey": (110, 110, 110)}


class ColourScorer:
    """A frame's vector is its mean colour less grey; a query's is the colour that it names."""

    name, version = "colours", "1"

    @classmethod
    def load(cls, checkpoint, store, config, progress):
        return cls()

    inputs = (ImageSpec.squash(8, 8),)

    def encode(self, frames: FrameBatch):
        return {"colour": frames.pixels[0].mean(axis=(1, 2), dtype=np.float32)}

    def search_vectors(self, encoded):
        return (encoded["colour"] - encoded["colour"].mean(axis=1, keepdims=True)) / 255

    def search_query(self, query: str):
        named = [np.array(COLOURS[word], np.float32) for word in query.lower().split() if word in COLOURS]
        vector = np.mean(named or [np.zeros(3, np.float32)], axis=0)
        return vector / max(1.0, float(np.linalg.norm(vector)))

    def certainty(self, encoded, question):
        return np.clip(self.search_vectors(encoded) @ self.search_query(question) / 0.5, 0, 1)

    def match(self, encoded, question, *, reference=None):
        return self.certainty(encoded, question).astype(np.float32)


def colour_video(path: Path, *parts: tuple[str | tuple[float, ...], float], fps: int = 10) -> Path:
    """A video of parts: a name or levels of a colour, and seconds; frames of one part differ a little."""
    pictures = []
    for colour, seconds in parts:
        for number in range(round(seconds * fps)):
            picture = np.full((48, 64, 3), COLOURS.get(colour, colour), np.uint8)
            picture[:4, number % 60 : number % 60 + 4] = 255
            pictures.append(picture)
    return encode_video(path, pictures, fps=fps)
