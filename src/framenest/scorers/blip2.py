"""The scorer `blip2`: BLIP-2's image-text matching, as in the paper.

What the vision transformer makes of a frame does not depend on the question and is kept; a question
then costs the Q-Former and the matching head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from framenest.config import ScorerConfig
from framenest.frames import FrameBatch
from framenest.models import Checkpoint
from framenest.protocols import Encoded, Progress
from framenest.scorers.calibration import Scores, sigmoid
from framenest.scorers.torch_scorer import CheckpointScorer

MATCH_ON_GPU, MATCH_ON_CPU = 640, 32
"""Frames that the Q-Former takes at a time."""


class Blip2Scorer(CheckpointScorer):
    """Relevance = softmax of the two matching logits, match class.

    encode → {"vision": (n, 257, 1408) float16 at 224 px}; features are float16 whatever the model's
    precision, in memory as on disk, so that the first run and the next give the same numbers.
    features="float32" keeps a float32 model's own, at twice the size. In a float16 model the Q-Former
    stays float32, as transformers has it, but multiplies in TF32 on a GPU, and where it reads the frames'
    features, which are float16 already, in float16, which has as many digits.
    """

    name = extra = "blip2"
    own_relevance = "matching probability"
    match_levels = (0.5, 0.1)  # of a probability; not measured on questions
    own_calibration: Literal["none", "logistic"] = "none"

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: ScorerConfig,
        progress: Progress = lambda *_: None,
        *,
        features: Literal["float16", "float32"] = "float16",
    ) -> None:
        super().__init__(checkpoint, config, progress)
        import torch

        self._kept = getattr(torch, features)
        self._match_batch = config.batch or (MATCH_ON_CPU if self._on.first.type == "cpu" else MATCH_ON_GPU)
        if features != "float16":
            self.version += f", features {features}"

    def _loader(self) -> Callable[..., Any]:
        from framenest.scorers.blip2_network import Blip2Network

        return Blip2Network.load

    def encode(self, frames: FrameBatch) -> Encoded:
        pixels = frames.pixels[0]

        def vision(rows: slice, which: int) -> Any:
            prepared = self._on.pixels(pixels[rows], self._on.devices[which])
            return self._models[which].vision(prepared).to(self._kept)

        found, self.batch = self._on.map(vision, len(pixels), self.batch)
        if found is None:
            found = self._no_frames()
        self._on.finish()
        from framenest.scorers.torch_devices import Rows

        return self.hold({"vision": Rows(found)})

    def hold(self, encoded: Encoded) -> Encoded:
        """Features where `match` wants them: on the GPU where they take a small share of its memory."""
        return self._on.hold(encoded)

    def logits(self, encoded: Encoded, question: str) -> NDArray[np.float32]:
        """(n, 2) no match and match, as transformers' own forward gives them."""
        from framenest.scorers.torch_devices import as_tensor, fast_products

        tokens = self._question(question)
        rows = encoded["vision"]

        def matching(part: slice, which: int) -> Any:
            device = self._on.devices[which]
            with fast_products(self._on):
                return self._models[which].match(as_tensor(rows[part], device), tokens.to(device))

        found, self._match_batch = self._on.map(matching, len(rows), self._match_batch, "match")
        result = np.zeros((0, 2), np.float32) if found is None else found.float().cpu().numpy()
        return np.asarray(result)

    def scores(self, encoded: Encoded, question: str, reference: Encoded) -> Scores:
        logits = self.logits(encoded, question).astype(np.float64)
        return np.asarray(logits[:, 1] - logits[:, 0])

    def frame_vectors(self, encoded: Encoded) -> NDArray[np.float32]:
        """(n, d) unit vectors of encoded frames: what the vision transformer has at its class token."""
        classes: NDArray[np.float32] = np.asarray(encoded["vision"][:, 0], dtype=np.float32)
        lengths = np.linalg.norm(classes, axis=1, keepdims=True)
        return np.asarray(classes / np.maximum(lengths, 1e-12))

    def plain(self, scores: Scores) -> NDArray[np.float32]:
        return sigmoid(scores)  # the softmax of two logits is the sigmoid of their difference

    def _question(self, question: str) -> Any:
        """(1, t) ids of the question alone; the image's places are the model's own query tokens."""
        return self._tokens(question, self._models[0].longest)

    def _no_frames(self) -> Any:
        import torch

        shape = (0, self._models[0].tokens, self._models[0].width)
        return torch.zeros(shape, dtype=self._kept, device=self._on.first)
