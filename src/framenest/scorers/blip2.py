"""The scorers `blip2` and `blip`: image-text matching.

Both keep the vision transformer's output for each frame; a question then costs the part that reads the text,
and the matching head.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from framenest.frames import Pixels
from framenest.protocols import Encoded
from framenest.scorers.calibration import Scores, sigmoid
from framenest.scorers.checkpoint import CheckpointScorer

if TYPE_CHECKING:
    from framenest.scorers.torch_networks import OnDevices

MATCH_ON_GPU, MATCH_ON_CPU = 640, 32
"""Frames per batch of the matching part."""


class Blip2Scorer(CheckpointScorer):
    """Relevance = softmax of the two matching logits, match class.

    encode → {"vision": (n, 257, 1408) float16 at 224 px}. Features are float16 whatever the model's
    precision, in memory as on disk, so that the first run and the next give the same numbers.
    """

    name = extra = "blip2"
    own_relevance = "matching probability"
    match_levels = (0.5, 0.1)  # of a probability; not measured on questions
    own_calibration: Literal["none", "logistic"] = "none"
    _match_batch: int | None = None
    """Frames that fit into memory, as far as known."""

    def _network(self, folder: Path, dtype: Any, device: Any) -> Any:
        from framenest.scorers.torch_networks import Blip2Network

        return Blip2Network.load(folder, dtype, device)

    def _encode(self, on: OnDevices, images: Pixels) -> Encoded:
        from framenest.scorers.torch_networks import Rows

        def vision(rows: slice, which: int) -> Any:
            prepared = on.normalise(images[rows], on.devices[which], self._images)
            return on.networks[which].vision(prepared).half()

        found, self.batch = on.map(vision, len(images), self.batch)
        return on.hold({"vision": Rows(found)})

    def hold(self, encoded: Encoded) -> Encoded:
        """Move features to where `match` wants them: to the GPU if there is room."""
        return self._model().hold(encoded)

    def logits(self, encoded: Encoded, question: str, on: OnDevices | None = None) -> NDArray[np.float32]:
        """(n, 2) no match and match, as transformers' own forward gives them."""
        from framenest.scorers.torch_networks import as_tensor

        on = on or self._model()
        tokens = self._tokens(on, question)
        rows = encoded["vision"]

        def matching(part: slice, which: int) -> Any:
            device = on.devices[which]
            return on.networks[which].match(as_tensor(rows[part], device), tokens.to(device))

        batch = self._match_batch or self._config.batch or (MATCH_ON_CPU if self._on_cpu else MATCH_ON_GPU)
        found, self._match_batch = on.map(matching, len(rows), batch, "match")
        return np.asarray(found.float().cpu().numpy())

    def _tokens(self, on: OnDevices, question: str) -> Any:
        """(1, t) ids of the question alone; the model puts its own query tokens in the image's place."""
        return on.tokens(question)

    def _warm_up(self, on: OnDevices, encoded: Encoded) -> None:
        self.logits(encoded, "?", on)

    def scores(self, encoded: Encoded, question: str, reference: Encoded) -> Scores:
        """(n,) the match logit minus the other."""
        logits = self.logits(encoded, question).astype(np.float64)
        return np.asarray(logits[:, 1] - logits[:, 0])

    def frame_vectors(self, encoded: Encoded) -> NDArray[np.float32]:
        """(n, d) unit vectors of encoded frames: the vision transformer's output at its class token."""
        classes: NDArray[np.float32] = np.asarray(encoded["vision"][:, 0], dtype=np.float32)
        lengths = np.linalg.norm(classes, axis=1, keepdims=True)
        return np.asarray(classes / np.maximum(lengths, 1e-12))

    def plain(self, scores: Scores) -> NDArray[np.float32]:
        """The softmax of two logits is the sigmoid of their difference."""
        return sigmoid(scores)


_BETWEEN_WORDS = re.compile(r"[.!\"()*#:;~\s]+")
"""What separates words, in the model's training as here."""


class BlipScorer(Blip2Scorer):
    """The first BLIP, which AKS was released with. Relevance as for BLIP-2.

    encode → {"vision": (n, 577, 1024) float16 at 384 px, of the large model}. The text is prepared as in
    LAVIS, the model's own library, which AKS uses: lower case, some punctuation dropped, at most 35 tokens,
    the first of which says that the text is read together with an image. (transformers' processor does not
    set that first token, and its numbers differ.)
    """

    name = extra = "blip"

    def _network(self, folder: Path, dtype: Any, device: Any) -> Any:
        from framenest.scorers.torch_networks import BlipNetwork

        return BlipNetwork.load(folder, dtype, device)

    def _tokens(self, on: OnDevices, question: str) -> Any:
        tokens = super()._tokens(on, _BETWEEN_WORDS.sub(" ", question.lower()).strip())
        tokens[:, 0] = on.networks[0].reads_images
        return tokens
