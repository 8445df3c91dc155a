"""Checkpoints: weights that load in the background, image preprocessing, tokenizers, and scorers in torch.

Torch itself is imported in the background, with the weights.
"""

from __future__ import annotations

import json
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

import numpy as np

from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.errors import MissingExtra, ScorerError, ScorerWarning
from framenest.frames import FrameBatch, ImageSpec, Pixels
from framenest.models import Checkpoint, locate
from framenest.processes import has_gpu
from framenest.progress import Timing
from framenest.protocols import Encoded, Progress
from framenest.scorers.calibration import Calibrated

if TYPE_CHECKING:
    from framenest.scorers.torch_networks import OnDevices

Model = TypeVar("Model")
_loader = ThreadPoolExecutor(1, "framenest-load")  # one at a time: libraries change global state to load
_loading: set[Future[Any]] = set()
_RESAMPLING: dict[int, Literal["bilinear", "bicubic"]] = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers


class InBackground(Generic[Model]):
    """A model that loads in the background. Calling it waits for the model, or raises the load error.

    Python waits for the thread at exit: model libraries abort a process that ends while they load.

    Args:
        load: returns the model.

    >>> InBackground(lambda: "model")()
    'model'
    """

    def __init__(self, load: Callable[[], Model]) -> None:
        self.timing = Timing()
        """Counts the seconds spent waiting as the stage "load"."""
        self._model = _loader.submit(load)
        _loading.add(self._model)
        self._model.add_done_callback(_loading.discard)

    def __call__(self) -> Model:
        if not self._model.done():
            with self.timing("load"):
                wait([self._model])
        return self._model.result()


def still_loading() -> bool:
    """Whether this process is loading a model right now."""
    return bool(_loading)


@dataclass(frozen=True)
class Preprocessing:
    """Image preprocessing of a checkpoint.

    Attributes:
        spec: the image that `encode` receives; the decoder's scaler makes it.
        mean, deviation: of RGB values in [0, 1].
    """

    spec: ImageSpec
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def load(cls, folder: Path) -> Preprocessing:
        """Read the image processor's config, which is saved next to the weights."""
        settings = _settings(folder)
        try:
            resample = _RESAMPLING[settings["resample"]]
            size: Any = settings["size"]
            crop: Any = settings.get("crop_size")
            cropped = settings.get("do_center_crop")
            if isinstance(size, int):  # as older checkpoints write it
                size = {"shortest_edge": size} if cropped else {"width": size, "height": size}
            if isinstance(crop, int):
                crop = {"width": crop, "height": crop}
            if cropped:
                spec = ImageSpec.crop(size["shortest_edge"], crop["width"], crop["height"], resample)
            else:
                spec = ImageSpec.squash(size["width"], size["height"], resample)
            return cls(spec, tuple(settings["image_mean"]), tuple(settings["image_std"]))
        except (KeyError, TypeError) as error:
            raise ScorerError(f"{folder}: this image preprocessing is not supported ({error!r})") from error


def _settings(folder: Path) -> dict[str, Any]:
    for name in ("preprocessor_config.json", "processor_config.json"):
        if (folder / name).is_file():
            data = read_json(folder / name)
            settings: dict[str, Any] = data.get("image_processor", data)
            return settings
    raise ScorerError(f"{folder}: preprocessor_config.json is missing")


@contextmanager
def load_errors(path: Path, scorer: str) -> Iterator[None]:
    """Raise any error as a ScorerError that names the file: model runtimes share no exception class."""
    try:
        yield
    except Exception as error:
        raise ScorerError(
            f"{path}: this model file cannot be loaded; run: framenest models fetch {scorer} ({error})"
        ) from error


def tokenizer_file(path: Path, extra: str, limit: int) -> Any:
    """A tokenizer.json, without padding, truncating to `limit` tokens."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtra(extra, "tokenizers") from error
    with load_errors(path, extra):
        tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(limit)
    return tokenizer


def find_file(folder: Path, name: str) -> Path:
    """A file of a checkpoint, at its top or in onnx/.

    Raises:
        ScorerError: there is no such file.
    """
    for path in (folder / name, folder / "onnx" / name):
        if path.is_file():
            return path
    raise ScorerError(f"{folder}: {name} is missing")


def padding_token(folder: Path, tokenizer: Any) -> int | None:
    """The token id that the tokenizer in a folder pads with; None if it names none.

    The model's config often has another one, and SigLIP attends to padding.
    """
    token = read_json(folder / "tokenizer_config.json", {}).get("pad_token")
    name = token.get("content") if isinstance(token, dict) else token
    known = tokenizer.token_to_id(name) if name else None
    return None if known is None else int(known)


def read_json(path: Path, otherwise: dict[str, Any] | None = None) -> dict[str, Any]:
    """The object in a JSON file; `otherwise`, if given, if there is no file."""
    if otherwise is not None and not path.is_file():
        return otherwise
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ScorerError(f"{path}: cannot be read ({error})") from error
    return data


class CutQuestion(ScorerWarning):
    """The model read only the beginning of a question."""


def token_ids(tokenizer: Any, question: str, scorer: str) -> list[int]:
    """The tokens of a question; warns if it is longer than the tokenizer's limit."""
    read = tokenizer.encode(question)
    ids: list[int] = read.ids
    if read.overflowing:
        special = tokenizer.num_special_tokens_to_add(is_pair=False)  # in every part
        count = len(ids) + sum(len(rest.ids) - special for rest in read.overflowing)
        text = f"{scorer} reads {len(ids)} tokens; the question has {count}, its end is not read"
        warnings.warn(text, CutQuestion, stacklevel=3)
    return ids


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
