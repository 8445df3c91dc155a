"""BatchJob: the work on each video, in a local worker process or on a cluster; RunReport: how it went."""

from __future__ import annotations

import json
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path

from framenest.cache.directory import ManagedStore, UnwritableCache, local_directory
from framenest.cache.files import write_atomic
from framenest.cache.hashes import digest
from framenest.cache.remote import RemoteStore, open_store
from framenest.config import ScorerConfig
from framenest.errors import CacheWarning, FramenestError, ScorerWarning, StoreError, error_line
from framenest.method.index import index_key
from framenest.method.mec import MEC, rank_request
from framenest.method.ranking import Ranking
from framenest.processes import Cancelled, WorkerLost
from framenest.protocols import Progress, Scorer, Searchable
from framenest.rank_request import RankRequest
from framenest.retrieval.search import Searcher
from framenest.scorers import load_scorer, wait_until_loaded
from framenest.scorers.feature_store import features_key, finish_writes
from framenest.session import Session
from framenest.text import clock, one_line
from framenest.video.decoder import Decoder
from framenest.video.opening import open_video


@dataclass(frozen=True)
class WorkItem:
    """Index the video of a request, or with a `target` rank it and write the ranking to that file."""

    request: RankRequest
    target: str | None = None

    @property
    def video(self) -> str:
        return self.request.video


Group = tuple[WorkItem, ...]  # items of one video, which one worker processes in order


@dataclass(frozen=True)
class ItemOutcome:
    """How an item ended. `seconds` of work; `duration` of the video; `text` for the user."""

    item: WorkItem
    status: str  # "done", "already" (an earlier run did it) or "failed"
    seconds: float = 0.0
    duration: float = 0.0
    text: str = ""
    error: str = ""  # the class of the error, such as VideoError, TimeLimit, MemoryLimit or WorkerDied
    stops: bool = False  # the store accepts no more writes, so the run should stop
    notes: tuple[str, ...] = ()  # warnings for the user


def retry_or_fail(group: Group, lost: WorkerLost, todo: deque[Group]) -> list[ItemOutcome]:
    """Handle a group whose worker was lost: retry its items one by one; a single item fails."""
    if len(group) > 1:
        todo.extend((item,) for item in group)
        return []
    return [failed(item, lost.kind, f"{item.video}: {lost}") for item in group]


def failed(item: WorkItem, error: str, text: str, *, stops: bool = False) -> ItemOutcome:
    """The outcome of an item that failed; error: the class of the error."""
    return ItemOutcome(item, "failed", text=one_line(text), error=error, stops=stops)


@dataclass(frozen=True)
class BatchJob:
    """What all items of a batch share: the scorer, and where results are saved; small, picklable.

    scorer: a name, or None to index without features. cache: a directory, or a URL that machines share.
    """

    scorer: str | None = None
    scoring: ScorerConfig = ScorerConfig()
    cache: str | None = None
    keep_features: bool | None = True
    library: str | None = None  # URI of a library for the vectors; None if the cache holds them
    began: float = field(default_factory=time.time)  # when the run began, in seconds since the epoch

    def store(self) -> ManagedStore:
        return open_store(self.cache)

    def load(self) -> Scorer | None:
        if self.scorer is None:
            return None
        scorer = load_scorer(self.scorer, local_directory(self.store()), self.scoring)
        wait_until_loaded(scorer)
        return scorer

    def open(self, scorer: Scorer | None = None) -> Work:
        return Work(self, self.store(), scorer or self.load())


