"""VideoTasks: what a worker process of the server does: index, rank, decode frames, make messages.

Decoders and models run here and not in the server, so that a file which breaks a decoder ends a job and
nothing else, a cancelled job can be killed, and requests are answered while work goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from framenest.cache.remote import open_store
from framenest.config import MECConfig, ScorerConfig
from framenest.errors import ConfigError
from framenest.frames import ImageSpec, VideoInfo
from framenest.images import encode_image
from framenest.lmm import ImageLimits, Request, messages
from framenest.method.look_for import LookFor
from framenest.method.mec import MEC
from framenest.method.ranking import Ranking
from framenest.protocols import Progress
from framenest.session import Session
from framenest.video.opening import reopen
from framenest.video.pyav import PyAVDecoder
from framenest.worker_process import Report

QUALITY = 85


def load_tasks(report: Report, scorer: str, scoring: ScorerConfig, cache: str | None) -> Callable[..., Any]:
    """For WorkerProcess: calls name a method of VideoTasks and give its arguments."""
    tasks = VideoTasks(scorer, scoring, cache, partial(report, "progress"))
    return lambda task, *arguments: getattr(tasks, task)(*arguments)


class VideoTasks:
    """One scorer and its session of open videos. Not thread-safe."""

    def __init__(self, scorer: str, scoring: ScorerConfig, cache: str | None, progress: Progress) -> None:
        self._store = open_store(cache)
        self._session = Session(
            scorer, store=self._store, progress=progress, keep_features=True, scoring=scoring
        )

    def scorer(self) -> str:
        """Load the scorer; its name and version."""
        return self._session.scoring_name("?")

    def index(self, path: str) -> dict[str, Any]:
        """Index a video; what is known of it then."""
        return {"video": MEC(session=self._session).index(path, questions_follow=True).video.to_json()}

    def rank(
        self,
        path: str,
        question: str | None,
        options: list[str],
        preset: str,
        horizon: int,
        target: str,
        look_for: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Rank a video for a question into a file; how many frames that decoded."""
        config = MECConfig.preset(preset).with_settings({"horizon": horizon})
        wanted = LookFor.from_json(look_for) if look_for else ()
        ranking = MEC(config, session=self._session).rank(path, question, options=options, look_for=wanted)
        ranking.save(target)
        return {"decoded": ranking.stats.decoded, "video": ranking.video.to_json()}

    def describe(self, path: str) -> dict[str, Any]:
        """What a video is, without indexing it: its VideoInfo, its streams, where its transcript is from."""
        decoder = self._session.open(path)
        assert isinstance(decoder, PyAVDecoder)  # a registered file
        transcript = self._session.transcript(decoder)
        return {
            "video": decoder.info.to_json(),
            "streams": decoder.streams(),
            "transcript": transcript.source if transcript and transcript.lines else None,
        }

    def look_at(self, path: str, times: list[float], short: int) -> list[tuple[int, float, bytes]]:
        """(frame, seconds, JPEG) of what is on screen at each of these times."""
        decoder = self._session.open(path)
        on_screen = np.searchsorted(decoder.seconds, np.asarray(times) + 1e-9, side="right") - 1
        frames = np.unique(np.maximum(on_screen, 0))
        found = self.pictures(decoder.info.to_json(), frames.tolist(), short)
        return [(frame, float(decoder.seconds[frame]), found[frame]) for frame in sorted(found)]

    def said(self, path: str, question: str, count: int) -> list[tuple[float, float, str]]:
        """(start, end, words) of the passages that answer a question best; none without a transcript."""
        found = self._session.said(path, question, count)
        return [(passage.start, passage.end, passage.text) for passage in found]

    def pictures(self, video: dict[str, Any], frames: list[int], short: int) -> dict[int, bytes]:
        """JPEGs of frames with this short side; frames that do not decode are left out."""
        decoder = reopen(VideoInfo.from_json(video), store=self._store)
        found = {}
        for batch in decoder.read(sorted(frames), sizes=(ImageSpec.short_side(short),)):
            for number, pixels in zip(batch.frames.tolist(), batch.pixels[0], strict=True):
                found[number] = encode_image(pixels, quality=QUALITY)
        return found

    def request(
        self,
        ranking: Ranking,
        k: int,
        style: str,
        max_side: int | None,
        spoken: int,
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
            store=self._store,
            progress=False,
        )

    def messages(self, ranking: Ranking, k: int, style: str, max_side: int | None, spoken: int) -> str:
        """The same as JSON text, as `framenest export` writes it."""
        return self.request(ranking, k, style, max_side, spoken).dumps()
