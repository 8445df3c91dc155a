"""From raw scores to relevance in [0, 1] that means "how sure that this frame matches".

The paper's weights were set for matching probabilities, which lie near 0 or near 1. Scores that are
no probabilities are mapped so that few frames of a video come out high and the rest low.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CENTRE = 96.5
SLOPE = 0.5


def standardise(scores: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores (n,) in standard deviations from the mean of the reference (P,); 0 where it is constant."""
    spread = reference.std()
    return (scores - reference.mean()) / spread if spread > 1e-12 else np.zeros_like(scores)


def logistic(scores: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float32]:
    """1 / (1 + exp(−(s − c) / w)): c the 96.5th percentile of the reference, w half its deviation.

    The result is relative to the video: it says which of its frames match best, not how well.
    """
    width = SLOPE * reference.std()
    centre = np.percentile(reference, CENTRE)
    steps = (scores - centre) / width if width > 1e-12 else np.zeros_like(scores)
    return (1.0 / (1.0 + np.exp(-np.clip(steps, -60, 60)))).astype(np.float32)
