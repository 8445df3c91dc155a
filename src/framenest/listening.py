"""Listening: a recognizer makes a transcript of a video's sound, piece by piece."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from statistics import mode
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import DirectoryStore, keep
from framenest.cache.hashes import digest
from framenest.config import ScorerConfig
from framenest.errors import MissingExtra, ModelError, ScorerError
from framenest.models import CATALOGUE, locate
from framenest.plugins import load_plugin, plugins
from framenest.processes import cores
from framenest.protocols import Progress, Store
from framenest.scorers.checkpoint import EachProcess
from framenest.text import one_line, size_text
from framenest.transcript import Line, Transcript
from framenest.video.decoder import SOUND_RATE, Decoder, HasSound

LISTENING_FORMAT = 1
PIECE_SECONDS, END_SECONDS, OVERLAP_SECONDS = 120, 20, 2
"""Sound that is recognized at a time; it ends at the quietest moment of its last seconds. Sound of its
neighbours is recognized with it: a line belongs to the piece that its middle is in."""
SILENCE = 1e-3  # of full scale, -60 dB; without a louder sample nothing is recognized
LOOP_RATIO = 2.4  # of a text's size to its compressed size, above which Whisper takes it for a loop


class Recognizer(NamedTuple):
    """Recognizes speech. Entry points of `framenest.recognizers` make one of (model, store, config).

    They get the model's name, "" for the default; the DirectoryStore of weights; the ScorerConfig.
    """

    name: str
    """With all that changes what it recognizes, such as weights and settings; part of the cache key."""
    recognize: Callable[[NDArray[np.float32]], Transcript]
    """The lines, timed from the start, of (n,) mono samples in [-1, 1], SOUND_RATE a second; their language.

    ModelError or ScorerError if it fails; the ranking goes on without.
    """


def whisper(model: str, store: DirectoryStore, config: ScorerConfig) -> Recognizer:
    """Whisper through faster-whisper, which skips what is no voice. model: a size, a folder or org/name."""
    entry = CATALOGUE["asr"]
    if missing := entry.missing():
        sizes = f"150 MB, then framenest models fetch asr, {size_text(entry.size)}"
        raise ScorerError(f"{MissingExtra(entry.extra, missing)} ({sizes})")
    import ctranslate2
    from faster_whisper import WhisperModel

    checkpoint, (device, _, number) = locate("asr", model, store), config.device.partition(":")
    gpu = device == "cuda" or (device == "auto" and ctranslate2.get_cuda_device_count())
    on = ("cuda", int(number.partition(",")[0] or 0), "float16") if gpu else ("cpu", 0, "int8")
    load = cache(lambda: EachProcess(lambda: WhisperModel(str(checkpoint.path), *on, cpu_threads=cores())))
    # Without sampling, so that the same sound gives the same lines.
    how: dict[str, Any] = {"temperature": 0.0, "condition_on_previous_text": False, "vad_filter": True}
    how["task"] = "translate" if config.listen_translate else "transcribe"

    def recognize(samples: NDArray[np.float32]) -> Transcript:
        try:
            segments, about = load()().transcribe(samples, **how)
            said = [one for one in segments if one.compression_ratio <= LOOP_RATIO]
        except (RuntimeError, ValueError) as error:
            raise ScorerError(f"Whisper failed: {one_line(error)}") from error
        lines = (Line(one.start, one.end, one.text, math.exp(min(0.0, one.avg_logprob))) for one in said)
        return Transcript("Whisper", tuple(lines), language=about.language)

    return Recognizer(f"faster-whisper {checkpoint} {on[-1]}", recognize)


def load_recognizer(config: ScorerConfig, store: DirectoryStore) -> Recognizer | None:
    """The recognizer that the settings name; None if they want none. ScorerError if it cannot run here."""
    if not config.listen and config.listen_url is None:
        return None
    points, model = plugins("framenest.recognizers"), config.listen_model or ""
    name = "whisper" if config.listen_url is None else "server"
    if config.listen_url is None and model.partition(":")[0] in points:
        name, _, model = model.partition(":")
    recognizer: Recognizer = load_plugin(points[name])(model, store, config)
    return recognizer._replace(name=recognizer.name + ", translated" * config.listen_translate)


def transcribe(video: Decoder, recognizer: Recognizer, store: Store, progress: Progress) -> Transcript:
    """What is said in a video, with a note if that is nothing, or if the recognizer failed.

    Each piece is stored when it is recognized, so interrupted work continues where it stopped.
    """
    name = f"the sound, by {recognizer.name}"
    key = f"transcripts/{digest(video.info.fingerprint, video.name, video.version, name, LISTENING_FORMAT)}"
    done: dict[str, Any] = {"kind": "sound", "end": 0, "complete": False, "loud": False, "lines": []}
    done |= (store.get(key) or ({},))[0]
    try:
        for start, end, samples in () if done["complete"] else _pieces(video, done["end"]):
            progress("listening (s)", start // SOUND_RATE, round(video.info.duration))
            loud = bool(np.abs(samples).max(initial=0) > SILENCE)
            spoken = recognizer.recognize(samples) if loud else Transcript("")
            first = max(0, start / SOUND_RATE - OVERLAP_SECONDS)
            for line in spoken.lines:
                if start <= (first + (line.start + line.end) / 2) * SOUND_RATE < (end or math.inf):
                    times = first + line.start, first + line.end
                    done["lines"].append([*times, line.text, line.confidence, spoken.language])
            done |= {
                "end": end or start + len(samples),
                "complete": end is None,
                "loud": done["loud"] or loud,
            }
            keep(store, key, done, {})
    except (ModelError, ScorerError) as error:
        return Transcript("", (), (f"no transcript of the sound: {error}",))
    if not done["lines"]:
        why = "no speech in it" if done["loud"] else "it is silent" if done["end"] else "none can be decoded"
        return Transcript(name, (), (f"no transcript of the sound: {why}",))
    transcript = Transcript.of(name, (Line(*line[:4]) for line in done["lines"]), video.info.duration)
    return replace(transcript, language=mode(line[4] for line in done["lines"]))


def _pieces(video: Decoder, start: int) -> Iterator[tuple[int, int | None, NDArray[np.float32]]]:
    """(start, end, samples with the overlap) of pieces from a sample on; the last has no end."""
    overlap, length, last = (SOUND_RATE * n for n in (OVERLAP_SECONDS, PIECE_SECONDS, END_SECONDS))
    first, blocks = max(0, start - overlap), [np.zeros(0, np.float32)]
    for block in video.sound(first) if isinstance(video, HasSound) else ():
        blocks.append(block)
        if first + sum(map(len, blocks)) >= start + length + overlap:
            samples, end = np.concatenate(blocks), start + length - last
            moments = samples[end - first : end - first + last].reshape(-1, SOUND_RATE // 2)
            end += int((np.square(moments).mean(1).argmin() + 0.5) * SOUND_RATE / 2)
            yield start, end, samples[: end - first + overlap]
            start, first, blocks = end, end - overlap, [samples[end - first - overlap :]]
    yield start, None, np.concatenate(blocks)
