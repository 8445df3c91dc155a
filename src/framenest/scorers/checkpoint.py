"""The files of a checkpoint: preprocessing and tokenizer."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.errors import MissingExtra, ScorerError, ScorerWarning
from framenest.frames import ImageSpec
from framenest.models import folder_of

_RESAMPLING: dict[int, Literal["bilinear", "bicubic"]] = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers


@dataclass(frozen=True)
class Preprocessing:
    """spec: what `encode` gets, made by the decoder's scaler; mean, deviation: of RGB in [0, 1]."""

    spec: ImageSpec
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def load(cls, folder: Path) -> Preprocessing:
        """From the image processor's settings that lie beside a checkpoint's weights."""
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
            raise ScorerError(f"{folder}: pictures of this kind are not supported ({error!r})") from error


def pictures_of(
    scorer: str, checkpoint: str, store: DirectoryStore, config: ScorerConfig
) -> tuple[ImageSpec, ...] | None:
    """The pictures that a scorer's own checkpoint, or the one named, wants of each frame."""
    folder = folder_of(scorer, checkpoint, store, config.revision or "")
    return None if folder is None else (Preprocessing.load(folder).spec,)


def _settings(folder: Path) -> dict[str, Any]:
    for name in ("preprocessor_config.json", "processor_config.json"):
        if (folder / name).is_file():
            data = json.loads((folder / name).read_text(encoding="utf-8"))
            settings: dict[str, Any] = data.get("image_processor", data)
            return settings
    raise ScorerError(f"{folder}: preprocessor_config.json is missing")


@contextmanager
def loading(path: Path, scorer: str) -> Iterator[None]:
    """The runtimes' own exceptions share no public base; each means that the file is not right."""
    try:
        yield
    except Exception as error:
        raise ScorerError(
            f"{path}: this model file cannot be loaded; run: framenest models fetch {scorer} ({error})"
        ) from error


def tokenizer_file(path: Path, extra: str) -> Any:
    """A tokenizer.json, without padding or truncation of its own."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtra(extra, "tokenizers") from error
    if not path.is_file():
        raise ScorerError(f"{path}: is missing")
    with loading(path, extra):
        tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def padding_token(folder: Path, tokenizer: Any) -> int | None:
    """The id that the tokenizer in a folder pads with; None where it names none.

    The model's config often has another, and SigLIP attends to padding.
    """
    token = read_json(folder / "tokenizer_config.json", {}).get("pad_token")
    name = token.get("content") if isinstance(token, dict) else token
    known = tokenizer.token_to_id(name) if name else None
    return None if known is None else int(known)


def read_json(path: Path, otherwise: dict[str, Any] | None = None) -> dict[str, Any]:
    """The object in a JSON file; `otherwise`, where it is given, where there is no file."""
    if otherwise is not None and not path.is_file():
        return otherwise
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ScorerError(f"{path}: cannot be read ({error})") from error
    return data


class CutQuestion(ScorerWarning):
    """The model read only the beginning of a question."""


def tell_truncation(scorer: str, tokens: int, limit: int) -> None:
    """Warn where a question of `tokens` tokens is truncated to `limit`."""
    if tokens > limit:
        text = f"{scorer} reads {limit} tokens; the question has {tokens}, its end is not read"
        warnings.warn(text, CutQuestion, stacklevel=3)
