"""Networks in plain torch, and how they run on devices."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding, gelu, layer_norm, linear, scaled_dot_product_attention

from framenest.errors import ScorerError
from framenest.frames import Array, Pixels
from framenest.models import Checkpoint
from framenest.protocols import Progress
from framenest.scorers.checkpoint import Preprocessing, padding_token, token_ids, tokenizer_file
from framenest.text import one_line

DEVICE_SHARE = 0.25
"""Share of the device's free memory that the features of one part may take; larger ones stay in RAM."""


class Rows:
    """A tensor of features that stays on its device; stands in for an array."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    @property
    def nbytes(self) -> int:
        return int(self.tensor.nbytes)

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, rows: Any) -> Self:
        return type(self)(self.tensor[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array: Array = self.tensor.cpu().numpy()
        return array if dtype is None else array.astype(dtype)

    def join(self, parts: Sequence[Self | Array]) -> Self | Array:
        """Concatenate parts, on this one's device if there is room."""
        device = self.tensor.device
        if not _has_room(device, sum(part.nbytes for part in parts)):
            return np.concatenate([np.asarray(part) for part in parts])
        return type(self)(torch.cat([as_tensor(part, device) for part in parts]))


def _has_room(device: torch.device, size: int) -> bool:
    return bool(device.type == "cuda" and size <= DEVICE_SHARE * torch.cuda.mem_get_info(device)[0])


def as_tensor(rows: Rows | Array, device: torch.device) -> Tensor:
    """Features as a tensor on a device."""
    if isinstance(rows, Rows):
        return rows.tensor.to(device)
    return torch.from_numpy(rows if rows.flags.writeable else rows.copy()).to(device)


