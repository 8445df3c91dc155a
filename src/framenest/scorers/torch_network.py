"""TorchNetwork: what networks in plain torch share.

Plain torch spares the import of transformers, which takes longer than reading the weights, and a copy of the
weights in main memory. The operations are those of transformers, in the same order: the tests compare the
numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch
from torch.nn.functional import gelu, layer_norm, linear

Weights = Mapping[str, torch.Tensor]


class TorchNetwork:
    """Weights by their names in the checkpoint, on one device, and the checkpoint's config.json."""

    unused: tuple[str, ...] = ()
    """How the names of weights begin that this network has no use for."""

    def __init__(self, weights: Weights, config: Mapping[str, Any]) -> None:
        self._weights = weights

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype, device: torch.device) -> Self:
        """From a folder that `save_pretrained` wrote, straight to the device."""
        from safetensors import safe_open

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        index, files = folder / "model.safetensors.index.json", {"model.safetensors"}
        if index.is_file():
            files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        weights = {}
        for file in sorted(files):
            with safe_open(folder / file, framework="pt", device=str(device)) as opened:
                for name in opened.keys():  # noqa: SIM118 - it is no mapping
                    if not name.startswith(cls.unused or ("\0",)):
                        weights[name] = opened.get_tensor(name).to(cls.precision(name, dtype))
        return cls(weights, config)

    @classmethod
    def precision(cls, name: str, dtype: torch.dtype) -> torch.dtype:
        """That of one of the weights in a network of this precision."""
        return dtype

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return linear(x, self._weights[name + ".weight"], self._weights.get(name + ".bias"))

    def _linear_gelu(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """GELU of the product. In half precision on a GPU, in one step with it.

        There it is GELU's tanh form: a twentieth faster in all, and no farther from float32 than two steps.
        """
        if x.device.type != "cuda" or x.dtype == torch.float32:
            return gelu(self._linear(x, name))
        weight, bias = self._weights[name + ".weight"], self._weights[name + ".bias"]
        found = torch._addmm_activation(bias, x.flatten(0, -2), weight.t(), use_gelu=True)
        return found.view(*x.shape[:-1], -1)

    def _norm(self, x: torch.Tensor, name: str, eps: float) -> torch.Tensor:
        weight = self._weights[name + ".weight"]
        return layer_norm(x, weight.shape, weight, self._weights[name + ".bias"], eps)

    def _patches(self, pixels: torch.Tensor, name: str) -> torch.Tensor:
        """(n, 3, H, W) → (n, p, d)."""
        kernel, bias = self._weights[name + ".weight"], self._weights.get(name + ".bias")
        pixels, side = pixels.to(kernel.dtype), kernel.shape[-1]
        if pixels.device.type == "cpu":
            return torch.conv2d(pixels, kernel, bias, stride=side).flatten(2).transpose(1, 2)
        return linear(patches(pixels, side), kernel.flatten(1), bias)  # a GPU is faster at it

    def _depth(self, prefix: str) -> int:
        """How many layers there are below a name."""
        found = {int(n[len(prefix) :].split(".")[0]) for n in self._weights if n.startswith(prefix)}
        if not found:
            raise ValueError(f"it has no weights {prefix}*")
        return max(found) + 1


def patches(pixels: torch.Tensor, side: int) -> torch.Tensor:
    """(n, 3, H, W) → (n, p, 3 · side²): squares of so many pixels, row by row; what is over is cut off."""
    count, colours, height, width = pixels.shape
    rows, columns = height // side, width // side
    whole = pixels[:, :, : rows * side, : columns * side]
    squares = whole.reshape(count, colours, rows, side, columns, side).permute(0, 2, 4, 1, 3, 5)
    return squares.reshape(count, rows * columns, colours * side * side)


def heads_of(x: torch.Tensor, heads: int) -> torch.Tensor:
    """(n, t, d) → (n, heads, t, d / heads)."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def joined(x: torch.Tensor) -> torch.Tensor:
    """(n, heads, t, d) → (n, t, heads · d)."""
    return x.transpose(1, 2).flatten(2)
