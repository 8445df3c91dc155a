"""The scorers `onnx` and `onnx-fast`: SigLIP or CLIP on a CPU with onnxruntime, without torch.

A folder has the layout of exports on the hub: vision_model.onnx and text_model.onnx or their float16 versions
(at its top or in onnx/), tokenizer.json, config.json and preprocessor_config.json.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.errors import ScorerError, needs_extra
from framenest.frames import Floats, FrameBatch, ImageSpec
from framenest.models import Checkpoint, locate
from framenest.processes import cores
from framenest.protocols import Encoded, Progress
from framenest.scorers.calibration import OF_CLIP, OF_SIGLIP, SIGLIP, DualScorer
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

BATCH_FRAMES = 8  # frames: more do not run faster on a CPU
VISION = ("vision_model.onnx", "vision_model_fp16.onnx")
TEXT = ("text_model.onnx", "text_model_fp16.onnx")
LOGITS = {"onnx-community/siglip2-base-patch16-224-ONNX": (math.exp(4.724453449249268), -16.771724700927734)}
"""Scale and bias of SigLIP's logit, which exports leave out, by repository; docs/scorers.md has sources."""


class OnnxScorer(DualScorer):
    """A dual encoder as ONNX.

    Exports lack the logit's scale and bias. So SigLIP has its own relevance only if they are known (LOGITS).
    """

    name = "onnx"

    def __init__(self, checkpoint: Checkpoint, config: ScorerConfig) -> None:
        super().__init__(config.calibration)
        settings = read_json(checkpoint.path / "config.json")
        siglip = str(settings.get("model_type", "")).startswith("siglip")
        if checkpoint.name in LOGITS:
            self.scale, self.bias = LOGITS[checkpoint.name]
            self.own_relevance, self.match_levels = SIGLIP
        elif siglip and not self._logistic:
            raise ScorerError(
                f"{checkpoint.name}: an ONNX export does not hold the logit's scale and bias, which "
                "calibration=none needs; use the scorer siglip2"
            )
        self.search_levels = OF_SIGLIP if siglip else OF_CLIP
        self._images = Preprocessing.load(checkpoint.path)
        self.inputs: tuple[ImageSpec, ...] = (self._images.spec,)
        self.batch = config.batch or BATCH_FRAMES
        files = [find_file(checkpoint.path, *names) for names in (VISION, TEXT, ("tokenizer.json",))]
        self.version = f"{checkpoint} {'float16' if 'fp16' in files[0].name else 'float32'}"
        if "text_config" not in settings:
            raise ScorerError(f"{checkpoint.path}: config.json has no text_config")
        text = settings["text_config"]
        self._lower_case = siglip  # as the model was trained
        self._longest = int(text.get("max_position_embeddings", 64 if siglip else 77))
        padding = int(text.get("pad_token_id") or 0)
        self._model = InBackground(lambda: _Models(files, self.name, self._longest, padding))
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
        vision, vectors = self._model().vision, []
        for start in range(0, len(pixels), self.batch):
            scaled = (pixels[start : start + self.batch].astype(np.float32) / 255 - mean) / deviation
            prepared = np.ascontiguousarray(scaled.transpose(0, 3, 1, 2), dtype=np.float32)
            vectors.append(vision({"pixel_values": prepared}))
        return {"vector": np.concatenate(vectors)}

    def _text(self, question: str) -> Floats:
        model = self._model()
        ids = token_ids(model.tokenizer, question.lower() if self._lower_case else question, self.name)
        missing = self._longest - len(ids)
        tokens = np.array([ids + [model.padding] * missing], dtype=np.int64)
        mask = np.array([[1] * len(ids) + [0] * missing], dtype=np.int64)
        return np.asarray(model.text({"input_ids": tokens, "attention_mask": mask})[0])


class FastOnnxScorer(OnnxScorer):
    """SigLIP 2 with patches of 32 pixels: a third of the work per frame."""

    name = "onnx-fast"


def onnx_session(path: Path, extra: str, threads: int | None = None, *, yielding: bool = False) -> Any:
    """An onnxruntime session on the CPU, by default on all cores. extra: installs onnxruntime.

    yielding: idle threads sleep instead of spinning, for models that run alongside decoders.
    """
    with needs_extra(extra, "onnxruntime"):
        import onnxruntime
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads or cores()  # onnxruntime's default is all cores in every process
    if yielding:
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    with load_errors(path, extra):
        return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


class _Models:
    def __init__(self, files: Sequence[Path], scorer: str, longest: int, padding: int) -> None:
        vision, text, tokenizer = files
        self.vision = _Side(vision, "image_embeds", scorer)
        self.text = _Side(text, "text_embeds", scorer)
        self.tokenizer = tokenizer_file(tokenizer, scorer, longest)
        named = padding_token(tokenizer.parent, self.tokenizer)
        self.padding = padding if named is None else named


class _Side:
    """One side of a dual encoder: named inputs → (n, d) unit vectors."""

    def __init__(self, path: Path, wanted: str, scorer: str = "onnx") -> None:
        self._session = onnx_session(path, scorer)
        self._takes = {entry.name: entry.type for entry in self._session.get_inputs()}
        gives = [entry.name for entry in self._session.get_outputs()]
        self._output = next((name for name in (wanted, "pooler_output") if name in gives), None)
        if self._output is None:
            raise ScorerError(f"{path}: gives neither {wanted} nor pooler_output, but {', '.join(gives)}")

    def __call__(self, inputs: Mapping[str, Any]) -> Floats:
        arrays = {
            name: value.astype(np.float16) if self._takes[name] == "tensor(float16)" else value
            for name, value in inputs.items()
            if name in self._takes
        }
        vectors = self._session.run([self._output], arrays)[0].astype(np.float32)
        return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12))
