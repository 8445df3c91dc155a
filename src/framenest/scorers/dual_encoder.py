"""SigLIP and CLIP, in plain torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import (
    embedding,
    gelu,
    multi_head_attention_forward,
    scaled_dot_product_attention,
)

from framenest.config import ScorerConfig
from framenest.errors import ScorerError
from framenest.frames import FrameBatch
from framenest.models import Checkpoint
from framenest.protocols import Encoded, Progress
from framenest.scorers.calibration import SIGLIP_LEVELS, DualScorer, Scores, half_cosine, sigmoid
from framenest.scorers.checkpoint import padding_token
from framenest.scorers.torch_scorer import CheckpointScorer, TorchNetwork, Weights, heads_of, joined

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": gelu,
    "gelu_pytorch_tanh": partial(gelu, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}
_SIGLIP = {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "num_attention_heads": 12}
_CLIP = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5, "num_attention_heads": 12}
DEFAULTS = {
    "siglip": {"vision": _SIGLIP, "text": _SIGLIP},
    "clip": {"vision": _CLIP, "text": _CLIP | {"num_attention_heads": 8, "eos_token_id": 49407}},
}
"""What a config.json that leaves a setting out means."""


class DualNetwork(TorchNetwork):
    """Vectors whose cosine, times `scale` plus `bias`, is the model's logit; they are not of unit length."""

    def __init__(self, weights: Weights, config: Mapping[str, Any]) -> None:
        super().__init__(weights, config)
        kind = str(config.get("model_type"))
        if kind not in DEFAULTS:
            raise ValueError(f"a dual encoder is a model of type {' or '.join(DEFAULTS)}, not {kind}")
        self._siglip = kind == "siglip"
        self._settings = {
            side: DEFAULTS[kind][side] | config.get(f"{side}_config", {}) for side in ("vision", "text")
        }
        for settings in self._settings.values():
            if settings["hidden_act"] not in ACTIVATIONS:
                raise ValueError(f"its activation is {settings['hidden_act']}")
        self._depths = {side: self._depth(f"{side}_model.encoder.layers.") for side in self._settings}
        self.scale = math.exp(weights["logit_scale"].item())
        self.bias = weights["logit_bias"].item() if "logit_bias" in weights else 0.0
        self.longest = len(weights["text_model.embeddings.position_embedding.weight"])
        """Tokens of a text that are read."""

    def picture(self, pixels: torch.Tensor) -> torch.Tensor:
        """(n, 3, H, W) normalised pictures → (n, d)."""
        w, name = self._weights, "vision_model."
        x = self._patches(pixels, name + "embeddings.patch_embedding")
        if not self._siglip:
            x = torch.cat([w[name + "embeddings.class_embedding"].expand(len(pixels), 1, -1), x], dim=1)
        x = x + w[name + "embeddings.position_embedding.weight"]
        eps = self._settings["vision"]["layer_norm_eps"]
        if self._siglip:
            x = self._norm(self._encode(x, "vision"), name + "post_layernorm", eps)
            return self._pooled(x)
        x = self._encode(self._norm(x, name + "pre_layrnorm", eps), "vision")[:, 0]
        return self._linear(self._norm(x, name + "post_layernorm", eps), "visual_projection")

    def text(self, tokens: torch.Tensor) -> torch.Tensor:
        """(1, t) token ids, padded to `longest` → (1, d)."""
        w, name, settings = self._weights, "text_model.", self._settings["text"]
        x = embedding(tokens, w[name + "embeddings.token_embedding.weight"])
        x = x + w[name + "embeddings.position_embedding.weight"][: tokens.shape[1]]
        x = self._norm(self._encode(x, "text"), name + "final_layer_norm", settings["layer_norm_eps"])
        if self._siglip:
            return self._linear(x[:, -1], name + "head")
        end = settings["eos_token_id"]  # 2 in old configs, whatever it was: the highest id, then
        last = tokens[0].argmax() if end == 2 else (tokens[0] == end).int().argmax()
        return self._linear(x[:, last], "text_projection")

    def _encode(self, x: torch.Tensor, side: str) -> torch.Tensor:
        """All layers; CLIP's text looks backwards alone."""
        settings, causal = self._settings[side], side == "text" and not self._siglip
        eps, heads = settings["layer_norm_eps"], settings["num_attention_heads"]
        for number in range(self._depths[side]):
            name = f"{side}_model.encoder.layers.{number}."
            given = self._norm(x, name + "layer_norm1", eps)
            q, k, v = (heads_of(self._linear(given, f"{name}self_attn.{part}_proj"), heads) for part in "qkv")
            read = joined(scaled_dot_product_attention(q, k, v, is_causal=causal))
            x = x + self._linear(read, name + "self_attn.out_proj")
            x = x + self._feed_forward(self._norm(x, name + "layer_norm2", eps), name, side)
        return x

    def _feed_forward(self, x: torch.Tensor, name: str, side: str) -> torch.Tensor:
        act = ACTIVATIONS[self._settings[side]["hidden_act"]]
        return self._linear(act(self._linear(x, name + "mlp.fc1")), name + "mlp.fc2")

    def _pooled(self, x: torch.Tensor) -> torch.Tensor:
        """SigLIP's attention pooling: one learned query looks at all patches."""
        w, name, settings = self._weights, "vision_model.head.", self._settings["vision"]
        asking = w[name + "probe"].repeat(len(x), 1, 1).transpose(0, 1)
        seen = x.transpose(0, 1)
        inner, outer = (name + f"attention.{part}" for part in ("in_proj_", "out_proj."))
        read = multi_head_attention_forward(
            asking, seen, seen, x.shape[-1], settings["num_attention_heads"],
            w[inner + "weight"], w[inner + "bias"], None, None, False, 0.0,
            w[outer + "weight"], w[outer + "bias"], training=False,
        )[0].transpose(0, 1)  # fmt: skip
        normed = self._norm(read, name + "layernorm", settings["layer_norm_eps"])
        return (read + self._feed_forward(normed, name, "vision"))[:, 0]


