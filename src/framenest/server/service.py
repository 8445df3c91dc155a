"""Service: everything the routes and the tools of agents call."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from framenest.cache.hashes import digest
from framenest.config import MECConfig, VideoConfig
from framenest.errors import FramenestError, ModelError, StoreError
from framenest.lmm.client import Answer, Client
from framenest.lmm.prompt import CITE
from framenest.method.ranking import RANKING_FORMAT
from framenest.processes import Cancelled, ProcessLimits, memory_share
from framenest.rank_request import RankRequest
from framenest.records import convert
from framenest.retrieval.search import Moments, check_query
from framenest.server.guard import ConcurrencyLimit, Metrics, Refusal
from framenest.server.jobs import Job, Jobs, Journal
from framenest.server.library import Library, LibraryVideo, file_state
from framenest.server.rankings import FrameImages, Rankings
from framenest.server.server_settings import ServerSettings
from framenest.server.video_worker import VideoWorker
from framenest.transcript import NONE, transcript_files

ANSWER_SECONDS = 120.0
ANSWERS_AT_ONCE = 4
PICTURE_SECONDS = 120.0  # for one batch of pictures, or the messages for one model
NOT_INDEXED = "not indexed yet"
RETRY_SECONDS = 1.0  # until a journal that failed is tried again
Result = TypeVar("Result")
log = logging.getLogger("framenest.server")


class Service:
    """`start` loads the scorer and runs jobs. Jobs that `close` interrupts run again after the next start."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        try:  # only this user may read the videos and questions
            settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            settings.uploads.mkdir(exist_ok=True)
        except OSError as error:
            raise StoreError(f"{settings.data}: cannot be written ({error.strerror})") from error
        self.journal = Journal(settings.data / "journal.sqlite")
        self.metrics = Metrics()
        self.library = Library(self.journal, settings)
        self.jobs = Jobs(self.journal, settings.queue, self.metrics.job)
        self.rankings = Rankings(self.journal, self.jobs)
        share = memory_share(settings.workers + 1)  # the picture worker is one more
        limits = ProcessLimits(settings.max_job, share)
        self.workers = [VideoWorker(settings, limits) for _ in range(settings.workers)]
        self.picture_worker = VideoWorker(settings, ProcessLimits(PICTURE_SECONDS, share))
        self.pictures = FrameImages(self.picture_worker)
        url, model = settings.upstream, settings.answer_model
        self._model = Client(url, model, timeout=ANSWER_SECONDS, retries=1) if url and model else None
        busy = f"{ANSWERS_AT_ONCE} questions are being answered already"
        self._answering = ConcurrencyLimit(ANSWERS_AT_ONCE, busy, 10)
        self.default = RankRequest(
            video="",
            preset=settings.preset,
            config=MECConfig.preset(settings.preset),
            scorer=settings.scorer,
            scoring=settings.scoring,
            opening=VideoConfig(decoder=settings.decoder),
        )
        """What a client that says nothing else asks for."""
        self.scorer = ""
        self._packing = ConcurrencyLimit(2, "too many messages are being made at once", 5, wait=10)
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()

    def start(self) -> None:
        """Load the scorer and begin to work on jobs."""
        self.scorer = self.workers[0].call("scorer")
        for worker in self.workers:
            thread = threading.Thread(target=self._run, args=(worker,), name="framenest-jobs", daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Stop all work and end all processes."""
        self._closing.set()
        with suppress(StoreError):  # those who cannot be put back count as failed attempts
            self.jobs.close()
        for worker in (*self.workers, self.picture_worker):
            worker.close()
        if self._model is not None:
            self._model.close()
        for thread in self._threads:
            thread.join()
        self.journal.close()

    def index(self, video: LibraryVideo) -> Job | None:
        """The job that indexes a video; None if that is done."""
        if video.info is not None:
            return None
        return self.jobs.submit("index", f"index:{video.id}", {"video": video.id})

    def state(self, video: LibraryVideo) -> tuple[str, str | None]:
        """The state of a video as clients see it, and why indexing failed."""
        try:
            video.check()
        except Refusal:
            return "gone", None
        if video.info is not None:
            return "ready", None
        active = self.jobs.waiting_or_running(video.id)  # a question indexes its video if nothing else does
        if active:
            return ("indexing" if any(job.state == "running" for job in active) else "queued"), None
        last = self.jobs.latest(f"index:{video.id}")
        return ("failed", last.error) if last and last.state == "failed" else ("new", None)

    def ask(self, request: RankRequest) -> tuple[str, Job | None]:
        """The id of a ranking of a registered video, and the job that makes it; None if it is made."""
        video = self.library.get(request.video)
        video.check()
        subtitles = []
        for file in transcript_files(str(video.path), request.scoring.subtitles or NONE):
            with suppress(OSError):  # it has just gone
                subtitles.append([str(file), *file_state(file)])
        id_ = digest(request.identity(), self.scorer, subtitles, RANKING_FORMAT)[:24]
        with self.journal.lock:  # the video must not be removed in between
            self.library.get(video.id)
            job = self.rankings.ask(id_, request)
            self.metrics.shared.inc(job is None or job.wanted > 1)
            return id_, job

    def search(self, query: str, n: int) -> tuple[str, Job]:
        """The id of a search of all indexed videos, and the job that runs it. n: moments at most."""
        check_query(query)
        ready, left_out, registered = list[str](), list[dict[str, str]](), set[str]()
        for video in self.library.all():
            state, error = self.state(video)
            if state == "ready":
                ready.append(video.id)
            else:
                why = "file changed or missing" if state == "gone" else error or NOT_INDEXED
                left_out.append({"name": video.name, "video": video.id, "why": why})
            if video.origin == "folder" and state != "gone":
                registered.add(video.name)
        paths = {file["path"] for file in self.library.files()["files"]}
        left_out += [{"name": path, "why": NOT_INDEXED} for path in sorted(paths - registered)]
        if not ready:
            raise Refusal(409, "no video is indexed yet" if left_out else "there are no videos to search")
        id_ = digest(query, n, sorted(ready))[:24]
        search = {"id": id_, "query": query, "n": n, "created": time.time(), "videos": ready, "moments": []}
        search["summary"] = Moments(query, [], n, None).summary
        with self.journal.lock:
            new = self.jobs.active(id_) is None
            job = self.jobs.submit("search", id_, {"question": query})
            if new:
                self.journal.remember(f"search:{id_}", search | {"left_out": left_out})
            return id_, job

    def search_state(self, id_: str) -> dict[str, Any]:
        """A search with the best moments so far, as SearchOut shows it; `videos` are the ids it searches."""
        search: dict[str, Any] | None = self.journal.recall(f"search:{id_}")
        if search is None:
            raise Refusal(404, "no such search")
        job = self.jobs.latest(id_)
        return search | {"searched": len(search["videos"]), "job": job and self.jobs.view(job)}

    def video_of(self, ranking: str) -> LibraryVideo:
        """The video that a ranking is of."""
        return self.library.get(self.rankings.row(ranking)["video"])

    def packed(self, task: str, ranking: str, k: int, *how: Any) -> Any:
        """The question of a ranking and its first k frames for a model; few at once, as they take memory.

        task: "request" for a Request, "messages" for its JSON text. how: style, max_side and instructions.
        """
        loaded = self.rankings.get(ranking)
        loaded.prefix(k)
        self.video_of(ranking).check()
        spoken = self.settings.transcript_tokens if self.settings.with_transcript else 0
        with self._packing():
            return self.picture_worker.call(task, loaded, k, spoken, *how)

    def answer(self, ranking: str, k: int, max_side: int, *, cite: bool) -> tuple[int, Answer]:
        """How many frames the configured model was shown, at most k, and what it answers."""
        if self._model is None:
            raise Refusal(404, "this server has no model to answer; it was started without --answer-model")
        while True:
            most = self._model.most_images
            k = min(k, most or k)
            request = self.packed("request", ranking, k, "openai", max_side, [CITE] if cite else [])
            try:
                with self._answering():
                    return k, self._model.answer(request)
            except ModelError:
                if self._model.most_images == most:
                    raise

    def remove(self, video: LibraryVideo) -> None:
        """Forget a video and all that was made of it here; what is being made of it is cancelled."""
        with self.journal.lock:
            self.jobs.forget(video.id)
            forget = "delete from remembered where key like 'search:%' and instr(value, ?)"
            self.journal.execute(forget, [video.id])
            self.library.remove(video)

    def _run(self, worker: VideoWorker) -> None:
        while (job := self._retry(self.jobs.take)) is not None:
            why = None
            try:
                self._do(worker, job)
            except Cancelled:
                if not job.cancelled.is_set():  # the server is closing
                    return
            except FramenestError as error:
                why = self.without_paths(str(error))
            except Exception as error:
                log.exception("job %s", job.id)
                why = f"unexpected {type(error).__name__}"
            self._retry(partial(self.jobs.finish, job, why, cancelled=job.cancelled.is_set()))
            log.info("job %s %s %s", job.id, job.kind, job.state)

    def _retry(self, step: Callable[[], Result]) -> Result | None:
        """Run a step, again while the journal fails, and return its result; None if the server is closing."""
        while True:
            try:
                return step()
            except StoreError as error:
                log.error("%s", error)
                if self._closing.wait(RETRY_SECONDS):
                    return None

    def _do(self, worker: VideoWorker, job: Job) -> None:
        def progress(stage: str, done: int, total: int) -> None:
            job.stage, job.done, job.total = stage, done, total

        if job.kind == "search":
            self._search(worker, job, progress)
            return
        video = self.library.get(job.video)
        path = str(video.check())
        call = partial(worker.call, progress=progress, cancelled=job.cancelled.is_set)
        if job.kind == "rank":
            info, ranking = call("rank", replace(convert(job.request, RankRequest), video=path))
            self.rankings.store(job.target, ranking)
        else:
            info = call("index", path)
        if video.info is None:
            self.library.indexed(video.id, info)

    def _search(self, worker: VideoWorker, job: Job, progress: Callable[[str, int, int], None]) -> None:
        search = self.journal.recall(f"search:{job.target}")
        if search is None:  # one of its videos was removed
            raise Refusal(404, "no such search")
        videos: dict[str, LibraryVideo] = {}
        for id_ in search["videos"]:
            with suppress(Refusal):  # it has just gone
                video = self.library.get(id_)
                videos[str(video.check())] = video

        def keep() -> None:  # unless one of its videos was removed
            values = json.dumps(search), f"search:{job.target}"
            self.journal.execute("update remembered set value = ? where key = ?", values)

        def report(stage: str, *values: Any) -> None:
            if stage == "moments":
                search.update(values[0], moments=[])
                for row in values[0]["moments"]:
                    video = videos[row["video"]]
                    image = f"/videos/{video.id}/frames/{row['frame']}"
                    search["moments"].append(row | {"video": video.id, "name": video.name, "image": image})
                with suppress(StoreError):  # go on reading what the worker reports
                    keep()
            elif stage in ("videos", "probes"):
                progress(stage, *values)

        call = partial(worker.call, progress=report, cancelled=job.cancelled.is_set)
        skipped = call("search", search["query"], list(videos), search["n"])
        for path, why in skipped.items():
            video = videos.pop(path)
            reason = self.without_paths(why.removeprefix(f"{path}: "))
            search["left_out"].append({"name": video.name, "video": video.id, "why": reason})
        search["videos"] = [video.id for video in videos.values()]
        keep()

    def without_paths(self, message: str) -> str:
        """A message without the folders in which the server keeps its files."""
        settings = self.settings
        for folder in (*settings.videos, settings.uploads, settings.data, settings.cache_folder):
            if folder is not None:
                message = message.replace(f"{folder.resolve()}{os.sep}", "")
        return message
