"""Sharpness, well-exposedness and their product O_n, from the thumbnails."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from framenest.config import IndexConfig
from framenest.frames import Pixels
from framenest.method.appearance import gray
from framenest.processes import cores

AT_ONCE = 32
"""Thumbnails that one core works on: few enough to stay in its cache."""


def sharpness(intensity: NDArray[np.float64], kernel: int) -> NDArray[np.float64]:
    """How much reblurring takes away: 1 − max over directions of the blur estimate β. (n, h, w) → (n,).

    A direction without any variation counts as wholly blurred, so a flat picture is not sharp.
    """
    return 1.0 - np.maximum(_blur(intensity, 1, kernel), _blur(intensity, 2, kernel))


def _blur(intensity: NDArray[np.float64], axis: int, kernel: int) -> NDArray[np.float64]:
    """β: the share of the variation along an axis that is still there after a mean filter along it."""
    variation = np.abs(np.diff(intensity, axis=axis))
    reblurred = np.abs(np.diff(_mean_filter(intensity, axis, kernel), axis=axis))
    lost = np.maximum(0.0, variation - reblurred)
    total = variation.sum(axis=(1, 2))
    left = total - lost.sum(axis=(1, 2))
    share: NDArray[np.float64] = np.divide(left, total, out=np.ones_like(total), where=total > 0)
    return share


def _mean_filter(intensity: NDArray[np.float64], axis: int, kernel: int) -> NDArray[np.float64]:
    """Mean of `kernel` neighbours along an axis, edges replicated."""
    half = kernel // 2
    margin = [(0, 0), (0, 0), (0, 0)]
    margin[axis] = (half, half)
    padded = np.pad(intensity, margin, mode="edge")
    filtered: NDArray[np.float64] = sliding_window_view(padded, kernel, axis=axis).mean(axis=-1)
    return filtered


def exposedness(thumbnails: Pixels, mean: float, sigma: float) -> NDArray[np.float64]:
    """Mean over pixels of Π_c exp(−(I_c − μ)² / 2σ²). (n, h, w, 3) → (n,).

    >>> exposedness(np.full((1, 1, 1, 3), 128, np.uint8), mean=0.5, sigma=0.2).round(3).tolist()
    [1.0]
    """
    weight = np.array([math.exp(-((level / 255 - mean) ** 2) / (2 * sigma**2)) for level in range(256)])
    by_channel = weight[thumbnails]
    product = by_channel[..., 0] * by_channel[..., 1] * by_channel[..., 2]
    result: NDArray[np.float64] = product.mean(axis=(1, 2))
    return result


def observability(thumbnails: Pixels, config: IndexConfig) -> NDArray[np.float32]:
    """O_n = sharpness · exposedness, in [0, 1]. (n, h, w, 3) → (n,)."""

    def some(start: int) -> NDArray[np.float32]:
        few = thumbnails[start : start + AT_ONCE]
        exposed = exposedness(few, config.exposure_mean, config.exposure_sigma)
        return (sharpness(gray(few), config.blur_kernel) * exposed).astype(np.float32)

    with ThreadPoolExecutor(cores()) as pool:  # numpy lets go of the interpreter
        return np.concatenate([np.zeros(0, np.float32), *pool.map(some, range(0, len(thumbnails), AT_ONCE))])
