"""Rankings: what was asked, where the answers lie, and prefixes of them as JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from framenest.method.ranking import Ranking
from framenest.server.jobs import Job, Jobs
from framenest.server.journal import Journal
from framenest.server.kept import Kept
from framenest.server.refusals import Busy, NotReady, Unknown, Unusable

LOADED, PREFIXES = 64, 1024  # kept in memory


class Rankings:
    """Ranking files of a folder by id, with what each was asked with."""

    def __init__(self, folder: Path, journal: Journal, jobs: Jobs) -> None:
        self._folder = folder
        self._journal = journal
        self._jobs = jobs
        self._loaded: Kept[str, Ranking] = Kept(LOADED)
        self._prefixes: Kept[tuple[str, int, int], bytes] = Kept(PREFIXES)

    def ask(self, id_: str, request: dict[str, Any]) -> Job | None:
        """The job that makes a ranking; None where it is there."""
        new = self._journal.write(
            "insert or ignore into rankings values (?, ?, ?, ?)",
            [id_, request["video"], json.dumps(request), time.time()],
        )
        if self.has(id_):
            return None
        try:
            return self._jobs.submit("rank", id_, request)
        except Busy:
            if new:
                self._journal.write("delete from rankings where id = ?", [id_])
            raise

    def path(self, id_: str) -> Path:
        return self._folder / f"{id_}.json"

    def has(self, id_: str) -> bool:
        return self._loaded.get(id_) is not None or self.path(id_).is_file()

    def get(self, id_: str) -> Ranking:
        """A ranking that is there; what is in the way otherwise."""
        known = self._loaded.get(id_)
        if known is not None:
            return known
        self.request(id_)
        if not self.has(id_):
            job = self._jobs.latest(id_)
            why = "this ranking is being made" if job and job.active else "this ranking was not made"
            told = f": {job.error}" if job and job.error else f"; see /jobs/{job.id}" if job else ""
            raise NotReady(why + told)
        return self._loaded.setdefault(id_, Ranking.load(self.path(id_)))

    def request(self, id_: str) -> dict[str, Any]:
        """What a ranking was asked with."""
        row = self._journal.row("select request from rankings where id = ?", [id_])
        if row is None:
            raise Unknown("no such ranking")
        request: dict[str, Any] = json.loads(row["request"])
        return request

    def all(self, video: str | None) -> list[dict[str, Any]]:
        """Rankings asked for, newest first, of one video or all."""
        where = "" if video is None else "where video = ?"
        values = [] if video is None else [video]
        rows = self._journal.rows(f"select * from rankings {where} order by created desc limit 1000", values)
        return [
            {"id": row["id"], "created": row["created"], "ready": self.has(row["id"])}
            | json.loads(row["request"])
            for row in rows
        ]

    def remove(self, id_: str) -> None:
        self._loaded.drop(id_)
        for key in self._prefixes.keys_now():
            if key[0] == id_:
                self._prefixes.drop(key)
        self.path(id_).unlink(missing_ok=True)

    def ready_prefix(self, id_: str, k: int, after: int) -> bytes | None:
        """A prefix that was asked for lately."""
        return self._prefixes.get((id_, k, after))

    def prefix(self, id_: str, k: int, after: int) -> bytes:
        """PrefixOut of ranks after + 1 … k, in time order, as JSON."""
        if after >= k:
            raise Unusable(f"after={after} leaves nothing of k={k}; after must be less than k")
        chosen = self.get(id_).prefix(k)
        assert chosen.ranks is not None
        video = self.request(id_)["video"]
        rows = zip(chosen.frames.tolist(), chosen.seconds.tolist(), chosen.ranks.tolist(), strict=True)
        frames = [
            {"frame": frame, "seconds": seconds, "rank": rank, "image": f"/videos/{video}/frames/{frame}"}
            for frame, seconds, rank in rows
            if rank > after
        ]
        body = {"ranking": id_, "k": k, "after": after, "complete": chosen.complete, "frames": frames}
        return self._prefixes.setdefault((id_, k, after), json.dumps(body, separators=(",", ":")).encode())
