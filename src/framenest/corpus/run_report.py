"""RunReport: counts and hours of a batch, and a file of its failures, which the next run replaces."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from framenest.cache.files import write_atomic
from framenest.corpus.batch_job import Group, ItemOutcome
from framenest.errors import StoreError

STORE_FAILURES = 10  # consecutive failures of the store after which the run stops


@dataclass
class RunReport:
    """Counts outcomes and appends failures to a JSON lines file: video, question (of a ranking), error (its
    class) and message (one line). Times are monotonic.
    """

    failures: Path
    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    hours: float = 0.0  # hours of video that this run processed itself
    failed: dict[str, str] = field(default_factory=dict)  # why each video failed, by video
    stopped: str = ""  # why the run must stop; empty while it may continue
    _store_failures: int = 0
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        try:
            self.failures.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"{self.failures}: cannot be written ({error.strerror})") from error

    def add(self, outcome: ItemOutcome, new_video: bool = True) -> None:
        """Count an outcome. new_video: whether its video's hours are not counted yet."""
        self.counts[outcome.status] += 1
        if outcome.status == "done" and new_video:
            self.hours += outcome.duration / 3600
        if outcome.status == "failed":
            self.errors[outcome.error] += 1
            item = outcome.item
            self.failed[item.video] = outcome.text
            asked = {"question": item.request.question} if item.target is not None else {}
            line = {"video": item.video, **asked, "error": outcome.error, "message": outcome.text}
            try:
                with self.failures.open("a", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
            except OSError as error:
                raise StoreError(f"{self.failures}: cannot be written ({error.strerror})") from error
        failed = outcome.error == StoreError.__name__
        self._store_failures = self._store_failures + 1 if failed else 0
        if outcome.stops or self._store_failures >= STORE_FAILURES:
            self.stopped = outcome.text

    @property
    def total(self) -> int:
        """Outcomes so far."""
        return self.counts.total()

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.monotonic() - self._began

    @property
    def hours_a_minute(self) -> float:
        """Hours of video processed per minute."""
        return self.hours / max(self.seconds / 60, 1e-9)


def write_rankings(folder: Path, groups: Iterable[Group]) -> Path:
    """Which file holds which ranking: one JSON object per line, `ranking` null if there is none."""
    lines = []
    for item in (item for group in groups for item in group):
        target = Path(str(item.target))
        there = target.name if target.exists() else None
        lines.append(json.dumps({"video": item.video, "question": item.request.question, "ranking": there}))
    path = folder / "rankings.jsonl"
    write_atomic(path, ("\n".join(lines) + "\n").encode())
    return path
