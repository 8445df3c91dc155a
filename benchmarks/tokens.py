"""Hits within a budget in tokens: images of one size against images that get smaller by rank.

    python benchmarks/tokens.py qa.json

The reporting half of a question set and of our own (own_questions.json), ranked by `tags` with the rule
`residual`; images cost what Qwen3-VL takes. A hit is a frame with the answer whose relevance, at the size in
which it is sent, is at least 0.8 of that at full size. Writes results/tokens.json and prints it.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from machine import options, write
from quality import rounded
from reading import asked

from framenest import MEC, Session, open_video
from framenest.config import ScorerConfig
from framenest.evaluation.grounded_questions import GroundedQuestion
from framenest.evaluation.recall import Floats, inside, interval_of_mean
from framenest.frames import ImageSpec
from framenest.image_tokens import TIERS, Size, TokenBudget
from framenest.images import ImageLimits
from framenest.method.prefix import Prefix
from framenest.scorers.ocr import ScreenText
from framenest.scorers.question_text import asks_for

BUDGETS = (2_000, 4_000, 8_000, 16_000)
SHARES = {"full size": 1.0, "half the side": 0.5, "a quarter of the side": 0.25}
LEAST_RELEVANCE = 0.8
"""Of a frame's relevance at full size, from which it still shows what it shows."""


class SizedRelevance:
    """The relevance of frames for one question, by the size in which they are seen."""

    def __init__(self, mec: MEC, question: GroundedQuestion) -> None:
        self._mec, self._session, self._question = mec, mec.session, question.question
        self._decoder = mec.session.open(question.video)
        self._features = self._of(self._decoder, self._session.scorer)
        index = mec.index(question.video)
        self._probes = self._features.get(index.frames, "probes")
        self._screen: ScreenText | None = None
        if self._session.reader is not None and asks_for("text", self._question):
            screens = self._of(self._decoder, self._session.reader)
            self._screen = ScreenText(screens, self._question, self._session.encoder, self._session.store)
            own = self._features.relevance(self._probes, self._question, self._probes)
            self._screen.join(index.frames, own, [])

    def _of(self, decoder: Any, scorer: Any) -> Any:
        return self._session.features(decoder, scorer, self._mec.config.index.thumbnail)

    def __call__(self, prefix: Prefix, size: Size) -> Floats:
        """(K,) the relevance of a prefix's frames, seen in this size."""
        images = prefix.read(ImageSpec.squash(*size), video=self._decoder, progress=False)
        shrunk = open_video(images, fps=1.0)
        places = np.arange(len(prefix))
        features = self._of(shrunk, self._session.scorer).get(places, "shrunk")
        relevance = self._features.relevance(features, self._question, self._probes)
        if self._screen is not None:
            screens, self._screen._features = self._screen._features, self._of(shrunk, self._session.reader)
            relevance = self._screen.join(places, relevance, [])[0]
            self._screen._features = screens
        return relevance.astype(np.float64)


def outcomes(question: GroundedQuestion, mec: MEC) -> dict[str, list[tuple[bool, bool, int]]]:
    """By images and budget: whether the answer is there, whether it is seen, and how many frames."""
    ranking = mec.rank(question.video, question.question)
    info = ranking.video
    whole = info.width, info.height
    sides = {name: int(max(whole) * share) for name, share in SHARES.items()}
    images = {name: (None, ImageLimits(max_side=side)) for name, side in sides.items()}
    images["tiers"] = TIERS, ImageLimits()
    relevance, known = SizedRelevance(mec, question), dict[tuple[int, Size], float]()
    found: dict[str, list[tuple[bool, bool, int]]] = {}
    for name, (tiers, limits) in images.items():
        for tokens in BUDGETS:
            prefix = ranking.prefix(TokenBudget(tokens, tiers, limits))
            answers = inside(prefix.seconds, question.intervals)
            shown = prefix.part(answers)
            each = list(zip(shown.frames.tolist(), shown.sizes, strict=True))
            for size in {whole, *shown.sizes}:
                new = [size in (own, whole) and (frame, size) not in known for frame, own in each]
                if any(new):
                    part = shown.part(np.array(new))
                    values = zip(part.frames.tolist(), relevance(part, size), strict=True)
                    known |= {(frame, size): float(value) for frame, value in values}
            seen = [known[frame, own] >= LEAST_RELEVANCE * known[frame, whole] for frame, own in each]
            found.setdefault(name, []).append((bool(answers.any()), any(seen), len(prefix)))
    return found


def with_interval(values: Floats) -> list[float]:
    return rounded([values.mean(), *interval_of_mean(values)])


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("questions", help="a question set with videos")
    given = parser.parse_args()
    rows = asked(given.questions, "report")
    session = Session("tags", progress=False, scoring=ScorerConfig(ocr="auto"))
    mec = MEC(session=session, preset="residual")
    found = [outcomes(question, mec) for question, *_ in rows]
    columns = {name: np.array([one[name] for one in found], dtype=np.float64) for name in found[0]}
    result: dict[str, Any] = {"part": "report", "questions": len(rows), "images": {}}
    for name, values in columns.items():  # (questions, budgets, 3)
        result["images"][name] = {
            str(tokens): {
                "hit": with_interval(values[:, place, 1]),
                "hit_at_any_size": with_interval(values[:, place, 0]),
                "frames": rounded([values[:, place, 2].mean()])[0],
            }
            for place, tokens in enumerate(BUDGETS)
        }
    result["tiers - full size"] = {
        str(tokens): with_interval(columns["tiers"][:, place, 1] - columns["full size"][:, place, 1])
        for place, tokens in enumerate(BUDGETS)
    }
    print(json.dumps(json.loads(write("tokens", result).read_text()), indent=1))


if __name__ == "__main__":
    main()
