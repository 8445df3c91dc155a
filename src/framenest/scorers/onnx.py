"""The scorer `onnx`: SigLIP or CLIP on a CPU with onnxruntime, without torch.

A folder holds vision_model.onnx and text_model.onnx (at its top or in onnx/), tokenizer.json,
config.json and preprocessor_config.json, as exports on the hub and `framenest models export` have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.errors import MissingExtra, ScorerError
from framenest.frames import FrameBatch, ImageSpec
from framenest.models import Checkpoint, locate
from framenest.processes import cores
from framenest.progress import Timing
from framenest.protocols import Encoded, Progress
from framenest.scorers.calibration import SIGLIP_LEVELS, DualScorer, Scores, half_cosine, sigmoid
from framenest.scorers.checkpoint import (
    Preprocessing,
    loading,
    padding_token,
    pictures_of,
    read_json,
    tell_truncation,
    tokenizer_file,
)

AT_ONCE = 8  # frames: more do not run faster on a CPU


class OnnxScorer(DualScorer):
    """A dual encoder as ONNX. The logit's scale and bias come from framenest.json, where it is there."""

    name = "onnx"
    version: str
    """Checkpoint, revision and precision."""
    inputs: tuple[ImageSpec, ...]
    batch: int
    """Frames that `encode` takes at once."""
    timing: Timing
    """Seconds of its own stages."""

    def __init__(self, checkpoint: Checkpoint, config: ScorerConfig) -> None:
        super().__init__(config.calibration)
        self._config = read_json(checkpoint.path / "config.json")
        self._siglip = str(self._config.get("model_type", "")).startswith("siglip")
        self.own_relevance = "sigmoid of the model's logit" if self._siglip else "(1 + cosine) / 2"
        self.match_levels = SIGLIP_LEVELS if self._siglip else None
        self._vision = _Side(_find(checkpoint.path, "vision_model.onnx"), "image_embeds")
        self._words = _Side(_find(checkpoint.path, "text_model.onnx"), "text_embeds")
        self._tokenizer = tokenizer_file(checkpoint.path / "tokenizer.json", "onnx")
        padding = padding_token(checkpoint.path, self._tokenizer)
        self._pad = self._config["text_config"].get("pad_token_id") or 0 if padding is None else padding
        self._pictures = Preprocessing.load(checkpoint.path)
        self.inputs = (self._pictures.spec,)
        self.batch = config.batch or AT_ONCE
        self.timing = Timing()
        self.version = f"{checkpoint} float32"
        logit = read_json(checkpoint.path / "framenest.json", {})
        if not logit and self._siglip and not self._logistic:
            raise ScorerError(
                f"{checkpoint.name}: this export does not hold the logit's scale and bias, which "
                "--calibration none needs; export it with `framenest models export`"
            )
        self.scale, self.bias = float(logit.get("scale", 1.0)), float(logit.get("bias", 0.0))

    @classmethod
    def load(cls, checkpoint: str, store: DirectoryStore, config: ScorerConfig, progress: Progress) -> Self:
        """The scorer over the export that Framenest knows, or a checkpoint's (org/name or a folder)."""
        return cls(locate(cls.name, checkpoint, store, config.revision or ""), config)

    @classmethod
    def pictures(
        cls, checkpoint: str, store: DirectoryStore, config: ScorerConfig
    ) -> tuple[ImageSpec, ...] | None:
        """What `inputs` will be once it is loaded."""
        return pictures_of(cls.name, checkpoint, store, config)

    def encode(self, frames: FrameBatch) -> Encoded:
        pixels = frames.pixels[0]
        mean = np.array(self._pictures.mean, np.float32)
        deviation = np.array(self._pictures.deviation, np.float32)
        if not len(pixels):  # many exports cannot take none
            return {"vector": np.zeros((0, len(self._text("."))), np.float32)}
        made = []
        for start in range(0, len(pixels), self.batch):
            with self.timing("preprocess"):
                scaled = (pixels[start : start + self.batch].astype(np.float32) / 255 - mean) / deviation
                prepared = np.ascontiguousarray(scaled.transpose(0, 3, 1, 2), dtype=np.float32)
            made.append(self._vision({"pixel_values": prepared}))
        return {"vector": np.concatenate(made)}

    def plain(self, scores: Scores) -> NDArray[np.float32]:
        return sigmoid(scores) if self._siglip else half_cosine((scores - self.bias) / self.scale)

    def _text(self, question: str) -> NDArray[np.float32]:
        limit = int(self._config["text_config"].get("max_position_embeddings", 64 if self._siglip else 77))
        ids = self._tokenizer.encode(question.lower() if self._siglip else question).ids
        tell_truncation(self.name, len(ids), limit)
        last = ids[-1:]  # the end-of-text token stays, as in the tokenizers' own truncation
        ids = ids if len(ids) <= limit else [*ids[: limit - 1], *last]
        padding = limit - len(ids)
        tokens = np.array([ids + [self._pad] * padding], dtype=np.int64)
        mask = np.array([[1] * len(ids) + [0] * padding], dtype=np.int64)
        return np.asarray(self._words({"input_ids": tokens, "attention_mask": mask})[0])


def onnx_session(path: Path, extra: str, threads: int | None = None, *, yielding: bool = False) -> Any:
    """A model file, ready to run on the CPU with so many threads; on all cores by default.

    yielding: threads that wait for work sleep, for models that run beside decoders; else they spin.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra(extra, "onnxruntime") from error
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads or cores()  # by itself it takes all, in every worker process
    if yielding:
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    with loading(path, extra):
        return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


class _Side:
    """One side of a dual encoder: named inputs → (n, d) unit vectors."""

    def __init__(self, path: Path, wanted: str) -> None:
        self._session = onnx_session(path, "onnx")
        self._takes = {entry.name for entry in self._session.get_inputs()}
        gives = [entry.name for entry in self._session.get_outputs()]
        self._output = next((name for name in (wanted, "pooler_output") if name in gives), None)
        if self._output is None:
            raise ScorerError(f"{path}: gives neither {wanted} nor pooler_output, but {', '.join(gives)}")

    def __call__(self, inputs: Mapping[str, Any]) -> NDArray[np.float32]:
        given = {name: value for name, value in inputs.items() if name in self._takes}
        found = self._session.run([self._output], given)[0]
        return np.asarray(found / np.maximum(np.linalg.norm(found, axis=-1, keepdims=True), 1e-12))


def _find(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / "onnx" / name):
        if path.is_file():
            return path
    raise ScorerError(f"{folder}: {name} is missing")
