"""QaPlan: what a run of `evaluate qa` would do, before anything is selected or asked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import av

from framenest.config import MECConfig
from framenest.evaluation.benchmarks import BenchmarkQuestion
from framenest.evaluation.media_folder import MediaFolder
from framenest.evaluation.qa_results import QaResults
from framenest.evaluation.qa_run import QaSettings
from framenest.lmm.tokens import estimate
from framenest.method.probes import probe_count
from framenest.selectors import mec_config, needs_scorer, served_budgets

Row = dict[str, object]


@dataclass(frozen=True)
class VideoSize:
    """What a file's header says. seconds: its length; size: (width, height)."""

    seconds: float
    size: tuple[int, int]

    @classmethod
    def read(cls, path: Path) -> VideoSize | None:
        """None where the file is no video that FFmpeg can read."""
        try:
            with av.open(str(path)) as file:
                stream = file.streams.video[0]
                length = float((file.duration or 0) / 1_000_000)
                return cls(length, (stream.codec_context.width, stream.codec_context.height))
        except (OSError, av.FFmpegError, IndexError):
            return None


class QaPlan:
    """Counts frames, tokens and hours of a run; what is answered already is left out.

    Frames and tokens are estimates from the videos' headers, frames to decode an upper bound: kept selections
    and features save some. Hours come from the answers that `results` holds already of the same run.
    """

    def __init__(
        self, settings: QaSettings, videos: MediaFolder, results: QaResults, *, run: str, jobs: int
    ) -> None:
        self.settings, self.results, self.run, self.jobs = settings, results, run, jobs
        self._videos = videos
        self._sizes: dict[str, VideoSize | None] = {}

    def size(self, video: str) -> VideoSize | None:
        """Of a video, read once; None where it is missing or cannot be read."""
        if video not in self._sizes:
            missing = self._videos.missing([video])
            self._sizes[video] = None if missing else VideoSize.read(self._videos.find(video))
        return self._sizes[video]

    def rows(
        self, questions: Sequence[BenchmarkQuestion], selectors: Sequence[str], budgets: Sequence[int]
    ) -> list[Row]:
        """One for each selector, and their sum: answers, frames and tokens that are sent, hours."""
        rows = [self._row(questions, name, served_budgets(name, budgets)) for name in selectors]
        total: Row = {"Selector": "all"}
        for name in ("Questions", "Answers", "Frames sent", "Tokens"):
            total[name] = sum(int(str(row[name])) for row in rows)
        hours = [row["Hours"] for row in rows]
        known = [hour for hour in hours if isinstance(hour, float)]
        total["Hours"] = sum(known) if len(known) == len(hours) else None
        return [*rows, total]

    def _row(self, questions: Sequence[BenchmarkQuestion], selector: str, budgets: Sequence[int]) -> Row:
        asked, frames, tokens = 0, 0, 0
        open_questions = set()
        for question in questions:
            video = self.size(question.video)
            if video is None:
                continue
            for budget in budgets:
                if self.results.has(self.run, question.id, selector, budget):
                    continue
                open_questions.add(question.id)
                asked += 1
                frames += budget
                tokens += estimate(
                    self.settings.style,
                    [video.seconds] * budget,
                    self.settings.limits.size(*video.size),
                    question.prompt,
                    pairing=self.settings.pairing,
                    frame_pixels=self.settings.limits.frame_pixels,
                ).total
        hours = self._hours(selector, len(open_questions), asked)
        counts = {"Questions": len(open_questions), "Answers": asked, "Frames sent": frames, "Tokens": tokens}
        return {"Selector": selector, **counts, "Hours": hours}

    def _hours(self, selector: str, questions: int, asked: int) -> float | None:
        """From the mean seconds of this run's answers so far; None where there are none of this selector."""
        done = [
            record
            for record in self.results.answers()
            if (record["run"], record["selector"], record["error"]) == (self.run, selector, None)
        ]
        if not asked:
            return 0.0
        if not done:
            return None
        selection = [r["selection"]["seconds"] for r in done if not r["selection"]["kept"]]
        per_question = sum(selection) / len(selection) if selection else 0.0
        reading = sum(r["frames_seconds"] for r in done) / len(done)
        answer = sum(r["said"]["seconds"] for r in done) / len(done)
        # Selecting and reading take turns in one thread; answers are waited for in `jobs` others.
        seconds: float = max(questions * per_question + asked * reading, asked * answer / self.jobs)
        return seconds / 3600

    def decoded(self, questions: Sequence[BenchmarkQuestion], selectors: Sequence[str]) -> int:
        """Frames that selection decodes and encodes at the most, all selectors sharing each video's."""
        named = [selector.partition(":") for selector in selectors]
        configs = [mec_config(settings) for name, _, settings in named if name in ("mec", "min-gap")]
        others = [name for name, *_ in named if needs_scorer(name) and name not in ("mec", "min-gap", "file")]
        total = 0
        for video, count in Counter(question.video for question in questions).items():
            found = self.size(video)
            if found is None:
                continue
            probes = max((_probes(config, found.seconds) for config in configs), default=0)
            zoom = max((_zoom(config, found.seconds) for config in configs), default=0)
            total += probes + count * zoom + (int(found.seconds) + 1 if others else 0)
        return total

    def unreadable(self, questions: Sequence[BenchmarkQuestion]) -> int:
        """Videos that are missing or cannot be read."""
        return sum(self.size(video) is None for video in {q.video for q in questions})


def _probes(config: MECConfig, seconds: float) -> int:
    index = config.index
    return probe_count(10**9, seconds, index.base_probes, index.extra_probes, index.saturation)


def _zoom(config: MECConfig, seconds: float) -> int:
    """Zoom frames of a question at the most: both sides of an anchor in each active segment."""
    found = config.discovery
    segments = math.ceil(_probes(config, seconds) / found.segment_length)
    return 2 * found.zoom * found.anchors * math.ceil(found.activation * segments)
