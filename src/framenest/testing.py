"""Fakes for testing without a model or a video file.

>>> import numpy as np
>>> from framenest import MEC
>>> from framenest.testing import ArrayDecoder, TableScorer
>>> clip = ArrayDecoder(np.zeros((100, 36, 64, 3), np.uint8), fps=10)
>>> MEC(scorer=TableScorer({0: 0, 41: 0, 42: 1, 43: 0, 99: 0})).rank(clip, "anything").frames[:1].tolist()
[42]
"""

from framenest.scorers.table import TableScorer
from framenest.video.stills import ArrayDecoder

__all__ = ["ArrayDecoder", "TableScorer"]
