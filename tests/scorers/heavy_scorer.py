"""A synthetic scorer whose features take 2 MiB a frame, and a process that asks it one question.

python heavy_scorer.py VIDEO STORE     writes a JSON object: frames encoded, the ranking without its times
"""

import json
import sys
import warnings

import numpy as np

from framenest import MEC, IndexConfig, MECConfig
from framenest.testing import TableScorer

CONFIG = MECConfig(IndexConfig(base_probes=36, extra_probes=0))
"""36 probes: 72 MiB of features, and what zooming adds."""


class SyntheticHeavyScorer(TableScorer):
    """Relevance out of a table; every frame's features carry 2 MiB of noise that it follows from."""

    name = "synthetic-heavy"

    def __init__(self, values=2**19):
        super().__init__({frame: (frame % 97) / 97 for frame in range(300)})
        self.values, self.version = values, f"{values} values"
        self.encoded = 0

    def encode(self, frames):
        self.encoded += len(frames)
        noise = [np.random.default_rng(n).random(self.values, np.float32) for n in frames.frames.tolist()]
        return {
            "frame": frames.frames,
            "noise": np.stack(noise) if noise else np.zeros((0, self.values), np.float32),
        }

    def match(self, encoded, question, *, reference=None):
        found = super().match(encoded, question, reference=reference)
        return (found * encoded["noise"].mean(axis=1)).astype(np.float32)


def main(video, store):
    warnings.simplefilter("ignore")
    scorer = SyntheticHeavyScorer()
    told = json.loads(MEC(CONFIG, scorer, store=store).rank(video, "Where?").dumps())
    told.pop("stats")
    sys.stdout.write(json.dumps({"encoded": scorer.encoded, "ranking": told}))


if __name__ == "__main__":
    main(*sys.argv[1:])
