"""The vLLM plug-in: a video loader that chooses the frames for a question.

vLLM imports this module in each of its processes, so nothing heavy is imported before the first video.
"""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framenest.frames import Pixels
    from framenest.session import Session

NAME = "framenest"
VLLM_PAIRINGS = ("auto", "pairs", "duplicate")
VLLM_ADDS = frozenset(("backend", "device"))
"""Arguments for vLLM's own decoders, which it sets by itself on some servers."""
_one_at_a_time = threading.Lock()  # vLLM loads videos in threads


def register() -> None:
    """Entry point `vllm.general_plugins`: add the loader."""
    from vllm.multimodal.video import VIDEO_LOADER_REGISTRY

    VIDEO_LOADER_REGISTRY.register(NAME)(QuestionLoader)


@cache
def _session() -> Session:
    from framenest.session import Session

    return Session(os.environ.get("FRAMENEST_SCORER") or "auto", progress=False)


class QuestionLoader:
    """A video loader of vLLM. Its arguments are the keys of `media_io_kwargs.video`."""

    @classmethod
    def load_bytes(
        cls,
        data: bytes,
        num_frames: int = 32,
        *,
        question: str | None = None,
        pairing: str = "auto",
        **others: object,
    ) -> tuple[Pixels, dict[str, Any]]:
        """Choose frames of a video file.

        Args:
            data: the file.
            num_frames: the budget; vLLM's own default is 32.
            question: what the frames are chosen for; None ranks without a question.
            pairing: for models that fuse two frames, such as Qwen3-VL: "auto" lets it fuse frames within two
                seconds and repeats any other, "duplicate" repeats all, "pairs" none.

        Returns:
            The frames (n, height, width, 3) uint8 RGB, in time order, and the metadata for the model's
            processor, with the frames' true numbers.

        Raises:
            ValueError: anything that the client can change; vLLM answers it with status 400.
        """
        from framenest.errors import BadSetting, ConfigError, FramenestError

        try:
            if unknown := sorted(set(others) - VLLM_ADDS):
                raise ConfigError(
                    f"media_io_kwargs.video has {unknown[0]!r}; give num_frames, question, pairing"
                )
            if pairing not in VLLM_PAIRINGS:
                raise BadSetting("pairing", pairing, f"one of {', '.join(VLLM_PAIRINGS)}")
            with _one_at_a_time:
                try:
                    return _chosen(data, num_frames, question, pairing)
                finally:
                    _session().forget()  # the video in memory; its index and features are in the cache
        except FramenestError as error:
            raise ValueError(f"{NAME}: {error}") from error


def _chosen(data: bytes, budget: int, question: str | None, pairing: Any) -> tuple[Pixels, dict[str, Any]]:
    from framenest.config import DEFAULT_PRESET, MECConfig
    from framenest.lmm.prompt import sent_places, video_metadata
    from framenest.method.mec import MEC
    from framenest.rank_request import Budget
    from framenest.video.pyav import PyAVDecoder

    budget = Budget(budget)
    session, config = _session(), MECConfig.preset(DEFAULT_PRESET)
    config = config.with_settings({"horizon": max(config.ranking.horizon, budget)})
    video = PyAVDecoder.of_bytes(data, "the video", session.store)
    prefix = MEC(config, session=session).rank(video, question).prefix(budget)
    places = sent_places(pairing, prefix.seconds.tolist())
    metadata = video_metadata(prefix, places) | {"video_backend": NAME, "do_sample_frames": False}
    return prefix.read(video=video, progress=False)[places], metadata
