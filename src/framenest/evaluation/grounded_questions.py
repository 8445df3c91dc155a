"""Questions whose answers are visible at known times."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from framenest.errors import ConfigError, StoreError
from framenest.frames import VideoInfo
from framenest.records import read_rows
from framenest.text import seconds_of
from framenest.video.decoder import Picture, PictureDecoder, Sizes
from framenest.video.source import is_remote

TIMELINE_FPS = 30.0
Intervals = tuple[tuple[float, float], ...]  # (start, end) in seconds
Part = Literal["tune", "report", "all"]
Row = Mapping[str, Any]


def inside(seconds: NDArray[np.float64], intervals: Intervals) -> NDArray[np.bool_]:
    """(n,) which of the times lie in an interval, its ends included.

    >>> inside(np.array([1.0, 7.5]), ((7.0, 8.0),)).tolist()
    [False, True]
    """
    within = np.zeros(len(seconds), dtype=bool)
    for start, end in intervals:
        within |= (start <= seconds) & (seconds <= end)
    return within


class TimelineDecoder(PictureDecoder):
    """A video with times but without images: every frame is black.

    Visual change, observability and diversity are then equal for all frames, so no ranking depends on them.
    name: used as the path. duration: in seconds.

    >>> round(float(TimelineDecoder("lecture", 10).seconds[-1]), 3)
    9.967
    """

    name = "timeline"
    version = "1"

    def __init__(self, name: str, duration: float, fps: float = TIMELINE_FPS) -> None:
        count = int(duration * fps)
        if count < 1:
            raise ConfigError(f"{name}: a timeline must be longer than 0 s, not {duration:g}")
        digest = hashlib.blake2b(f"{name} {count} {fps}".encode(errors="surrogateescape"), digest_size=16)
        self.info = VideoInfo(name, digest.hexdigest(), count, count / fps, fps, 1, 1, "none")
        self.seconds = np.arange(count) / fps
        self.key_frames = np.arange(count)

    def pictures(self, ascending: NDArray[np.int64], sizes: Sizes) -> Iterator[Picture]:
        shapes = [spec.size(1, 1) if spec else (1, 1) for spec in sizes]
        black = [np.zeros((height, width, 3), np.uint8) for width, height in shapes]
        return ((number, black) for number in ascending.tolist())


class NoStore:
    """A store that keeps nothing: computing a timeline's index is faster than reading it."""

    def get(self, key: str) -> None:
        """Always a miss."""

    def put(self, key: str, header: object, arrays: object) -> None:
        """Does nothing."""


@dataclass(frozen=True)
class GroundedQuestion:
    """A question and the intervals in which its answer is visible.

    video: a path or a URL. intervals: in seconds from the first frame. duration: in seconds, for a bare
    timeline; `video` is then only a name.
    """

    video: str
    question: str
    intervals: Intervals
    duration: float | None = None

    @property
    def part(self) -> Part:
        """ "tune" or "report", by a hash of video and question; for a timeline, of the video alone.

        >>> GroundedQuestion("kiln.mp4", "What is fired?", ((7.0, 8.5),)).part
        'report'
        """
        key = f"{self.video}\n{self.question}" if self.duration is None else self.video
        return "report" if _hash(key) % 2 else "tune"


def load_questions(
    path: str | Path, *, kind: str = "framenest", videos: str | Path | None = None, part: Part = "all"
) -> list[GroundedQuestion]:
    """The questions of a file that have intervals, with the paths of their videos.

    kind: the file's format; rows of "framenest" are {"video", "question", "intervals": [[start, end], …]} in
    seconds. videos: their folder; by default that of the file. part: "tune" or "report" for a fixed half,
    chosen by the names in the file. StoreError: the file cannot be read; ConfigError: it is of another kind.

    >>> row = {"vid": "kiln", "query": "What is fired?", "relevant_windows": [[6, 8]]}
    >>> _ = Path("qvh.jsonl").write_text(json.dumps(row))
    >>> load_questions("qvh.jsonl", kind="qvhighlights", videos="videos")[0].intervals
    ((6.0, 8.0),)
    """
    file = Path(path)
    if kind not in QUESTION_READERS:
        raise ConfigError(f"there is no question format {kind!r}; choose from {', '.join(QUESTION_READERS)}")
    folder = Path(videos) if videos is not None else file.parent
    try:
        entries = [entry for row in read_rows(file) for entry in QUESTION_READERS[kind](row)]
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ConfigError(f"{file}: not a question set of the kind {kind} ({error!r})") from error
    entries = [entry for entry in entries if part in ("all", entry.part)]
    if not entries:
        which = "" if part == "all" else f" belong to the part {part}"
        raise ConfigError(f"{file}: no questions with intervals{which}")
    return [
        entry
        if entry.duration is not None or is_remote(entry.video)
        else replace(entry, video=str(folder / entry.video))
        for entry in entries
    ]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _question(video: str, question: str, intervals: Any) -> GroundedQuestion:
    pairs = tuple((seconds_of(start), seconds_of(end)) for start, end in intervals)
    if not pairs or any(end < start for start, end in pairs):
        raise ValueError(f"intervals {intervals!r} of {question!r}")
    return GroundedQuestion(str(video), str(question), pairs)


def _timeline(row: Row) -> list[GroundedQuestion]:
    """A bare timeline: {"video", "question", "intervals", "duration"}.

    A row without a question has one question per interval. A missing duration is drawn at random with a
    fixed seed, as if the intervals were uniform in the video, and is at most twice the last interval's end.
    """
    name = f"real {row['video']}" if isinstance(row["video"], int) else str(row["video"])
    intervals, last = row["intervals"], max(seconds_of(end) for _, end in row["intervals"])
    if row.get("duration") in (None, ""):
        share = (_hash(f"length {row['video']}") / 2**64) ** (1 / len(intervals))
        duration = float(row.get("last_end", last) / max(0.5, share))
    else:
        duration = seconds_of(row["duration"])
    if last > duration:
        raise ValueError(f"an interval of {name!r} ends at {last:g} s, but it lasts {duration:g} s")
    if "question" in row:
        entries = [_question(name, row["question"], intervals)]
    else:
        entries = [_question(name, f"{name} {n}", [one]) for n, one in enumerate(intervals)]
    return [replace(one, duration=duration) for one in entries]


QUESTION_READERS: dict[str, Callable[[Row], list[GroundedQuestion]]] = {
    "framenest": lambda row: [_question(row["video"], row["question"], row["intervals"])],
    "qvhighlights": lambda row: [_question(f"{row['vid']}.mp4", row["query"], row["relevant_windows"])],
    # Molmo-2 Moments: `start` and `end` are seconds or "hh:mm:ss.mmm".
    "m2m": lambda row: [_question(f"{row['video_id']}.mp4", row["question"], [[row["start"], row["end"]]])],
    "timeline": _timeline,
}
