"""How long the greedy ranking takes: 640 candidates to M = 256 on one core, beside Algorithm 1 as written.

python benchmarks/ranking.py
"""

from __future__ import annotations

import os

os.environ.update(OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", OMP_NUM_THREADS="1")

import statistics
import time
from collections.abc import Callable

import numpy as np
from machine import options, write

from framenest.config import RankingConfig
from framenest.method.cues import encode
from framenest.method.ordering import evidence_weight, greedy, residual

CANDIDATES, HORIZON, NUM_FRAMES = 640, 256, 47_353


def as_written(frames, evidence, appearance, num_frames, config):  # noqa: ANN001, ANN201
    """Algorithm 1 with one vector operation per candidate, as one would first write it with numpy."""
    vectors = appearance.astype(np.float64)
    chosen = [int(np.argmax(evidence))]
    for k in range(2, config.horizon + 1):
        weight = evidence_weight(k, config, config.horizon)
        best, best_utility = -1, -np.inf
        for n in range(len(frames)):
            if n in chosen:
                continue
            covered = min(1.0, np.abs(frames[chosen] - frames[n]).min() / (num_frames / k))
            diverse = 1.0 - (vectors[chosen] @ vectors[n]).max()
            utility = weight * float(evidence[n]) + (1 - weight - config.diversity_weight) * covered
            utility += config.diversity_weight * diverse
            if utility > best_utility:
                best, best_utility = n, utility
        chosen.append(best)
    return chosen


def timed(rank: Callable[[], object]) -> list[float]:
    """CPU seconds of 30 runs, which other work on the machine lengthens least."""
    seconds = []
    for _ in range(30):
        began = time.thread_time()
        rank()
        seconds.append(time.thread_time() - began)
    return seconds


def main() -> None:
    rng = np.random.default_rng(0)
    frames = np.sort(rng.choice(NUM_FRAMES, CANDIDATES, replace=False))
    evidence = rng.random(CANDIDATES).astype(np.float32)
    appearance = encode(rng.integers(0, 256, (CANDIDATES, 32, 57, 3), dtype=np.uint8))
    config = RankingConfig(horizon=HORIZON)

    relevance = evidence**4
    beyond = RankingConfig(horizon=HORIZON, rule="residual")
    order = greedy(frames, evidence, appearance, NUM_FRAMES, config).order
    seconds = timed(lambda: greedy(frames, evidence, appearance, NUM_FRAMES, config))
    residual_seconds = timed(lambda: residual(frames / 25.0, relevance, evidence, appearance, beyond))
    began = time.thread_time()
    literal = as_written(frames, evidence, appearance, NUM_FRAMES, config)
    literal_seconds = time.thread_time() - began
    assert literal == order.tolist(), "the fast ranking is not Algorithm 1"

    median = statistics.median(seconds)
    result = {
        "candidates": CANDIDATES,
        "horizon": HORIZON,
        "threads": 1,
        "clock": "CPU time",
        "milliseconds_median": 1000 * median,
        "milliseconds_best": 1000 * min(seconds),
        "residual_milliseconds_median": 1000 * statistics.median(residual_seconds),
        "residual_milliseconds_best": 1000 * min(residual_seconds),
        "as_written_milliseconds": 1000 * literal_seconds,
        "times_faster": literal_seconds / median,
    }
    print(
        f"{1000 * median:.1f} ms (best {1000 * min(seconds):.1f}), residual "
        f"{result['residual_milliseconds_median']:.1f} ms, as written {literal_seconds:.1f} s: "
        f"{result['times_faster']:.0f} times faster"
    )
    print(write("ranking", result))


if __name__ == "__main__":
    options(__doc__).parse_args()
    main()
