"""Checkpoints: loading weights in the background, image preprocessing and tokenizers."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, Literal, NoReturn, TypeVar

from framenest.errors import ScorerError, ScorerWarning, needs_extra
from framenest.frames import ImageSpec
from framenest.progress import Timing
from framenest.records import parse_json

Model = TypeVar("Model")
_LOADER = "framenest-load"
_loading: set[Future[Any]] = set()
OF_PARENT: set[str] = set()
"""In a forked process, the modules that its parent had imported, and whose threads may have run there."""
_every: weakref.WeakSet[EachProcess[Any]] = weakref.WeakSet()
_RESAMPLING: dict[int, Literal["bilinear", "bicubic"]] = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers


class EachProcess(Generic[Model]):
    """What each process makes for itself: the threads of a model do not survive a fork.

    >>> EachProcess(lambda: "model")()
    'model'
    """

    def __init__(self, make: Callable[[], Model]) -> None:
        self._make = make
        self._made: Model | None = make()
        _every.add(self)

    def __call__(self) -> Model:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __reduce__(self) -> NoReturn:
        raise ScorerError("a loaded scorer cannot be pickled; give the session its name: scorer=NAME")

    def forget(self) -> None:
        """In a forked process, make it again at the next call.

        What the parent made is never destroyed here: that would wait for threads that only the parent has.
        """
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._made))
        self._made = None


class InBackground(Generic[Model]):
    """A model that loads in the background. Calling it waits for the model, or raises the load error.

    Python waits for the thread at exit: model libraries abort a process that ends while they load.

    >>> InBackground(lambda: "model")()
    'model'
    """

    def __init__(self, load: Callable[[], Model]) -> None:
        self.timing = Timing()  # counts the seconds spent waiting as the stage "load"
        self._model = EachProcess(lambda: _begin(load))

    def __call__(self) -> Model:
        model = self._model()
        if not model.done():
            with self.timing("load"):
                wait([model])
        return model.result()


def _begin(load: Callable[[], Model]) -> Future[Model]:
    model = _loader().submit(load)
    _loading.add(model)
    model.add_done_callback(_loading.discard)
    return model


@cache
def _loader() -> ThreadPoolExecutor:
    """One thread, since libraries change global state to load. A forked process gets its own."""
    return ThreadPoolExecutor(1, _LOADER)


def _before_fork() -> None:
    """Let a load end: the locks that it holds would stay locked in the child."""
    if not threading.current_thread().name.startswith(_LOADER):
        wait(list(_loading))


def _after_fork() -> None:
    _loader.cache_clear()
    OF_PARENT.update(sys.modules)
    for one in _every:
        one.forget()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


def still_loading() -> bool:
    """Whether this process is loading a model right now."""
    return bool(_loading)


@dataclass(frozen=True)
class Preprocessing:
    """Image preprocessing of a checkpoint: what the decoder's scaler makes; mean and deviation of [0, 1]."""

    spec: ImageSpec
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def load(cls, folder: Path) -> Preprocessing:
        """Read the image processor's config, which is saved next to the weights."""
        settings = read_json(find_file(folder, "preprocessor_config.json", "processor_config.json"))
        settings = settings.get("image_processor", settings)
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
    with needs_extra(extra, "tokenizers"):
        from tokenizers import Tokenizer
    with load_errors(path, extra):
        tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(limit)
    return tokenizer


def find_file(folder: Path, *names: str) -> Path:
    """The first of several files that a checkpoint has, at its top or in onnx/; ScorerError if none."""
    for path in (place / name for name in names for place in (folder, folder / "onnx")):
        if path.is_file():
            return path
    raise ScorerError(f"{folder}: {' or '.join(names)} is missing")


def padding_token(folder: Path, tokenizer: Any) -> int | None:
    """The padding token of a tokenizer; the model's config often differs, and SigLIP attends to padding."""
    path = folder / "tokenizer_config.json"
    token = read_json(path).get("pad_token") if path.is_file() else None
    name = token.get("content") if isinstance(token, dict) else token
    known = tokenizer.token_to_id(name) if name else None
    return None if known is None else int(known)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        data: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
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
