"""The scorer `qwen3-vl-reranker`: reads question and frame together, pair by pair.

Its only features are the images themselves, so it suits a second pass over the best candidates of a cheap
scorer (`rerank`) better than a whole video.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from framenest.frames import FrameBatch, ImageSpec
from framenest.protocols import Encoded
from framenest.scorers.calibration import Scores, sigmoid
from framenest.scorers.checkpoint import TorchScorer

SHORT_SIDE = 336
"""Pixels: about 250 tokens of Qwen3-VL for a frame of 16:9."""


class RerankerScorer(TorchScorer):
    """Raw score = logit(yes) − logit(no) of a CrossEncoder of sentence-transformers.

    encode → {"picture": (n, h, w, 3) uint8}: the frames themselves.
    """

    name = "qwen3-vl-reranker"
    extra = "reranker"
    own_relevance = "sigmoid of logit(yes) − logit(no)"
    inputs: tuple[ImageSpec, ...] = (ImageSpec.short_side(SHORT_SIDE),)
    _pairs: int | None = None
    """Frames that fit into memory, as far as known."""

    def _network(self, folder: Path, dtype: Any, device: Any) -> Any:
        from sentence_transformers import CrossEncoder

        return CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": dtype}).eval().to(device)

    def encode(self, frames: FrameBatch) -> Encoded:
        """The images; see `framenest.Scorer`."""
        self._model()
        return {"picture": frames.pixels[0]}

    def scores(self, encoded: Encoded, question: str, reference: Encoded) -> Scores:
        """(n,) logit(yes) − logit(no)."""
        import torch

        on, images = self._model(), encoded["picture"]
        if not len(images):
            return np.zeros(0)

        def judge(rows: slice, which: int) -> Any:
            pairs = [(question, Image.fromarray(image)) for image in np.asarray(images[rows])]
            return on.networks[which].predict(
                pairs,
                batch_size=len(pairs),
                activation_fn=torch.nn.Identity(),
                convert_to_tensor=True,
                show_progress_bar=False,
            )

        found, self._pairs = on.map(judge, len(images), self._pairs or self._config.batch or 8, "match")
        return np.asarray(found.double().cpu().numpy().reshape(-1))

    def plain(self, scores: Scores) -> NDArray[np.float32]:
        """The sigmoid of the score."""
        return sigmoid(scores)
