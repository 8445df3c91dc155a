"""What scorers over torch models share: loading, devices, tokens."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.errors import MissingExtra
from framenest.frames import FrameBatch, ImageSpec
from framenest.models import Checkpoint, locate
from framenest.protocols import Encoded, Progress
from framenest.scorers.calibration import Calibrated
from framenest.scorers.preprocessing import Preprocessing, pictures_of
from framenest.scorers.tokenizer_files import tokenizer_file
from framenest.scorers.truncation import tell_truncation
from framenest.timing import Timing


class TorchScorer(Calibrated):
    """A checkpoint on one or several devices."""

    name: str
    extra: str
    """The extra that brings its libraries."""
    version: str
    """Checkpoint, revision and precision."""
    batch: int
    """Frames that `encode` likes at once; halved where GPU memory runs out."""
    timing: Timing
    """Seconds of its own stages."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: ScorerConfig,
        progress: Progress = lambda *_: None,
        pictures: Preprocessing | None = None,
    ) -> None:
        super().__init__(config.calibration)
        try:
            from framenest.scorers.torch_devices import Devices

            load = self._loader()
        except ImportError as error:
            raise MissingExtra(self.extra, error.name or "torch") from error
        self._on = Devices(config, pictures, progress)
        self._models = self._on.place(load, checkpoint)
        self.batch, self.timing = self._on.batch, self._on.timing
        self.version = f"{checkpoint} {str(self._on.dtype).removeprefix('torch.')}"

    @classmethod
    def load(cls, checkpoint: str, store: DirectoryStore, config: ScorerConfig, progress: Progress) -> Self:
        """The scorer over its own weights, or those of a checkpoint (org/name or a folder)."""
        return cls(locate(cls.name, checkpoint, store, config.revision or ""), config, progress)

    @abstractmethod
    def _loader(self) -> Callable[..., Any]:
        """load(folder, dtype=…, device=…) → the model there; ImportError where its library is missing."""


class CheckpointScorer(TorchScorer):
    """A model with the pictures and the tokenizer that its checkpoint describes."""

    inputs: tuple[ImageSpec, ...]

    def __init__(
        self, checkpoint: Checkpoint, config: ScorerConfig, progress: Progress = lambda *_: None
    ) -> None:
        pictures = Preprocessing.load(checkpoint.path)
        super().__init__(checkpoint, config, progress, pictures)
        self._tokenizer = tokenizer_file(checkpoint.path / "tokenizer.json", self.extra)
        self.inputs = (pictures.spec,)
        self._warm = self._on.first.type != "cuda"

    @classmethod
    def pictures(
        cls, checkpoint: str, store: DirectoryStore, config: ScorerConfig
    ) -> tuple[ImageSpec, ...] | None:
        """What `inputs` will be once it is loaded."""
        return pictures_of(cls.name, checkpoint, store, config)

    def warm_up(self) -> None:
        """On a GPU, let the libraries choose and load their kernels for a whole batch."""
        if not self._warm:
            self._warm = True
            width, height = self.inputs[0].size(16, 9)
            noise = np.random.default_rng(0).integers(0, 256, (self.batch, height, width, 3), np.uint8)
            rows = np.arange(self.batch)
            self.match(self.encode(FrameBatch(rows, rows / 1.0, (noise,))), "?")

    @abstractmethod
    def encode(self, frames: FrameBatch) -> Encoded:
        """Question-free features of frames."""

    def _tokens(self, text: str, limit: int) -> Any:
        """(1, t) token ids of a question, cut to `limit`."""
        import torch

        ids = self._tokenizer.encode(text).ids
        tell_truncation(self.name, len(ids), limit)
        if len(ids) > limit:
            self._tokenizer.enable_truncation(limit)
            ids = self._tokenizer.encode(text).ids
            self._tokenizer.no_truncation()
        return torch.tensor([ids])
