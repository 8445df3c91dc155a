"""Speech recognition by an OpenAI-compatible server: a scripted one."""

import io
import re
import wave

import numpy as np
import pytest

from framenest import MEC, ScorerConfig, Session
from framenest.cache.directory import DirectoryStore
from framenest.errors import ConfigError, VideoError
from framenest.listening import load_recognizer, transcribe
from framenest.server.video_worker import VideoTasks
from framenest.video.opening import open_video
from media import talking_video
from recognizers import beeps
from scripted_server import ScriptedServer

pytest.importorskip("openai", reason="needs the extra `ask`")

SEGMENT = {"id": 0, "start": 2.0, "end": 3.0, "text": " We fire it.", "avg_logprob": -0.2}
UNSURE = {"id": 1, "start": 5.0, "end": 6.5, "text": " It cools.", "avg_logprob": -1.5}
SAID = 200, {"language": "english", "text": "We fire it. It cools.", "segments": [SEGMENT, UNSURE]}


@pytest.fixture
def talk(tmp_path):
    return open_video(talking_video(tmp_path / "talk.mkv", beeps(3, 5)))


def listen(talk, cache, url, **settings):
    store = DirectoryStore(cache)
    recognizer = load_recognizer(ScorerConfig(listen_url=url, **settings), store)
    return transcribe(talk, recognizer, store, lambda *_: None)


def sent(form, name):
    """The value of a field in the form."""
    return re.search(rb'name="%s"\r\n\r\n(.*?)\r\n--' % name.encode(), form, re.DOTALL)[1].decode()


def test_the_sound_is_sent_and_the_segments_are_lines(talk, cache, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "key-for-listening")
    with ScriptedServer(SAID, models=("whisper-7",)) as server:
        transcript = listen(talk, cache, server.url)
        assert listen(talk, cache, server.url) == transcript
        ((path, headers, form),) = server.requests
    assert path == "/v1/audio/transcriptions"
    assert headers["authorization"] == "Bearer key-for-listening"
    assert (sent(form, "model"), sent(form, "response_format")) == ("whisper-7", "verbose_json")
    with wave.open(io.BytesIO(form[form.index(b"RIFF") :])) as wav:
        assert (wav.getframerate(), wav.getnchannels(), wav.getsampwidth()) == (16_000, 1, 2)
        samples = np.frombuffer(wav.readframes(8 * 16_000), "<i2") / 32767
    np.testing.assert_allclose(samples, np.concatenate([*talk.sound()]), atol=1e-3)
    assert [(a, b, text) for a, b, text, _ in transcript.lines] == [
        (2, 3, "We fire it."),
        (5, 6.5, "It cools."),
    ]
    assert [line.confidence for line in transcript.lines] == pytest.approx([0.819, 0.223], abs=1e-3)
    assert transcript.language == "english"
    assert transcript.source == f"the sound, by the model at {server.url}"


def test_what_is_cached_serves_while_the_server_is_down(talk, cache):
    with ScriptedServer(SAID) as server:
        heard = [listen(talk, cache, server.url, **model) for model in ({}, {"listen_model": "large"})]
    assert [listen(talk, cache, server.url, **model) for model in ({}, {"listen_model": "large"})] == heard
    assert [len(transcript.lines) for transcript in heard] == [2, 2]


@pytest.mark.parametrize("language", [7, ["en"], {"a": 1}, None, ""])
def test_a_language_that_is_no_name_is_unknown(talk, cache, language):
    with ScriptedServer((200, SAID[1] | {"language": language})) as server:
        for _ in range(2):  # the second one from the cache
            transcript = listen(talk, cache, server.url)
            assert (len(transcript.lines), transcript.language or None) == (2, None)


