"""evaluate qa: ask a model a benchmark's questions, resumable; and plan a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace

import av

from framenest.errors import BudgetError, ConfigError, FramenestError, IndexMismatch, ModelError, VideoError
from framenest.evaluation.benchmarks import BenchmarkQuestion, MediaFolder, QueryText, chosen_letter
from framenest.evaluation.lmms_eval import conventions
from framenest.evaluation.qa_results import QaResults, Record, Row
from framenest.evaluation.selection_cache import SelectionCache
from framenest.images import ImageLimits
from framenest.lmm.client import Answerer
from framenest.lmm.messages import StyleName, estimate, messages
from framenest.lmm.prompt import Pairing
from framenest.lmm.request import Request
from framenest.protocols import Progress
from framenest.selectors import served_budgets
from framenest.selectors.selection import Selection
from framenest.transcript import read_lines

PATIENCE = 20  # failures in a row that stop a run


@dataclass(frozen=True)
class QaSettings:
    """The settings that define a run, besides selectors and budgets. Another setting makes another run.

    dataset: the benchmark. annotations: the name of its file, which distinguishes MLVU's dev and test sets.
    model, thinking, answer_tokens, temperature: as the answerer was made. scorer: its name and revision;
    None if no selector needs one. query: as `QueryText` reads it. style, pairing, limits, tell_times: as for
    `messages`. transcripts_sent: whether the prompt holds the videos' transcripts. system: the system prompt,
    if any. prompt, parse: whose prompt, and whose reading of the answers.
    """

    dataset: str
    model: str
    thinking: bool | None = None
    answer_tokens: int | None = None
    temperature: float | None = None
    scorer: str | None = None
    query: str = "question"
    style: StyleName = "openai"
    pairing: Pairing = "pairs"
    limits: ImageLimits = field(default_factory=ImageLimits)
    transcripts_sent: bool = False
    tell_times: bool | None = None
    annotations: str | None = None
    system: str | None = None
    prompt: conventions.Wording = "paper"
    parse: conventions.Parse = "framenest"


def plan(
    settings: QaSettings,
    questions: Sequence[BenchmarkQuestion],
    selectors: Sequence[str],
    budgets: Sequence[int],
    videos: MediaFolder,
    results: QaResults,
    jobs: int,
) -> tuple[list[Row], int]:
    """Estimate what a run still needs, without asking or selecting anything.

    Returns:
        A row for each selector and one for all: questions, answers, frames and tokens to send, and hours,
        from the answers of the same run in `results` (None without any). And how many videos are missing or
        unreadable, which the rows leave out.
    """
    run, limits = results.name_of(asdict(settings)), settings.limits
    headers = {video: _header(videos, video) for video in {question.video for question in questions}}
    rows, counted = list[Row](), ("Questions", "Answers", "Frames sent", "Tokens")
    for selector in selectors:
        row: Row = {"Selector": selector, **dict.fromkeys(counted, 0)}
        served = served_budgets(selector, budgets)
        for question in questions:
            header = headers[question.video]
            left = [k for k in served if not results.has(run, question.id, selector, k)]
            if header is None or not left:
                continue
            seconds, size = header
            row["Questions"] += 1
            row["Answers"] += len(left)
            row["Frames sent"] += sum(left)
            for budget in left:
                row["Tokens"] += estimate(
                    settings.style,
                    [seconds] * budget,
                    limits.size(*size),
                    conventions.prompt(question, settings.dataset, settings.prompt),
                    pairing=settings.pairing,
                    frame_pixels=limits.frame_pixels,
                ).total
        rows.append(row | {"Hours": _hours(results, run, row, jobs)})
    hours = [row["Hours"] for row in rows]
    total = {name: sum(row[name] for row in rows) for name in counted}
    rows.append({"Selector": "all", **total, "Hours": None if None in hours else sum(hours)})
    return rows, sum(header is None for header in headers.values())


def _header(videos: MediaFolder, video: str) -> tuple[float, tuple[int, int]] | None:
    """(seconds, (width, height)) of a video; None if it is missing or cannot be read."""
    try:
        with av.open(str(videos.find(video))) as file:
            codec = file.streams.video[0].codec_context
            return float((file.duration or 0) / 1_000_000), (codec.width, codec.height)
    except (VideoError, OSError, av.FFmpegError, IndexError):
        return None


def _hours(results: QaResults, run: str, row: Row, jobs: int) -> float | None:
    """From the mean seconds of a selector's answers so far; None if it has none."""
    if not row["Answers"]:
        return 0.0
    wanted = (run, row["Selector"], None)
    done = [r for r in results.answers() if (r["run"], r["selector"], r["error"]) == wanted]
    if not done:
        return None
    selection = [r["selection"]["seconds"] for r in done if not r["selection"]["kept"]]
    per_question = sum(selection) / len(selection) if selection else 0.0
    reading = sum(r["frames_seconds"] for r in done) / len(done)
    answer = sum(r["said"]["seconds"] for r in done) / len(done)
    # One thread selects and reads; `jobs` others wait for answers.
    here = row["Questions"] * per_question + row["Answers"] * reading
    seconds: float = max(here, row["Answers"] * answer / jobs)
    return seconds / 3600


