"""The job queue, durable in SQLite."""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from framenest.errors import StoreError
from framenest.server.guard import Refusal

JOURNAL_FORMAT = 2
_TABLES = """
create table if not exists videos (
    id text primary key, path text not null, name text not null, origin text not null,
    stat text not null, info text, created real not null);
create table if not exists rankings (
    id text primary key, video text not null, request text not null, created real not null,
    ranking blob);
create table if not exists jobs (
    id text primary key, number integer not null, kind text not null, target text not null,
    request text not null, video text not null, question text, state text not null, error text,
    attempts integer not null, stage text, done integer not null, total integer not null,
    created real not null, started real, finished real);
create table if not exists remembered (number integer primary key, key text unique, value text not null);
create index if not exists jobs_by_target on jobs (target);
create index if not exists rankings_by_video on rankings (video);
"""
_ONLY_ONE = """
pragma locking_mode = exclusive; pragma journal_mode = wal; pragma synchronous = normal;
begin exclusive; commit;
"""


class Journal:
    """A connection and its lock. Only one server at a time may hold a journal."""

    def __init__(self, path: Path) -> None:
        self.lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, check_same_thread=False, timeout=1, isolation_level=None)
            self._db.row_factory = sqlite3.Row
            self._db.executescript(_ONLY_ONE)
            format_ = self._db.execute("pragma user_version").fetchone()[0]
        except (OSError, sqlite3.Error) as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise StoreError(f"{path.parent}: another framenest server uses this folder") from error
            raise StoreError(f"{path}: cannot be opened ({error})") from error
        if format_ not in (0, JOURNAL_FORMAT):
            raise StoreError(f"{path}: written by another version of Framenest (format {format_})")
        self._db.executescript(_TABLES + f"pragma user_version = {JOURNAL_FORMAT};")

    def execute(self, statement: str, values: Iterable[Any] = ()) -> list[sqlite3.Row]:
        """Run one statement; the rows it returns."""
        with self.lock:
            try:
                return self._db.execute(statement, tuple(values)).fetchall()
            except sqlite3.Error as error:
                raise StoreError(f"the server's journal cannot be used ({error})") from error

    def row(self, statement: str, values: Iterable[Any] = ()) -> sqlite3.Row | None:
        """The first row of a query; None if there is none."""
        return next(iter(self.execute(statement, values)), None)

    def recall(self, key: str) -> Any:
        """The value remembered under a key; None if there is none."""
        row = self.row("select value from remembered where key = ?", [key])
        return json.loads(row["value"]) if row else None

    def remember(self, key: str, value: Any) -> None:
        """Remember a value under a key, and forget the oldest ones."""
        self.execute("insert or replace into remembered (key, value) values (?, ?)", [key, json.dumps(value)])
        oldest = "delete from remembered where number <= (select max(number) from remembered) - ?"
        self.execute(oldest, [MAX_REMEMBERED])

    def close(self) -> None:
        """Close it, so that another server may open it."""
        with self.lock:
            self._db.close()


ACTIVE = ("queued", "running")
MAX_ATTEMPTS = 3  # a job that crashes the server must not do so forever
MAX_REMEMBERED = 10_000  # finished jobs; values of a Journal
QUEUE_RETRY_SECONDS = 5  # if the queue is full
JobKind = Literal["index", "rank", "search"]


