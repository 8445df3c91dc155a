"""The question-free cues: appearance f_n, change and observability."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from framenest.config import IndexConfig
from framenest.frames import Doubles, Floats, Ints, Mask, Pixels
from framenest.processes import cores

GRID = 2.0**24
"""Descriptors are multiples of 1/GRID, so every product and sum in their dot products is exact in float64,
and no similarity depends on BLAS, its threads or the order of summation."""

BLACK = 1e-12
ONE_COLOUR = 8
"""Range of each channel (of 255) up to which a thumbnail shows nothing; compression leaves some noise."""
MATRIX_CANDIDATES = 4096  # up to this many candidates, all similarities are computed at once: 128 MiB


def gray(thumbnails: Pixels) -> Doubles:
    """Intensity in [0, 1] of (n, h, w, 3) thumbnails: (n, h, w)."""
    red, green, blue = (thumbnails[..., channel].astype(np.float64) for channel in range(3))
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255.0


def encode(thumbnails: Pixels) -> Floats:
    """Eq. descriptor: gray thumbnails (n, h, w, 3) as unit vectors (n, h·w).

    A black thumbnail has no direction; it gets the same constant unit vector as any other flat one.

    >>> encode(np.zeros((1, 2, 2, 3), np.uint8)).tolist()
    [[0.5, 0.5, 0.5, 0.5]]
    """
    vectors = gray(thumbnails).reshape(len(thumbnails), math.prod(thumbnails.shape[1:3]))
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    flat = np.full_like(vectors, 1 / np.sqrt(vectors.shape[1]))
    unit = np.where(norms < BLACK, flat, vectors / np.maximum(norms, BLACK))
    return (np.floor(unit * GRID + 0.5) / GRID).astype(np.float32)


def blank(thumbnails: Pixels) -> Mask:
    """(n,) whether thumbnails (n, h, w, 3) show nothing: black, or one colour.

    >>> blank(np.full((1, 18, 32, 3), 40, np.uint8)).tolist()
    [True]
    """
    n, height, width, _ = thumbnails.shape
    rows = thumbnails.reshape(n, height, width * 3)  # by rows first is 11 times faster than by pixel
    highest = rows.max(axis=1).reshape(n, width, 3).max(axis=1)
    lowest = rows.min(axis=1).reshape(n, width, 3).min(axis=1)
    return np.asarray((highest - lowest).max(axis=1) <= ONE_COLOUR)


def change(frames: Ints, appearance: Floats, probes: Ints, probe_appearance: Floats) -> Floats:
    """Eq. visual-change: Δ_n = ½ max ‖f_n − f_m‖₂ over the probes just before and just after frame n.

    frames: (n,) with appearance (n, d); probes: (P,) ascending with probe_appearance (P, d).
    The neighbours are probes, also for zoom frames. The change of a single probe is 0.
    """
    before = np.searchsorted(probes, frames, side="left") - 1
    after = np.searchsorted(probes, frames, side="right")
    distance = np.zeros(len(frames))
    for neighbour, exists in ((before, before >= 0), (after, after < len(probes))):
        mine = appearance[exists].astype(np.float64)
        other = probe_appearance[neighbour[exists]].astype(np.float64)
        distance[exists] = np.maximum(distance[exists], np.sqrt(((mine - other) ** 2).sum(axis=1)))
    return (0.5 * distance).astype(np.float32)


def similarity_rows(appearance: Floats) -> Callable[[int], Doubles]:
    """A function that returns the similarities (n,) of one frame to all, s_nm = f_n · f_m.

    Up to MATRIX_CANDIDATES frames, all pairs are computed at once. Beyond that, each row is computed on
    demand, so that memory does not grow with the square of the candidates. Both give the same bits (GRID).
    """
    vectors = appearance.astype(np.float64)
    if len(vectors) <= MATRIX_CANDIDATES:
        pairs = vectors @ vectors.T
        return lambda row: pairs[row]
    return lambda row: vectors @ vectors[row]


THUMBNAILS_AT_ONCE = 32  # thumbnails per task: few enough to stay in a core's cache


def sharpness(intensity: Doubles, kernel: int) -> Doubles:
    """How much detail reblurring removes: 1 − max over directions of the blur estimate β. (n, h, w) → (n,).

    A direction without any variation counts as fully blurred, so a flat image is not sharp.
    """
    return 1.0 - np.maximum(_blur(intensity, 1, kernel), _blur(intensity, 2, kernel))


def _blur(intensity: Doubles, axis: int, kernel: int) -> Doubles:
    """β: the share of the variation along an axis that survives a mean of `kernel` neighbours along it."""
    margin = [(0, 0), (0, 0), (0, 0)]
    margin[axis] = (kernel // 2, kernel // 2)
    padded = np.pad(intensity, margin, mode="edge")
    reblurred = sliding_window_view(padded, kernel, axis=axis).mean(axis=-1)
    variation = np.abs(np.diff(intensity, axis=axis))
    lost = np.maximum(0.0, variation - np.abs(np.diff(reblurred, axis=axis)))
    total = variation.sum(axis=(1, 2))
    left = total - lost.sum(axis=(1, 2))
    return np.asarray(np.divide(left, total, out=np.ones_like(total), where=total > 0))


def exposedness(thumbnails: Pixels, mean: float, sigma: float) -> Doubles:
    """Mean over pixels of Π_c exp(−(I_c − μ)² / 2σ²). (n, h, w, 3) → (n,).

    >>> exposedness(np.full((1, 1, 1, 3), 128, np.uint8), mean=0.5, sigma=0.2).round(3).tolist()
    [1.0]
    """
    weight = np.array([math.exp(-((level / 255 - mean) ** 2) / (2 * sigma**2)) for level in range(256)])
    by_channel = weight[thumbnails]
    product = by_channel[..., 0] * by_channel[..., 1] * by_channel[..., 2]
    return np.asarray(product.mean(axis=(1, 2)), dtype=np.float64)


def observability(thumbnails: Pixels, config: IndexConfig) -> Floats:
    """O_n = sharpness · exposedness, in [0, 1]. (n, h, w, 3) → (n,)."""

    def some(start: int) -> Floats:
        few = thumbnails[start : start + THUMBNAILS_AT_ONCE]
        exposed = exposedness(few, config.exposure_mean, config.exposure_sigma)
        return (sharpness(gray(few), config.blur_kernel) * exposed).astype(np.float32)

    with ThreadPoolExecutor(cores()) as pool:  # numpy releases the GIL
        return np.concatenate(
            [np.zeros(0, np.float32), *pool.map(some, range(0, len(thumbnails), THUMBNAILS_AT_ONCE))]
        )
