"""Transcripts: the speech in a video, from a subtitle file or a text track inside the video."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from os.path import isfile  # False if the name is too long
from pathlib import Path
from typing import Any, NamedTuple

import pysubs2

from framenest.cache.directory import keep
from framenest.cache.hashes import digest
from framenest.errors import ConfigError, FramenestError, StoreError
from framenest.protocols import Store
from framenest.records import convert, parse_json
from framenest.text import clock, one_line, seconds_of, size_text
from framenest.video.decoder import Decoder, HasFile, HasSubtitles, SubtitleTrack

AUTO, NONE = "auto", "none"
"""Values of the setting `subtitles`: search for a transcript, or use none."""

LINE_SECONDS = 5.0  # seconds that a line without an end lasts, unless the next one begins earlier
ROLLING_SECONDS = 0.05  # seconds between captions that follow each other directly, as rolling captions do
REACH = 1.0  # a passage also counts this many seconds before and after it, falling to half

SUBTITLE_SUFFIXES = (".srt", ".vtt", ".ass", ".ssa", ".json")  # next to a video, in order of preference
MAX_SECONDS = 1e9  # seconds; a larger number is not a time
MAX_SUBTITLE_BYTES = 64 * 2**20  # bytes of a subtitle file
TRACK_FORMAT = 1
_LANGUAGES = ("", ".en", ".eng", ".en-US", ".en-GB", ".en-orig", ".english")
"""The sentence encoder understands English; a file in another language must be named."""
_LISTS = ("segments", "chunks", "transcription", "lines")  # of whisper, transformers, whisper.cpp, ours
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ufffe\uffff]")


class Line(NamedTuple):
    """A line of a transcript. Times are seconds from the first frame, NaN if unknown."""

    start: float
    end: float
    text: str
    confidence: float | None = None  # of a speech recognizer, in [0, 1]

    def surely(self, least: float) -> bool:
        """Whether its words are, with this confidence at least, what is said."""
        return self.confidence is None or self.confidence >= least


@dataclass(frozen=True)
class Transcript:
    """What is said in a video.

    Attributes:
        source: where it was found, for people: "kiln.srt", "track 2 (subrip, eng)".
        lines: ordered by start, none empty.
        notes: problems found while reading it.
        language: the language that is spoken, such as "en"; None if unknown.

    >>> lines = (Line(1.0, 3.0, "Now we fire it."), Line(9.0, 11.0, "Let it cool."))
    >>> [line.text for line in Transcript("kiln.srt", lines).within(2.5, 4.5).lines]
    ['Now we fire it.']
    """

    source: str
    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()
    language: str | None = None

    @classmethod
    def of(cls, source: str, lines: Iterable[Line], duration: float, shift: float = 0.0) -> Transcript:
        """Make a transcript from the lines of a file, broken ones included.

        Lines that start after `duration`, that of the video in seconds, are left out. `shift` is added to
        every time, so that 0 is the first frame.
        """
        worded = [line for line in lines if line.text.strip()]
        usable = [line for line in worded if abs(line.start) < MAX_SECONDS and not line.end < line.start]
        timed = [Line(a + shift, b + shift if b < MAX_SECONDS else math.nan, t, c) for a, b, t, c in usable]
        here = [line for line in sorted(timed) if line.start < duration and not line.end < 0]
        problems = []
        if len(timed) < len(worded):
            problems.append(
                f"{source}: {len(worded) - len(timed)} of {len(worded)} lines have no usable times; left out"
            )
        if len(here) < len(timed):
            last = clock(max(0.0, *(line.start for line in timed)))
            problems.append(
                f"{source}: {len(timed) - len(here)} of {len(timed)} lines are not in this video of "
                f"{clock(duration)} (the last begins at {last}); is it the transcript of another video?"
            )
        if not worded:
            problems.append(f"{source}: no lines found")
        return cls(source, tuple(_unrolled(here)), tuple(problems))

    def within(self, start: float, end: float) -> Transcript:
        """Only the lines that overlap the interval from start to end, in seconds."""
        lines = tuple(line for line in self.lines if line.end >= start and line.start <= end)
        return replace(self, lines=lines)

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"lines": [*map(list, self.lines)], "notes": [*self.notes]}


def _unrolled(lines: Sequence[Line]) -> list[Line]:
    """Give every line an end and one row of text, and drop the rows that rolling captions repeat."""
    unrolled: list[Line] = []
    before: list[str] = []
    for place, (start, end, text, confidence) in enumerate(lines):
        following = lines[place + 1].start if place + 1 < len(lines) else math.inf
        until = end if math.isfinite(end) else min(start + LINE_SECONDS, max(start, following))
        rows = [" ".join(row.split()) for row in text.splitlines() if row.strip()]
        rolls = bool(unrolled) and start <= unrolled[-1].end + ROLLING_SECONDS
        new = [row for row in rows if not (rolls and row in before)]
        if new:
            unrolled.append(Line(start, until, " ".join(new), confidence))
        elif unrolled[-1].end < until:
            unrolled[-1] = unrolled[-1]._replace(end=until)
        before = rows
    return unrolled


def find_transcript(video: Decoder, wanted: str = AUTO, store: Store | None = None) -> Transcript | None:
    """Find the transcript of an open video, which may hold only notes; None if there is none.

    wanted: "auto" (a file with the video's name next to it, otherwise a text track inside it), "none", a
    subtitle file, or a folder of files with the videos' names. store: caches tracks, since reading one may
    mean reading the whole video file. Raises as `read_lines` if a file that `wanted` names is unusable.
    """
    if wanted == NONE:
        return None
    # The video of a web page is in the cache, with its captions next to it.
    beside = video.local_file if wanted == AUTO and isinstance(video, HasFile) else None
    files = transcript_files(beside or video.info.path, wanted)
    if wanted != AUTO and not Path(wanted).is_dir():
        if not files:
            raise StoreError(f"{wanted}: no such file; subtitles may be auto, none, a file or a folder")
        return _from_file(files[0], video)
    notes: list[str] = []
    for file in files:
        try:
            return _from_file(file, video)
        except FramenestError as error:
            if not isinstance(error, ConfigError) or file.suffix != ".json":  # a .json may be anything
                notes.append(f"not used: {error}")
    track = _track(video, store) if wanted == AUTO and isinstance(video, HasSubtitles) else None
    if track is not None:
        return replace(track, notes=(*notes, *track.notes))
    return Transcript("", (), tuple(notes)) if notes else None


def transcript_files(video: str, wanted: str = AUTO) -> list[Path]:
    """The existing files that may hold the transcript of the video at a path, best first.

    >>> transcript_files("lathe.mp4")
    []
    """
    path, place = Path(video), Path(wanted)
    if wanted not in (AUTO, NONE) and not place.is_dir():
        return [place] if place.exists() else []
    if wanted == NONE or (wanted == AUTO and not path.is_file()):
        return []
    folder = path.parent if wanted == AUTO else place
    named = (f"{path.stem}{language}{suffix}" for language in _LANGUAGES for suffix in SUBTITLE_SUFFIXES)
    return [folder / name for name in named if isfile(folder / name)]  # noqa: PTH113 - as above


def _from_file(file: Path, video: Decoder) -> Transcript:
    lines, notes = read_lines(file)
    shift = video.clock_start() if isinstance(video, HasFile) else 0.0
    transcript = Transcript.of(file.name, lines, video.info.duration, shift)
    return replace(transcript, notes=(*notes, *transcript.notes))


def read_lines(path: str | Path) -> tuple[list[Line], list[str]]:
    """Read the lines of a subtitle file, in its order, with times on its own clock, and notes on problems.

    .srt, .vtt, .ass, .ssa; .json of whisper, faster-whisper, WhisperX, whisper.cpp, OpenAI's API,
    transformers, or a list of {"start", "end", "text"}. StoreError if it cannot be read, ConfigError if it is
    not a subtitle file.

    >>> _ = Path("kiln.srt").write_text("1\\n00:00:07,000 --> 00:00:08,500\\nNow we <i>fire</i> it.\\n")
    >>> read_lines("kiln.srt")
    ([Line(start=7.0, end=8.5, text='Now we fire it.', confidence=None)], [])
    """
    file = Path(path)
    try:
        size = file.stat().st_size
        if size > MAX_SUBTITLE_BYTES:
            raise ConfigError(f"{file}: {size_text(size)} is too large for a subtitle file")
        data, notes = file.read_bytes(), list[str]()
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror})") from error
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = data.decode(encoding, "replace" if encoding == "utf-16" else "strict")
    except UnicodeDecodeError:
        text, notes = data.decode("cp1252", "replace"), [f"{file.name}: not UTF-8; read as Windows-1252"]
    try:
        lines = [*(json_lines(parse_json(text)) if file.suffix.lower() == ".json" else _cues(text))]
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise ConfigError(f"{file}: not a subtitle file ({one_line(error, 120)})") from error
    return [line._replace(text=_CONTROL.sub("", line.text)) for line in lines], notes


def _cues(text: str) -> Iterator[Line]:
    try:
        rows = text.replace("\r\n", "\n").replace("\r", "\n")
        rows = re.sub("\n{3,}", "\n\n", rows)  # pysubs2 takes quadratic time for blank rows, and for "<a<a"
        subtitles = pysubs2.SSAFile.from_string(rows, keep_html_tags=True)
    except pysubs2.exceptions.Pysubs2Error as error:
        raise ValueError("neither SubRip, WebVTT nor SubStation") from error
    for event in subtitles:
        if not event.is_comment:
            words = _plain_text(event.text)
            # In WebVTT a blank row ends a cue; what follows is the next one's name, or a comment.
            words = words.partition("\n\n")[0] if subtitles.format == "vtt" else words
            yield Line(event.start / 1000, event.end / 1000, words)


def _plain_text(markup: str) -> str:
    """The words of a line without the tags of SubRip, WebVTT and SubStation."""
    text = re.sub(r"</?[a-zA-Z0-9][^<>]*>", "", markup)
    end = text.rfind("}") + 1  # without it, a row of "{" would take quadratic time
    text = re.sub(r"\{[^}]*\}", "", text[:end]) + text[end:]
    return text.replace(r"\h", " ").replace(r"\n", "\n").replace(r"\N", "\n")


def json_lines(rows: Any) -> Iterator[Line]:
    """The lines in what whisper and its relatives write, parsed; raises TypeError or the like if in none."""
    if isinstance(rows, dict):
        rows = next((rows[name] for name in _LISTS if isinstance(rows.get(name), list)), None)
    if not isinstance(rows, list):
        raise TypeError(f"no list of lines; looked for {', '.join(_LISTS)}")
    for row in rows:
        words = row["text"] if "text" in row else row["line"]
        start, end = row.get("start"), row.get("end")
        if "timestamp" in row:
            start, end = row["timestamp"]
        elif isinstance(row.get("offsets"), dict):  # whisper.cpp, milliseconds
            start, end = (_seconds(row["offsets"].get(name)) / 1000 for name in ("from", "to"))
        likelihood = row.get("avg_logprob")
        known = isinstance(likelihood, (int, float)) and likelihood <= 0
        yield Line(_seconds(start), _seconds(end), str(words), math.exp(likelihood) if known else None)


def _seconds(value: object) -> float:
    """A number of seconds, or 1:02:03.5; NaN for anything else."""
    try:
        return seconds_of(str(value).replace(",", "."))
    except ValueError:
        return math.nan


def _track(video: HasSubtitles, store: Store | None) -> Transcript | None:
    """The transcript from a track inside the video, cached in the store."""
    key = f"transcripts/{digest(video.info.fingerprint, video.info.stream, TRACK_FORMAT)}"
    if store and (entry := store.get(key)):
        content = entry[0]["transcript"]
        return convert(content, Transcript) if content else None
    track = _read_track(video)
    if store:
        keep(store, key, {"kind": "track", "transcript": track.to_json() if track else None}, {})
    return track


def _read_track(video: HasSubtitles) -> Transcript | None:
    """The best text track: not forced, English, the file's default, the first. None if there is no track."""
    tracks = video.subtitle_tracks()
    if not tracks:
        return None
    texts = [track for track in tracks if track.is_text]
    if not texts:
        kinds = ", ".join(sorted({track.codec for track in tracks}))
        note = f"its subtitles are images ({kinds}), not text; a transcript can be given as a file"
        return Transcript("", (), (note,))
    best = min(texts, key=lambda one: (one.forced, not _is_english(one), not one.default, one.number))
    lines = [Line(start, end, _plain_text(text)) for start, end, text in video.subtitle_lines(best)]
    about = ", ".join(filter(None, [best.codec, best.language]))
    return Transcript.of(f"track {best.number} ({about})", lines, video.info.duration)


def _is_english(track: SubtitleTrack) -> bool:
    return (track.language or "").lower().startswith("en")
