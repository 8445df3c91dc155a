"""The lmms-eval plug-in: selected frames in place of lmms-eval's own sampling."""

from __future__ import annotations

import atexit
import functools
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from PIL import Image

from framenest.cache.directory import DirectoryStore
from framenest.cache.files import write_atomic
from framenest.cache.hashes import digest
from framenest.errors import BudgetError, FramenestError, StoreError
from framenest.evaluation.selection_cache import SelectionCache
from framenest.lmm.times import Pairing, sent_places, video_metadata
from framenest.method.prefix import Prefix

SUFFIX = ".framenest.json"


@dataclass(frozen=True)
class VideoManifest:
    """video: a path. text: what relevance is scored for. selector, scorer, on_error and
    pairing: as in TaskSettings."""

    video: str
    text: str
    selector: str
    scorer: str
    on_error: str = "stop"
    pairing: Pairing = "pairs"

    def write(self) -> Path:
        """Write it into the cache; the same manifest is always the same file."""
        data = asdict(self)
        name = digest(data)
        path = DirectoryStore().root / "lmms-eval" / name[:2] / f"{name}{SUFFIX}"
        if not path.exists():
            write_atomic(path, (json.dumps(data, ensure_ascii=False) + "\n").encode(errors="surrogatepass"))
        return path

    @classmethod
    def read(cls, path: str | Path) -> VideoManifest:
        """A manifest that `write` wrote."""
        try:
            return cls(**json.loads(Path(path).read_text(encoding="utf-8", errors="surrogatepass")))
        except (OSError, ValueError, TypeError) as error:
            raise StoreError(f"{path}: not a manifest of Framenest ({error})") from error


class ManifestReader:
    """Frames of manifests, selected once and kept; counts what it did.

    counts: requests by how they were served, "made", "found" or "uniform".
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()  # lmms-eval's vllm builds its messages in threads
        self._kept: dict[str, SelectionCache] = {}

    def frames(self, manifest: VideoManifest, budget: int) -> Prefix:
        """The frames of a manifest at a budget; one thread selects at a time.

        A selection that fails ends the run, or is replaced by uniform frames and counted where the
        manifest says on_error = uniform.
        """
        with self._lock:
            kept = self._kept.setdefault(manifest.scorer, SelectionCache(manifest.scorer))
            before = kept.made
            try:
                prefix = kept.prefix(manifest.video, manifest.text, manifest.selector, budget)
                self.counts["made" if kept.made > before else "found"] += 1
            except FramenestError as error:
                if manifest.on_error != "uniform":
                    raise
                prefix = kept.prefix(manifest.video, manifest.text, "uniform", budget)
                self.counts["uniform"] += 1
                _say(f"uniform frames instead of {manifest.selector} for {manifest.video}: {error}")
            return prefix

    def report(self) -> None:
        """Say on stderr what was done, in one line; nothing where nothing was."""
        made, found, uniform = (self.counts[name] for name in ("made", "found", "uniform"))
        if self.counts:
            replaced = f"; {uniform} REPLACED BY UNIFORM FRAMES" if uniform else ""
            _say(
                f"frames for {made + found + uniform} requests: {made} newly selected, "
                f"{found} from kept selections{replaced}"
            )


@cache
def manifest_reader() -> ManifestReader:
    """The reader of this process, which lmms-eval's functions share; it reports at exit."""
    reader = ManifestReader()
    atexit.register(reader.report)
    return reader


def _say(text: str) -> None:
    print(f"framenest: {text}", file=sys.stderr)  # noqa: T201 - lmms-eval's own terminal


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
