"""The scorers in torch: `blip2`, `siglip2`, `clip` and `qwen3-vl-reranker`.

Torch itself is imported in the background, with the weights.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from PIL import Image

from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.errors import ScorerError
from framenest.frames import Floats, FrameBatch, ImageSpec, Pixels
from framenest.models import Checkpoint, locate
from framenest.processes import has_gpu, own_gpu
from framenest.protocols import Encoded, Progress
from framenest.scorers.calibration import OF_CLIP, SIGLIP, Calibrated, DualScorer, Scores
from framenest.scorers.checkpoint import OF_PARENT, InBackground, Preprocessing, find_file

if TYPE_CHECKING:
    from framenest.scorers.torch_networks import OnDevices

ON_GPU, ON_CPU = 128, 8  # frames per batch by default


class _InTorch(InBackground["OnDevices"]):
    """A model in torch. If the parent of a forked process used torch, it gets one thread, as in a DataLoader:
    OpenMP would wait for ever for the parent's threads."""

    def __call__(self) -> OnDevices:
        model = super().__call__()
        if "torch" in OF_PARENT:
            importlib.import_module("torch").set_num_threads(1)  # of this thread
        return model


class TorchScorer(Calibrated):
    """A checkpoint on one or several devices."""

    name: str
    network: str  # its class in `torch_networks`

    def __init__(
        self, checkpoint: Checkpoint, config: ScorerConfig, progress: Progress = lambda *_: None
    ) -> None:
        super().__init__(config.calibration)
        self._config = config
        devices = config.device
        if devices == "auto":
            devices = "cuda" if has_gpu() else "cpu"
        # Here and not in the loading thread: each thread has its own current device.
        names = [name.strip() for name in devices.split(",")]
        self.devices = ",".join(own_gpu() if name == "cuda" else name for name in names)
        """Names of its devices; a GPU's has its index."""
        self._on_cpu = self.devices.startswith("cpu")
        precision = config.precision
        if precision == "auto":
            precision = "float32" if self._on_cpu else "float16"
        self.version = f"{checkpoint} {precision}"
        self.batch = config.batch or (ON_CPU if self._on_cpu else ON_GPU)  # frames per `encode`
        self._model = _InTorch(lambda: self._load(checkpoint, precision, progress))
        self.timing = self._model.timing

    @classmethod
    def load(cls, checkpoint: str, store: DirectoryStore, config: ScorerConfig, progress: Progress) -> Self:
        """The scorer with its default weights, or with a checkpoint's (org/name or a folder)."""
        return cls(locate(cls.name, checkpoint, store, config.revision or ""), config, progress)

    def _load(self, checkpoint: Checkpoint, precision: str, progress: Progress) -> OnDevices:
        from framenest.scorers.torch_networks import OnDevices

        return OnDevices(self._network, checkpoint, self.devices, precision, progress)

    def _network(self, folder: Path, dtype: Any, device: Any) -> Any:
        """The network in a folder, on a device."""
        from framenest.scorers import torch_networks

        return getattr(torch_networks, self.network).load(folder, dtype, device)


class CheckpointScorer(TorchScorer):
    """A model with the image preprocessing and the tokenizer that its checkpoint describes."""

    def __init__(
        self, checkpoint: Checkpoint, config: ScorerConfig, progress: Progress = lambda *_: None
    ) -> None:
        self._images = Preprocessing.load(checkpoint.path)
        self.inputs: tuple[ImageSpec, ...] = (self._images.spec,)
        find_file(checkpoint.path, "tokenizer.json")
        super().__init__(checkpoint, config, progress)

    def _load(self, checkpoint: Checkpoint, precision: str, progress: Progress) -> OnDevices:
        on = super()._load(checkpoint, precision, progress)
        on.load_tokenizer(checkpoint.path, self.name)
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


MATCH_ON_GPU, MATCH_ON_CPU = 640, 32  # frames per batch of the matching part


