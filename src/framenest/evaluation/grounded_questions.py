"""Questions whose answers lie at known times."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from framenest.errors import ConfigError, StoreError
from framenest.frames import VideoInfo
from framenest.protocols import Decoder
from framenest.records import read_rows
from framenest.text import seconds_of
from framenest.video.pyav import Picture, PictureDecoder, Sizes
from framenest.video.source import is_remote

FPS = 30.0


class TimelineDecoder(PictureDecoder):
    """Frames that have times and no pictures: every picture is black.

    Visual change and observability are then the same for all frames, and so is the share by which looks
    lower a utility: no ranking depends on them. Nothing measured on the pictures means anything.

    Args:
        name: Stands for the path.
        duration: Seconds.
        fps: Frames per second.

    Example:
        >>> round(float(TimelineDecoder("lecture", 10).seconds[-1]), 3)
        9.967
    """

    name = "timeline"
    version = "1"

    def __init__(self, name: str, duration: float, fps: float = FPS) -> None:
        count = int(duration * fps)
        if count < 1:
            raise ConfigError(f"{name}: a timeline needs a duration of more than 0 s, not {duration:g}")
        digest = hashlib.blake2b(f"{name} {count} {fps}".encode(errors="surrogateescape"), digest_size=16)
        self.info = VideoInfo(name, digest.hexdigest(), count, count / fps, fps, 1, 1, "none")
        self.seconds = np.arange(count) / fps
        self.key_frames = np.arange(count)

    def _pictures(self, ascending: NDArray[np.int64], sizes: Sizes) -> Iterator[Picture]:
        shapes = [spec.size(1, 1) if spec else (1, 1) for spec in sizes]
        black = [np.zeros((height, width, 3), np.uint8) for width, height in shapes]
        return ((number, black) for number in ascending.tolist())


class NoStore:
    """A store that keeps nothing: what is known of a timeline is made anew faster than it is read."""

    def get(self, key: str) -> None:
        """Nothing."""

    def put(self, key: str, header: object, arrays: object) -> None:
        """Kept nowhere."""


Intervals = tuple[tuple[float, float], ...]
Part = Literal["tune", "report", "all"]


@dataclass(frozen=True)
class GroundedQuestion:
    """A question and when its answer can be seen.

    Attributes:
        video: A path or an address.
        question: What is asked.
        intervals: (start, end) in seconds from the first frame.
        moments: Frame numbers, where a benchmark gives those instead; each counts as the second around it
            either way, once the video's timeline is known.
        duration: Seconds, for a bare timeline: `video` is then only a name, and there are no pictures.

    Example:
        >>> GroundedQuestion("kiln.mp4", "What is fired?", ((7.0, 8.5),)).intervals
        ((7.0, 8.5),)
    """

    video: str
    question: str
    intervals: Intervals
    moments: tuple[int, ...] = ()
    duration: float | None = None

    @property
    def source(self) -> str | Decoder:
        """What a session opens: the video, or the bare timeline."""
        return self.video if self.duration is None else TimelineDecoder(self.video, self.duration)

    @property
    def part(self) -> Part:
        """ "tune" or "report", by a hash of video and question; of a timeline by its video alone.

        >>> GroundedQuestion("kiln.mp4", "What is fired?", ((7.0, 8.5),)).part
        'report'
        """
        key = f"{self.video}\n{self.question}" if self.duration is None else self.video
        return "report" if _hash(key) % 2 else "tune"

    def intervals_in(self, video: Decoder) -> Intervals:
        """All intervals in seconds, those around `moments` by the frames' own times in the open video."""
        if any(moment >= video.info.num_frames for moment in self.moments):
            raise ConfigError(
                f"{self.video}: {self.question!r} refers to frame {max(self.moments)}, and this video has "
                f"{video.info.num_frames} frames; is it the file that was annotated?"
            )
        return self.intervals + tuple(_around(video.seconds[moment]) for moment in sorted(self.moments))


def load_questions(
    path: str | Path, *, kind: str | None = None, videos: str | Path | None = None, part: Part = "all"
) -> list[GroundedQuestion]:
    """Read a question set.

    Args:
        path: JSON, JSON lines, CSV or Parquet.
        kind: The file's format, one of READERS, "framenest" by default: a row is {"video", "question",
            "intervals": [[start, end], …]} in seconds.
        videos: The folder of the videos, by default the file's own.
        part: "tune" or "report": one half of the questions, always the same, by the names in the file.

    Returns:
        The questions that have intervals or moments, with the paths of their videos.

    Raises:
        StoreError: The file cannot be read.
        ConfigError: It is not a question set of this kind.

    Example:
        >>> row = {"video_path": "kiln.mp4", "question": "What is fired?", "position": [175], "fps": 25}
        >>> _ = Path("lvb_val.json").write_text(json.dumps([row]))
        >>> load_questions("lvb_val.json", kind="longvideobench", videos="videos")[0].intervals
        ((6.0, 8.0),)
    """
    file = Path(path)
    if kind not in (None, *READERS):
        raise ConfigError(f"there is no question format {kind!r}; choose from {', '.join(READERS)}")
    folder = Path(videos) if videos is not None else file.parent
    try:
        entries = READERS[kind or "framenest"](read_rows(file))
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ConfigError(
            f"{file}: not a question set of the kind {kind or 'framenest'} ({error!r})"
        ) from error
    entries = [entry for entry in entries if part in ("all", entry.part)]
    if not entries:
        which = "" if part == "all" else f" that belong to the part {part}"
        raise ConfigError(f"{file}: no questions with intervals in this file{which}")
    return [
        entry
        if entry.duration is not None or is_remote(entry.video)
        else replace(entry, video=str(folder / entry.video))
        for entry in entries
    ]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _own(rows: list[dict[str, Any]]) -> list[GroundedQuestion]:
    """{"video", "question", "intervals": [[start, end], …]}."""
    return [_question(row["video"], row["question"], row["intervals"]) for row in rows]


