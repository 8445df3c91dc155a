"""What the scorers in torch share. Torch itself is imported in the background, with the weights."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.frames import FrameBatch, ImageSpec, Pixels
from framenest.models import Checkpoint, locate
from framenest.processes import has_gpu
from framenest.protocols import Encoded, Progress
from framenest.scorers.calibration import Calibrated
from framenest.scorers.checkpoint import InBackground, Preprocessing, find_file

if TYPE_CHECKING:
    from framenest.scorers.torch_networks import OnDevices

ON_GPU, ON_CPU = 128, 8
"""Frames per batch by default."""


class TorchScorer(Calibrated):
    """A checkpoint on one or several devices.

    Subclasses set their attributes before they call `__init__` here, which starts to load.

    Args:
        checkpoint: the weights.
        config: devices, precision, batch and calibration.
        progress: called as progress(stage, done, total).
    """

    name: str
    extra: str
    """The extra that installs its libraries."""

    def __init__(
        self, checkpoint: Checkpoint, config: ScorerConfig, progress: Progress = lambda *_: None
    ) -> None:
        super().__init__(config.calibration)
        self._config = config
        devices = config.device
        if devices == "auto":
            devices = "cuda" if has_gpu() else "cpu"
        self._on_cpu = devices.strip().startswith("cpu")
        precision = config.precision
        if precision == "auto":
            precision = "float32" if self._on_cpu else "float16"
        self.version = f"{checkpoint} {precision}"
        self.batch = config.batch or (ON_CPU if self._on_cpu else ON_GPU)
        """Frames per `encode`; halved when the GPU runs out of memory."""
        self._model = InBackground(lambda: self._load(checkpoint, devices, precision, progress))
        self.timing = self._model.timing

    @classmethod
    def load(cls, checkpoint: str, store: DirectoryStore, config: ScorerConfig, progress: Progress) -> Self:
        """The scorer with its default weights, or with a checkpoint's (org/name or a folder)."""
        return cls(locate(cls.name, checkpoint, store, config.revision or ""), config, progress)

    def _load(self, checkpoint: Checkpoint, devices: str, precision: str, progress: Progress) -> OnDevices:
        from framenest.scorers.torch_networks import OnDevices

        return OnDevices(self._network, checkpoint, devices, precision, progress)

    @abstractmethod
    def _network(self, folder: Path, dtype: Any, device: Any) -> Any:
        """The network in a folder, on a device."""


class CheckpointScorer(TorchScorer):
    """A model with the image preprocessing and the tokenizer that its checkpoint describes."""

    def __init__(
        self, checkpoint: Checkpoint, config: ScorerConfig, progress: Progress = lambda *_: None
    ) -> None:
        self._images = Preprocessing.load(checkpoint.path)
        self.inputs: tuple[ImageSpec, ...] = (self._images.spec,)
        find_file(checkpoint.path, "tokenizer.json")
        super().__init__(checkpoint, config, progress)

    def _load(self, checkpoint: Checkpoint, devices: str, precision: str, progress: Progress) -> OnDevices:
        on = super()._load(checkpoint, devices, precision, progress)
        on.load_tokenizer(checkpoint.path, self.name, self.extra)
        if on.first.type == "cuda":  # choose and load the kernels for a whole batch
            width, height = self.inputs[0].size(16, 9)
            noise = np.random.default_rng(0).integers(0, 256, (self.batch, height, width, 3), np.uint8)
            self._warm_up(on, self._encode(on, noise))
        return on

    def encode(self, frames: FrameBatch) -> Encoded:
        """Features of frames; see `framenest.Scorer`."""
        return self._encode(self._model(), frames.pixels[0])

    @abstractmethod
    def _encode(self, on: OnDevices, images: Pixels) -> Encoded:
        """Features of (n, h, w, 3) images."""

    @abstractmethod
    def _warm_up(self, on: OnDevices, encoded: Encoded) -> Any:
        """Match the features with any question."""