class Blip2Scorer(CheckpointScorer):
    """Relevance = softmax of the two matching logits, match class.

    encode → {"vision": (n, 257, 1408) float16 at 224 px}. Features are float16 whatever the model's
    precision, in memory as on disk, so that the first run and the next give the same numbers.
    """

    name = "blip2"
    network = "Blip2Network"
    own_relevance = "matching probability"
    match_levels = (0.5, 0.1)  # of a probability; not measured on questions
    own_calibration: Literal["none", "logistic"] = "none"

    def _encode(self, on: OnDevices, images: Pixels) -> Encoded:
        from framenest.scorers.torch_networks import Rows

        def vision(rows: slice, network: Any, device: Any) -> Any:
            return network.vision(on.normalise(images[rows], device, self._images)).half()

        return on.hold({"vision": Rows(on.map("encode", vision, len(images), self.batch))})

    def hold(self, encoded: Encoded) -> Encoded:
        """Move features to where `match` wants them: to the GPU if there is room."""
        return self._model().hold(encoded)

    def logits(self, encoded: Encoded, question: str, on: OnDevices | None = None) -> Floats:
        """(n, 2) no match and match, as transformers' own forward gives them."""
        from framenest.scorers.torch_networks import as_tensor

        on, features = on or self._model(), encoded["vision"]
        tokens = on.tokens(question)  # without the model's own query tokens, which take the image's place

        def matching(rows: slice, network: Any, device: Any) -> Any:
            return network.match(as_tensor(features[rows], device), tokens.to(device))

        batch = self._config.batch or (MATCH_ON_CPU if self._on_cpu else MATCH_ON_GPU)
        return np.asarray(on.map("match", matching, len(features), batch).float().cpu().numpy())

    def _warm_up(self, on: OnDevices, encoded: Encoded) -> None:
        self.logits(encoded, "?", on)

    def scores(self, encoded: Encoded, question: str, reference: Encoded) -> Scores:
        """(n,) the match logit minus the other; the sigmoid of it is the softmax of the two."""
        logits = self.logits(encoded, question).astype(np.float64)
        return np.asarray(logits[:, 1] - logits[:, 0])

    def search_vectors(self, encoded: Encoded) -> Floats:
        """(n, 32, 256) unit vectors of the query tokens, from BLIP-2's contrastive stage."""
        from framenest.scorers.torch_networks import as_tensor, unit

        features = encoded["vision"]

        def contrast(rows: slice, network: Any, device: Any) -> Any:
            return unit(network.contrast(as_tensor(features[rows], device)))

        return np.asarray(self._model().map("encode", contrast, len(features), self.batch).cpu().numpy())

    def search_query(self, query: str) -> Floats:
        """(256,) unit vector of a query, from the contrastive stage."""
        on = self._model()
        return on.text_vector(on.tokens(query))

    def frame_vectors(self, encoded: Encoded) -> Floats:
        """(n, d) unit vectors of encoded frames: the vision transformer's output at its class token."""
        classes: Floats = np.asarray(encoded["vision"][:, 0], dtype=np.float32)
        lengths = np.linalg.norm(classes, axis=1, keepdims=True)
        return np.asarray(classes / np.maximum(lengths, 1e-12))


class TorchDualScorer(CheckpointScorer, DualScorer):
    """A dual encoder in torch."""

    network = "DualNetwork"
    lower_case = False

    def _load(self, checkpoint: Checkpoint, precision: str, progress: Progress) -> OnDevices:
        on = super()._load(checkpoint, precision, progress)
        self.scale, self.bias = on.networks[0].scale, on.networks[0].bias
        return on

    def _encode(self, on: OnDevices, images: Pixels) -> Encoded:
        from framenest.scorers.torch_networks import unit

        def vectors(rows: slice, network: Any, device: Any) -> Any:
            return unit(network.image(on.normalise(images[rows], device, self._images)))

        return {"vector": on.map("encode", vectors, len(images), self.batch).cpu().numpy()}

    def _text(self, question: str, on: OnDevices | None = None) -> Floats:
        on = on or self._model()
        if on.padding is None:
            raise ScorerError(f"{self.version}: its tokenizer_config.json names no padding token")
        return on.text_vector(on.tokens(question.lower() if self.lower_case else question), padded=True)

    def _warm_up(self, on: OnDevices, encoded: Encoded) -> None:
        self._text("?", on)


class SiglipScorer(TorchDualScorer):
    """SigLIP and SigLIP 2 of fixed size."""

    name = "siglip2"
    own_relevance, match_levels = SIGLIP
    lower_case = True  # as the model was trained


class ClipScorer(TorchDualScorer):
    """CLIP. It has no relevance of its own; without calibration it is (1 + cosine) / 2."""

    name = "clip"
    search_levels = OF_CLIP


RERANKER_PIXELS = 336  # pixels: about 250 tokens of Qwen3-VL for a frame of 16:9


class RerankerScorer(TorchScorer):
    """Reads question and frame together: raw score = logit(yes) − logit(no) of a CrossEncoder.

    encode → {"picture": (n, h, w, 3) uint8}: the frames themselves. So it is better for a second pass over
    the best candidates of a cheap scorer (`rerank`) than for a whole video.
    """

    name = "qwen3-vl-reranker"
    own_relevance = "sigmoid of logit(yes) − logit(no)"
    inputs: tuple[ImageSpec, ...] = (ImageSpec.short_side(RERANKER_PIXELS),)

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

        def judge(rows: slice, network: Any, _: Any) -> Any:
            pairs = [(question, Image.fromarray(image)) for image in np.asarray(images[rows])]
            return network.predict(
                pairs,
                batch_size=len(pairs),
                activation_fn=torch.nn.Identity(),
                convert_to_tensor=True,
                show_progress_bar=False,
            )

        logits = on.map("match", judge, len(images), self._config.batch or 8)
        return np.asarray(logits.double().cpu().numpy().reshape(-1))
