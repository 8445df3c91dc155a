"""What scorers in torch share: devices, networks, batches."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch.nn.functional import gelu, layer_norm, linear

from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.errors import MissingExtra, ScorerError
from framenest.frames import Array, FrameBatch, ImageSpec, Pixels
from framenest.models import Checkpoint, locate
from framenest.progress import Timing
from framenest.protocols import Encoded, Progress
from framenest.scorers.calibration import Calibrated
from framenest.scorers.checkpoint import Preprocessing, pictures_of, tell_truncation, tokenizer_file
from framenest.text import one_line

ON_GPU, ON_CPU = 128, 8
"""Frames at a time by default."""
SHARE = 0.25
"""Of the device's free memory that features of one part may take; larger ones stay in main memory."""


class Rows:
    """A tensor that stands for an array of features and stays on its device."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def nbytes(self) -> int:
        return int(self.tensor.nbytes)

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, rows: Any) -> Self:
        plain = isinstance(rows, slice | tuple)
        return type(self)(self.tensor[rows if plain else torch.as_tensor(rows)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array: Array = self.tensor.cpu().numpy()
        return array if dtype is None else array.astype(dtype)

    def join(self, parts: Sequence[Self | Array]) -> Self | Array:
        """All parts under one another, on this one's device where they take a small share of it."""
        device = self.tensor.device
        if not has_room(device, sum(part.nbytes for part in parts)):
            return np.concatenate([np.asarray(part) for part in parts])
        return type(self)(torch.cat([as_tensor(part, device) for part in parts]))


def has_room(device: torch.device, size: int) -> bool:
    """Whether features of so many bytes may lie on the device."""
    return bool(device.type != "cuda" or size <= SHARE * torch.cuda.mem_get_info(device)[0])


def as_tensor(rows: Rows | Array, device: torch.device) -> torch.Tensor:
    """Features on a device, wherever they lay."""
    if isinstance(rows, Rows):
        return rows.tensor.to(device)
    return torch.from_numpy(rows if rows.flags.writeable else rows.copy()).to(device)


