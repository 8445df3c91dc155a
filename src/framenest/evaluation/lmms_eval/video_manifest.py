"""A manifest stands for a video in a message: it says which video, what is asked, and who selects.

How many frames is not in it. The model's own frame argument says so when the manifest is read, so one
manifest, and for MEC one ranking, serves every budget.
"""

from __future__ import annotations

import atexit
import json
import sys
import threading
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from framenest.cache.archive import write_atomic
from framenest.cache.directory import DirectoryStore, digest
from framenest.errors import FramenestError, StoreError
from framenest.evaluation.selection_cache import SelectionCache
from framenest.lmm.times import Pairing
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
        try:
            return cls(**json.loads(Path(path).read_text(encoding="utf-8", errors="surrogatepass")))
        except (OSError, ValueError, TypeError) as error:
            raise StoreError(f"{path}: not a manifest of Framenest ({error})") from error


_lock = threading.Lock()  # lmms-eval's vllm builds its messages in threads
_kept: dict[str, SelectionCache] = {}
counts: Counter[str] = Counter()
"""Of this process: "made", "found" and "uniform" selections."""


def frames_of(manifest: VideoManifest, budget: int) -> Prefix:
    """The frames of a manifest at a budget.

    A selection that fails ends the run, or is replaced by uniform frames and counted where the manifest
    says on_error = uniform. One thread selects at a time.
    """
    with _lock:
        return _frames_of(manifest, budget)


def _frames_of(manifest: VideoManifest, budget: int) -> Prefix:
    if not counts:
        atexit.register(_report)
    kept = _kept.setdefault(manifest.scorer, SelectionCache(manifest.scorer))
    before = kept.made
    try:
        prefix = kept.prefix(manifest.video, manifest.text, manifest.selector, budget)
        counts["made" if kept.made > before else "found"] += 1
        return prefix
    except FramenestError as error:
        if manifest.on_error != "uniform":
            raise
        prefix = kept.prefix(manifest.video, manifest.text, "uniform", budget)
        counts["uniform"] += 1
        print(  # noqa: T201 - lmms-eval's own terminal
            f"framenest: uniform frames instead of {manifest.selector} for {manifest.video}: {error}",
            file=sys.stderr,
        )
        return prefix


def report() -> str:
    """What this process did, in one line."""
    total = counts["made"] + counts["found"] + counts["uniform"]
    replaced = f"; {counts['uniform']} REPLACED BY UNIFORM FRAMES" if counts["uniform"] else ""
    return (
        f"framenest: frames for {total} requests: {counts['made']} newly selected, "
        f"{counts['found']} from kept selections{replaced}"
    )


def _report() -> None:
    print(report(), file=sys.stderr)  # noqa: T201 - likewise
