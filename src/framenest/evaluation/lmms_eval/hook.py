"""The lmms-eval plug-in: selected frames in place of lmms-eval's own sampling."""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from framenest.cache.directory import DirectoryStore
from framenest.cache.files import write_atomic
from framenest.cache.hashes import digest
from framenest.errors import BudgetError, StoreError, error_line
from framenest.evaluation.selection_cache import SelectionCache
from framenest.lmm.prompt import Pairing, sent_places, video_metadata
from framenest.method.prefix import Prefix

SUFFIX = ".framenest.json"
MARK = "framenest"
Element = Mapping[str, Any]
Reader = Callable[[Element], Any]


@dataclass(frozen=True)
class VideoManifest:
    """A file that stands for a video in a message: which frames of which video to show.

    video: a path. text: what relevance is scored for. The other fields are as in `TaskSettings`.
    """

    video: str
    text: str
    selector: str
    scorer: str | None
    pairing: Pairing = "pairs"

    def write(self) -> Path:
        """Write it into the cache; equal manifests share one file."""
        data = asdict(self)
        name = digest(data)
        path = DirectoryStore().root / "lmms-eval" / name[:2] / f"{name}{SUFFIX}"
        if not path.exists():
            text = json.dumps(data, ensure_ascii=False) + "\n"
            write_atomic(path, text.encode(errors="surrogatepass"), follow=False)
        return path

    @classmethod
    def read(cls, path: str | Path) -> VideoManifest:
        """Read a manifest that `write` wrote."""
        try:
            return cls(**json.loads(Path(path).read_text(encoding="utf-8", errors="surrogatepass")))
        except (OSError, ValueError, TypeError) as error:
            raise StoreError(f"{path}: not a manifest of Framenest ({error})") from error


class ManifestReader:
    """Selects the frames of manifests, through the selection cache. Scorers run on $FRAMENEST_DEVICE."""

    def __init__(self) -> None:
        self.requests = 0
        self._lock = threading.Lock()  # lmms-eval's vllm builds its messages in threads
        self._caches: dict[str | None, SelectionCache] = {}

    def frames(self, manifest: VideoManifest, budget: int) -> Prefix:
        """The frames of a manifest at a budget; one thread selects at a time."""
        with self._lock:
            scorer = manifest.scorer
            if scorer not in self._caches:
                self._caches[scorer] = SelectionCache(scorer, os.environ.get("FRAMENEST_DEVICE") or "auto")
            prefix = self._caches[scorer].prefix(manifest.video, manifest.text, manifest.selector, budget)
            self.requests += 1
            return prefix

    @property
    def misses(self) -> int:
        """Requests that were not in the cache."""
        return sum(cache.misses for cache in self._caches.values())

    def report(self) -> None:
        """Print one line of counts to stderr, if there were requests."""
        if self.requests:
            parts = f"{self.misses} newly selected, {self.requests - self.misses} from kept selections"
            print(f"framenest: frames for {self.requests} requests: {parts}", file=sys.stderr)  # noqa: T201 - a report


@cache
def manifest_reader() -> ManifestReader:
    """The reader of this process; it reports at exit."""
    reader = ManifestReader()
    atexit.register(reader.report)
    return reader


def register() -> list[Any]:
    """Entry point `lmms_eval.models`: hook the readers of qwen-vl-utils. Registers no models."""
    hook_readers()
    return []


def hook_readers() -> bool:
    """Make every reader of qwen-vl-utils understand manifests; False if it is not installed."""
    try:
        from qwen_vl_utils import vision_process
    except ImportError:
        return False
    readers = vision_process.VIDEO_READER_BACKENDS
    for name, reader in readers.items():
        if not hasattr(reader, MARK):
            readers[name] = with_manifests(reader)
    return True


@contextmanager
def ending_the_run() -> Iterator[None]:
    """Turn errors into SystemExit.

    After an Exception in a reader, qwen-vl-utils tries torchvision's reader, and lmms-eval goes on and exits
    with 0. A failed selection must do neither.
    """
    try:
        yield
    except Exception as error:
        raise SystemExit(f"framenest: {error_line(error)}") from error


def with_manifests(reader: Reader) -> Reader:
    """Wrap a reader so that it also reads manifests."""

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
    """K: the model's own frame argument, as the reader receives it.

    >>> budget_of({"video": "…", "max_frames": 32, "fps": 2.0})
    32
    """
    for name in ("nframes", "max_frames"):
        if element.get(name):
            return int(element[name])
    raise BudgetError(
        "the number of frames is unknown; set the model's frame argument: max_num_frames=K, or nframes=K"
    )


def read_manifest(element: Element) -> tuple[Any, dict[str, Any], float]:
    """(frames (K, 3, H, W) uint8, video metadata, frames per second), as qwen-vl-utils' readers return them.

    The pairing may repeat frames. A single frame is always repeated, because Qwen3-VL's processor refuses
    a video of one frame.
    """
    import torch

    manifest = VideoManifest.read(element["video"])
    prefix = manifest_reader().frames(manifest, budget_of(element))
    places = sent_places(manifest.pairing, prefix.seconds.tolist())
    # A cached ranking may name an older path of the video.
    images = np.stack([np.asarray(image) for image in prefix.images(video=manifest.video, progress=False)])
    frames = torch.from_numpy(np.ascontiguousarray(images[places].transpose(0, 3, 1, 2)))
    metadata = video_metadata(prefix, places) | {"video_backend": MARK}
    return frames, metadata, len(frames) / max(prefix.video.duration, 1e-6)