class TorchDualScorer(CheckpointScorer, DualScorer):
    """A dual encoder in torch."""

    lower_case = False

    def __init__(
        self, checkpoint: Checkpoint, config: ScorerConfig, progress: Progress = lambda *_: None
    ) -> None:
        super().__init__(checkpoint, config, progress)
        self.scale, self.bias = self._models[0].scale, self._models[0].bias
        padding = padding_token(checkpoint.path, self._tokenizer)
        if padding is None:
            raise ScorerError(f"{checkpoint.path}: its tokenizer_config.json names no padding token")
        self._padding = padding

    def _loader(self) -> Callable[..., Any]:

        return DualNetwork.load

    def encode(self, frames: FrameBatch) -> Encoded:
        pixels = frames.pixels[0]

        def vectors(rows: slice, which: int) -> Any:
            prepared = self._on.pixels(pixels[rows], self._on.devices[which])
            return _unit(self._models[which].picture(prepared))

        found, self.batch = self._on.map(vectors, len(pixels), self.batch)
        if found is None:
            return {"vector": np.zeros((0, len(self._text("."))), np.float32)}
        return {"vector": found.cpu().numpy()}

    def _text(self, question: str) -> NDArray[np.float32]:
        import torch

        text = question.lower() if self.lower_case else question
        limit = self._models[0].longest
        tokens = self._tokens(text, limit)
        tokens = torch.nn.functional.pad(tokens, (0, limit - tokens.shape[1]), value=self._padding)
        with torch.inference_mode():
            found = self._models[0].text(tokens.to(self._on.first))
        return np.asarray(_unit(found)[0].cpu().numpy())


class SiglipScorer(TorchDualScorer):
    """SigLIP and SigLIP 2 of fixed size. The model's own relevance is the sigmoid of its logit."""

    name = extra = "siglip2"
    own_relevance = "sigmoid of the model's logit"
    match_levels = SIGLIP_LEVELS
    lower_case = True  # as the model was trained

    def plain(self, scores: Scores) -> NDArray[np.float32]:
        return sigmoid(scores)


class ClipScorer(TorchDualScorer):
    """CLIP. It has no relevance of its own; without calibration it is (1 + cosine) / 2."""

    name = extra = "clip"
    own_relevance = "(1 + cosine) / 2"

    def plain(self, scores: Scores) -> NDArray[np.float32]:
        return half_cosine((scores - self.bias) / self.scale)


def _unit(vectors: Any) -> Any:
    vectors = vectors.float()
    return vectors / vectors.norm(dim=-1, keepdim=True)
