"""Processes that decode videos for the service."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from framenest.config import ScorerConfig
from framenest.errors import ConfigError, VideoError
from framenest.frames import ImageSpec, VideoInfo
from framenest.images import encode_image
from framenest.lmm import ImageLimits, Request, StyleName, messages
from framenest.method.mec import MEC, rank_request
from framenest.method.ranking import Ranking
from framenest.processes import Cancelled, ProcessLimits, Report, WorkerLost, WorkerProcess
from framenest.protocols import Searchable
from framenest.rank_request import RankRequest
from framenest.retrieval.search import Searcher
from framenest.scorers import wait_until_loaded
from framenest.server.server_settings import ServerSettings
from framenest.session import Session
from framenest.transcript import NONE, find_transcript
from framenest.video.decoder import Decoder, HasStreams, one_by_one
from framenest.video.opening import must_not_fetch_unasked, reopen

JPEG_QUALITY = 85
CANCEL_SECONDS = 5.0  # that a cancelled task may take to stop by itself
NICENESS = 5  # answering requests goes before work


class VideoTasks:
    """One scorer and its session of open videos. Calls name a method and give its arguments."""

    def __init__(
        self, report: Report, scorer: str, scoring: ScorerConfig, cache: str | None, decoder: str
    ) -> None:
        self._report = partial(report, "progress")
        self._session = Session(
            scorer, store=cache, progress=self._report, keep_features=True, scoring=scoring, decoder=decoder
        )

    def __call__(self, task: str, *arguments: Any) -> Any:
        return getattr(self, task)(*arguments)

    def scorer(self) -> str:
        """Load the scorer; its name and version."""
        if self._session.scorer is not None:
            wait_until_loaded(self._session.scorer)
        return self._session.scoring_name("?")

    def index(self, path: str) -> dict[str, Any]:
        """Index a video, also for searches if the scorer can search; its VideoInfo."""
        index = MEC(session=self._session).index(path, questions_follow=True)
        if isinstance(self._session.scorer, Searchable):
            Searcher(self._session).store_vectors(self._session.open(path), index)
        return index.video.to_json()

    def rank(self, request: RankRequest) -> tuple[dict[str, Any], bytes]:
        """Rank a video as a request asks; its VideoInfo, and the ranking as JSON."""
        ranking = rank_request(request, self._session)
        return ranking.video.to_json(), ranking.dumps().encode(errors="surrogatepass")

    def search(self, query: str, videos: list[str], n: int) -> dict[str, str]:
        """Search videos, reporting the best moments so far; returns why some could not be searched."""
        searcher = Searcher(self._session)
        for moments in searcher.find(query, videos, n):
            self._report("moments", moments.to_json())
        return searcher.skipped

    def describe(self, path: str) -> dict[str, Any]:
        """What a video is, without indexing it: its VideoInfo, its streams, where its transcript is from."""
        decoder = self._session.open(path)
        transcript = find_transcript(decoder, self._session.scoring.subtitles or NONE, self._session.store)
        later = "made of the sound when it is needed" if self._session.recognizer else None
        return {
            "video": decoder.info.to_json(),
            "streams": decoder.streams() if isinstance(decoder, HasStreams) else [],
            "transcript": transcript.source if transcript and transcript.lines else later,
        }

    def look_at(self, path: str, times: list[float], short: int) -> list[tuple[int, float, bytes]]:
        """(frame, seconds, JPEG) of what is on screen at each of these times."""
        decoder = self._session.open(path)
        on_screen = np.searchsorted(decoder.seconds, np.asarray(times) + 1e-9, side="right") - 1
        frames = np.unique(np.maximum(on_screen, 0))
        pictures = _jpegs(decoder, frames.tolist(), short)
        return [(frame, float(decoder.seconds[frame]), picture) for frame, picture in pictures]

    def said(self, path: str, question: str, count: int) -> list[tuple[float, float, str]]:
        """(start, end, words) of the passages that answer a question best; none without a transcript."""
        passages = self._session.said(path, question, count)
        unheard = None if passages else self._session.transcript(self._session.open(path))
        if unheard is not None and unheard.notes:
            raise VideoError("; ".join(unheard.notes))
        return [(passage.start, passage.end, passage.text) for passage in passages]

    def pictures(self, video: dict[str, Any], frames: list[int], short: int) -> None:
        """Report (frame, JPEG) of each frame with this short side, ascending, if it decodes."""
        for picture in _jpegs(self._reopen(VideoInfo.from_json(video)), frames, short):
            self._report(*picture)

    def _reopen(self, known: VideoInfo) -> Decoder:
        must_not_fetch_unasked(known)
        return reopen(known, self._session.open(known.path))

    def request(
        self,
        ranking: Ranking,
        k: int,
        spoken: int,
        style: StyleName,
        max_side: int,
        instructions: Sequence[str] = (),
    ) -> Request:
        """The question of a ranking and its first k frames, as a request for a model.

        spoken: tokens that what is said may take beside the frames; 0 sends nothing of it.
        """
        if ranking.question is None:
            raise ConfigError("this ranking follows no question, so there is nothing to ask a model")
        return messages(
            ranking.prefix(k),
            ranking.question,
            style,
            options=ranking.options,
            instructions=instructions,
            limits=ImageLimits(max_side=max_side),
            transcript=ranking.transcript if spoken else None,
            transcript_tokens=spoken,
            video=self._reopen(ranking.video),
            progress=False,
        )

    def messages(self, *arguments: Any) -> str:
        """What `request` makes as JSON text, as `framenest export` writes it."""
        return self.request(*arguments).dumps()


def _jpegs(decoder: Decoder, frames: list[int], short: int) -> Iterator[tuple[int, bytes]]:
    for number, pixels in one_by_one(decoder, frames, ImageSpec.short_side(short)):
        yield number, encode_image(pixels, quality=JPEG_QUALITY)


class VideoWorker:
    """Does one task at a time, in a process that is replaced when it dies. Thread-safe: calls take turns."""

    def __init__(self, settings: ServerSettings, limits: ProcessLimits) -> None:
        what = (settings.scorer, settings.scoring, settings.cache, settings.decoder)
        self.limits = limits
        self._process = WorkerProcess(VideoTasks, *what, limits=limits, niceness=NICENESS)
        self._turn = threading.Lock()
        self._closed = False

    def call(
        self,
        task: str,
        *arguments: Any,
        progress: Callable[..., object] = lambda *_: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Any:
        """What the method `task` of VideoTasks returns. progress is called with what it reports meanwhile."""
        with self._turn:
            if cancelled() or self._closed:
                raise Cancelled
            deadline = math.inf
            self._process.send(task, *arguments)
            try:
                while True:
                    if deadline == math.inf and (cancelled() or self._closed):
                        self._process.cancel()
                        deadline = time.monotonic() + (0 if self._closed else CANCEL_SECONDS)
                    kind, *rest = self._process.poll(0.05) or ("nothing",)
                    if kind == "done":
                        return rest[0]
                    if kind == "progress":
                        progress(*rest)
                    elif time.monotonic() > deadline:
                        self._process.kill()
                        raise Cancelled
            except WorkerLost as lost:
                if self._closed:
                    raise Cancelled from lost
                died = "the decoder or the model broke down on this video"
                raise VideoError(died if lost.kind == "WorkerDied" else str(lost)) from lost

    def close(self) -> None:
        """End the process, also in the middle of a task."""
        self._closed = True
        with self._turn:
            self._process.kill()
