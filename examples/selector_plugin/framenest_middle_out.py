"""An example selector that ranks frames from the middle of the video outwards, without looking at them."""

from collections.abc import Sequence

import numpy as np

from framenest import Prefix, Selection, Session


class MiddleOutSelector:
    """Ranks frames by their distance from the middle; ties go to the earlier frame."""

    name = "middle-out"
    ranks = True  # each budget extends the smaller ones
    needs_scorer = False
    settings = None  # or a frozen dataclass of settings, for middle-out:NAME=VALUE

    def __init__(self, session: Session) -> None:
        self._session = session  # opens videos, and has the scorer: session.scorer

    def select(self, video: str, question: str | None, budgets: Sequence[int]) -> Selection:
        """Rank once; every budget is a prefix of the ranking."""
        decoder = self._session.open(video)
        info = decoder.info
        middle = info.num_frames // 2
        order = sorted(range(info.num_frames), key=lambda n: (abs(n - middle), n))
        prefixes = {}
        for budget in sorted(budgets):
            frames = np.array(order[:budget])
            ranks = np.argsort(frames, kind="stable") + 1
            chosen = np.sort(frames)
            prefixes[budget] = Prefix(info, budget, chosen, decoder.seconds[chosen], ranks)
        return Selection(info, question, self.name, "none", prefixes, {"candidates": 0, "wall_seconds": 0.0})
