"""The scorers by name: what each needs, where its weights come from, on what machine it is of use."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from framenest.cache.directory import DirectoryStore
from framenest.models.hub import HubRepo
from framenest.models.wheels import TAGS, WheelFile

GB = 10**9


@dataclass(frozen=True)
class ModelEntry:
    """A scorer as `framenest models` shows it."""

    name: str
    what: str
    extra: str
    packages: tuple[str, ...]
    """Modules that the extra brings; the scorer needs each."""
    files: tuple[WheelFile, ...] | HubRepo | None
    """Where its weights come from; None where the packages bring them."""
    speed: str
    """Its class: on what machine it is of use."""
    optional: tuple[str, ...] = ()
    """Modules without which it works, with other numbers."""

    def installed(self) -> bool:
        return all(importlib.util.find_spec(name) is not None for name in self.packages)

    def here(self, store: DirectoryStore) -> bool:
        """Whether its weights are on this machine."""
        if isinstance(self.files, HubRepo):
            return self.files.here(store)
        return all(file.here(store) for file in self.files or ())

    @property
    def size(self) -> int:
        return self.files.size if isinstance(self.files, HubRepo) else sum(f.size for f in self.files or ())

    @property
    def licence(self) -> str:
        if isinstance(self.files, HubRepo):
            return self.files.licence
        return ", ".join(sorted({f.licence for f in self.files or ()})) or "Apache-2.0"


CATALOGUE: dict[str, ModelEntry] = {
    entry.name: entry
    for entry in (
        ModelEntry(
            "blip2",
            "image-text matching, as in the paper",
            "blip2",
            ("torch", "transformers"),
            HubRepo("Salesforce/blip2-itm-vit-g", "BLIP-2 ITM, ViT-g, 224 px", int(4.7 * GB), "MIT"),
            "GPU",
        ),
        ModelEntry(
            "siglip2",
            "dual encoder",
            "siglip2",
            ("torch", "transformers"),
            HubRepo("google/siglip2-base-patch16-224", "SigLIP 2 base, 224 px", int(1.5 * GB), "Apache-2.0"),
            "GPU; slow on CPU",
        ),
        ModelEntry(
            "onnx",
            "SigLIP or CLIP without torch",
            "onnx",
            ("onnxruntime", "tokenizers"),
            HubRepo(
                "onnx-community/siglip2-base-patch16-224-ONNX",
                "SigLIP 2 base as ONNX, float32",
                int(1.5 * GB),
                "Apache-2.0",
                files=("*vision_model.onnx", "*text_model.onnx"),
            ),
            "CPU",
        ),
        ModelEntry(
            "clip",
            "dual encoder",
            "clip",
            ("torch", "transformers"),
            HubRepo("openai/clip-vit-base-patch32", "CLIP ViT-B/32, 224 px", int(0.6 * GB), "MIT"),
            "GPU or CPU",
        ),
        ModelEntry(
            "tags",
            "names of what is seen",
            "tags",
            ("onnxruntime", "tokenizers"),
            TAGS,
            "CPU",
            ("ai_edge_litert",),
        ),
        ModelEntry(
            "qwen3-vl-reranker",
            "question and frame together",
            "reranker",
            ("torch", "sentence_transformers"),
            HubRepo("Qwen/Qwen3-VL-Reranker-2B", "Qwen3-VL-Reranker 2B", int(4.3 * GB), "Apache-2.0"),
            "GPU, slow",
        ),
        ModelEntry(
            "ocr",
            "text on screen",
            "ocr",
            ("rapidocr", "onnxruntime", "rapidfuzz"),
            None,
            "CPU, slow",
        ),
    )
}
"""Scorers by name."""
