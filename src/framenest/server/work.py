"""The work itself, done in a process beside the server: indexing, ranking, pictures, messages.

Decoders and models run here and not in the server, so that a file which breaks a decoder ends a job and
nothing else, a cancelled job can be ended for certain, and requests are answered while work goes on.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from pathlib import Path
from typing import Any

from PIL import Image

from framenest.config import MECConfig
from framenest.errors import ConfigError
from framenest.extract import reopen
from framenest.frames import ImageSpec, VideoInfo
from framenest.lmm import Limits, Request, messages
from framenest.mec import MEC
from framenest.protocols import Progress, Scorer
from framenest.result import Ranking
from framenest.scorers import load_scorer
from framenest.store import DirectoryStore
from framenest.workspace import Workspace, scorer_name

OPEN_VIDEOS = 8  # videos kept open, with their features in memory
QUALITY = 85


class Desk:
    """One scorer, and the videos used last. Not for several threads: one process has one desk."""

    def __init__(self, scorer: str, cache: Path | None, progress: Progress) -> None:
        self._store = DirectoryStore(cache)
        self._wanted = scorer
        self._scorer: Scorer | None = None
        self._progress = progress
        self._spaces: OrderedDict[str, Workspace] = OrderedDict()

    def scorer(self) -> str:
        """Load the scorer; its name and version."""
        if self._scorer is None:
            self._scorer = load_scorer(self._wanted, self._store)
        return scorer_name(self._scorer)

    def index(self, path: str) -> dict[str, Any]:
        """Index a video; what is known of it then."""
        return {"video": MEC(workspace=self._space(path)).index(path).video.to_json()}

    def rank(self, path: str, question: str | None, preset: str, horizon: int, target: str) -> dict[str, Any]:
        """Rank a video for a question into a file; how many frames that decoded."""
        config = MECConfig.preset(preset).with_settings({"horizon": horizon})
        ranking = MEC(config, workspace=self._space(path)).rank(path, question)
        ranking.save(target)
        return {"decoded": ranking.stats["decoded"], "video": ranking.video.to_json()}

    def pictures(self, video: dict[str, Any], frames: list[int], short: int) -> dict[int, bytes]:
        """JPEGs of frames with this short side; frames that do not decode are left out."""
        decoder = reopen(VideoInfo.from_json(video), store=self._store)
        found = {}
        for batch in decoder.read(sorted(frames), sizes=(ImageSpec.short_side(short),)):
            for number, pixels in zip(batch.frames.tolist(), batch.pixels[0], strict=True):
                file = io.BytesIO()
                Image.fromarray(pixels).save(file, "jpeg", quality=QUALITY)
                found[number] = file.getvalue()
        return found

    def request(self, ranking: str, k: int, style: str, max_side: int | None) -> Request:
        """The question of a ranking file and its first k frames, as a request for a model."""
        loaded = Ranking.load(ranking)
        if loaded.question is None:
            raise ConfigError("this ranking follows no question, so there is nothing to ask a model")
        limits = Limits(max_side=max_side)
        return messages(loaded.prefix(k), loaded.question, style, limits=limits, store=self._store)

    def messages(self, ranking: str, k: int, style: str, max_side: int | None) -> str:
        """The same as JSON text, as `framenest export` writes it."""
        return self.request(ranking, k, style, max_side).dumps()

    def _space(self, path: str) -> Workspace:
        self.scorer()
        if path not in self._spaces:
            self._spaces[path] = Workspace(
                self._scorer, store=self._store, progress=self._progress, keep_features=True
            )
        self._spaces.move_to_end(path)
        while len(self._spaces) > OPEN_VIDEOS:
            self._spaces.popitem(last=False)
        return self._spaces[path]
