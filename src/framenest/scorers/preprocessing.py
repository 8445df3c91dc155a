"""How a checkpoint wants its pictures: the size for the decoder's scaler, and the normalisation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.errors import ScorerError
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