class QaRun:
    """One run over a benchmark: selects and decodes in this thread, asks in `jobs` others.

    Answers are appended to `results` as they arrive, and a resumed run skips them. A question that fails, or
    whose video, frame list or subtitles cannot be used, is recorded with its error and retried by the next
    run. After 20 failures in a row, not counting videos, the run stops with the last error.
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
        progress: Progress = lambda *_: None,
    ) -> None:
        self.settings, self.results = settings, results
        self._answerer, self._kept, self._videos, self._subtitles = answerer, kept, videos, subtitles
        self._jobs, self._progress = jobs, progress
        self._lock = threading.Lock()
        self._done = self._total = self._failed_in_a_row = 0
        self.last_error: FramenestError | None = None
        self.failed = 0

    def __call__(
        self, questions: Sequence[BenchmarkQuestion], selectors: Sequence[str], budgets: Sequence[int]
    ) -> None:
        """Ask every question that has no answer yet. Skips budgets beyond a selector's horizon."""
        run = self.results.begin(asdict(self.settings))
        served = {selector: served_budgets(selector, budgets) for selector in selectors}
        todo = []
        for question in sorted(questions, key=lambda q: q.video):  # one video at a time
            for selector in selectors:
                left = [k for k in served[selector] if not self.results.has(run, question.id, selector, k)]
                if left:
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
                    pending.add(pool.submit(self._ask, question, request, record))
            for future in pending:
                future.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _requests(
        self, run: str, question: BenchmarkQuestion, selector: str, budgets: list[int]
    ) -> Iterator[tuple[Request, Record]]:
        """A request for each budget, one after the other; an error is recorded for the budgets it affects."""
        record: Record = {
            "kind": "answer", "run": run, "id": question.id, "selector": selector, "video": question.video,
            "category": question.category, "group": question.group, "structure": question.structure,
            "answer": question.answer,
        }  # fmt: skip
        left = list(budgets)
        try:
            video = str(self._videos.find(question.video))
            began, misses = time.perf_counter(), self._kept.misses
            text = question.query(QueryText(self.settings.query), selector)
            chosen = self._kept.result(video, text, selector, budgets)
            stats = chosen.stats if isinstance(chosen, Selection) else chosen.stats.to_json()
            record["selection"] = {
                "seconds": round(time.perf_counter() - began, 3),
                "kept": self._kept.misses == misses,
                "candidates": stats.get("candidates"),
            }
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
                if self.settings.system:
                    system = {"role": "system", "content": self.settings.system}
                    request = replace(request, messages=[system, *request.messages])
                left.remove(budget)
                spent = {"budget": budget, "frames_seconds": round(time.perf_counter() - began, 3)}
                yield request, record | spent
        except (VideoError, IndexMismatch, BudgetError, ConfigError) as error:  # others would fail for all
            for budget in left:
                self._note(record | {"budget": budget}, error)

    def _prompt(self, question: BenchmarkQuestion) -> str:
        """The question, after the subtitles if the video has some."""
        asked = conventions.prompt(question, self.settings.dataset, self.settings.prompt)
        if self._subtitles is None or not self._subtitles.has(question.subtitles):
            return asked
        file = self._subtitles.find(question.subtitles)
        lines = filter(None, (line.text.strip() for line in read_lines(file)[0]))
        text = (" " if file.suffix == ".jsonl" else "\n").join(lines)
        return f"This video's subtitles are listed below:\n{text}\n{asked}"

    def _ask(self, question: BenchmarkQuestion, request: Request, record: Record) -> None:
        record |= {"frames": len(request.prefix)}
        # The answer of a model that may think is streamed: --timeout then bounds its silence, not its length.
        on_text = None if self.settings.thinking is False else lambda *_: None
        try:
            answer = self._answerer.answer(request, on_text=on_text)
        except ModelError as error:
            self._note(record, error)
            return
        if self.settings.parse == "lmms-eval":
            choice = conventions.letter(answer.text, question, self.settings.dataset)
        else:
            choice = chosen_letter(answer.text, question.options)
        said = {"text": answer.text, "finish_reason": answer.finish_reason, **answer.usage.to_json()}
        self._note(record | {"choice": choice, "correct": choice == question.answer, "said": said})

    def _note(self, record: Record, error: FramenestError | None = None) -> None:
        """Write a record; after too many failures in a row, raise the last error."""
        self.results.append(record | {"error": None if error is None else str(error)})
        with self._lock:
            self._done += 1
            self.failed += error is not None
            self.last_error = error or self.last_error
            self._progress("answers", self._done, self._total)
            if isinstance(error, VideoError | IndexMismatch):
                return
            self._failed_in_a_row = 0 if error is None else self._failed_in_a_row + 1
            if error is not None and self._failed_in_a_row >= PATIENCE:
                raise error
