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
from framenest.errors import ConfigError, MissingExtra, ModelError, ScorerError
from framenest.models import CATALOGUE, locate
from framenest.plugins import load_plugin, plugins
from framenest.processes import cores
from framenest.protocols import Progress, Store
from framenest.scorers.checkpoint import EachProcess
from framenest.text import one_line, size_text
from framenest.transcript import Line, Transcript
from framenest.video.decoder import SOUND_RATE, Decoder, HasStreams

Samples = NDArray[np.float32]  # (n,) mono, in [-1, 1], SOUND_RATE a second
PIECE_SECONDS, END_SECONDS, OVERLAP_SECONDS = 120, 20, 2
"""Sound that is recognized at a time; it ends at the quietest moment of its last seconds. Sound of its
neighbours is recognized with it: a line belongs to the piece that its middle is in."""
SILENCE = 1e-3  # of full scale, -60 dB; without a louder sample nothing is recognized
LOOP_RATIO = 2.4  # of a text's size to its compressed size, above which Whisper takes it for a loop


class Recognizer(NamedTuple):
    """Recognizes speech. Entry points of `framenest.recognizers` make one of (model, store, config): its
    model's name, "" for the default; the DirectoryStore of weights; the ScorerConfig.
    """

    name: str
    """With all that changes what it recognizes, such as weights and settings; part of the cache key."""
    recognize: Callable[[Samples], Transcript]
    """The lines, timed from the first sample, and the language. ModelError or ScorerError if it fails."""


def whisper(model: str, store: DirectoryStore, config: ScorerConfig) -> Recognizer:
    """Whisper through faster-whisper, which skips what is no voice. model: a size, a folder or org/name."""
    if missing := CATALOGUE["asr"].missing():
        fetch = f"framenest models fetch asr ({size_text(CATALOGUE['asr'].size)})"
        raise ScorerError(f"{MissingExtra('asr', missing)} (260 MB) && {fetch}")
    import ctranslate2
    from faster_whisper import WhisperModel

    checkpoint, (device, _, number) = locate("asr", model, store), config.device.partition(":")
    gpu = device == "cuda" or (device == "auto" and ctranslate2.get_cuda_device_count())
    on = ("cuda", int(number.partition(",")[0] or 0), "float16") if gpu else ("cpu", 0, "int8")
    load = cache(lambda: EachProcess(lambda: WhisperModel(str(checkpoint.path), *on, cpu_threads=cores())))
    # Without sampling, so that the same sound gives the same lines.
    how: dict[str, Any] = {"temperature": 0.0, "condition_on_previous_text": False, "vad_filter": True}
    how["task"] = "translate" if config.listen_translate else "transcribe"

    def recognize(samples: Samples) -> Transcript:
        try:
            segments, about = load()().transcribe(samples, **how)
            said = [one for one in segments if one.compression_ratio <= LOOP_RATIO]
        except (RuntimeError, ValueError) as error:
            raise ScorerError(f"Whisper failed: {one_line(error)}") from error
        lines = (Line(one.start, one.end, one.text, math.exp(min(0.0, one.avg_logprob))) for one in said)
        return Transcript("", tuple(lines), language=about.language)

    return Recognizer(f"faster-whisper {checkpoint} {on[-1]}", recognize)


def load_recognizer(config: ScorerConfig, store: DirectoryStore) -> Recognizer | None:
    """The recognizer that the settings name; None if they want none. ScorerError if it cannot run here."""
    if not config.listen and config.listen_url is None:
        return None
    points, wanted = plugins("framenest.recognizers"), config.listen_model or ""
    if config.listen_url is not None or wanted.partition(":")[0] not in points:
        wanted = f"{'whisper' if config.listen_url is None else 'server'}:{wanted}"
    name, _, model = wanted.partition(":")
    recognizer: Recognizer = load_plugin(points[name])(model, store, config)
    return recognizer._replace(name=recognizer.name + ", translated" * config.listen_translate)


def transcribe(video: Decoder, recognizer: Recognizer, store: Store, progress: Progress) -> Transcript:
    """What is said in a video, or a note why nothing is. Each piece is stored; a killed run continues."""
    name = f"the sound, by {recognizer.name}"
    key = f"transcripts/{digest(video.info.fingerprint, video.name, video.version, name)}"
    done: dict[str, Any] = {"kind": "sound", "end": 0, "complete": False, "lines": []}
    done |= (store.get(key) or ({},))[0]
    try:
        for start, end, samples in () if done["complete"] else _pieces(video, done["end"]):
            progress("listening (s)", start // SOUND_RATE, round(video.info.duration))
            loud = np.abs(samples).max(initial=0) > SILENCE
            spoken = recognizer.recognize(samples) if loud else Transcript("")
            at = max(0, start / SOUND_RATE - OVERLAP_SECONDS)
            lines: list[Any] = [[at + a, at + b, *rest, spoken.language] for a, b, *rest in spoken.lines]
            done["lines"] += [line for line in lines if start <= SOUND_RATE * (line[0] + line[1]) / 2 < end]
            done |= {"end": min(end, start + len(samples)), "complete": end == math.inf}
            keep(store, key, done, {})
    except (ConfigError, ModelError, ScorerError) as error:
        return Transcript("", (), (f"no transcript of the sound: {error}",))
    if not done["lines"]:
        streams = video.streams() if isinstance(video, HasStreams) else []
        damaged = any(stream.startswith("audio") for stream in streams)
        why = "no speech in it" if done["end"] else "none can be decoded" if damaged else "it has none"
        return Transcript(name, (), (f"no transcript of the sound: {why}",))
    transcript = Transcript.of(name, (Line(*line[:4]) for line in done["lines"]), video.info.duration)
    return replace(transcript, language=mode(line[4] for line in done["lines"]))


def _pieces(video: Decoder, start: int) -> Iterator[tuple[int, float, Samples]]:
    """(start, end, samples with the overlap) of pieces from a sample on; the end of the last is inf."""
    overlap, length, last = (SOUND_RATE * n for n in (OVERLAP_SECONDS, PIECE_SECONDS, END_SECONDS))
    first, blocks = max(0, start - overlap), [np.zeros(0, np.float32)]
    for block in video.sound(first) if isinstance(video, HasStreams) else ():
        blocks.append(block)
        if first + sum(map(len, blocks)) >= start + length + overlap:
            samples, end = np.concatenate(blocks), start + length - last
            moments = samples[end - first : end - first + last].reshape(-1, SOUND_RATE // 2)
            end += int((np.square(moments).mean(1).argmin() + 0.5) * SOUND_RATE / 2)
            yield start, end, samples[: end - first + overlap]
            start, first, blocks = end, end - overlap, [samples[end - first - overlap :]]
    yield start, math.inf, np.concatenate(blocks)