class Devices:
    """A model on each of the devices that were asked for."""

    def __init__(self, config: ScorerConfig, pictures: Preprocessing | None, progress: Progress) -> None:
        self.devices = _devices(config.device)
        self.dtype = _dtype(config, self.first)
        self.batch = config.batch or (ON_CPU if self.first.type == "cpu" else ON_GPU)
        self.timing = Timing()
        self._pictures = pictures
        self._progress = progress

    @property
    def first(self) -> torch.device:
        return self.devices[0]

    def place(self, load: Callable[..., Any], checkpoint: Checkpoint) -> list[Any]:
        """The checkpoint on each device, by load(folder, dtype=…, device=…)."""
        try:
            return [load(checkpoint.path, dtype=self.dtype, device=device) for device in self.devices]
        except torch.OutOfMemoryError as error:
            raise _out_of_memory("the model does not fit") from error
        except (OSError, ValueError, KeyError, RuntimeError) as error:  # whatever the folder is instead
            raise ScorerError(
                f"{checkpoint.path}: this model cannot be loaded ({one_line(error)})"
            ) from error

    def pixels(self, pixels: Pixels, device: torch.device) -> torch.Tensor:
        """(n, H, W, 3) uint8 → (n, 3, H, W), normalised on the device as the checkpoint's processor does."""
        assert self._pictures is not None
        with self.timing("preprocess"):
            here = torch.from_numpy(np.ascontiguousarray(pixels))
            if device.type == "cuda":
                here = here.pin_memory()  # travels while the GPU is at the batch before
            there = here.to(device, non_blocking=True).permute(0, 3, 1, 2)
            mean = torch.tensor(self._pictures.mean, device=device).view(1, 3, 1, 1)
            deviation = torch.tensor(self._pictures.deviation, device=device).view(1, 3, 1, 1)
            return ((there.float() / 255 - mean) / deviation).to(self.dtype).contiguous()

    def map(
        self, call: Callable[[slice, int], torch.Tensor], count: int, batch: int, stage: str = ""
    ) -> tuple[torch.Tensor | None, int]:
        """call(rows, device number) over all rows in batches, spread over the devices, on the first device.

        Where memory runs out the batch is halved; returns the batch that went well, too.
        """
        made: list[torch.Tensor] = []
        done = 0
        while done < count:
            step = min(batch, -(-(count - done) // len(self.devices)))  # a last batch is shared, too
            starts = range(done, min(count, done + step * len(self.devices)), step)
            rows = [slice(start, min(start + step, count)) for start in starts]
            try:
                with torch.inference_mode(), attention_without_plans():
                    made += [part.to(self.first) for part in [call(part, i) for i, part in enumerate(rows)]]
            except torch.OutOfMemoryError as error:
                if batch == 1:
                    raise _out_of_memory("even one frame at a time does not fit") from error
                batch //= 2
                torch.cuda.empty_cache()
                continue
            done = rows[-1].stop
            if stage:
                self._progress(stage, done, count)
        return (torch.cat(made) if made else None), batch

    def hold(self, encoded: Mapping[str, Any]) -> dict[str, Any]:
        """Features where `match` wants them: on the GPU if they take a small share of its free memory."""
        return {name: self._held(rows) for name, rows in encoded.items()}

    def _held(self, rows: Any) -> Any:
        if self.first.type != "cuda" or not has_room(self.first, rows.nbytes):
            return np.asarray(rows)
        return rows if isinstance(rows, Rows) else Rows(as_tensor(rows, self.first))

    def finish(self) -> None:
        """Wait for the devices, so that seconds are counted where they were spent."""
        for device in self.devices:
            if device.type == "cuda":
                torch.cuda.synchronize(device)


@contextmanager
def fast_products(on: Devices) -> Iterator[None]:
    """Products of float32 in TF32, where the model is of half precision anyway; as it was afterwards."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = before or on.dtype != torch.float32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def attention_without_plans() -> Iterator[None]:
    """Attention by any kernel but cuDNN's, which takes 0.1 s to plan for every new number of rows."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def _out_of_memory(what: str) -> ScorerError:
    return ScorerError(f"out of GPU memory: {what}; try --device cpu")


def _devices(text: str) -> list[torch.device]:
    if text == "auto":
        text = "cuda" if torch.cuda.is_available() else "cpu"
    found = []
    for name in text.split(","):
        try:
            device = torch.device(name.strip())
        except RuntimeError as error:
            raise ScorerError(f"there is no device {name!r}; choose cpu, cuda or cuda:0,cuda:1") from error
        count = torch.cuda.device_count()
        if device.type == "cuda" and (device.index or 0) >= count:
            raise ScorerError(f"no device {name.strip()!r}: torch sees {count} CUDA GPUs here")
        found.append(device)
    return found


def _dtype(config: ScorerConfig, device: torch.device) -> torch.dtype:
    if config.precision != "auto":
        dtype: torch.dtype = getattr(torch, config.precision)
        return dtype
    return torch.float32 if device.type == "cpu" else torch.float16


Weights = Mapping[str, torch.Tensor]


class TorchNetwork:
    """Weights by their names in the checkpoint, on one device, and the checkpoint's config.json."""

    unused: tuple[str, ...] = ()
    """How the names of weights begin that this network has no use for."""

    def __init__(self, weights: Weights, config: Mapping[str, Any]) -> None:
        self._weights = weights

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype, device: torch.device) -> Self:
        """From a folder that `save_pretrained` wrote, straight to the device."""
        from safetensors import safe_open

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        index, files = folder / "model.safetensors.index.json", {"model.safetensors"}
        if index.is_file():
            files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        weights = {}
        for file in sorted(files):
            with safe_open(folder / file, framework="pt", device=str(device)) as opened:
                for name in opened.keys():  # noqa: SIM118 - it is no mapping
                    if not name.startswith(cls.unused or ("\0",)):
                        weights[name] = opened.get_tensor(name).to(cls.precision(name, dtype))
        return cls(weights, config)

    @classmethod
    def precision(cls, name: str, dtype: torch.dtype) -> torch.dtype:
        """That of one of the weights in a network of this precision."""
        return dtype

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return linear(x, self._weights[name + ".weight"], self._weights.get(name + ".bias"))

    def _linear_gelu(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """GELU of the product. In half precision on a GPU, in one step with it.

        There it is GELU's tanh form: a twentieth faster in all, and no farther from float32 than two steps.
        """
        if x.device.type != "cuda" or x.dtype == torch.float32:
            return gelu(self._linear(x, name))
        weight, bias = self._weights[name + ".weight"], self._weights[name + ".bias"]
        found = torch._addmm_activation(bias, x.flatten(0, -2), weight.t(), use_gelu=True)
        return found.view(*x.shape[:-1], -1)

    def _norm(self, x: torch.Tensor, name: str, eps: float) -> torch.Tensor:
        weight = self._weights[name + ".weight"]
        return layer_norm(x, weight.shape, weight, self._weights[name + ".bias"], eps)

    def _patches(self, pixels: torch.Tensor, name: str) -> torch.Tensor:
        """(n, 3, H, W) → (n, p, d)."""
        kernel, bias = self._weights[name + ".weight"], self._weights.get(name + ".bias")
        pixels, side = pixels.to(kernel.dtype), kernel.shape[-1]
        if pixels.device.type == "cpu":
            return torch.conv2d(pixels, kernel, bias, stride=side).flatten(2).transpose(1, 2)
        return linear(patches(pixels, side), kernel.flatten(1), bias)  # a GPU is faster at it

    def _depth(self, prefix: str) -> int:
        """How many layers there are below a name."""
        found = {int(n[len(prefix) :].split(".")[0]) for n in self._weights if n.startswith(prefix)}
        if not found:
            raise ValueError(f"it has no weights {prefix}*")
        return max(found) + 1


def patches(pixels: torch.Tensor, side: int) -> torch.Tensor:
    """(n, 3, H, W) → (n, p, 3 · side²): squares of so many pixels, row by row; what is over is cut off."""
    count, colours, height, width = pixels.shape
    rows, columns = height // side, width // side
    whole = pixels[:, :, : rows * side, : columns * side]
    squares = whole.reshape(count, colours, rows, side, columns, side).permute(0, 2, 4, 1, 3, 5)
    return squares.reshape(count, rows * columns, colours * side * side)


def heads_of(x: torch.Tensor, heads: int) -> torch.Tensor:
    """(n, t, d) → (n, heads, t, d / heads)."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def joined(x: torch.Tensor) -> torch.Tensor:
    """(n, heads, t, d) → (n, t, heads · d)."""
    return x.transpose(1, 2).flatten(2)


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