def _longvideobench(rows: list[dict[str, Any]]) -> list[GroundedQuestion]:
    """LongVideoBench: `position` holds the frame number of each moment that the question refers to.

    The file does not tell the frame rate; a row may have it as `fps`, and else the video is asked.
    """
    found = []
    for row in rows:
        frames = [int(frame) for frame in row["position"]]
        if frames and "fps" in row:
            around = tuple(_around(frame / float(row["fps"])) for frame in sorted(frames))
            found.append(GroundedQuestion(str(row["video_path"]), str(row["question"]), around))
        elif frames:
            found.append(GroundedQuestion(str(row["video_path"]), str(row["question"]), (), tuple(frames)))
    return found


def _around(moment: float) -> tuple[float, float]:
    """The second around a moment either way."""
    return max(0.0, float(moment) - 1), float(moment) + 1


def _lvbench(rows: list[dict[str, Any]]) -> list[GroundedQuestion]:
    """LVBench: one row per video with `qa`, each with `time_reference` "mm:ss-mm:ss"."""
    found = []
    for row in rows:
        video = row.get("video_path") or f"{row['key']}.mp4"
        for entry in row.get("qa", [row]):
            reference = entry["time_reference"]
            if reference:
                found.append(_question(video, entry["question"], [reference.split("-")]))
    return found


def _nextgqa(rows: list[dict[str, Any]]) -> list[GroundedQuestion]:
    """NExT-GQA: CSV rows with `video_id`, `question` and `location` [[start, end], …]."""
    found = []
    for row in rows:
        where = row["location"]
        intervals = json.loads(where) if isinstance(where, str) else where
        found.append(_question(f"{row['video_id']}.mp4", row["question"], intervals))
    return found


def _qvhighlights(rows: list[dict[str, Any]]) -> list[GroundedQuestion]:
    """QVHighlights: JSON lines with `vid`, `query` and `relevant_windows`."""
    return [_question(f"{row['vid']}.mp4", row["query"], row["relevant_windows"]) for row in rows]


def _m2m(rows: list[dict[str, Any]]) -> list[GroundedQuestion]:
    """Molmo-2 Moments: rows with `video_id`, `question`, `start` and `end`, seconds or "hh:mm:ss.mmm"."""
    return [
        _question(f"{row['video_id']}.mp4", row["question"], [[row["start"], row["end"]]]) for row in rows
    ]


def _timeline(rows: list[dict[str, Any]]) -> list[GroundedQuestion]:
    """Bare timelines: {"video", "question", "intervals", "duration"}.

    A row without a question holds one question per interval. Where no duration is given, it is drawn, the
    same every time: as if the intervals lay uniformly in the video, which is at most twice as long as its
    last interval's end.
    """
    found = []
    for row in rows:
        name = f"real {row['video']}" if isinstance(row["video"], int) else str(row["video"])
        intervals, last = row["intervals"], max(seconds_of(end) for _, end in row["intervals"])
        if row.get("duration") in (None, ""):
            drawn = (_hash(f"length {row['video']}") / 2**64) ** (1 / len(intervals))
            duration = float(row.get("last_end", last) / max(0.5, drawn))
        else:
            duration = seconds_of(row["duration"])
        if last > duration:
            raise ValueError(f"an interval of {name!r} ends at {last:g} s, and it lasts {duration:g} s")
        if "question" in row:
            asked = [_question(name, row["question"], intervals)]
        else:
            asked = [_question(name, f"{name} {n}", [one]) for n, one in enumerate(intervals)]
        found += [replace(one, duration=duration) for one in asked]
    return found


def _question(video: str, question: str, intervals: Any) -> GroundedQuestion:
    pairs = tuple((seconds_of(start), seconds_of(end)) for start, end in intervals)
    if not pairs or any(end < start for start, end in pairs):
        raise ValueError(f"intervals {intervals!r} of {question!r}")
    return GroundedQuestion(str(video), str(question), pairs)


READERS: dict[str, Callable[[list[dict[str, Any]]], list[GroundedQuestion]]] = {
    "framenest": _own,
    "longvideobench": _longvideobench,
    "lvbench": _lvbench,
    "nextgqa": _nextgqa,
    "qvhighlights": _qvhighlights,
    "m2m": _m2m,
    "timeline": _timeline,
}