class OnDevices:
    """A network on each of the devices asked for ("cpu", "cuda:0,cuda:1"), and its tokenizer.

    load: a function (folder, dtype, device) → the network on that device. precision: a dtype's name.

    Raises:
        ScorerError: no such device, a checkpoint of another kind, or too little memory.
    """

    def __init__(
        self,
        load: Callable[..., Any],
        checkpoint: Checkpoint,
        devices: str,
        precision: str,
        progress: Progress,
    ) -> None:
        self.devices = [_device(name) for name in devices.split(",")]
        self.first = self.devices[0]
        self.dtype: torch.dtype = getattr(torch, precision)
        self._progress = progress
        self._fits: dict[str, int] = {}  # batches that memory allows, by stage
        try:
            self.networks = [load(checkpoint.path, self.dtype, device) for device in self.devices]
        except torch.OutOfMemoryError as error:
            raise _out_of_memory("the model does not fit") from error
        except (OSError, ValueError, KeyError, RuntimeError) as error:  # whatever else the folder holds
            why = f"this model cannot be loaded ({one_line(error)})"
            raise ScorerError(f"{checkpoint.path}: {why}") from error

    def load_tokenizer(self, folder: Path, scorer: str) -> None:
        """Load a checkpoint's tokenizer.json, for `tokens`."""
        self._scorer = scorer
        self.tokenizer = tokenizer_file(folder / "tokenizer.json", scorer, self.networks[0].longest)
        self.padding = padding_token(folder, self.tokenizer)

    def tokens(self, text: str) -> Tensor:
        """(1, t) token ids of a question, truncated to what the network reads."""
        return torch.tensor([token_ids(self.tokenizer, text, self._scorer)])

    def text_vector(self, tokens: Tensor, *, padded: bool = False) -> Array:
        """(d,) unit vector of a text's tokens (1, t). padded: to all that the network reads."""
        missing = self.networks[0].longest - tokens.shape[1] if padded else 0
        tokens = torch.nn.functional.pad(tokens, (0, missing), value=self.padding)
        with torch.inference_mode():
            vector: Array = unit(self.networks[0].text(tokens.to(self.first)))[0].cpu().numpy()
        return vector

    def normalise(self, pixels: Pixels, device: torch.device, images: Preprocessing) -> Tensor:
        """(n, H, W, 3) uint8 → (n, 3, H, W), normalised as the checkpoint's image processor does."""
        here = torch.from_numpy(np.require(pixels, requirements=["C", "W"]))
        if device.type == "cuda":
            here = here.pin_memory()  # copied while the GPU works on the batch before
        there = here.to(device, non_blocking=True).permute(0, 3, 1, 2)
        mean, deviation = (
            torch.tensor(values, dtype=torch.float32, device=device).view(1, 3, 1, 1)
            for values in (images.mean, images.deviation)
        )
        return ((there.float() / 255 - mean) / deviation).to(self.dtype).contiguous()

    def map(
        self, stage: str, call: Callable[[slice, Any, torch.device], Tensor], count: int, batch: int
    ) -> Tensor:
        """Call `call(rows, network, its device)` over all rows in batches, spread over the devices.

        Halves the batch if memory runs out, also for later calls of the same stage. Returns all results on
        the first device.
        """
        parts: list[Tensor] = []
        done, batch = 0, min(batch, self._fits.get(stage, batch))
        while done < count or not parts:  # no rows: one empty call gives the shape
            step = max(1, min(batch, -(-(count - done) // len(self.devices))))  # share a last batch, too
            starts = range(done, min(count, done + step * len(self.devices)), step) or (0,)
            rows = [slice(start, min(start + step, count)) for start in starts]
            try:
                with torch.inference_mode(), _fast_kernels(self.dtype):
                    results = [*map(call, rows, self.networks, self.devices)]  # all begin before one is read
                    parts += [result.to(self.first) for result in results]
            except torch.OutOfMemoryError as error:
                if batch == 1:
                    raise _out_of_memory("even one frame at a time does not fit") from error
                batch = self._fits[stage] = batch // 2
                torch.cuda.empty_cache()
                continue
            done = rows[-1].stop
            if stage == "match" and count:
                self._progress(stage, done, count)
        whole = torch.cat(parts)
        if self.first.type == "cuda":
            torch.cuda.synchronize(self.first)  # so that seconds count for the stage that spent them
        return whole

    def hold(self, encoded: Mapping[str, Any]) -> dict[str, Any]:
        """Features where `match` wants them: on the GPU if there is room."""
        if _has_room(self.first, sum(rows.nbytes for rows in encoded.values())):
            return {name: Rows(as_tensor(rows, self.first)) for name, rows in encoded.items()}
        return {name: np.asarray(rows) for name, rows in encoded.items()}


def unit(vectors: Tensor) -> Tensor:
    """Float32 vectors of unit length."""
    vectors = vectors.float()
    return vectors / vectors.norm(dim=-1, keepdim=True)


@contextmanager
def _fast_kernels(dtype: torch.dtype) -> Iterator[None]:
    """Settings of torch for a model of this dtype, restored afterwards.

    cuDNN's attention is off: it takes 0.1 s to plan for every new number of rows. In a half-precision model,
    float32 is multiplied in TF32.
    """
    cudnn, tf32 = torch.backends.cuda.cudnn_sdp_enabled(), torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.matmul.allow_tf32 = tf32 or dtype != torch.float32
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
        torch.backends.cuda.matmul.allow_tf32 = tf32


def _out_of_memory(what: str) -> ScorerError:
    return ScorerError(f"out of GPU memory: {what}; try --device cpu")


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ScorerError(f"there is no device {name!r}; choose cpu, cuda or cuda:0,cuda:1") from error
    count = torch.cuda.device_count()
    if device.type == "cuda" and device.index >= count:
        raise ScorerError(f"no device {name!r}: torch sees {count} CUDA GPUs here")
    return device


Weights = Mapping[str, Tensor]


class TorchNetwork:
    """A checkpoint's weights by name, on one device, and the settings of its sides."""

    what: str
    kinds: tuple[str, ...]  # what config.json may call it

    def __init__(self, weights: Weights, config: Mapping[str, Any]) -> None:
        kind = config.get("model_type")
        if kind not in self.kinds:
            raise ValueError(f"{self.what} is a model of type {' or '.join(self.kinds)}, not {kind}")
        self._weights, self._siglip = weights, kind == "siglip"
        self._settings = {
            side: known | config.get(f"{side}_config", {}) for side, known in DEFAULTS[kind].items()
        }
        for settings in self._settings.values():
            if settings["hidden_act"] not in ACTIVATIONS:
                raise ValueError(f"its activation is {settings['hidden_act']}")
        self._depths = {side: self._depth(LAYERS[side]) for side in self._settings}

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype, device: torch.device) -> Self:
        """Read a folder written by `save_pretrained`, straight to the device."""
        from safetensors import safe_open

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        index, files = folder / "model.safetensors.index.json", {"model.safetensors"}
        if index.is_file():
            files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        weights = {}
        for file in sorted(files):
            with safe_open(folder / file, framework="pt", device=str(device)) as opened:
                for name in opened.keys():  # noqa: SIM118 - it is no mapping
                    weights[name] = opened.get_tensor(name).to(cls.precision(name, dtype))
        return cls(weights, config)

    @classmethod
    def precision(cls, name: str, dtype: torch.dtype) -> torch.dtype:
        """The dtype of a weight in a network of dtype `dtype`."""
        return dtype

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return linear(x, self._weights[name + ".weight"], self._weights.get(name + ".bias"))

    def _norm(self, x: Tensor, name: str, side: str) -> Tensor:
        weight, eps = self._weights[name + ".weight"], self._settings[side]["layer_norm_eps"]
        return layer_norm(x, weight.shape, weight, self._weights[name + ".bias"], eps)

    def _act(self, x: Tensor, side: str) -> Tensor:
        return ACTIVATIONS[self._settings[side]["hidden_act"]](x)

    def _patches(self, pixels: Tensor, name: str) -> Tensor:
        """(n, 3, H, W) → (n, p, d)."""
        kernel, bias = self._weights[name + ".weight"], self._weights.get(name + ".bias")
        patches = torch.conv2d(pixels.to(kernel.dtype), kernel, bias, stride=kernel.shape[-1])
        return patches.flatten(2).transpose(1, 2)

    def _depth(self, prefix: str) -> int:
        """The number of layers whose names start with a prefix."""
        numbers = {int(n[len(prefix) :].split(".")[0]) for n in self._weights if n.startswith(prefix)}
        if not numbers:
            raise ValueError(f"it has no weights {prefix}*")
        return max(numbers) + 1

    def _encode(self, x: Tensor, side: str, *, causal: bool = False) -> Tensor:
        """All layers: (n, t, d) → (n, t, d). BLIP-2 has queries, keys and values in one weight."""
        for number in range(self._depths[side]):
            name = f"{LAYERS[side]}{number}."
            normed, at, last = self._norm(x, name + "layer_norm1", side), name + "self_attn.", "out_proj"
            if at + "qkv.weight" in self._weights:
                parts, last = self._linear(normed, at + "qkv").chunk(3, dim=-1), "projection"
            else:
                parts = tuple(self._linear(normed, f"{at}{part}_proj") for part in "qkv")
            x = x + self._linear(self._attention(parts, side, causal=causal), at + last)
            x = x + self._mlp(self._norm(x, name + "layer_norm2", side), name, side)
        return x

    def _mlp(self, x: Tensor, name: str, side: str) -> Tensor:
        return self._linear(self._act(self._linear(x, name + "mlp.fc1"), side), name + "mlp.fc2")

    def _attention(self, parts: Sequence[Tensor], side: str, *, causal: bool = False) -> Tensor:
        """Of queries, keys and values (n, t, heads · d) → (n, t, heads · d)."""
        heads = self._settings[side]["num_attention_heads"]
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
        return scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu_pytorch_tanh": partial(gelu, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}
_SIGLIP = {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "num_attention_heads": 12}
_CLIP = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5, "num_attention_heads": 12}
DEFAULTS = {
    "siglip": {"vision": _SIGLIP, "text": _SIGLIP},
    "clip": {"vision": _CLIP, "text": _CLIP | {"num_attention_heads": 8, "eos_token_id": 49407}},
    "blip-2": {
        "vision": {"hidden_act": "gelu", "layer_norm_eps": 1e-6, "num_attention_heads": 16},
        "qformer": {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "num_attention_heads": 12},
    },
}
"""Settings that a config.json may leave out, by model and side."""
LAYERS = {
    "vision": "vision_model.encoder.layers.",
    "text": "text_model.encoder.layers.",
    "qformer": "qformer.encoder.layer.",
}
"""What names of weights of a side's layers begin with."""


class DualNetwork(TorchNetwork):
    """SigLIP and CLIP: vectors whose cosine, times `scale` plus `bias`, is the model's logit.

    The vectors are not of unit length.
    """

    what, kinds = "a dual encoder", ("siglip", "clip")

    def __init__(self, weights: Weights, config: Mapping[str, Any]) -> None:
        super().__init__(weights, config)
        self.scale = math.exp(weights["logit_scale"].item())
        self.bias = weights["logit_bias"].item() if "logit_bias" in weights else 0.0
        self.longest = len(weights["text_model.embeddings.position_embedding.weight"])
        """Tokens of a text that the model reads."""

    def image(self, pixels: Tensor) -> Tensor:
        """(n, 3, H, W) normalised images → (n, d)."""
        w, name = self._weights, "vision_model."
        x = self._patches(pixels, name + "embeddings.patch_embedding")
        if not self._siglip:
            x = torch.cat([w[name + "embeddings.class_embedding"].expand(len(pixels), 1, -1), x], dim=1)
        x = x + w[name + "embeddings.position_embedding.weight"]
        if self._siglip:
            return self._pooled(self._norm(self._encode(x, "vision"), name + "post_layernorm", "vision"))
        x = self._encode(self._norm(x, name + "pre_layrnorm", "vision"), "vision")[:, 0]
        return self._linear(self._norm(x, name + "post_layernorm", "vision"), "visual_projection")

    def text(self, tokens: Tensor) -> Tensor:
        """(1, t) token ids, padded to `longest` → (1, d)."""
        w, name = self._weights, "text_model."
        x = embedding(tokens, w[name + "embeddings.token_embedding.weight"])
        x = x + w[name + "embeddings.position_embedding.weight"][: tokens.shape[1]]
        x = self._encode(x, "text", causal=not self._siglip)  # CLIP's text attends backwards only
        x = self._norm(x, name + "final_layer_norm", "text")
        if self._siglip:
            return self._linear(x[:, -1], name + "head")
        end = self._settings["text"]["eos_token_id"]  # old configs always say 2; then use the highest id
        last = tokens[0].argmax() if end == 2 else (tokens[0] == end).int().argmax()
        return self._linear(x[:, last], "text_projection")

    def _pooled(self, x: Tensor) -> Tensor:
        """SigLIP's attention pooling: one learned query attends to all patches."""
        w, name = self._weights, "vision_model.head."
        asking = w[name + "probe"].repeat(len(x), 1, 1).transpose(0, 1)
        patches = x.transpose(0, 1)
        inner, outer = (name + f"attention.{part}" for part in ("in_proj_", "out_proj."))
        read = torch.nn.functional.multi_head_attention_forward(
            asking, patches, patches, x.shape[-1], self._settings["vision"]["num_attention_heads"],
            w[inner + "weight"], w[inner + "bias"], None, None, False, 0.0,
            w[outer + "weight"], w[outer + "bias"], training=False,
        )[0].transpose(0, 1)  # fmt: skip
        return (read + self._mlp(self._norm(read, name + "layernorm", "vision"), name, "vision"))[:, 0]


class Blip2Network(TorchNetwork):
    """BLIP-2: features of frames, and how well they match a question.

    In a float16 model the Q-Former stays float32, as in transformers, except for its attention and for the
    weights that read the frames' features, which are float16 already: they take two thirds of its time.
    """

    what, kinds = "BLIP-2", ("blip-2",)

    def __init__(self, weights: Weights, config: Mapping[str, Any]) -> None:
        super().__init__(weights, config)
        self._half = weights["itm_head.weight"].dtype == torch.float16
        self.longest = len(weights["embeddings.position_embeddings.weight"])
        """Tokens of a question that the model reads."""

    @classmethod
    def precision(cls, name: str, dtype: torch.dtype) -> torch.dtype:
        reads_frames = ".crossattention.attention.key." in name or ".crossattention.attention.value." in name
        whole = name.startswith(("qformer.", "query_tokens")) and not reads_frames
        return torch.float32 if whole and dtype == torch.float16 else dtype

    def vision(self, pixels: Tensor) -> Tensor:
        """(n, 3, H, W) normalised images → (n, v, d) output of the vision transformer."""
        name = "vision_model.embeddings."
        first = self._weights[name + "class_embedding"].expand(len(pixels), 1, -1)
        x = torch.cat([first, self._patches(pixels, name + "patch_embedding")], dim=1)
        x = self._encode(x + self._weights[name + "position_embedding"], "vision")
        return self._norm(x, "vision_model.post_layernorm", "vision")

    def match(self, vision: Tensor, question: Tensor) -> Tensor:
        """Logits (n, 2), no match and match, of n frames' features (n, v, d) and a question (1, t)."""
        words = self._words(question)
        asking = self._weights["query_tokens"].to(words.dtype)
        queries = asking.shape[1]
        x = self._qformer(torch.cat([asking, words], dim=1).expand(len(vision), -1, -1), vision, queries)
        return self._linear(x[:, :queries], "itm_head").mean(dim=1)

    def contrast(self, vision: Tensor) -> Tensor:
        """(n, v, d) frames' features → (n, 32, 256) of the query tokens, which read the frames alone."""
        asking = self._weights["query_tokens"].expand(len(vision), -1, -1)
        return self._linear(self._qformer(asking, vision, asking.shape[1]), "vision_projection")

    def text(self, question: Tensor) -> Tensor:
        """(1, t) token ids, which attend to one another alone → (1, 256)."""
        words = self._words(question)
        return self._linear(self._qformer(words, words, 0)[:, 0], "text_projection")

    def _words(self, question: Tensor) -> Tensor:
        """(1, t) token ids → (1, t, d)."""
        words = embedding(question, self._weights["embeddings.word_embeddings.weight"])
        return words + self._weights["embeddings.position_embeddings.weight"][: question.shape[1]]

    def _qformer(self, x: Tensor, vision: Tensor, queries: int) -> Tensor:
        """The Q-Former's output; the first `queries` tokens read the frames."""
        w = self._weights
        x = self._norm(x.to(w["qformer.layernorm.weight"].dtype), "qformer.layernorm", "qformer")
        vision = vision.to(w["itm_head.weight"].dtype)
        for number in range(self._depths["qformer"]):
            x = self._qformer_layer(x, vision, queries, f"{LAYERS['qformer']}{number}.")
        return x.to(vision.dtype)

    def _qformer_layer(self, x: Tensor, vision: Tensor, queries: int, name: str) -> Tensor:
        x = self._attend(x, x, name + "attention.")
        if not queries:
            return self._feed_forward(x, name, "")
        asking, words = x[:, :queries], x[:, queries:]
        if name + "crossattention.attention.key.weight" in self._weights:
            asking = self._attend(asking, vision, name + "crossattention.")
        asking = self._feed_forward(asking, name, "_query")
        return torch.cat([asking, self._feed_forward(words, name, "")], dim=1) if words.shape[1] else asking

    def _attend(self, x: Tensor, to: Tensor, name: str) -> Tensor:
        given = {"query": x, "key": to, "value": to}
        parts = [self._linear(one, f"{name}attention.{part}") for part, one in given.items()]
        parts = [part.half() for part in parts] if self._half else parts
        read = self._linear(self._attention(parts, "qformer").to(x.dtype), name + "output.dense")
        return self._norm(read + x, name + "output.LayerNorm", "qformer")

    def _feed_forward(self, x: Tensor, name: str, which: str) -> Tensor:
        inner = self._act(self._linear(x, f"{name}intermediate{which}.dense"), "qformer")
        outer = self._linear(inner, f"{name}output{which}.dense") + x
        return self._norm(outer, f"{name}output{which}.LayerNorm", "qformer")
