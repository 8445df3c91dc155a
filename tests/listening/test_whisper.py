"""The code path of faster-whisper, with random weights: what it says means nothing."""

import math
from dataclasses import replace

import numpy as np
import pytest

from framenest import ScorerConfig, listening, models
from framenest.cache.directory import DirectoryStore
from framenest.errors import ScorerError
from framenest.listening import load_recognizer
from media import voice

pytest.importorskip("faster_whisper", reason="needs the extra `asr`")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    pytest.importorskip("transformers", reason="needs transformers; make test-models installs it")
    from random_whisper import random_whisper

    return random_whisper(tmp_path_factory.mktemp("random"))


def recognizer(weights, store, **settings):
    return load_recognizer(ScorerConfig(listen=True, listen_model=str(weights), **settings), store)


@pytest.fixture
def store(cache):
    return DirectoryStore(cache)


def test_segments_are_lines_with_their_confidence(weights, store, monkeypatch):
    monkeypatch.setattr("faster_whisper.transcribe.WhisperModel.generate_segments", unsure)
    heard = recognizer(weights, store, device="cpu").recognize(voice(4))
    assert [(round(one.start, 1), one.text) for one in heard.lines] == [(0.1, " a word"), (0.3, " another")]
    assert [one.confidence for one in heard.lines] == pytest.approx([math.exp(-0.1), math.exp(-2)])
    assert heard.language == "en"


def unsure(model, features, tokenizer, options, *_):
    """Two segments in place of what random weights generate."""
    from faster_whisper.transcribe import Segment

    assert features.shape[0] == 80
    assert (options.temperatures, options.condition_on_previous_text) == ([0.0], False)
    for number, (text, likelihood) in enumerate(((" a word", -0.1), (" another", -2.0))):
        yield Segment(
            id=number, seek=0, start=0.1 + 0.2 * number, end=0.2 + 0.2 * number, text=text, tokens=[],
            avg_logprob=likelihood, compression_ratio=1.0, no_speech_prob=0.0, words=None, temperature=0.0,
        )  # fmt: skip


def test_the_model_itself_runs_and_loops_are_dropped(weights, store, monkeypatch):
    whisper = recognizer(weights, store, device="cpu")
    assert whisper.recognize(np.zeros(32_000, np.float32)).lines == (), "no voice"
    assert whisper.recognize(voice(4)).lines == (), "random weights repeat themselves, unsurely"
    monkeypatch.setattr(listening, "LOOP_RATIO", math.inf)
    monkeypatch.setattr("faster_whisper.transcribe.WhisperModel.generate_segments", looping)
    assert len(whisper.recognize(voice(4)).lines) == 1
    monkeypatch.setattr(listening, "LOOP_RATIO", 2.4)
    assert whisper.recognize(voice(4)).lines == ()


def looping(model, features, tokenizer, options, *_):
    """One segment that repeats itself."""
    (segment, _) = unsure(model, features, tokenizer, options)
    segment.compression_ratio = 3.0
    yield segment


def test_its_name_is_all_that_changes_what_it_hears(weights, store):
    name = recognizer(weights, store, device="cpu").name
    assert name.startswith("faster-whisper whisper-random@")
    assert name.endswith(" int8")
    assert recognizer(weights, store, device="cpu", listen_translate=True).name == f"{name}, translated"


def test_a_model_that_cannot_be_loaded_is_one_line(weights, store, tmp_path):
    (tmp_path / "model.bin").write_bytes(b"no model")
    with pytest.raises(ScorerError, match="Whisper failed: "):
        recognizer(tmp_path, store, device="cpu").recognize(voice(2))


def test_without_weights_the_error_says_how_to_get_them(store):
    with pytest.raises(
        ScorerError, match=r"weights of 'asr' are not .*; run: framenest models fetch asr \(463.5 MiB\)$"
    ):
        load_recognizer(ScorerConfig(listen=True), store)
    with pytest.raises(ScorerError, match=r"run: framenest models fetch asr:tiny$"):
        load_recognizer(ScorerConfig(listen=True, listen_model="tiny"), store)
    with pytest.raises(ScorerError, match="no such folder"):
        load_recognizer(ScorerConfig(listen=True, listen_model="./none"), store)


def test_without_the_extra_the_error_names_it_and_its_size(store, monkeypatch):
    missing = replace(models.CATALOGUE["asr"], packages=("faster_whisper_none_such",))
    monkeypatch.setitem(models.CATALOGUE, "asr", missing)
    how = r"\[asr\]'? \(260 MB\) && framenest models fetch asr \(463.5 MiB\)$"
    with pytest.raises(ScorerError, match=how):
        load_recognizer(ScorerConfig(listen=True), store)


def test_a_size_is_a_repository_of_the_default_ones_owner():
    repo = models.CATALOGUE["asr"].repo
    assert models._chosen(repo, "large-v3", "").repo == "Systran/faster-whisper-large-v3"
    assert models._chosen(repo, "org/name", "").repo == "org/name"
    assert models._chosen(repo, "", "") == repo
    assert len(repo.revision) == 40
