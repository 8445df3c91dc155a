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
from functools import cache
from pathlib import Path

from framenest.cache.atomic_file import write_atomic
from framenest.cache.directory import DirectoryStore
from framenest.cache.hashes import digest
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
