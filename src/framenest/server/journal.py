"""Journal: the SQLite database of videos, rankings and jobs, which outlives a restart."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from framenest.errors import StoreError

JOURNAL_FORMAT = 1
_TABLES = """
create table if not exists videos (
    id text primary key, path text not null, name text not null, origin text not null,
    stat text not null, info text, created real not null);
create table if not exists rankings (
    id text primary key, video text not null, request text not null, created real not null);
create table if not exists jobs (
    id text primary key, number integer not null, kind text not null, target text not null,
    request text not null, state text not null, error text, attempts integer not null,
    stage text, done integer not null, total integer not null,
    created real not null, started real, finished real);
create index if not exists jobs_by_target on jobs (target);
create index if not exists rankings_by_video on rankings (video);
"""


class Journal:
    """A connection and its lock. Only one server at a time may hold a journal."""

    def __init__(self, path: Path) -> None:
        self.lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, check_same_thread=False, timeout=1, isolation_level=None)
            self._db.row_factory = sqlite3.Row
            self._db.execute("pragma locking_mode = exclusive")
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = normal")
            self._db.execute("begin exclusive")
            self._db.execute("commit")
            format_ = self._db.execute("pragma user_version").fetchone()[0]
        except (OSError, sqlite3.Error) as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise StoreError(f"{path.parent}: another framenest server uses this folder") from error
            raise StoreError(f"{path}: cannot be opened ({error})") from error
        if format_ not in (0, JOURNAL_FORMAT):
            raise StoreError(f"{path}: written by another version of Framenest (format {format_})")
        self._db.executescript(_TABLES + f"pragma user_version = {JOURNAL_FORMAT};")

    def write(self, statement: str, values: Iterable[Any] = ()) -> int:
        """Run one statement; returns how many rows it changed."""
        return self._execute(statement, values)[0]

    def rows(self, statement: str, values: Iterable[Any] = ()) -> list[sqlite3.Row]:
        """All rows of a query."""
        return self._execute(statement, values)[1]

    def row(self, statement: str, values: Iterable[Any] = ()) -> sqlite3.Row | None:
        """The first row of a query."""
        return next(iter(self.rows(statement, values)), None)

    def _execute(self, statement: str, values: Iterable[Any]) -> tuple[int, list[sqlite3.Row]]:
        with self.lock:
            try:
                cursor = self._db.execute(statement, tuple(values))
                return cursor.rowcount, cursor.fetchall()
            except sqlite3.Error as error:
                raise StoreError(f"the server's journal cannot be used ({error})") from error

    def close(self) -> None:
        """Let another server have it."""
        with self.lock:
            self._db.close()
