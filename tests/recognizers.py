"""Recognizers for tests: one that says what it is told, and one of an installed package."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint

import numpy as np

from framenest import listening
from framenest.errors import ScorerError
from framenest.listening import Recognizer
from framenest.transcript import Line, Transcript
from framenest.video.decoder import SOUND_RATE

HEARS = "framenest.recognizers"


class Scripted:
    """Hears a word of `words` in each stretch of sound, by its pitch in hundreds of hertz."""

    def __init__(self, words, *, confidence=0.9, language="en", fails_at=()) -> None:
        self.words, self.confidence, self.language = words, confidence, language
        self.fails_at, self.pieces = set(fails_at), []

    def __call__(self, model="", store=None, config=None) -> Recognizer:
        """What the entry point does."""
        return Recognizer(f"scripted {model}".strip(), self.recognize)

    def recognize(self, samples) -> Transcript:
        self.pieces.append(len(samples) / SOUND_RATE)
        if len(self.pieces) in self.fails_at:
            raise ScorerError("the recognizer broke down")
        loud = "".join(
            "x" if block.max() > 0.1 else " " for block in np.array_split(samples, len(samples) // 1600)
        )
        lines = []
        for match in re.finditer("x+", loud):
            stretch = samples[match.start() * 1600 : match.end() * 1600]
            strongest = np.abs(np.fft.rfft(stretch)).argmax() * SOUND_RATE / len(stretch)
            pitch = round(strongest / 100)
            start, end = match.start() / 10, match.end() / 10
            lines.append(Line(start, end, self.words.get(pitch, "?"), self.confidence))
        return Transcript("scripted", tuple(lines), language=self.language)

    def install(self, monkeypatch, name="scripted"):
        """As an installed package would; returns itself."""
        point = EntryPoint(name, "recognizers:unused", HEARS)
        points = listening.plugins(HEARS)
        monkeypatch.setattr(listening, "plugins", lambda _: points | {name: point})
        usual = listening.load_plugin
        monkeypatch.setattr(listening, "load_plugin", lambda one: self if one is point else usual(one))
        return self


def beeps(*hundreds, seconds=1.0, pause=2.0):
    """(n,) samples: a second of each of these pitches, in hundreds of hertz, with pauses around."""
    silence, time = np.zeros(round(pause * SOUND_RATE)), np.arange(round(seconds * SOUND_RATE)) / SOUND_RATE
    parts = [silence]
    for pitch in hundreds:
        parts += [0.5 * np.sin(2 * np.pi * 100 * pitch * time), silence]
    return np.concatenate(parts).astype(np.float32)


def pocketsphinx(model, store, config) -> Recognizer:
    """A real recognizer, with the model of US English in its wheel."""
    from pocketsphinx import Decoder

    decoder = Decoder(loglevel="FATAL")

    def recognize(samples) -> Transcript:
        decoder.start_utt()
        decoder.process_raw((samples * 32767).astype("<i2").tobytes(), full_utt=True)
        decoder.end_utt()
        lines: list[Line] = []
        for word in decoder.seg():
            text, start, end = word.word.partition("(")[0], word.start_frame / 100, (word.end_frame + 1) / 100
            if text.startswith(("<", "[")):
                continue
            if lines and start - lines[-1].end < 0.3:
                lines[-1] = lines[-1]._replace(end=end, text=f"{lines[-1].text} {text}")
            else:
                lines.append(Line(start, end, text))
        return Transcript("pocketsphinx", tuple(lines), language="en")

    return Recognizer("pocketsphinx en-us", recognize)