class Job(BaseModel):
    """One piece of work and its progress; clients do not see excluded fields.

    `target` says what it makes; two active jobs never have the same target.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    id: str
    number: int = Field(exclude=True)
    kind: JobKind
    target: str
    request: dict[str, Any] = Field(exclude=True)
    video: str = Field(default="", description="Id of the video; empty for a search.")
    question: str | None = Field(
        default=None, description="Of a ranking, null once its video was removed; the query of a search."
    )
    state: Literal["queued", "running", "done", "failed", "cancelled"] = "queued"
    error: str | None = None
    attempts: int = Field(default=0, exclude=True)
    created: float = Field(default_factory=time.time, description="Seconds since 1970, as all times here.")
    started: float | None = None
    finished: float | None = None
    stage: str | None = Field(default=None, description="What it is doing: probes, zoom, …")
    done: int = 0
    total: int = Field(default=0, description="Of the stage; 0 before it is known.")
    waits_for: str | None = Field(default=None, description="Id of the job that indexes its video first.")
    wanted: int = Field(default=1, exclude=True, description="How many asked for it and have not left.")
    cancelled: threading.Event = Field(default_factory=threading.Event, exclude=True, repr=False)
    over: Future[None] = Field(default_factory=Future, exclude=True, repr=False)
    """Completed when the job ends, however it ends."""

    @property
    def active(self) -> bool:
        """Whether it waits or runs."""
        return self.state in ACTIVE


_COLUMNS = [name for name in Job.model_fields if name not in ("waits_for", "wanted", "cancelled", "over")]


class Jobs:
    """The queue. Active jobs are in memory and in the journal, finished ones in the journal only."""

    def __init__(
        self, journal: Journal, limit: int, count: Callable[[str, str], None] = lambda *_: None
    ) -> None:
        self._journal = journal
        self._limit = limit
        self._count = count
        self._active: dict[str, Job] = {}
        self._ready = threading.Condition(journal.lock)
        self._closed = False
        for row in journal.execute("select * from jobs where state in ('queued', 'running') order by number"):
            job = _from_row(row)
            job.attempts += job.state == "running"
            job.state, job.started = "queued", None
            self._active[job.id] = job
            if job.attempts >= MAX_ATTEMPTS:
                self.finish(job, f"given up: the server stopped {MAX_ATTEMPTS} times while at it")
            else:
                self._save(job)

    def submit(self, kind: JobKind, target: str, request: dict[str, Any]) -> Job:
        """The job that makes `target`: the active one if there is one, else a new one in the queue."""
        with self._ready:
            shared = self.active(target)
            if shared is not None:
                shared.wanted += 1
                return shared
            self.check_room()
            ((number,),) = self._journal.execute("select coalesce(max(number), 0) + 1 from jobs")
            job = Job(id=secrets.token_hex(8), number=number, kind=kind, target=target, request=request)
            job.video, job.question = request.get("video", ""), request.get("question")
            self._save(job)
            self._active[job.id] = job
            self._ready.notify()
            return job

    def check_room(self) -> None:
        """Refuse if the queue is full; also called before a video is accepted."""
        waiting = self.counts()["queued"]
        if waiting >= self._limit:
            raise Refusal(429, f"{waiting} jobs are waiting already; try again later", QUEUE_RETRY_SECONDS)

    def take(self) -> Job | None:
        """The next job, marked as running; waits for one. None when the queue is closed."""
        with self._ready:
            while not self._closed:  # searches go first: someone waits for them, and they are short
                for job in sorted(self._active.values(), key=lambda job: job.kind != "search"):
                    if job.state == "queued" and self.waits_for(job) is None:
                        self._change(job, started=time.time(), state="running")
                        return job
                self._ready.wait()
            return None

    def waits_for(self, job: Job) -> str | None:
        """The id of the job that must end before this one may begin: the index of its video."""
        if job.state != "queued" or job.kind == "index":
            return None
        return next((j.id for j in self.waiting_or_running(job.video) if j.kind == "index"), None)

    def view(self, job: Job) -> Job:
        """A job as clients see it."""
        return job.model_copy(update={"waits_for": self.waits_for(job)})

    def finish(self, job: Job, error: str | None = None, *, cancelled: bool = False) -> None:
        """Mark a job as done, failed or cancelled; does nothing if it is already over."""
        with self._ready:
            if not job.active:
                return
            old = "delete from jobs where state not in ('queued', 'running') and number <= ?"
            self._journal.execute(old, [job.number - MAX_REMEMBERED])
            state = "cancelled" if cancelled else "failed" if error else "done"
            self._change(job, error=error, finished=time.time(), state=state)
            self._active.pop(job.id, None)
            self._ready.notify_all()  # what waited for this one may begin
        job.over.set_result(None)
        self._count(job.kind, job.state)

    def cancel(self, id_: str) -> Job:
        """Stop a job for everyone who waits for it. It is over at once; its worker stops soon after."""
        with self._ready:
            job = self.get(id_)
            if not job.active:
                raise Refusal(409, f"this job is over ({job.state})")
            job.cancelled.set()
            self.finish(job, cancelled=True)
            return job

    def leave(self, job: Job) -> None:
        """One of those who asked for a job no longer waits for it; if nobody is left, it is cancelled."""
        with self._ready:
            job.wanted -= 1
            if job.active and not job.wanted:
                self.cancel(job.id)

    def get(self, id_: str) -> Job:
        """A job by its id, active or finished."""
        if (job := self._active.get(id_)) is not None:
            return job
        row = self._journal.row("select * from jobs where id = ?", [id_])
        if row is None:
            raise Refusal(404, "no such job")
        return _from_row(row)

    def active(self, target: str) -> Job | None:
        """The job that waits or runs for a target."""
        with self._ready:
            return next((job for job in self._active.values() if job.target == target), None)

    def forget(self, video: str) -> None:
        """Cancel the jobs of a video that is removed, and forget the questions of all."""
        with self._ready:
            for job in self.waiting_or_running(video):
                self.cancel(job.id)
            statement = "update jobs set request = '{}', question = null where video = ?"
            self._journal.execute(statement, [video])

    def latest(self, target: str) -> Job | None:
        """The job that last made, or tried to make, a target."""
        row = self._journal.row("select * from jobs where target = ? order by number desc", [target])
        return self.active(target) or (_from_row(row) if row else None)

    def waiting_or_running(self, video: str | None = None) -> list[Job]:
        """Oldest first; of one video or all."""
        with self._ready:
            return [job for job in self._active.values() if video in (None, job.video)]

    def recent(self, count: int) -> list[Job]:
        """Newest first."""
        rows = self._journal.execute("select * from jobs order by number desc limit ?", [count])
        return [self._active.get(row["id"]) or _from_row(row) for row in rows]

    def counts(self) -> dict[str, int]:
        """How many jobs wait and run, by state."""
        states: list[str] = [job.state for job in self.waiting_or_running()]
        return {state: states.count(state) for state in ACTIVE}

    def close(self) -> None:
        """Wake up everyone who waits for a job. Active jobs run again after the next start."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()
            for job in self._active.values():
                self._change(job, started=None, state="queued")

    def _change(self, job: Job, **new: Any) -> None:
        """Write first: if the journal fails, the job stays as it was, and the change can be retried."""
        self._save(job.model_copy(update=new))
        for name, value in new.items():
            setattr(job, name, value)

    def _save(self, job: Job) -> None:
        values = [getattr(job, name) for name in _COLUMNS]
        values[_COLUMNS.index("request")] = json.dumps(job.request)
        marks = ", ".join("?" * len(values))
        self._journal.execute(f"insert or replace into jobs ({', '.join(_COLUMNS)}) values ({marks})", values)


def _from_row(row: Any) -> Job:
    return Job(**dict(row) | {"request": json.loads(row["request"])})
