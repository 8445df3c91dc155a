"""Service: what the routes call. Joins the library, the jobs, the workers and the rankings on disk."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from framenest.cache.directory import digest
from framenest.config import MECConfig
from framenest.errors import FramenestError, StoreError
from framenest.lmm.answer import Answer
from framenest.method.ranking import RANKING_FORMAT
from framenest.processes import ProcessLimits, machine_memory
from framenest.server.answering import Answers
from framenest.server.frame_images import FrameImages
from framenest.server.incoming import Incoming
from framenest.server.jobs import Job, Jobs
from framenest.server.journal import Journal
from framenest.server.library import Library, Video, plain_error
from framenest.server.metrics import Metrics
from framenest.server.rankings import Rankings
from framenest.server.refusals import Busy, NotReady, Unknown
from framenest.server.settings import Settings
from framenest.server.worker import Cancelled, Worker

ANSWER_SIDE = 768  # pixels of the longer side of pictures sent to the model
PICTURE_SECONDS = 120.0  # for one group of pictures, or the messages for one model
PAUSE = 1.0  # seconds until a journal that failed is tried again
Result = TypeVar("Result")
log = logging.getLogger("framenest.server")


class Service:
    """Starts with `start`, which loads the scorer. After `close`, jobs under way wait for the next start."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        _make_folders(settings)
        self.journal = Journal(settings.data / "journal.sqlite")
        self.metrics = Metrics()
        self.library = Library(self.journal, settings)
        self.incoming = Incoming(settings, self.library)
        self.jobs = Jobs(self.journal, settings.queue, self.metrics.job)
        self.rankings = Rankings(settings.rankings, self.journal, self.jobs)
        how = (settings.scorer, settings.scoring, settings.cache)
        share = machine_memory() // settings.workers or None
        limits = ProcessLimits(settings.max_job, share)
        self.workers = [Worker(*how, limits) for _ in range(settings.workers)]
        self.picture_worker = Worker(*how, ProcessLimits(PICTURE_SECONDS, share))
        self.pictures = FrameImages(self.picture_worker)
        self.answers = Answers(settings)
        self.scorer = ""
        self._packing = threading.BoundedSemaphore(2)
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()

    def start(self) -> None:
        self.scorer = self.workers[0].call("scorer")
        for worker in self.workers:
            thread = threading.Thread(target=self._run, args=(worker,), name="framenest-jobs", daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        self._closing.set()
        self.jobs.close()
        for worker in (*self.workers, self.picture_worker):
            worker.close()
        self.answers.close()
        for thread in self._threads:
            thread.join()
        self.journal.close()

    def index(self, video: Video) -> Job | None:
        """The job that indexes a video; None where that is done."""
        if video.info is not None:
            return None
        return self.jobs.submit("index", f"index:{video.id}", {"video": video.id})

    def ask(
        self, video: Video, question: str | None, options: list[str], preset: str, horizon: int
    ) -> tuple[str, Job | None]:
        """The id of a ranking, and the job that makes it; None where it is there."""
        video.check()
        MECConfig.preset(preset)
        request: dict[str, Any] = {"video": video.id, "question": question, "options": options}
        request |= {"preset": preset, "horizon": horizon}
        id_ = digest(request, self.scorer, RANKING_FORMAT)[:24]
        with self.journal.lock:  # so that the video is not removed in between
            self.library.get(video.id)
            if self.rankings.has(id_) or self.jobs.active(id_):
                self.metrics.shared.inc()
            return id_, self.rankings.ask(id_, request)

    def name_of(self, ranking: str) -> str:
        """What the video of a ranking is called here."""
        return self.library.get(self.rankings.request(ranking)["video"]).name

    def messages(self, ranking: str, k: int, style: str, max_side: int) -> str:
        """JSON text of the messages for a model."""
        with self._shown(ranking, k) as path:
            text: str = self.picture_worker.call("messages", path, k, style, max_side)
            return text

    def answer(self, ranking: str, k: int) -> Answer:
        """What the configured model answers."""
        self.answers.check()
        with self._shown(ranking, k) as path:
            request = self.picture_worker.call("request", path, k, "openai", ANSWER_SIDE)
        return self.answers.ask(request)

    @contextmanager
    def _shown(self, ranking: str, k: int) -> Iterator[str]:
        """The file of a ranking whose frames are about to be packed; few at once, as they take memory."""
        self.rankings.get(ranking).prefix(k)
        self.library.get(self.rankings.request(ranking)["video"]).check()
        if not self._packing.acquire(timeout=10):
            raise Busy("too many messages are being made at once; try again later", 5)
        try:
            yield str(self.rankings.path(ranking))
        finally:
            self._packing.release()

    def remove(self, video: Video) -> None:
        """Forget a video and all that was made of it here."""
        with self.journal.lock:
            if self.jobs.busy_with(video.id):
                raise NotReady("this video is being indexed or ranked; cancel that first")
            for id_ in self.library.remove(video):
                self.rankings.remove(id_)

    def _run(self, worker: Worker) -> None:
        while (job := self._insist(self.jobs.take)) is not None:
            end = partial(self.jobs.finish, job)
            try:
                self._do(worker, job)
            except Cancelled:
                stopped = self._closing.is_set() and not job.cancelled.is_set()
                end = partial(self.jobs.put_back, job) if stopped else partial(end, cancelled=True)
            except FramenestError as error:
                end = partial(end, self._told(error, job))
            except Exception as error:
                log.exception("job %s", job.id)
                end = partial(end, f"unexpected {type(error).__name__}")
            self._insist(end)
            log.info("job %s %s %s", job.id, job.kind, job.state)

    def _insist(self, step: Callable[[], Result]) -> Result | None:
        """What a step returns; tried again while the journal fails. None where the server ends before."""
        while True:
            try:
                return step()
            except StoreError as error:
                log.error("%s", error)
                if self._closing.wait(PAUSE):
                    return None

    def _do(self, worker: Worker, job: Job) -> None:
        def progress(stage: str, done: int, total: int) -> None:
            job.stage, job.done, job.total = stage, done, total

        video = self.library.get(job.request["video"])
        path = str(video.check())
        if job.kind == "index":
            made = worker.call("index", path, progress=progress, cancelled=job.cancelled.is_set)
        else:
            asked = [job.request[name] for name in ("question", "options", "preset", "horizon")]
            target = str(self.rankings.path(job.target))
            made = worker.call(
                "rank", path, *asked, target, progress=progress, cancelled=job.cancelled.is_set
            )
            self.metrics.decoded.inc(made["decoded"])
        if video.info is None:
            self.library.indexed(video.id, made["video"])

    def plain(self, message: str) -> str:
        """A message without where the server keeps its files."""
        settings = self.settings
        for folder in (settings.videos, settings.uploads, settings.data, settings.cache_folder):
            if folder is not None:
                message = message.replace(f"{folder.resolve()}{os.sep}", "")
        return message

    def _told(self, error: FramenestError, job: Job) -> str:
        try:
            return self.plain(plain_error(error, self.library.get(job.request["video"])))
        except (Unknown, StoreError):
            return self.plain(str(error))


def _make_folders(settings: Settings) -> None:
    """For this user alone: videos and questions are nobody else's business."""
    try:
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings.rankings.mkdir(exist_ok=True)
        settings.uploads.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreError(f"{settings.data}: cannot be written ({error.strerror})") from error
