"""Selection: what a selector without a ranking writes, one list of frames per budget."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from framenest.cache.archive import write_atomic
from framenest.errors import BudgetError
from framenest.frames import VideoInfo
from framenest.method.prefix import Prefix
from framenest.method.ranking import Ranking, load_file, read_file

SELECTION_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Selection:
    """What a selector chose for a question: one Prefix per budget; `stats`: candidates, seconds."""

    video: VideoInfo
    question: str | None
    selector: str
    scorer: str
    prefixes: dict[int, Prefix]
    stats: dict[str, Any]

    def __repr__(self) -> str:
        return f"Selection({self.selector!r}, {self.video.path!r}, budgets={list(self.prefixes)})"

    def prefix(self, budget: int) -> Prefix:
        """The frames chosen for a budget; only for budgets that were asked for."""
        if budget not in self.prefixes:
            there = ", ".join(map(str, self.prefixes))
            raise BudgetError(
                f"this selection holds budgets {there}, not {budget}; select again with -k {budget}"
            )
        return self.prefixes[budget]

    def save(self, path: str | Path) -> None:
        """Write the selection as JSON."""
        data = {
            "format": SELECTION_FORMAT,
            "kind": "selection",
            "video": self.video.to_json(),
            "question": self.question,
            "selector": self.selector,
            "scorer": self.scorer,
            "stats": self.stats,
            "budgets": {
                str(budget): {
                    "frames": prefix.frames.tolist(),
                    "seconds": prefix.seconds.tolist(),
                    "ranks": None if prefix.ranks is None else prefix.ranks.tolist(),
                    "complete": prefix.complete,
                }
                for budget, prefix in self.prefixes.items()
            },
        }
        write_atomic(Path(path), (json.dumps(data, ensure_ascii=False) + "\n").encode(errors="surrogatepass"))

    @classmethod
    def load(cls, path: str | Path) -> Selection:
        """Read a selection written by `save`."""
        return load_file(path, "selection", SELECTION_FORMAT, cls.from_json)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Selection:
        video = VideoInfo.from_json(data["video"])
        prefixes = {
            int(budget): Prefix(
                video,
                int(budget),
                np.array(entry["frames"], dtype=np.int64),
                np.array(entry["seconds"], dtype=np.float64),
                None if entry["ranks"] is None else np.array(entry["ranks"], dtype=np.int64),
                entry["complete"],
            )
            for budget, entry in data["budgets"].items()
        }
        return cls(video, data["question"], data["selector"], data["scorer"], prefixes, data["stats"])


def load_result(path: str | Path) -> Ranking | Selection:
    """A ranking or a selection, whichever the file holds."""
    kind = read_file(path).get("kind")
    return Selection.load(path) if kind == "selection" else Ranking.load(path)
