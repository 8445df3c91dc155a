"""BLIP-2's vision transformer, Q-Former and matching head, as transformers' Blip2ForImageTextRetrieval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.functional import embedding, gelu, scaled_dot_product_attention

from framenest.scorers.torch_network import TorchNetwork, Weights, heads_of, joined


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
