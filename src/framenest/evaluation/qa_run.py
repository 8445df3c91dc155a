"""evaluate qa: ask a model a benchmark's questions, resumable; and plan what that takes."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field

import av

from framenest.config import MECConfig
from framenest.errors import BudgetError, ConfigError, FramenestError, IndexMismatch, ModelError, VideoError
from framenest.evaluation.benchmarks import BenchmarkQuestion, MediaFolder, QueryText, chosen_letter
from framenest.evaluation.qa_results import QaResults, Record, Row
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


@dataclass(frozen=True)
class QaSettings:
    """What a run depends on, beside its selectors and budgets. Another setting makes another run.

    dataset: the benchmark. annotations: the name of its file, which tells MLVU's dev set from its test set.
    model, thinking, answer_tokens, temperature: as the answerer was made. scorer: its name and revision;
    None if no selector needs one. query: as `QueryText` reads it. style, pairing, limits, tell_times: as for
    `messages`. subtitles: whether they are sent.
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


class QaPlan:
    """Estimates the frames, tokens and hours that a run still needs.

    Frames and tokens are estimates from the videos' headers. Hours are based on the answers of the same run
    that `results` already has.
    """

    def __init__(
        self, settings: QaSettings, videos: MediaFolder, results: QaResults, *, run: str, jobs: int
    ) -> None:
        self.settings, self.results, self.run, self.jobs = settings, results, run, jobs
        self._videos = videos
        self._headers: dict[str, tuple[float, tuple[int, int]] | None] = {}

    def _header(self, video: str) -> tuple[float, tuple[int, int]] | None:
        """(seconds, (width, height)) of a video; None if it is missing or cannot be read."""
        if video not in self._headers:
            self._headers[video] = None
            try:
                with av.open(str(self._videos.find(video))) as file:
                    codec = file.streams.video[0].codec_context
                    seconds = float((file.duration or 0) / 1_000_000)
                    self._headers[video] = (seconds, (codec.width, codec.height))
            except (VideoError, OSError, av.FFmpegError, IndexError):
                pass
        return self._headers[video]

    def rows(
        self, questions: Sequence[BenchmarkQuestion], selectors: Sequence[str], budgets: Sequence[int]
    ) -> list[Row]:
        """A row for each selector and one for all: answers, frames and tokens to send, and hours."""
        rows = [self._row(questions, name, served_budgets(name, budgets)) for name in selectors]
        counts = ("Questions", "Answers", "Frames sent", "Tokens")
        hours = [row["Hours"] for row in rows]
        total = {name: sum(row[name] for row in rows) for name in counts}
        return [*rows, {"Selector": "all", **total, "Hours": None if None in hours else sum(hours)}]

    def _row(self, questions: Sequence[BenchmarkQuestion], selector: str, budgets: Sequence[int]) -> Row:
        limits = self.settings.limits
        asked, frames, tokens = 0, 0, 0
        unanswered = set()
        for question in questions:
            header = self._header(question.video)
            if header is None:
                continue
            seconds, size = header
            for budget in budgets:
                if self.results.has(self.run, question.id, selector, budget):
                    continue
                unanswered.add(question.id)
                asked += 1
                frames += budget
                tokens += estimate(
                    self.settings.style,
                    [seconds] * budget,
                    limits.size(*size),
                    question.prompt,
                    pairing=self.settings.pairing,
                    frame_pixels=limits.frame_pixels,
                ).total
        counts = {"Questions": len(unanswered), "Answers": asked, "Frames sent": frames, "Tokens": tokens}
        return {"Selector": selector, **counts, "Hours": self._hours(selector, len(unanswered), asked)}

    def _hours(self, selector: str, questions: int, asked: int) -> float | None:
        """From the mean seconds of this run's answers so far; None if this selector has none."""
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
        # One thread selects and reads; `jobs` others wait for answers.
        seconds: float = max(questions * per_question + asked * reading, asked * answer / self.jobs)
        return seconds / 3600

    def decoded(self, questions: Sequence[BenchmarkQuestion], selectors: Sequence[str]) -> int:
        """An upper bound of the frames that selection decodes; selectors share the frames of a video."""
        named = [selector.partition(":") for selector in selectors]
        configs = [mec_config(settings) for name, _, settings in named if name in ("mec", "min-gap")]
        others = [name for name, *_ in named if needs_scorer(name) and name not in ("mec", "min-gap", "file")]
        total = 0
        for video, count in Counter(question.video for question in questions).items():
            if header := self._header(video):
                bounds = [_decoded_by_mec(config, header[0]) for config in configs]
                total += max((probes for probes, _ in bounds), default=0)
                total += max((zoom for _, zoom in bounds), default=0) * count
                total += int(header[0]) + 1 if others else 0
        return total

    def unreadable(self, questions: Sequence[BenchmarkQuestion]) -> int:
        """Number of videos that are missing or cannot be read."""
        return sum(self._header(video) is None for video in {q.video for q in questions})


