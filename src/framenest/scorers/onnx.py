"""The scorer `onnx`: SigLIP or CLIP on a CPU with onnxruntime, without torch.

A folder holds vision_model.onnx and text_model.onnx (at its top or in onnx/), tokenizer.json, config.json
and preprocessor_config.json, as exports on the hub do.
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
from framenest.protocols import Encoded, Progress
from framenest.scorers.calibration import DualScorer
from framenest.scorers.checkpoint import (
    InBackground,
    Preprocessing,
    find_file,
    load_errors,
    padding_token,
    read_json,
    token_ids,
    tokenizer_file,
)

AT_ONCE = 8  # frames: more do not run faster on a CPU


class OnnxScorer(DualScorer):
    """A dual encoder as ONNX.

    Exports do not hold the logit's scale and bias, so SigLIP has no relevance of its own here.
    """

    name = "onnx"

    def __init__(self, checkpoint: Checkpoint, config: ScorerConfig) -> None:
        super().__init__(config.calibration)
        settings = read_json(checkpoint.path / "config.json")
        self._siglip = str(settings.get("model_type", "")).startswith("siglip")
        if self._siglip and not self._logistic:
            raise ScorerError(
                f"{checkpoint.name}: an ONNX export does not hold the logit's scale and bias, which "
                "--calibration none needs; use the scorer siglip2"
            )
        self._images = Preprocessing.load(checkpoint.path)
        self.inputs: tuple[ImageSpec, ...] = (self._images.spec,)
        self.batch = config.batch or AT_ONCE
        self.version = f"{checkpoint} float32"
        text = settings["text_config"]
        self._longest = int(text.get("max_position_embeddings", 64 if self._siglip else 77))
        for name in ("vision_model.onnx", "text_model.onnx", "tokenizer.json"):
            find_file(checkpoint.path, name)  # raises if it is missing
        padding = int(text.get("pad_token_id") or 0)
        self._model = InBackground(lambda: _Models(checkpoint.path, self._longest, padding))
        self.timing = self._model.timing

    @classmethod
    def load(cls, checkpoint: str, store: DirectoryStore, config: ScorerConfig, progress: Progress) -> Self:
        """The scorer over the default export, or a checkpoint's (org/name or a folder)."""
        return cls(locate(cls.name, checkpoint, store, config.revision or ""), config)

    def encode(self, frames: FrameBatch) -> Encoded:
        """Image vectors; see `framenest.Scorer`."""
        pixels = frames.pixels[0]
        mean = np.array(self._images.mean, np.float32)
        deviation = np.array(self._images.deviation, np.float32)
        if not len(pixels):  # many exports refuse an empty batch
            return {"vector": np.zeros((0, len(self._text("."))), np.float32)}
        vision, made = self._model().vision, []
        for start in range(0, len(pixels), self.batch):
            scaled = (pixels[start : start + self.batch].astype(np.float32) / 255 - mean) / deviation
            prepared = np.ascontiguousarray(scaled.transpose(0, 3, 1, 2), dtype=np.float32)
            made.append(vision({"pixel_values": prepared}))
        return {"vector": np.concatenate(made)}

    def _text(self, question: str) -> NDArray[np.float32]:
        model = self._model()
        ids = token_ids(model.tokenizer, question.lower() if self._siglip else question, self.name)
        missing = self._longest - len(ids)
        tokens = np.array([ids + [model.padding] * missing], dtype=np.int64)
        mask = np.array([[1] * len(ids) + [0] * missing], dtype=np.int64)
        return np.asarray(model.text({"input_ids": tokens, "attention_mask": mask})[0])


def onnx_session(path: Path, extra: str, threads: int | None = None, *, yielding: bool = False) -> Any:
    """An onnxruntime session on the CPU.

    Args:
        path: the model file.
        extra: the extra to name if onnxruntime is not installed.
        threads: all cores by default.
        yielding: idle threads sleep instead of spinning, for models that run alongside decoders.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra(extra, "onnxruntime") from error
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads or cores()  # its own default is all cores in every process
    if yielding:
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    with load_errors(path, extra):
        return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


class _Models:
    def __init__(self, folder: Path, longest: int, padding: int) -> None:
        self.vision = _Side(find_file(folder, "vision_model.onnx"), "image_embeds")
        self.text = _Side(find_file(folder, "text_model.onnx"), "text_embeds")
        self.tokenizer = tokenizer_file(find_file(folder, "tokenizer.json"), "onnx", longest)
        named = padding_token(folder, self.tokenizer)
        self.padding = padding if named is None else named


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
