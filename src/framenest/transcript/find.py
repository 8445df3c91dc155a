"""Where the transcript of a video is: a file given, a file beside the video, a track inside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from framenest.cache.directory import keep
from framenest.cache.hashes import digest
from framenest.errors import ConfigError, FramenestError, StoreError
from framenest.frames import VideoInfo
from framenest.protocols import Decoder, Store
from framenest.transcript import AUTO, NONE
from framenest.transcript.subtitle_files import SUBTITLE_SUFFIXES, read_lines
from framenest.transcript.transcript import Transcript

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

    >>> transcript_files("kiln.mp4")
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
