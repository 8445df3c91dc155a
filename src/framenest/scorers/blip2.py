"""BLIP-2 image-text matching, in plain torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import embedding, gelu, scaled_dot_product_attention

from framenest.config import ScorerConfig
from framenest.frames import FrameBatch
from framenest.models import Checkpoint
from framenest.protocols import Encoded, Progress
from framenest.scorers.calibration import Scores, sigmoid
from framenest.scorers.torch_scorer import CheckpointScorer, TorchNetwork, Weights, heads_of, joined


class Blip2Network(TorchNetwork):
    """Features of frames, and how they match a question.

    In float16 the Q-Former stays float32, as transformers has it, but its attention is float16, and so is
    where it reads the frames' features: two thirds of its time go there, and those are float16 already.
    """

    unused = ("text_projection.", "vision_projection.", "language_model.", "language_projection.")

    def __init__(self, weights: Weights, config: Mapping[str, Any]) -> None:
        super().__init__(weights, config)
        vision, qformer = config.get("vision_config", {}), config.get("qformer_config", {})
        for part in (vision, qformer):
            if part.get("hidden_act", "gelu") != "gelu":
                raise ValueError(f"its activation is {part['hidden_act']}, not gelu")
        self._vision_heads = int(vision.get("num_attention_heads", 16))
        self._vision_eps = float(vision.get("layer_norm_eps", 1e-6))
        self._heads = int(qformer.get("num_attention_heads", 12))
        self._eps = float(qformer.get("layer_norm_eps", 1e-12))
        self._vision_depth = self._depth("vision_model.encoder.layers.")
        self._qformer_depth = self._depth("qformer.encoder.layer.")
        self._half = weights["itm_head.weight"].dtype == torch.float16
        self.tokens, self.width = weights["vision_model.embeddings.position_embedding"].shape[1:]
        """Of the features of one frame."""
        self.longest = len(weights["embeddings.position_embeddings.weight"])
        """Tokens of a question that are read."""

    @classmethod
    def precision(cls, name: str, dtype: torch.dtype) -> torch.dtype:
        reads_frames = ".crossattention.attention.key." in name or ".crossattention.attention.value." in name
        whole = name.startswith(("qformer.", "query_tokens")) and not reads_frames
        return torch.float32 if whole and dtype == torch.float16 else dtype

    def vision(self, pixels: torch.Tensor) -> torch.Tensor:
        """(n, 3, H, W) normalised pictures → (n, v, d) what the vision transformer makes of them."""
        name = "vision_model.embeddings."
        first = self._weights[name + "class_embedding"].expand(len(pixels), 1, -1)
        x = torch.cat([first, self._patches(pixels, name + "patch_embedding")], dim=1)
        x = x + self._weights[name + "position_embedding"]
        for number in range(self._vision_depth):
            x = self._vision_layer(x, f"vision_model.encoder.layers.{number}.")
        return self._norm(x, "vision_model.post_layernorm", self._vision_eps)

    def match(self, vision: torch.Tensor, question: torch.Tensor) -> torch.Tensor:
        """Logits (n, 2), no match and match, of n frames' features (n, v, d) and a question (1, t)."""
        w = self._weights
        words = embedding(question, w["embeddings.word_embeddings.weight"])
        words = words + w["embeddings.position_embeddings.weight"][: question.shape[1]]
        asking = w["query_tokens"].to(words.dtype)
        queries = asking.shape[1]
        x = torch.cat([asking, words], dim=1).expand(len(vision), -1, -1)
        x = self._norm(x.to(w["qformer.layernorm.weight"].dtype), "qformer.layernorm", self._eps)
        vision = vision.to(w["itm_head.weight"].dtype)
        for number in range(self._qformer_depth):
            x = self._qformer_layer(x, vision, queries, f"qformer.encoder.layer.{number}.")
        return self._linear(x[:, :queries].to(vision.dtype), "itm_head").mean(dim=1)

    def _vision_layer(self, x: torch.Tensor, name: str) -> torch.Tensor:
        count, tokens, _ = x.shape
        mixed = self._linear(self._norm(x, name + "layer_norm1", self._vision_eps), name + "self_attn.qkv")
        mixed = mixed.reshape(count, tokens, 3, self._vision_heads, -1).permute(2, 0, 3, 1, 4)
        read = scaled_dot_product_attention(mixed[0], mixed[1], mixed[2])
        x = self._linear(joined(read), name + "self_attn.projection") + x
        inner = self._linear_gelu(self._norm(x, name + "layer_norm2", self._vision_eps), name + "mlp.fc1")
        return self._linear(inner, name + "mlp.fc2") + x

    def _qformer_layer(self, x: torch.Tensor, vision: torch.Tensor, queries: int, name: str) -> torch.Tensor:
        x = self._attend(x, x, name + "attention.")
        asking, words = x[:, :queries], x[:, queries:]
        if name + "crossattention.attention.key.weight" in self._weights:
            asking = self._attend(asking, vision, name + "crossattention.")
        asking = self._feed_forward(asking, name, "_query")
        return torch.cat([asking, self._feed_forward(words, name, "")], dim=1) if words.shape[1] else asking

    def _attend(self, x: torch.Tensor, to: torch.Tensor, name: str) -> torch.Tensor:
        parts = [
            heads_of(self._linear(given, f"{name}attention.{part}"), self._heads)
            for part, given in (("query", x), ("key", to), ("value", to))
        ]
        asked, keys, values = [part.half() for part in parts] if self._half else parts
        read = joined(scaled_dot_product_attention(asked, keys, values)).to(x.dtype)
        return self._norm(self._linear(read, name + "output.dense") + x, name + "output.LayerNorm", self._eps)

    def _feed_forward(self, x: torch.Tensor, name: str, which: str) -> torch.Tensor:
        inner = gelu(self._linear(x, f"{name}intermediate{which}.dense"))
        outer = self._linear(inner, f"{name}output{which}.dense") + x
        return self._norm(outer, f"{name}output{which}.LayerNorm", self._eps)


