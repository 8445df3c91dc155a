"""The scorers `siglip2` and `clip`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from framenest.errors import ScorerError
from framenest.frames import Pixels
from framenest.models import Checkpoint
from framenest.protocols import Encoded, Progress
from framenest.scorers.calibration import DualScorer, Scores, half_cosine, sigmoid
from framenest.scorers.checkpoint import CheckpointScorer

if TYPE_CHECKING:
    from framenest.scorers.torch_networks import OnDevices


class TorchDualScorer(CheckpointScorer, DualScorer):
    """A dual encoder in torch."""

    lower_case = False

    def _network(self, folder: Path, dtype: Any, device: Any) -> Any:
        from framenest.scorers.torch_networks import DualNetwork

        return DualNetwork.load(folder, dtype, device)

    def _load(self, checkpoint: Checkpoint, devices: str, precision: str, progress: Progress) -> OnDevices:
        on = super()._load(checkpoint, devices, precision, progress)
        self.scale, self.bias = on.networks[0].scale, on.networks[0].bias
        return on

    def _encode(self, on: OnDevices, images: Pixels) -> Encoded:
        def vectors(rows: slice, which: int) -> Any:
            prepared = on.normalise(images[rows], on.devices[which], self._images)
            return _unit(on.networks[which].image(prepared))

        found, self.batch = on.map(vectors, len(images), self.batch)
        return {"vector": found.cpu().numpy()}

    def _text(self, question: str, on: OnDevices | None = None) -> NDArray[np.float32]:
        import torch

        on = on or self._model()
        if on.padding is None:
            raise ScorerError(f"{self.version}: its tokenizer_config.json names no padding token")
        tokens = on.tokens(question.lower() if self.lower_case else question)
        missing = on.networks[0].longest - tokens.shape[1]
        tokens = torch.nn.functional.pad(tokens, (0, missing), value=on.padding)
        with torch.inference_mode():
            found = on.networks[0].text(tokens.to(on.first))
        return np.asarray(_unit(found)[0].cpu().numpy())

    def _warm_up(self, on: OnDevices, encoded: Encoded) -> None:
        self._text("?", on)


class SiglipScorer(TorchDualScorer):
    """SigLIP and SigLIP 2 of fixed size. The model's own relevance is the sigmoid of its logit."""

    name = extra = "siglip2"
    own_relevance = "sigmoid of the model's logit"
    match_levels = (0.1, 0.01)  # far below 0.5 even for good matches; not measured on questions
    lower_case = True  # as the model was trained

    def plain(self, scores: Scores) -> NDArray[np.float32]:
        """The sigmoid of the logit."""
        return sigmoid(scores)


class ClipScorer(TorchDualScorer):
    """CLIP. It has no relevance of its own; without calibration it is (1 + cosine) / 2."""

    name = extra = "clip"
    own_relevance = "(1 + cosine) / 2"

    def plain(self, scores: Scores) -> NDArray[np.float32]:
        """(1 + cosine) / 2."""
        return half_cosine((scores - self.bias) / self.scale)


def _unit(vectors: Any) -> Any:
    vectors = vectors.float()
    return vectors / vectors.norm(dim=-1, keepdim=True)
