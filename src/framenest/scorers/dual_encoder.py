"""The scorers `siglip2` and `clip`: one vector per frame, one per question, compared by their cosine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.config import ScorerConfig
from framenest.errors import ScorerError
from framenest.frames import FrameBatch
from framenest.models import Checkpoint
from framenest.protocols import Encoded, Progress
from framenest.scorers.calibration import Calibrated, Scores, sigmoid
from framenest.scorers.tokenizer_files import padding_token
from framenest.scorers.torch_scorer import CheckpointScorer

SIGLIP_LEVELS = (0.1, 0.01)
"""Match levels of a sigmoid that is far below 0.5 even for good matches; not measured on questions."""


class DualScorer(Calibrated):
    """Raw score = scale · cosine + bias of the model's two vectors. encode → {"vector": (n, d) float32}."""

    scale: float
    bias: float

    _asked: tuple[str, NDArray[np.float32]] | None = None
    """The last question and its vector."""

    @abstractmethod
    def _text(self, question: str) -> NDArray[np.float32]:
        """(d,) unit vector of a question."""

    def scores(self, encoded: Encoded, question: str, reference: Encoded) -> Scores:
        text = self.text_vector(question).astype(np.float64)
        return np.asarray(self.scale * (self.frame_vectors(encoded).astype(np.float64) @ text) + self.bias)

    def frame_vectors(self, encoded: Encoded) -> NDArray[np.float32]:
        """(n, d) unit vectors of encoded frames."""
        return np.asarray(encoded["vector"])

    def text_vector(self, question: str) -> NDArray[np.float32]:
        """(d,) unit vector of a question; of the last one it is kept."""
        known = self._asked
        if known is None or known[0] != question:
            self._asked = known = (question, self._text(question))
        return known[1]


class TorchDualScorer(CheckpointScorer, DualScorer):
    """A dual encoder in torch."""

    lower_case = False

    def __init__(
        self, checkpoint: Checkpoint, config: ScorerConfig, progress: Progress = lambda *_: None
    ) -> None:
        super().__init__(checkpoint, config, progress)
        self.scale, self.bias = self._models[0].scale, self._models[0].bias
        padding = padding_token(checkpoint.path, self._tokenizer)
        if padding is None:
            raise ScorerError(f"{checkpoint.path}: its tokenizer_config.json names no padding token")
        self._padding = padding

    def _loader(self) -> Callable[..., Any]:
        from framenest.scorers.dual_network import DualNetwork

        return DualNetwork.load

    def encode(self, frames: FrameBatch) -> Encoded:
        pixels = frames.pixels[0]

        def vectors(rows: slice, which: int) -> Any:
            prepared = self._on.pixels(pixels[rows], self._on.devices[which])
            return _unit(self._models[which].picture(prepared))

        found, self.batch = self._on.map(vectors, len(pixels), self.batch)
        if found is None:
            return {"vector": np.zeros((0, len(self._text("."))), np.float32)}
        return {"vector": found.cpu().numpy()}

    def _text(self, question: str) -> NDArray[np.float32]:
        import torch

        text = question.lower() if self.lower_case else question
        limit = self._models[0].longest
        tokens = self._tokens(text, limit)
        tokens = torch.nn.functional.pad(tokens, (0, limit - tokens.shape[1]), value=self._padding)
        with torch.inference_mode():
            found = self._models[0].text(tokens.to(self._on.first))
        return np.asarray(_unit(found)[0].cpu().numpy())


class SiglipScorer(TorchDualScorer):
    """SigLIP and SigLIP 2 of fixed size. The model's own relevance is the sigmoid of its logit."""

    name = extra = "siglip2"
    own_relevance = "sigmoid of the model's logit"
    match_levels = SIGLIP_LEVELS
    lower_case = True  # as the model was trained

    def plain(self, scores: Scores) -> NDArray[np.float32]:
        return sigmoid(scores)


class ClipScorer(TorchDualScorer):
    """CLIP. It has no relevance of its own; without calibration it is (1 + cosine) / 2."""

    name = extra = "clip"
    own_relevance = "(1 + cosine) / 2"

    def plain(self, scores: Scores) -> NDArray[np.float32]:
        return half_cosine((scores - self.bias) / self.scale)


def half_cosine(cosines: Scores) -> NDArray[np.float32]:
    """(1 + cosine) / 2, in [0, 1] also where rounding took a cosine beyond ±1."""
    return ((1 + cosines) / 2).clip(0, 1).astype(np.float32)


def _unit(vectors: Any) -> Any:
    vectors = vectors.float()
    return vectors / vectors.norm(dim=-1, keepdim=True)
