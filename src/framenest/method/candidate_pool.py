"""CandidatePool: probes and zoom frames with their cues and evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.config import MECConfig
from framenest.frames import VideoInfo
from framenest.method.discovery import Cues, LookFor
from framenest.protocols import MatchStrength
from framenest.records import Amount, Whole
from framenest.transcript import Transcript


@dataclass(frozen=True)
class Stats:
    """Counts and seconds of one ranking; written into its file.

    Attributes:
        candidates: frames that could be chosen, probes and zoom frames together.
        probes: frames of the index.
        zoom: frames added around the anchors.
        largest_gap_seconds: the longest stretch of the video without a probe.
        substitutes: (wanted, used) frame numbers of frames that did not decode; used is −1 if no other
            frame replaces it.
        decoded: frames decoded for this ranking; frames seen before cost nothing.
        seconds: wall time by stage.
        match: how surely anything in the video matches the question; None if the scorer cannot tell.
        read: frames whose text on screen was read; None without OCR.
    """

    candidates: Whole
    probes: Whole
    zoom: Whole
    largest_gap_seconds: Amount
    substitutes: tuple[tuple[int, int], ...]
    decoded: Whole
    seconds: Mapping[str, Amount]
    match: MatchStrength | None = None
    read: Whole | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


HEARD = 0.5
"""From this value of the speech cue on, the transcript is about the question."""


@dataclass(frozen=True, eq=False)
class CandidatePool:
    """The candidates of one question: the probes and the zoom frames of the active segments.

    Attributes:
        video: the video.
        question: None without a question.
        options: the answers to choose from; may be empty.
        scorer: the names of everything that gave the relevance.
        config: the settings.
        num_frames: N, frames of the video, or of the window if only a part was ranked.
        frames: (n,) int64 ascending.
        seconds: (n,) float64.
        is_zoom: (n,) bool.
        cues: (n,) float32 each: relevance, change, observability; text with OCR, speech with a transcript.
        evidence: (n,) float32, the weighted sum of the cues.
        active: numbers of the active segments.
        anchors: frame numbers that were zoomed in on.
        look_for: descriptions to look for beside the question; None if there are none.
        matches: (n,) float32 each, the relevance of the question and of each description; empty without
            descriptions.
        transcript: the transcript, or what is wrong with it; None if there is none.
    """

    video: VideoInfo
    question: str | None
    options: tuple[str, ...]
    scorer: str
    config: MECConfig
    num_frames: int
    frames: NDArray[np.int64]
    seconds: NDArray[np.float64]
    is_zoom: NDArray[np.bool_]
    cues: Cues
    evidence: NDArray[np.float32]
    active: tuple[int, ...]
    anchors: tuple[int, ...]
    look_for: LookFor | None = None
    matches: Cues = field(default_factory=dict)
    transcript: Transcript | None = None

    def __len__(self) -> int:
        return len(self.frames)

    def __repr__(self) -> str:
        zoomed = int(self.is_zoom.sum())
        return f"CandidatePool(frames={self.frames.shape}, probes={len(self) - zoomed}, zoom={zoomed})"