class Work:
    """Processes groups of items; keeps the scorer loaded, but no video open between groups."""

    def __init__(self, job: BatchJob, store: ManagedStore, scorer: Scorer | None) -> None:
        self.job = job
        self.store = store
        self.scorer = scorer
        self._session = Session(
            scorer, store=store, progress=False, keep_features=job.keep_features, scoring=job.scoring
        )
        searchable = isinstance(scorer, Searchable)
        self._searcher = Searcher(self._session, library=job.library) if searchable else None

    def __call__(
        self, group: Group, progress: Progress = lambda *_: None, done: Callable[[], None] = lambda: None
    ) -> list[ItemOutcome]:
        """The outcome of each item; raises only errors that no video caused.

        done: the heartbeat, called after each item.
        """
        self._session.progress = progress
        outcomes = []
        try:
            for item in group:
                outcomes.append(self._outcome(item))
                done()
            return outcomes
        finally:
            self._session.forget()

    def _outcome(self, item: WorkItem) -> ItemOutcome:
        began = time.monotonic()
        try:
            with warnings.catch_warnings(record=True) as caught:
                for category in (CacheWarning, ScorerWarning):
                    warnings.simplefilter("always", category)
                self._session.features_limit.since = self.job.began if item.target is None else None
                if item.target is None:  # an index that is not stored is not finished
                    warnings.simplefilter("error", UnwritableCache)
                decoder = open_video(
                    item.video,
                    **vars(item.request.opening),
                    store=self.store,
                    progress=self._session.progress,
                )
                work = self._index if item.target is None else self._rank
                status, text = work(item, decoder)
                finish_writes()
        except UnwritableCache as error:
            full = not isinstance(self.store, RemoteStore)  # at a URL, the next write may succeed
            return failed(item, StoreError.__name__, str(error), stops=full)
        except WorkerLost as lost:  # a remote scorer crashed on this video's frames
            return failed(item, lost.kind, f"{item.video}: {lost}")
        except FramenestError as error:
            return failed(item, type(error).__name__, str(error))
        except Cancelled:
            raise
        except MemoryError:
            return failed(item, MemoryError.__name__, f"{item.video}: not enough memory for this video")
        except Exception as error:  # a bug here or in a library must not stop the run
            return failed(item, type(error).__name__, f"{item.video}: {error_line(error)}")
        ours = [w for w in caught if issubclass(w.category, (CacheWarning, ScorerWarning))]
        warned = dict.fromkeys(str(warning.message) for warning in ours)
        transcript = self._session.transcript(decoder)
        of_video = (*decoder.info.notes, *(transcript.notes if transcript else ()))
        notes = (*warned, *(f"{item.video}: {note}" for note in of_video))
        return ItemOutcome(item, status, time.monotonic() - began, decoder.info.duration, text, notes=notes)

    def _index(self, item: WorkItem, decoder: Decoder) -> tuple[str, str]:
        """An index is finished if its checkpoint, all entries named there and its vectors exist."""
        config = item.request.config.index
        keys = [index_key(decoder, config), features_key(decoder, self.scorer, config.thumbnail)]
        listener = self._session.recognizer
        checkpoint = f"finished/{digest(keys, *([listener.name] if listener else []))}"
        saved = self.store.get(checkpoint)
        finished = saved is not None and all(self.store.has(key) for key in saved[0]["keys"])
        if saved and finished and (self._searcher is None or self._searcher.pictures.has(keys[0])):
            return "already", str(saved[0]["text"])
        index = MEC(item.request.config, session=self._session).index(decoder)
        if self._searcher is not None:
            self._searcher.store_vectors(decoder, index)
        lost = f", {len(index.substitutes)} undecodable" if len(index.substitutes) else ""
        text = (
            f"{len(index)} probes over {clock(index.video.duration)}, "
            f"at most {index.largest_gap:.2f} s apart{lost}; "
            f"timeline from {index.video.timeline_bytes / 2**20:.1f} MiB"
        )
        transcript = self._session.transcript(decoder)
        if transcript is not None and transcript.lines:
            text += f"; {len(transcript.lines):,} lines of {transcript.source}"
        missing = [key for key in keys if not self.store.has(key)]
        if missing:
            raise StoreError(f"{decoder.info.path}: {missing[0]} was not stored")
        every = (features_key(decoder, self.scorer, config.thumbnail, part) for part in count())
        parts = [*takewhile(self.store.has, every)]
        if listener is None or (transcript and transcript.source):  # or the next run listens again
            self.store.put(checkpoint, {"keys": [keys[0], *parts], "text": text}, {})
        return "done", text

    def _rank(self, item: WorkItem, decoder: Decoder) -> tuple[str, str]:
        """A ranking is finished if its file matches this video, question, scorer and configuration."""
        request, target = item.request, Path(str(item.target))
        mec = MEC(request.config, session=self._session)
        if target.exists():
            try:
                earlier = Ranking.load(target)
            except FramenestError:
                earlier = None  # of another version
            if (
                earlier is not None
                and (earlier.question, earlier.options, earlier.config)
                == (request.question, request.options, request.config)
                and earlier.video.fingerprint == decoder.info.fingerprint
                and earlier.scorer == mec.scoring_name(decoder, request.question)
            ):
                return "already", target.name
        text = rank_request(request, self._session, decoder).dumps()
        write_atomic(target, text.encode(errors="surrogatepass"), follow=False)
        return "done", target.name


STORE_FAILURES = 10  # consecutive failures of the store after which the run stops


@dataclass
class RunReport:
    """Counts outcomes and appends failures to a JSON lines file: video, question (of a ranking), error (its
    class) and message (one line). Times are monotonic.
    """

    failures: Path
    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)  # why each video failed, by video
    stopped: str = ""  # why the run must stop; empty while it may continue
    _store_failures: int = 0
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        try:
            self.failures.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"{self.failures}: cannot be written ({error.strerror})") from error

    def add(self, outcome: ItemOutcome) -> None:
        self.counts[outcome.status] += 1
        if outcome.status == "failed":
            self.errors[outcome.error] += 1
            item = outcome.item
            self.failed[item.video] = outcome.text
            question = {"question": item.request.question} if item.target is not None else {}
            line = {"video": item.video, **question, "error": outcome.error, "message": outcome.text}
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
    def seconds(self) -> float:
        """Since the run began."""
        return time.monotonic() - self._began
