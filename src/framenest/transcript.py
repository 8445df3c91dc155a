"""Transcripts: what is said in a video, from subtitle files or a track inside it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from framenest.cache.directory import keep
from framenest.cache.hashes import digest
from framenest.errors import ConfigError, FramenestError, StoreError
from framenest.frames import VideoInfo
from framenest.protocols import Decoder, Store
from framenest.text import clock, one_line, size_text

AUTO, NONE = "auto", "none"
"""Of the setting `subtitles`: whatever there is, or nothing."""


LASTS = 5.0
"""Seconds that a line without an end is on, unless another one begins."""
NEXT = 0.05
"""Seconds between two captions that follow each other directly, as rolling ones do."""


REACH = 1.0
"""Seconds before and after it is said that a passage still counts, less and less: half at the end."""


class Line(NamedTuple):
    """Something said: seconds from the first frame, and the words. NaN where a file does not tell a time."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class Transcript:
    """What is said in a video.

    Attributes:
        source: where it was found, for people: "kiln.srt", "track 2 (subrip, eng)".
        lines: in order of their beginning, none empty.
        notes: what was wrong with it.

    >>> said = Transcript("kiln.srt", (Line(1.0, 3.0, "Now we fire it."), Line(9.0, 11.0, "Let it cool.")))
    >>> [line.text for line in said.around(3.5, 1.0)]
    ['Now we fire it.']
    """

    source: str
    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        source: str,
        lines: Iterable[Line],
        duration: float,
        *,
        shift: float = 0.0,
        notes: Sequence[str] = (),
    ) -> Transcript:
        """From lines as a file has them, broken ones and all.

        Args:
            source: where they were found.
            lines: in any order.
            duration: of the video in seconds; what begins later is left out.
            shift: seconds to add to every time, so that 0 is the first frame.
            notes: what is known to be wrong already.
        """
        given = [line for line in lines if line.text.strip()]
        timed = [Line(a + shift, b + shift, t) for a, b, t in given if math.isfinite(a) and not b < a]
        here = [line for line in sorted(timed) if line.start < duration and not line.end < 0]
        said = [*notes]
        if len(timed) < len(given):
            said.append(
                f"{source}: {len(given) - len(timed)} of {len(given)} lines have no usable times; left out"
            )
        if len(here) < len(timed):
            last = clock(max(0.0, *(line.start for line in timed)))
            said.append(
                f"{source}: {len(timed) - len(here)} of {len(timed)} lines are not in this video of "
                f"{clock(duration)} (the last begins at {last}); is it the transcript of another?"
            )
        if not given:
            said.append(f"{source}: no lines in it")
        return cls(source, tuple(_unrolled(here)), tuple(said))

    @property
    def nbytes(self) -> int:
        """Bytes of all words in memory, roughly."""
        return sum(len(line.text) for line in self.lines)

    def within(self, start: float, end: float) -> Transcript:
        """Only the lines that are on between two times, in seconds."""
        kept = tuple(line for line in self.lines if line.end >= start and line.start <= end)
        return Transcript(self.source, kept, self.notes)

    def around(self, seconds: float, reach: float) -> list[Line]:
        """The lines that are on within `reach` seconds of a time."""
        return [*self.within(seconds - reach, seconds + reach).lines]

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "lines": [list(line) for line in self.lines],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Transcript:
        lines = tuple(Line(float(start), float(end), str(text)) for start, end, text in data["lines"])
        return cls(str(data["source"]), lines, tuple(data["notes"]))


def _unrolled(lines: Sequence[Line]) -> list[Line]:
    """Lines with an end each and one row of text; what rolling captions show again is said once."""
    found: list[Line] = []
    before: list[str] = []
    for place, (start, end, text) in enumerate(lines):
        following = lines[place + 1].start if place + 1 < len(lines) else math.inf
        until = end if math.isfinite(end) else min(start + LASTS, max(start, following))
        rows = [" ".join(row.split()) for row in text.splitlines() if row.strip()]
        rolls = bool(found) and start <= found[-1].end + NEXT
        new = [row for row in rows if not (rolls and row in before)]
        if new:
            found.append(Line(start, until, " ".join(new)))
        elif found[-1].end < until:
            found[-1] = found[-1]._replace(end=until)
        before = rows
    return found


