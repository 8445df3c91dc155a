"""The reader in qwen-vl-utils: manifests become frames at their true times, other videos pass untouched."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
from PIL import Image

from framenest.errors import BudgetError, FramenestError
from framenest.evaluation.lmms_eval.video_manifest import SUFFIX, VideoManifest, manifest_reader
from framenest.lmm.times import sent_places, video_metadata
from framenest.method.prefix import Prefix

Element = Mapping[str, Any]
Reader = Callable[[Element], Any]
MARK = "framenest"


def register() -> list[Any]:
    """Entry point `lmms_eval.models`: hook every reader of qwen-vl-utils; no models of its own."""
    if (vision_process := _vision_process()) is not None:
        hook_readers(vision_process)
    return []


def _vision_process() -> ModuleType | None:
    """None without qwen-vl-utils: models that do not use it still run; a task of Framenest asks for it."""
    try:
        from qwen_vl_utils import vision_process
    except ImportError:
        return None
    found: ModuleType = vision_process
    return found


def hook_readers(vision_process: ModuleType) -> None:
    """Put `with_manifests` before every reader, whichever of them is in force now or later."""
    readers: MutableMapping[str, Reader] = vision_process.VIDEO_READER_BACKENDS
    for name, reader in readers.items():
        if not hasattr(reader, MARK):
            readers[name] = with_manifests(reader)


def is_hooked() -> bool:
    """Whether a manifest in a message will be understood."""
    found = _vision_process()
    return found is not None and all(hasattr(r, MARK) for r in found.VIDEO_READER_BACKENDS.values())


@contextmanager
def ending_the_run() -> Iterator[None]:
    """Errors leave as SystemExit.

    qwen-vl-utils answers any Exception of a reader by trying torchvision's, and lmms-eval answers one by
    going on to its end with exit code 0. A failed selection is neither a reason to read other frames nor
    a success.
    """
    try:
        yield
    except FramenestError as error:
        raise SystemExit(f"framenest: {error}") from error
    except Exception as error:
        raise SystemExit(f"framenest: unexpected {type(error).__name__}: {error}") from error


def with_manifests(reader: Reader) -> Reader:
    """A reader that also reads manifests."""

    @functools.wraps(reader)
    def read(element: Element) -> Any:
        video = element["video"]
        if not (isinstance(video, str) and video.endswith(SUFFIX)):
            return reader(element)
        with ending_the_run():
            return read_manifest(element)

    setattr(read, MARK, True)
    return read


def budget_of(element: Element) -> int:
    """K: the model's own frame argument, as it reaches the reader.

    >>> budget_of({"video": "…", "max_frames": 32, "fps": 2.0})
    32
    """
    for name in ("nframes", "max_frames"):
        if element.get(name):
            return int(element[name])
    raise BudgetError(
        "the model does not say how many frames it takes; set the model's frame argument: max_num_frames=K, "
        "or nframes=K"
    )


def read_manifest(element: Element) -> tuple[Any, dict[str, Any], float]:
    """(frames (K, 3, H, W) uint8, video metadata, frames per second), as qwen-vl-utils' readers return.

    Frames come twice where the pairing wants it: a lone one always, since a Qwen3-VL processor refuses one.
    """
    import torch

    manifest = VideoManifest.read(element["video"])
    prefix = manifest_reader().frames(manifest, budget_of(element))
    places = sent_places(manifest.pairing, prefix.seconds.tolist())
    pictures = np.stack([np.asarray(picture) for picture in pictures_of(prefix, manifest.video)])
    frames = torch.from_numpy(np.ascontiguousarray(pictures[places].transpose(0, 3, 1, 2)))
    metadata = video_metadata(prefix, places) | {"video_backend": MARK}
    return frames, metadata, len(frames) / max(prefix.video.duration, 1e-6)


def pictures_of(prefix: Prefix, video: str) -> list[Image.Image]:
    """The original frames, in time order. A kept ranking may name another place than the video's own."""
    return prefix.images(video=video, progress=False)