MATCH_ON_GPU, MATCH_ON_CPU = 640, 32
"""Frames that the Q-Former takes at a time."""


class Blip2Scorer(CheckpointScorer):
    """Relevance = softmax of the two matching logits, match class.

    encode → {"vision": (n, 257, 1408) float16 at 224 px}; features are float16 whatever the model's
    precision, in memory as on disk, so that the first run and the next give the same numbers.
    features="float32" keeps a float32 model's own, at twice the size. In a float16 model the Q-Former
    stays float32, as transformers has it, but multiplies in TF32 on a GPU, and where it reads the frames'
    features, which are float16 already, in float16, which has as many digits.
    """

    name = extra = "blip2"
    own_relevance = "matching probability"
    match_levels = (0.5, 0.1)  # of a probability; not measured on questions
    own_calibration: Literal["none", "logistic"] = "none"

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: ScorerConfig,
        progress: Progress = lambda *_: None,
        *,
        features: Literal["float16", "float32"] = "float16",
    ) -> None:
        super().__init__(checkpoint, config, progress)
        import torch

        self._kept = getattr(torch, features)
        self._match_batch = config.batch or (MATCH_ON_CPU if self._on.first.type == "cpu" else MATCH_ON_GPU)
        if features != "float16":
            self.version += f", features {features}"

    def _loader(self) -> Callable[..., Any]:

        return Blip2Network.load

    def encode(self, frames: FrameBatch) -> Encoded:
        pixels = frames.pixels[0]

        def vision(rows: slice, which: int) -> Any:
            prepared = self._on.pixels(pixels[rows], self._on.devices[which])
            return self._models[which].vision(prepared).to(self._kept)

        found, self.batch = self._on.map(vision, len(pixels), self.batch)
        if found is None:
            found = self._no_frames()
        self._on.finish()
        from framenest.scorers.torch_scorer import Rows

        return self.hold({"vision": Rows(found)})

    def hold(self, encoded: Encoded) -> Encoded:
        """Features where `match` wants them: on the GPU where they take a small share of its memory."""
        return self._on.hold(encoded)

    def logits(self, encoded: Encoded, question: str) -> NDArray[np.float32]:
        """(n, 2) no match and match, as transformers' own forward gives them."""
        from framenest.scorers.torch_scorer import as_tensor, fast_products

        tokens = self._question(question)
        rows = encoded["vision"]

        def matching(part: slice, which: int) -> Any:
            device = self._on.devices[which]
            with fast_products(self._on):
                return self._models[which].match(as_tensor(rows[part], device), tokens.to(device))

        found, self._match_batch = self._on.map(matching, len(rows), self._match_batch, "match")
        result = np.zeros((0, 2), np.float32) if found is None else found.float().cpu().numpy()
        return np.asarray(result)

    def scores(self, encoded: Encoded, question: str, reference: Encoded) -> Scores:
        logits = self.logits(encoded, question).astype(np.float64)
        return np.asarray(logits[:, 1] - logits[:, 0])

    def frame_vectors(self, encoded: Encoded) -> NDArray[np.float32]:
        """(n, d) unit vectors of encoded frames: what the vision transformer has at its class token."""
        classes: NDArray[np.float32] = np.asarray(encoded["vision"][:, 0], dtype=np.float32)
        lengths = np.linalg.norm(classes, axis=1, keepdims=True)
        return np.asarray(classes / np.maximum(lengths, 1e-12))

    def plain(self, scores: Scores) -> NDArray[np.float32]:
        return sigmoid(scores)  # the softmax of two logits is the sigmoid of their difference

    def _question(self, question: str) -> Any:
        """(1, t) ids of the question alone; the image's places are the model's own query tokens."""
        return self._tokens(question, self._models[0].longest)

    def _no_frames(self) -> Any:
        import torch

        shape = (0, self._models[0].tokens, self._models[0].width)
        return torch.zeros(shape, dtype=self._kept, device=self._on.first)
