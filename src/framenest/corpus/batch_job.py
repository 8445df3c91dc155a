"""BatchJob: the work on each video, in a local worker process or on a cluster."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path

from framenest.cache.directory import DirectoryStore, ManagedStore, UnwritableCache, local_directory
from framenest.cache.files import write_atomic
from framenest.cache.hashes import digest
from framenest.cache.remote import RemoteStore
from framenest.config import MECConfig, ScorerConfig
from framenest.errors import CacheWarning, FramenestError, ScorerWarning, StoreError, error_line
from framenest.method.index import index_key
from framenest.method.mec import MEC
from framenest.method.ranking import Ranking
from framenest.processes import Cancelled, WorkerLost
from framenest.protocols import Decoder, Progress, Scorer, Searchable
from framenest.retrieval.search import Searcher
from framenest.scorers import load_scorer, wait_until_loaded
from framenest.scorers.feature_store import features_key, finish_writes
from framenest.session import Session
from framenest.text import clock, one_line
from framenest.video.opening import open_video


@dataclass(frozen=True)
class WorkItem:
    """Index a video, or with a `target` rank it for a question and write the ranking to that file."""

    video: str
    question: str | None = None
    target: str | None = None
    options: tuple[str, ...] = ()  # answers to choose from


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
    """The settings that all items of a batch share; small, picklable.

    scorer: a name, or None to index without features. root: the cache directory. url: where machines share
    entries; None if `root` holds them.
    """

    config: MECConfig = field(default_factory=MECConfig)
    scorer: str | None = None
    root: str | None = None
    url: str | None = None
    fps: float | None = None
    stream: int | None = None
    decoder: str = "pyav"
    allow_playlists: bool = False
    keep_features: bool | None = True
    scoring: ScorerConfig = field(default_factory=ScorerConfig)
    library: str | None = None  # URI of a library for the vectors; None if the cache holds them
    began: float = field(default_factory=time.time)  # when the run began, in seconds since the epoch

    def store(self) -> ManagedStore:
        """The store of the results."""
        return RemoteStore(self.url) if self.url else DirectoryStore(self.root)

    def open(self, scorer: Scorer | None = None) -> Work:
        """Load the scorer, unless one is given."""
        store = self.store()
        if scorer is None and self.scorer is not None:
            scorer = load_scorer(self.scorer, local_directory(store), self.scoring)
            wait_until_loaded(scorer)
        return Work(self, store, scorer)


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
        self,
        group: Group,
        progress: Progress = lambda *_: None,
        done: Callable[[], None] = lambda: None,
    ) -> list[ItemOutcome]:
        """The outcome of each item; raises only errors that no video caused.

        done: the heartbeat, called after each item.
        """
        self._session.progress = progress
        mec = MEC(self.job.config, session=self._session)
        outcomes = []
        try:
            for item in group:
                outcomes.append(self._outcome(mec, item))
                done()
            return outcomes
        finally:
            self._session.forget()

    def _outcome(self, mec: MEC, item: WorkItem) -> ItemOutcome:
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
                    fps=self.job.fps,
                    stream=self.job.stream,
                    decoder=self.job.decoder,
                    allow_playlists=self.job.allow_playlists,
                    store=self.store,
                    progress=self._session.progress,
                )
                status, text = self._index(mec, decoder) if item.target is None else _rank(mec, decoder, item)
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
        said = self._session.transcript(decoder)
        of_video = (*decoder.info.notes, *(said.notes if said else ()))
        notes = (*warned, *(f"{item.video}: {note}" for note in of_video))
        return ItemOutcome(item, status, time.monotonic() - began, decoder.info.duration, text, notes=notes)

    def _index(self, mec: MEC, decoder: Decoder) -> tuple[str, str]:
        """An index is finished if its checkpoint, all entries named there and its vectors exist."""
        config = self.job.config.index
        keys = [index_key(decoder, config), features_key(decoder, self.scorer, config.thumbnail)]
        checkpoint = f"finished/{digest(keys)}"
        kept = self.store.get(checkpoint)
        finished = kept is not None and all(self.store.has(key) for key in kept[0]["keys"])
        if kept and finished and (self._searcher is None or self._searcher.pictures.has(keys[0])):
            return "already", str(kept[0]["text"])
        index = mec.index(decoder)
        if self._searcher is not None:
            self._searcher.store_vectors(decoder, index)
        lost = f", {len(index.substitutes)} undecodable" if len(index.substitutes) else ""
        text = (
            f"{len(index)} probes over {clock(index.video.duration)}, "
            f"at most {index.largest_gap:.2f} s apart{lost}; "
            f"timeline from {index.video.timeline_bytes / 2**20:.1f} MiB"
        )
        said = self._session.transcript(decoder)
        text += f"; {len(said.lines):,} lines of {said.source}" if said is not None and said.lines else ""
        missing = [key for key in keys if not self.store.has(key)]
        if missing:
            raise StoreError(f"{decoder.info.path}: {missing[0]} was not stored")
        every = (features_key(decoder, self.scorer, config.thumbnail, part) for part in count())
        parts = [*takewhile(self.store.has, every)]
        self.store.put(checkpoint, {"keys": [keys[0], *parts], "text": text}, {})
        return "done", text


def _rank(mec: MEC, decoder: Decoder, item: WorkItem) -> tuple[str, str]:
    """A ranking is finished if its file matches this video, question, scorer and configuration."""
    target = Path(str(item.target))
    if target.exists():
        try:
            known = Ranking.load(target)
        except FramenestError:
            known = None  # of another version
        asked = (item.question, tuple(item.options), mec.config)
        if (
            known is not None
            and (known.question, known.options, known.config) == asked
            and known.video.fingerprint == decoder.info.fingerprint
            and known.scorer == mec.scoring_name(decoder, item.question)
        ):
            return "already", target.name
    text = mec.rank(decoder, item.question, options=item.options).dumps()
    write_atomic(target, text.encode(errors="surrogatepass"), follow=False)
    return "done", target.name
