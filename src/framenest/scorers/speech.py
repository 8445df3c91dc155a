"""The transcript as a cue: passages that match a question."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from framenest.frames import Doubles, Floats, Ints
from framenest.protocols import Store
from framenest.scorers.calibration import sigmoid
from framenest.scorers.question_text import SentenceEncoder, items, matching, mentions, text_vectors
from framenest.transcript import REACH, Line, Transcript

PASSAGE_SECONDS = 6.0  # seconds of a passage; longer ones dilute what they say
STRIDE_SECONDS = 1.5  # seconds between the starts of two overlapping passages
PAUSE_SECONDS = 2.0  # seconds of silence that end a passage
WORDS_WEIGHT = 0.2  # how much names, numbers and rare words of the question add to the similarity
CENTRE_SCORE, SCORE_WIDTH = 0.47, 0.05
"""Score of a passage at which the cue is one half, and how fast it rises there. Sentences that answer a
question score 0.6, others on the same subject 0.4, all others below 0.3."""
LOW_PERCENT = 95.0  # percent of the passages that stay below one half, even if more would exceed it
CLEAR = 0.08  # the best passage is at least this far above one half, if it exceeds the centre
ANSWERS = 0.8  # from this ς on, a passage answers the question


class Passage(NamedTuple):
    """Lines said together: seconds from the first frame, the words, and ς, their score in [0, 1]."""

    start: float
    end: float
    text: str
    score: float = 0.0


def passages(lines: Sequence[Line]) -> list[Passage]:
    """Join lines into overlapping passages of a few seconds; a long line is a passage by itself.

    >>> lines = [Line(0.0, 3.0, "Now we"), Line(3.0, 5.0, "fire it."), Line(60.0, 70.0, "It has cooled.")]
    >>> [passage.text for passage in passages(lines)]
    ['Now we fire it.', 'fire it.', 'It has cooled.']
    """
    passages: list[Passage] = []
    for place, first in enumerate(lines):
        if passages and first.start < passages[-1].start + STRIDE_SECONDS and first.end <= passages[-1].end:
            continue
        end, texts = first.end, [first.text]
        for line in lines[place + 1 :]:
            if line.end - first.start > PASSAGE_SECONDS or line.start - end > PAUSE_SECONDS:
                break
            end = max(end, line.end)
            texts.append(line.text)
        passages.append(Passage(first.start, end, " ".join(texts)))
    return passages


def answering(scores: Doubles, reference: Doubles, least: float = -np.inf) -> Floats:
    """(n,) in [0, 1]: scores mapped so that only the best few of the reference (m,) are high."""
    centre = min(float(np.percentile(reference, LOW_PERCENT)), float(reference.max()) - CLEAR)
    return sigmoid((scores - max(least, centre)) / SCORE_WIDTH)


class Speech:
    """The transcript of a video, which has lines, encoded for questions. It is encoded once and cached."""

    def __init__(self, transcript: Transcript, encoder: SentenceEncoder, store: Store) -> None:
        self.passages = passages(transcript.lines)
        self._texts = [passage.text for passage in self.passages]
        self._encoder = encoder
        self.vectors = text_vectors(self._texts, encoder, store, "transcripts")
        """(p, 384) unit vectors of the passages."""

    @property
    def nbytes(self) -> int:
        """Bytes in memory: the vectors, the passages and their lines."""
        return int(self.vectors.nbytes) + 2 * sum(map(sys.getsizeof, self._texts))

    def scores(self, question: str) -> Floats:
        """(p,) ς of each passage in [0, 1]: how likely it answers the question.

        The cosine between the sentences, plus what names, numbers and rare words add, mapped so that only
        passages about the question are high, and of those only the best few.
        """
        raw = (self.vectors @ self._encoder(question)).astype(np.float64)
        raw += WORDS_WEIGHT * matching(items(question), self._texts, self._texts, mentions)
        return answering(raw, raw, CENTRE_SCORE)

    def cue(self, seconds: Doubles, question: str, *, every_passage: bool = False) -> Floats:
        """(n,) ς of the best passage at each time of a frame, which ascend; 0 if nothing is said.

        every_passage: if no frame lies in a passage, the nearest frame gets half of its ς, so that nothing
        said between two probes is missed.
        """
        cue = np.zeros(len(seconds), dtype=np.float32)
        for passage, score in zip(self.passages, self.scores(question).tolist(), strict=True):
            first, end = np.searchsorted(seconds, [passage.start - REACH, passage.end + REACH])
            if first == end and every_passage and len(seconds):
                first = int(np.abs(seconds - (passage.start + passage.end) / 2).argmin())
                end = first + 1
            near = seconds[first:end]
            away = np.maximum(np.maximum(passage.start - near, near - passage.end), 0.0) / REACH
            np.maximum(
                cue[first:end], score * (1 - np.minimum(away, 1) / 2), out=cue[first:end], casting="same_kind"
            )
        return cue

    def on_screen(self, seconds: Doubles, question: str) -> Ints:
        """Positions of the frames during the best passage; none if its ς is below ANSWERS.

        Of equal passages, the earliest wins. Between two frames, the earlier one is still on screen.
        seconds: (n,) times of frames, ascending.
        """
        scores = self.scores(question)
        best = int(scores.argmax())
        end = np.searchsorted(seconds, self.passages[best].end, side="right")
        first = np.searchsorted(seconds, self.passages[best].start)
        return np.arange(min(first, end - 1), end) if scores[best] >= ANSWERS else np.arange(0)

    def best(self, question: str, count: int) -> list[Passage]:
        """The passages that answer a question best, best first, without those that overlap a better one."""
        scores = self.scores(question)
        best: list[Passage] = []
        for place in np.argsort(-scores, kind="stable").tolist():
            passage = self.passages[place]
            if all(passage.start >= other.end or passage.end <= other.start for other in best):
                best.append(passage._replace(score=float(scores[place])))
            if len(best) == count:
                break
        return best
