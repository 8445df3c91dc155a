"""The lmms-eval plug-in: selected frames in place of lmms-eval's own sampling, answers stored in steps."""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
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
REQUEST_FAILED = ("[LMMS_EVAL_", "Error: ")
"""How an answer begins that lmms-eval's models of a server give after their last retry, and for no text."""
ANSWERS_A_STEP = 16  # a crash loses at most so many answers of each process
Element = Mapping[str, Any]


@dataclass(frozen=True)
class VideoManifest:
    """A file that stands for a video in a message: which frames of which video to show.

    video: a path. text: what relevance is scored for. prepare: the command that selects the frames. The
    other fields are as in `TaskSettings`.
    """

    video: str
    text: str
    selector: str
    scorer: str | None
    pairing: Pairing = "pairs"
    prepare: str = ""

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


_lock = threading.Lock()  # lmms-eval's vllm builds its messages in threads
_selections = cache(SelectionCache)


def selected_frames(manifest: VideoManifest, budget: int) -> Prefix:
    """The frames of a manifest at a budget, from the selection cache; one thread reads at a time."""
    with _lock:
        given = manifest.video, manifest.text, manifest.selector, budget, manifest.prepare
        return _selections(manifest.scorer).prefix(*given)


def register() -> list[Any]:
    """Entry point `lmms_eval.models`: hook qwen-vl-utils and lmms-eval's cache. Registers no models."""
    hook_readers()
    store_answers_in_steps()
    return []


def store_answers_in_steps() -> None:
    """Make `--use_cache` store the answers to our tasks in steps, where the same command finds them.

    lmms-eval itself stores answers once a process has all of them, and looks for those of a run that was
    interrupted only if LMMS_CACHE_RUN_ID names it. Other tasks are left alone.
    """
    if not any(MARK in argument for argument in sys.argv):
        return
    try:
        from lmms_eval.caching.response_cache import ResponseCache
    except ImportError:  # a version without this cache
        return
    os.environ.setdefault("LMMS_CACHE_RUN_ID", f"{MARK}-{digest(sys.argv[1:])[:12]}")
    execute = ResponseCache.execute

    @functools.wraps(execute)
    def in_steps(self: Any, model: Any, kind: str, requests: list[Any]) -> list[Any]:
        if not any(MARK in request.task_name for request in requests):
            return list(execute(self, model, kind, requests))
        timed = TimedModel(model)
        answers: list[Any] = []
        for start in range(0, len(requests), ANSWERS_A_STEP):
            answers += execute(self, timed, kind, requests[start : start + ANSWERS_A_STEP])
        line = f"{timed.answers} of {len(answers)} answers are new, {timed.seconds:.1f} s of the model"
        print(f"framenest: {line}", file=sys.stderr)  # noqa: T201 - a report
        return answers

    ResponseCache.execute = in_steps


@dataclass
class TimedModel:
    """A model of lmms-eval whose time is measured, and whose failed requests end the run.

    lmms-eval would store a failed request, and score it as a wrong answer.
    """

    model: Any
    answers: int = 0
    seconds: float = 0.0

    def generate_until(self, requests: list[Any]) -> list[Any]:
        """As the model does it.

        `async_openai` adds to the settings of a request, which are part of the key of its stored answer, and
        opens an event loop for each call, in which the connections of an earlier call are dead.
        """
        client: Any = getattr(self.model, "client", None)
        if type(client).__name__ == "AsyncOpenAI":
            from openai import DefaultAsyncHttpxClient

            self.model.client = client.copy(http_client=DefaultAsyncHttpxClient())
        settings = [(value, dict(value)) for one in requests for value in one.args if isinstance(value, dict)]
        start = time.perf_counter()
        answers = list(self.model.generate_until(requests))
        self.seconds += time.perf_counter() - start
        self.answers += len(answers)
        for changed, before in settings:
            changed.clear()
            changed.update(before)
        texts = [str(getattr(answer, "text", answer)) for answer in answers]
        failed = [text for text in texts if text.startswith(REQUEST_FAILED)]
        if failed:
            raise SystemExit(f"framenest: {len(failed)} of {len(texts)} requests failed: {failed[0]}")
        if len(texts) == ANSWERS_A_STEP and not any(text.strip() for text in texts):
            raise SystemExit(f"framenest: {len(texts)} empty answers in a row; the model's errors are above")
        return answers


def hook_readers() -> bool:
    """Make every reader of qwen-vl-utils understand manifests; False if it is not installed."""
    try:
        from qwen_vl_utils import vision_process
    except ImportError:
        return False
    readers = vision_process.VIDEO_READER_BACKENDS
    readers |= {name: with_manifests(reader) for name, reader in readers.items() if not hasattr(reader, MARK)}
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


def with_manifests(reader: Callable[[Element], Any]) -> Callable[[Element], Any]:
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


def read_manifest(element: Element) -> tuple[Any, dict[str, Any], float]:
    """(frames (K, 3, H, W) uint8, video metadata, frames per second), as qwen-vl-utils' readers return them.

    K is the model's own frame argument. The pairing may repeat frames. A single frame is always repeated,
    because Qwen3-VL's processor refuses a video of one frame.
    """
    import torch

    manifest = VideoManifest.read(element["video"])
    budget = element.get("nframes") or element.get("max_frames")
    if not budget:
        raise BudgetError(
            "the number of frames is unknown; set the model's frame argument: max_num_frames=K, or nframes=K"
        )
    prefix = selected_frames(manifest, int(budget))
    places = sent_places(manifest.pairing, prefix.seconds.tolist())
    # A cached ranking may name an older path of the video.
    images = np.stack([np.asarray(image) for image in prefix.images(video=manifest.video, progress=False)])
    frames = torch.from_numpy(np.ascontiguousarray(images[places].transpose(0, 3, 1, 2)))
    metadata = video_metadata(prefix, places) | {"video_backend": MARK}
    return frames, metadata, len(frames) / max(prefix.video.duration, 1e-6)
