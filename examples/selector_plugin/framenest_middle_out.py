"""An example selector: frames from the middle of the video outwards. It looks at nothing, but it ranks."""

import numpy as np

from framenest.method.prefix import Prefix
from framenest.selectors.selection import Selection


class MiddleOutSelector:
    name = "middle-out"

    def __init__(self, session):  # noqa: ANN001, ANN204
        self._session = session  # opens videos, and has the scorer: session.scorer

    def select(self, video, question, budgets):  # noqa: ANN001, ANN201
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