def test_a_server_that_fails_is_asked_once_for_a_video(talk, tmp_path, cache):
    """Not by each step of the work; another video asks anew, and so does this one after a minute."""
    other = open_video(talking_video(tmp_path / "other.mkv", beeps(4, 4)))
    with ScriptedServer((400, {"error": {"message": "no"}}), SAID) as server:
        session = Session(None, store=cache, scoring=ScorerConfig(listen_url=server.url))
        MEC(session=session).index(talk)
        notes = [session.transcript(talk).notes for _ in range(3)]
        assert len(server.requests) == 1
        assert {note for (note,) in notes} == {f"no transcript of the sound: {server.url} answered 400: no"}
        assert len(session.transcript(other).lines) == 2
        session._unheard = session._unheard[0], 0.0, session._unheard[2]
        assert len(session.transcript(talk).lines) == 2


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # OpenAI's own models; servers offer it
def test_a_translation_is_asked_for_at_its_own_address(talk, cache):
    with ScriptedServer(SAID) as server:
        transcript = listen(talk, cache, server.url, listen_translate=True, listen_model="large")
        assert server.requests[0][0] == "/v1/audio/translations"
        assert sent(server.requests[0][2], "model") == "large"
    assert transcript.language is None
    assert transcript.source.endswith(", translated")


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ((500, {"error": {"message": "out of memory"}}), "answered 500 after 2 tries: out of memory"),
        ((404, {"error": {"message": "no such model"}}), "answered 404: no such model"),
        ((200, {"text": "We fire it."}), "does not say which words are spoken when"),
        ((200, ["?"]), "does not say which words are spoken when"),
        ((200, {"segments": [{"text": 3, "start": "x"}, None]}), "does not say which words are spoken when"),
        (lambda handler, _: handler.wfile.write(b"rubbish\r\n\r\n"), "cannot connect"),
    ],
)
def test_a_server_that_fails_or_answers_rubbish_is_one_note(talk, cache, reply, why):
    with ScriptedServer(reply) as server:
        transcript = listen(talk, cache, server.url)
    assert transcript.lines == ()
    (note,) = transcript.notes
    assert note.startswith(f"no transcript of the sound: {server.url}")
    assert why in note
    assert "\n" not in note
    with ScriptedServer(SAID) as server:
        assert len(listen(talk, cache, server.url).lines) == 2, "the next time it is asked again"


def test_a_server_that_is_down_is_one_note(talk, cache):
    with ScriptedServer(SAID) as server:
        url = server.url
    (note,) = listen(talk, cache, url).notes
    assert note.startswith(f"no transcript of the sound: {url}: cannot connect")


def test_a_server_of_several_models_needs_a_name(talk, cache):
    with ScriptedServer(SAID, models=("a", "b")) as server:
        (note,) = listen(talk, cache, server.url).notes
    assert note == f"no transcript of the sound: choose a model; {server.url} lists a, b"


def test_a_wrong_address_or_name_is_one_line():
    for wrong in ("foo", "localhost:8000", 5):
        with pytest.raises(ConfigError, match=f"listen_url = {wrong!r} is not .* an http"):
            ScorerConfig(listen_url=wrong)
    with pytest.raises(ConfigError, match="listen_model = 5 is not allowed; it must be a name"):
        ScorerConfig(listen_model=5)


def test_segments_without_usable_times_are_left_out(talk, cache):
    odd = [SEGMENT, SEGMENT | {"start": "x"}, SEGMENT | {"start": 9e99, "end": 9e99}, SEGMENT | {"end": None}]
    with ScriptedServer((200, {"segments": odd, "language": 7})) as server:
        transcript = listen(talk, cache, server.url)
    assert {line.text for line in transcript.lines} == {"We fire it."}


def test_agents_are_told_why_there_is_no_transcript(tmp_path):
    path = str(talking_video(tmp_path / "talk.mkv", beeps(3, 5)))
    scoring = ScorerConfig(listen_url="http://127.0.0.1:9/v1")
    tasks = VideoTasks(lambda *_: None, "none", scoring, str(tmp_path / "cache"), "pyav")
    with pytest.raises(VideoError, match=r"no transcript of the sound: .* cannot connect"):
        tasks.said(path, "Who speaks?", 5)
