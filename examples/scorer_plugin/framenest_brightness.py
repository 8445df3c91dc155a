"""An example scorer: how bright a frame is, or with `brightness:dark` how dark. It ignores the question."""

import numpy as np

from framenest import FrameBatch, ImageSpec, ScorerError


class BrightnessScorer:
    """Relevance is the mean brightness of a frame. It needs no weights."""

    name = "brightness"
    inputs = (ImageSpec.squash(32, 32),)

    def __init__(self, dark: bool = False) -> None:
        self._dark = dark
        self.version = "1 dark" if dark else "1"

    @classmethod
    def load(cls, checkpoint, store, config, progress) -> "BrightnessScorer":  # noqa: ANN001
        """Make the scorer; `checkpoint` is "dark" for `brightness:dark` and "" for `brightness`."""
        if checkpoint not in ("", "dark"):
            raise ScorerError(f"brightness:{checkpoint}: only dark can follow the name")
        return cls(dark=checkpoint == "dark")

    def encode(self, frames: FrameBatch) -> dict[str, np.ndarray]:
        """Return what does not depend on the question; cached by video, name and version."""
        return {"brightness": frames.pixels[0].mean(axis=(1, 2, 3)).astype(np.float32) / 255}

    def match(self, encoded, question, *, reference=None) -> np.ndarray:  # noqa: ANN001
        """Return (n,) relevance in [0, 1]."""
        return 1 - encoded["brightness"] if self._dark else encoded["brightness"]