SUBTITLE_SUFFIXES = (".srt", ".vtt", ".ass", ".ssa", ".json", ".jsonl")
"""In the order in which they are looked for beside a video."""
LARGEST = 64 * 2**20
_LISTS = ("segments", "chunks", "transcription", "lines")
"""Where whisper (faster-whisper, WhisperX, OpenAI's API), transformers and whisper.cpp have their lines."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ufffe\uffff]")


def read_lines(path: str | Path) -> tuple[list[Line], list[str]]:
    """The lines of a subtitle file as they stand in it, and what was odd about the file.

    Args:
        path: .srt, .vtt, .ass, .ssa; .json of whisper, faster-whisper, WhisperX, whisper.cpp, OpenAI's
            API, transformers, or a list of {"start", "end", "text"}; .jsonl of such objects.

    Returns:
        The lines, times in seconds on the file's own clock (NaN where there is none), and notes.

    Raises:
        StoreError: the file cannot be read.
        ConfigError: it is no subtitle file.

    >>> _ = Path("kiln.srt").write_text("1\\n00:00:07,000 --> 00:00:08,500\\nNow we <i>fire</i> it.\\n")
    >>> read_lines("kiln.srt")
    ([Line(start=7.0, end=8.5, text='Now we fire it.')], [])
    """
    file = Path(path)
    try:
        size = file.stat().st_size
        if size > LARGEST:
            raise ConfigError(f"{file}: {size_text(size)} is too much for a subtitle file")
        text, notes = _decoded(file.read_bytes(), file.name)
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror})") from error
    try:
        lines = [*(_json_lines(file, text) if file.suffix.lower() in (".json", ".jsonl") else _cues(text))]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ArithmeticError) as error:
        raise ConfigError(f"{file}: not a subtitle file ({one_line(error, 120)})") from error
    return [Line(a, b, _CONTROL.sub("", t)) for a, b, t in lines], notes


def plain_text(markup: str) -> str:
    """The words of a line without the tags of SubRip, WebVTT and SubStation.

    >>> plain_text("{\\\\an8}Now we <c.yellow>fire</c> it.\\\\NSlowly.")
    'Now we fire it.\\nSlowly.'
    """
    import pysubs2

    text: str = pysubs2.SSAEvent(text=re.sub(r"</?[a-zA-Z0-9][^<>]*>", "", markup)).plaintext
    return text


def _decoded(data: bytes, name: str) -> tuple[str, list[str]]:
    """The text of a file, whatever wrote it."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace"), []
    try:
        return data.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace"), [f"{name}: not UTF-8; read as Windows-1252"]


def _cues(text: str) -> Iterator[Line]:
    import pysubs2

    try:
        found = pysubs2.SSAFile.from_string(text.replace("\r\n", "\n").replace("\r", "\n"))
    except pysubs2.exceptions.Pysubs2Error as error:
        raise ValueError("neither SubRip, WebVTT nor SubStation") from error
    for event in found:
        if not event.is_comment:
            said = plain_text(event.text)
            # In WebVTT a blank row ends a cue; what follows names the next one, or is a remark.
            said = said.partition("\n\n")[0] if found.format == "vtt" else said
            yield Line(event.start / 1000, event.end / 1000, said)


def _json_lines(file: Path, text: str) -> Iterator[Line]:
    if file.suffix.lower() == ".jsonl":
        rows: Any = [json.loads(row) for row in text.splitlines() if row.strip()]
    else:
        rows = json.loads(text)
    if isinstance(rows, dict):
        rows = next((rows[name] for name in _LISTS if isinstance(rows.get(name), list)), None)
    if not isinstance(rows, list):
        raise TypeError(f"no list of lines; looked for {', '.join(_LISTS)}")
    for row in rows:
        said = row["text"] if "text" in row else row["line"]
        start, end = row.get("start"), row.get("end")
        if "timestamp" in row:
            start, end = row["timestamp"]
        elif isinstance(row.get("offsets"), dict):  # whisper.cpp, milliseconds
            start, end = (_seconds(row["offsets"].get(name)) / 1000 for name in ("from", "to"))
        yield Line(_seconds(start), _seconds(end), str(said))


