"""Torch models on one or several devices: batches spread over them, halved where memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import torch

from framenest.config import ScorerConfig
from framenest.errors import ScorerError
from framenest.frames import Array, Pixels
from framenest.models import Checkpoint
from framenest.protocols import Progress
from framenest.scorers.preprocessing import Preprocessing
from framenest.text import one_line
from framenest.timing import Timing

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