def _decoded_by_mec(config: MECConfig, seconds: float) -> tuple[int, int]:
    """Probes of a video, and an upper bound of a question's zoom frames: both sides of every anchor."""
    index, found = config.index, config.discovery
    probes = probe_count(10**9, seconds, index.base_probes, index.extra_probes, index.saturation)
    segments = math.ceil(probes / found.segment_length)
    return probes, 2 * found.zoom * found.anchors * math.ceil(found.activation * segments)


class QaRun:
    """One run over a benchmark: selects and decodes in this thread, asks in `jobs` others.

    Answers are appended to `results` as they arrive, and are not asked for again. A question that fails, or
    whose video, frame list or subtitles cannot be used, is recorded with its error and retried by the next
    run. After `patience` failures in a row, not counting videos, the run stops with the last error.
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
        """Ask what has no answer yet; returns the run's name in the results.

        A selector is not asked at budgets beyond its horizon.
        """
        run = self.results.begin(asdict(self.settings))
        served = {selector: served_budgets(selector, budgets) for selector in selectors}
        todo = []
        for question in sorted(questions, key=lambda q: q.video):  # one video at a time
            for selector in selectors:
                left = [k for k in served[selector] if not self.results.has(run, question.id, selector, k)]
                todo.append((question, selector, left))
        self._total = len(questions) * sum(map(len, served.values()))
        self._done = self._total - sum(len(left) for *_, left in todo)
        self._progress("answers", self._done, self._total)
        pool = ThreadPoolExecutor(self._jobs, "ask")
        pending: set[Future[None]] = set()
        try:
            for question, selector, left in todo:
                for request, record in self._requests(run, question, selector, left):
                    while len(pending) >= 2 * self._jobs:  # requests hold images
                        done, pending = wait(pending, return_when=FIRST_COMPLETED)
                        for future in done:
                            future.result()
                    self._check()
                    pending.add(pool.submit(self._ask, question, request, record))
                self._check()
            for future in pending:
                future.result()
            self._check()
        finally:
            pool.shutdown(cancel_futures=True)
        return run

    def _requests(
        self, run: str, question: BenchmarkQuestion, selector: str, budgets: list[int]
    ) -> Iterator[tuple[Request, Record]]:
        """A request for each budget, one after the other; an error is recorded for the budgets it affects."""
        record: Record = {
            "kind": "answer", "run": run, "id": question.id, "selector": selector, "video": question.video,
            "category": question.category, "group": question.group, "structure": question.structure,
            "answer": question.answer,
        }  # fmt: skip
        if not budgets:
            return
        left = list(budgets)
        try:
            video = str(self._videos.find(question.video))
            chosen = self._chosen(video, question, selector, budgets, record)
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
                yield request, record | spent
        except (VideoError, IndexMismatch, BudgetError, ConfigError) as error:  # others would fail for all
            for budget in left:
                self._note(record | {"budget": budget}, None, error)

    def _chosen(
        self, video: str, question: BenchmarkQuestion, selector: str, budgets: list[int], record: Record
    ) -> Ranking | Selection:
        began, made = time.perf_counter(), self._kept.made
        text = question.query(QueryText.parse(self.settings.query), selector)
        chosen = self._kept.result(video, text, selector, budgets)
        stats = chosen.stats if isinstance(chosen, Selection) else chosen.stats.to_json()
        record["selection"] = {
            "seconds": round(time.perf_counter() - began, 3),
            "kept": self._kept.made == made,
            "candidates": stats.get("candidates"),
        }
        return chosen

    def _prompt(self, question: BenchmarkQuestion) -> str:
        """The question, after the subtitles if the video has some."""
        if self._subtitles is None or self._subtitles.missing([question.subtitles]):
            return question.prompt
        file = self._subtitles.find(question.subtitles)
        lines = filter(None, (line.text.strip() for line in read_lines(file)[0]))
        text = (" " if file.suffix == ".jsonl" else "\n").join(lines)
        return f"This video's subtitles are listed below:\n{text}\n{question.prompt}"

    def _ask(self, question: BenchmarkQuestion, request: Request, record: Record) -> None:
        record |= {"frames": len(request.prefix)}
        # The answer of a model that may think is streamed: --timeout then bounds its silence, not its length.
        on_text = None if self.settings.thinking is False else lambda *_: None
        try:
            answer = self._answerer.answer(request, on_text=on_text)
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
        """Raise the last error after too many failures in a row."""
        with self._lock:
            if self._failed_in_a_row >= self._patience and self.last_error is not None:
                raise self.last_error