def _seconds(value: object) -> float:
    """A number of seconds, or 1:02:03.5; NaN for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    try:
        parts = [float(part) for part in str(value).replace(",", ".").split(":")]
    except ValueError:
        return math.nan
    return math.fsum(part * 60**power for power, part in enumerate(reversed(parts)))


TRACK_FORMAT = 1
_LANGUAGES = ("", ".en", ".eng", ".en-US", ".en-GB", ".en-orig", ".english")
"""The sentence encoder reads English; a file in another language must be named."""


@runtime_checkable
class HoldsTrack(Protocol):
    """A decoder of a file that may hold subtitles, and that knows where players begin to count."""

    @property
    def info(self) -> VideoInfo: ...

    @property
    def begins(self) -> float:
        """Where the file begins, in seconds from its first frame: 0, or less where sound comes first."""
        ...

    def subtitle_track(self) -> Transcript | None:
        """The text track inside the file that suits best; None where there is none."""
        ...


def find_transcript(video: Decoder, wanted: str = AUTO, store: Store | None = None) -> Transcript | None:
    """The transcript of an open video.

    Args:
        video: the video; times of its transcript count from its first frame.
        wanted: "auto" (a file with the video's name beside it, else a text track inside it), "none", a
            subtitle file, or a folder of files with the videos' names.
        store: where tracks are kept; finding one may take reading the whole file.

    Returns:
        The transcript, which may be nothing but notes; None where there is none.

    Raises:
        StoreError: there is no such file, or it cannot be read.
        ConfigError: the file given is no subtitle file.
    """
    if wanted == NONE:
        return None
    files = transcript_files(video.info.path, wanted)
    if wanted != AUTO and not Path(wanted).is_dir():
        if not files:
            raise StoreError(f"{wanted}: no such file; --subtitles takes auto, none, a file or a folder")
        return _from_file(files[0], video)
    notes: list[str] = []
    for file in files:
        try:
            return _from_file(file, video)
        except FramenestError as error:  # found by its name only: a .json may be anything
            notes += (
                [] if isinstance(error, ConfigError) and file.suffix == ".json" else [f"not used: {error}"]
            )
    track = _track(video, store) if wanted == AUTO and isinstance(video, HoldsTrack) else None
    if track is not None:
        return replace(track, notes=(*notes, *track.notes))
    return Transcript("", (), tuple(notes)) if notes else None


def transcript_files(video: str, wanted: str = AUTO) -> list[Path]:
    """The files that the transcript of a video may come from, the surest first; those that are there.

    Args:
        video: the path of the video, which is not opened.
        wanted: as `find_transcript` takes it.

    >>> transcript_files("silent.mp4")
    []
    """
    path, given = Path(video), Path(wanted)
    if wanted not in (AUTO, NONE) and not given.is_dir():
        return [given] if given.exists() else []
    if wanted == NONE or (wanted == AUTO and not path.is_file()):
        return []
    folder = path.parent if wanted == AUTO else given
    named = (f"{path.stem}{language}{suffix}" for language in _LANGUAGES for suffix in SUBTITLE_SUFFIXES)
    return [folder / name for name in named if (folder / name).is_file()]


def _track(video: HoldsTrack, store: Store | None) -> Transcript | None:
    """The track inside a video, from the store where it was read before."""
    if store is None:
        return video.subtitle_track()
    key = f"transcripts/{digest(video.info.fingerprint, video.info.stream, TRACK_FORMAT)}"
    kept = store.get(key)
    if kept is None:
        track = video.subtitle_track()
        header = {"kind": "track", "transcript": None if track is None else track.to_json()}
        keep(store, key, header, {})
        return track
    found = kept[0]["transcript"]
    return None if found is None else Transcript.from_json(found)


def _from_file(file: Path, video: Decoder) -> Transcript:
    lines, notes = read_lines(file)
    # Players count from where the file begins, which may be before its first picture.
    shift = video.begins if isinstance(video, HoldsTrack) else 0.0
    return Transcript.of(file.name, lines, video.info.duration, shift=shift, notes=notes)
