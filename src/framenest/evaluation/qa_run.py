"""evaluate qa: a benchmark's questions put to a model, resumable."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import av

from framenest.config import MECConfig
from framenest.errors import (
    BudgetError,
    ConfigError,
    FramenestError,
    IndexMismatch,
    ModelError,
    VideoError,
)
from framenest.evaluation.benchmarks import BenchmarkQuestion, MediaFolder, QueryText, chosen_letter
from framenest.evaluation.qa_results import QaResults, Record
from framenest.evaluation.selection_cache import SelectionCache
from framenest.images import ImageLimits
from framenest.lmm.answer import Answer, Answerer
from framenest.lmm.messages import estimate, messages
from framenest.lmm.request import Request
from framenest.lmm.times import Pairing
from framenest.method.index import probe_count
from framenest.method.ranking import Ranking
from framenest.protocols import Progress
from framenest.selectors import mec_config, needs_scorer, served_budgets
from framenest.selectors.selection import Selection
from framenest.transcript import read_lines

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


@dataclass(frozen=True)
class QaSettings:
    """What a run depends on, beside its selectors and budgets. Another setting is another run.

    dataset: the benchmark; annotations: the name of its file, which tells MLVU's dev set from its test set.
    model, thinking, answer_tokens, temperature: as the answerer was made. scorer: its name and revision,
    None where no selector needs one. query: the text that relevance is scored for, as `QueryText` reads it.
    style, pairing, limits: how frames are sent. subtitles: whether they are. tell_times: whether
    times are written as text, by default where the processor writes none.
    """

    dataset: str
    model: str
    thinking: bool | None = None
    answer_tokens: int | None = None
    temperature: float | None = None
    scorer: str | None = None
    query: str = "question"
    style: str = "openai"
    pairing: Pairing = "pairs"
    limits: ImageLimits = field(default_factory=ImageLimits)
    subtitles: bool = False
    tell_times: bool | None = None
    annotations: str | None = None


class QaRun:
    """One run over a benchmark: selects and decodes in this thread, asks in `jobs` others.

    Answers are appended to `results` as they come; what is there already is not asked again. A question
    that fails, or whose video, list of frames or subtitles cannot be used, is noted with its error and tried
    again by the next run. After `patience` failures in a row, other than of videos, the run stops with the
    last error.
    """

    def __init__(
        self,
        settings: QaSettings,
        answerer: Answerer,
        kept: SelectionCache,
        videos: MediaFolder,
        results: QaResults,
        *,
        subtitles: MediaFolder | None = None,
        jobs: int = 4,
        patience: int = 20,
        progress: Progress = lambda *_: None,
    ) -> None:
        self.settings, self.results = settings, results
        self._answerer, self._kept, self._videos, self._subtitles = answerer, kept, videos, subtitles
        self._jobs, self._patience, self._progress = jobs, patience, progress
        self._lock = threading.Lock()
        self._done = self._total = self._failed_in_a_row = 0
        self.last_error: FramenestError | None = None
        self.failed = 0

    def __call__(
        self, questions: Sequence[BenchmarkQuestion], selectors: Sequence[str], budgets: Sequence[int]
    ) -> str:
        """Ask whatever is not answered yet; returns the run's name in the results.

        A budget beyond MEC's horizon is left out for that selector.
        """
        run = self.results.begin(asdict(self.settings))
        served = {selector: served_budgets(selector, budgets) for selector in selectors}
        todo = [
            (question, selector, missing)
            for question in sorted(questions, key=lambda q: q.video)  # a video at a time
            for selector in selectors
            if (
                missing := [
                    k for k in served[selector] if not self.results.has(run, question.id, selector, k)
                ]
            )
        ]
        self._total = len(questions) * sum(map(len, served.values()))
        self._done = self._total - sum(len(missing) for *_, missing in todo)
        self._progress("answers", self._done, self._total)
        room = threading.Semaphore(2 * self._jobs)  # requests hold pictures: only so many wait
        pool = ThreadPoolExecutor(self._jobs, "ask")
        waiting: list[Future[None]] = []
        try:
            for question, selector, missing in todo:
                for request, record in self._requests(run, question, selector, missing):
                    room.acquire()
                    self._check()
                    asked = pool.submit(self._ask, question, request, record)
                    asked.add_done_callback(lambda _: room.release())
                    waiting = [f for f in waiting if not f.done() or f.result()] + [asked]
                self._check()
            for asked in waiting:
                asked.result()
            self._check()
        finally:
            pool.shutdown(cancel_futures=True)
        return run

    def _requests(
        self, run: str, question: BenchmarkQuestion, selector: str, budgets: list[int]
    ) -> Iterator[tuple[Request, Record]]:
        """A request for each budget, one after the other; an error is recorded for the budgets it affects."""
        about: Record = {
            "kind": "answer", "run": run, "id": question.id, "selector": selector, "video": question.video,
            "category": question.category, "group": question.group, "structure": question.structure,
            "answer": question.answer,
        }  # fmt: skip
        left = list(budgets)
        try:
            video = str(self._videos.find(question.video))
            chosen = self._chosen(video, question, selector, budgets, about)
            prefixes = {budget: chosen.prefix(budget) for budget in budgets}
            decoder = self._kept.session(video).open(video)
            for budget, prefix in prefixes.items():
                began = time.perf_counter()
                request = messages(
                    prefix,
                    self._prompt(question),
                    self.settings.style,
                    pairing=self.settings.pairing,
                    limits=self.settings.limits,
                    tell_times=self.settings.tell_times,
                    video=decoder,
                    progress=False,
                )
                left.remove(budget)
                spent = {"budget": budget, "frames_seconds": round(time.perf_counter() - began, 3)}
                yield request, about | spent
        except (VideoError, IndexMismatch, BudgetError, ConfigError) as error:  # others would fail for all
            for budget in left:
                self._note(about | {"budget": budget}, None, error)

    def _chosen(
        self, video: str, question: BenchmarkQuestion, selector: str, budgets: list[int], about: Record
    ) -> Ranking | Selection:
        began, made = time.perf_counter(), self._kept.made
        text = question.query(QueryText.parse(self.settings.query), selector)
        chosen = self._kept.result(video, text, selector, budgets)
        about["selection"] = {
            "seconds": round(time.perf_counter() - began, 3),
            "kept": self._kept.made == made,
            "candidates": _candidates(chosen),
        }
        return chosen

    def _prompt(self, question: BenchmarkQuestion) -> str:
        """The question, after the subtitles where the video has some."""
        if self._subtitles is None or self._subtitles.missing([question.subtitles]):
            return question.prompt
        file = self._subtitles.find(question.subtitles)
        said = [line.text.strip() for line in read_lines(file)[0]]
        text = (" " if file.suffix == ".jsonl" else "\n").join(filter(None, said))
        return f"This video's subtitles are listed below:\n{text}\n{question.prompt}"

    def _ask(self, question: BenchmarkQuestion, request: Request, record: Record) -> None:
        record |= {"frames": len(request.prefix)}
        try:
            # A model that may think is streamed: --timeout then bounds its silence, however long it reasons.
            streamed = None if self.settings.thinking is False else lambda *_: None
            answer = self._answerer.answer(request, on_text=streamed)
        except ModelError as error:
            self._note(record, None, error)
        else:
            self._note(record | {"choice": chosen_letter(answer.text, question.options)}, answer, None)

    def _note(self, record: Record, answer: Answer | None, error: FramenestError | None) -> None:
        if answer is not None:
            said = {"text": answer.text, "finish_reason": answer.finish_reason, **answer.usage.to_json()}
            record |= {"correct": record["choice"] == record["answer"], "said": said}
        self.results.append(record | {"error": None if error is None else str(error)})
        with self._lock:
            self._done += 1
            self.failed += error is not None
            if not isinstance(error, VideoError | IndexMismatch):
                self._failed_in_a_row = 0 if error is None else self._failed_in_a_row + 1
            self.last_error = error or self.last_error
            self._progress("answers", self._done, self._total)

    def _check(self) -> None:
        """Stop with the last error after too many failures in a row."""
        with self._lock:
            if self._failed_in_a_row >= self._patience and self.last_error is not None:
                raise self.last_error


def _candidates(chosen: Ranking | Selection) -> int | None:
    stats = chosen.stats if isinstance(chosen, Selection) else chosen.stats.to_json()
    return stats.get("candidates")
