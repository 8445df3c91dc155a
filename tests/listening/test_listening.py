"""The sound of a video becomes a transcript: in pieces, cached, resumed, and with a note if there is none."""

import json
import math

import numpy as np
import pytest

from command_line import run
from framenest import MEC, ScorerConfig, Session, listening
from framenest.cache.directory import DirectoryStore
from framenest.listening import Recognizer, load_recognizer, transcribe
from framenest.method.ranking import Ranking
from framenest.protocols import MatchStrength
from framenest.report.document import document
from framenest.scorers.video_features import VideoFeatures
from framenest.selectors.selection import load_result
from framenest.transcript import Line, Transcript, read_lines
from framenest.video.decoder import SOUND_RATE
from framenest.video.opening import open_video
from media import numbered_video, talking_video
from recognizers import Scripted, beeps
from scripted_server import ScriptedServer

WORDS = {3: "We heated the kiln to twelve hundred degrees.", 5: "Then the cups cooled.", 8: "Good night."}


@pytest.fixture
def store(cache):
    return DirectoryStore(cache)


@pytest.fixture
def talk(tmp_path):
    return open_video(talking_video(tmp_path / "talk.mkv", beeps(3, 5, 8)))


@pytest.fixture
def short_pieces(monkeypatch):
    monkeypatch.setattr(listening, "PIECE_SECONDS", 4)
    monkeypatch.setattr(listening, "END_SECONDS", 2)
    monkeypatch.setattr(listening, "OVERLAP_SECONDS", 1)


def listen(video, recognizer, store):
    return transcribe(video, recognizer(), store, lambda *_: None)


def test_lines_have_the_times_of_the_sound(talk, store):
    transcript = listen(talk, Scripted(WORDS), store)
    assert [(round(a, 1), round(b, 1), text) for a, b, text, _ in transcript.lines] == [
        (2.0, 3.0, WORDS[3]), (5.0, 6.0, WORDS[5]), (8.0, 9.0, WORDS[8])]  # fmt: skip
    assert (transcript.source, transcript.language, transcript.notes) == ("the sound, by scripted", "en", ())
    assert {line.confidence for line in transcript.lines} == {0.9}


def test_a_second_listener_finds_it_in_the_store(talk, store):
    first = listen(talk, Scripted(WORDS), store)
    silent = Scripted({})
    assert listen(talk, silent, store) == first
    assert silent.pieces == []
    other = Scripted({3: "Something else."})
    assert transcribe(talk, other("large"), store, lambda *_: None) != first, "another model is another key"


@pytest.mark.usefixtures("short_pieces")
def test_pieces_say_what_the_whole_says(talk, store, tmp_path):
    in_pieces = listen(talk, pieces := Scripted(WORDS), store)
    assert len(pieces.pieces) > 2
    assert max(pieces.pieces) <= 4 + 2 * 1
    assert [line.text for line in in_pieces.lines] == list(WORDS.values()), "nothing twice, nothing lost"
    assert [round(line.start) for line in in_pieces.lines] == [2, 5, 8]


def test_a_piece_ends_at_a_quiet_moment(talk, monkeypatch):
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.1, 300 * SOUND_RATE).astype(np.float32)
    for quiet in (112, 225):
        noise[quiet * SOUND_RATE : (quiet + 1) * SOUND_RATE] *= 0.01
    monkeypatch.setattr(talk, "sound", lambda first: iter(np.array_split(noise[first:], 1000)))
    pieces = [*listening._pieces(talk, 0)]
    assert [end / SOUND_RATE for _, end, _ in pieces] == pytest.approx([112.5, 225.5, math.inf], abs=0.5)
    assert [start for start, _, _ in pieces] == [0, *(end for _, end, _ in pieces[:-1])]
    for start, end, samples in pieces:
        first, last = max(0, start - 2 * SOUND_RATE), min(len(noise), end + 2 * SOUND_RATE)
        np.testing.assert_array_equal(samples, noise[first:last])


@pytest.mark.usefixtures("short_pieces")
def test_a_killed_listener_goes_on_where_it_stopped(talk, store):
    whole = listen(talk, Scripted(WORDS), DirectoryStore(store.root / "other"))
    with pytest.raises(KeyboardInterrupt):
        transcribe(talk, Recognizer("scripted", Killed(2)), store, lambda *_: None)
    again = Scripted(WORDS)
    assert listen(talk, again, store) == whole
    alone = Scripted(WORDS)
    listen(talk, alone, DirectoryStore(store.root / "third"))
    assert len(again.pieces) == len(alone.pieces) - 2


class Killed:
    """Hears as Scripted does, until it is killed."""

    def __init__(self, pieces) -> None:
        self.left, self.scripted = pieces, Scripted(WORDS)

    def __call__(self, samples):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return self.scripted.recognize(samples)


@pytest.mark.usefixtures("short_pieces")
def test_progress_counts_seconds_to_the_end(talk, store):
    told = []
    transcribe(talk, Scripted(WORDS)(), store, lambda *one: told.append(one))
    assert {(stage, total) for stage, _, total in told} == {("listening (s)", 11)}
    done = [done for _, done, _ in told]
    assert done == sorted(done)
    assert done[0] == 0


def test_what_cannot_be_heard_is_one_note(tmp_path, store, talk):
    for number, (video, why) in enumerate((
        (numbered_video(tmp_path / "mute.mp4", 30), "it has none"),
        (talking_video(tmp_path / "still.mkv", np.zeros(48_000, np.float32)), "no speech in it"),
        (talking_video(tmp_path / "noise.mkv", beeps(9)), "no speech in it"),
    )):  # fmt: skip
        recognizer = Recognizer(f"deaf {number}", lambda _: Transcript(""))
        transcript = transcribe(open_video(video), recognizer, store, lambda *_: None)
        assert (transcript.lines, transcript.notes) == ((), (f"no transcript of the sound: {why}",))


def test_a_failure_is_a_note_and_the_next_time_it_is_tried_again(talk, store):
    failing = listen(talk, Scripted(WORDS, fails_at=[1]), store)
    assert failing == Transcript("", (), ("no transcript of the sound: the recognizer broke down",))
    assert len(listen(talk, Scripted(WORDS), store).lines) == 3


def session(monkeypatch, scripted=None, **settings):
    (scripted or Scripted(WORDS)).install(monkeypatch)
    return Session("table:scores.csv", scoring=ScorerConfig(listen=True, listen_model="scripted", **settings))


@pytest.fixture
def place(tmp_path, monkeypatch, tags_store):
    monkeypatch.chdir(tmp_path)
    talking_video(tmp_path / "talk.mkv", beeps(3, 5, 8, 9, 9, 9, 9, 9))
    (tmp_path / "scores.csv").write_text("frame,score\n0,0\n50,0\n")
    return tmp_path


ASKED = "How hot did the kiln get?"


@pytest.mark.usefixtures("place")
def test_what_is_heard_is_evidence_and_quoted(monkeypatch):
    ranking = MEC(session=session(monkeypatch), preset="residual").rank("talk.mkv", ASKED)
    rank = ranking.roles.index("evidence")
    assert rank < 3
    assert 1.5 < ranking.seconds[rank] < 3.5
    assert ranking.reasons[rank] == f"“{WORDS[3]}”"
    assert ranking.transcript.source == "the sound, by scripted"
    assert "scripted" in ranking.scorer
    again = Ranking.from_json(json.loads(ranking.dumps()))
    assert again.transcript == ranking.transcript
    assert again.reasons == ranking.reasons


@pytest.mark.usefixtures("place")
def test_words_that_may_be_wrong_are_not_quoted(monkeypatch):
    unsure = session(monkeypatch, Scripted(WORDS, confidence=0.4))
    ranking = MEC(session=unsure, preset="residual").rank("talk.mkv", ASKED)
    rank = ranking.roles.index("evidence")
    assert 1.5 < ranking.seconds[rank] < 3.5
    assert ranking.reasons[rank] == "speech, not clearly heard"
    assert WORDS[3] in ranking.said(rank + 1), "the file says what was understood, and how surely"


@pytest.mark.usefixtures("place")
def test_captions_come_first(monkeypatch, place):
    (place / "talk.srt").write_text("1\n00:00:08,000 --> 00:00:09,000\nThe kiln got hot.\n")
    listener = Scripted(WORDS)
    one = session(monkeypatch, listener)
    assert one.transcript(one.open("talk.mkv")).source == "talk.srt"
    assert listener.pieces == []
    deaf = session(monkeypatch, listener, subtitles="none")
    assert deaf.transcript(deaf.open("talk.mkv")).source == "the sound, by scripted"
    (place / "talk.srt").write_text("nothing\n")
    transcript = one.transcript(one.open("talk.mkv"))
    assert len(transcript.lines) == 8
    assert "talk.srt: not a subtitle file" in transcript.notes[0]


@pytest.mark.usefixtures("place")
def test_another_language_is_noted(monkeypatch):
    german = session(monkeypatch, Scripted({3: "Der Ofen war heiß."}, language="de"))
    transcript = german.transcript(german.open("talk.mkv"))
    assert transcript.language == "de"
    (note,) = transcript.notes
    assert note.startswith("the speech is in de, but questions are only compared with English; add --listen-")
    translated = session(
        monkeypatch, Scripted({3: "The kiln was hot."}, language="de"), listen_translate=True
    )
    transcript = translated.transcript(translated.open("talk.mkv"))
    assert (transcript.language, transcript.notes) == ("de", ())
    assert transcript.source == "the sound, by scripted, translated"


@pytest.mark.usefixtures("place")
def test_a_failure_leaves_the_ranking_as_it_is_without_listening(monkeypatch):
    broken = MEC(session=session(monkeypatch, Scripted(WORDS, fails_at=range(9)))).rank("talk.mkv", ASKED)
    plain = MEC(scorer="table:scores.csv").rank("talk.mkv", ASKED)
    assert broken.frames.tolist() == plain.frames.tolist()
    assert broken.transcript.notes == ("no transcript of the sound: the recognizer broke down",)
    assert json.loads(broken.dumps())["transcript"]["notes"] == list(broken.transcript.notes)
    assert broken.prefix(2).notes == broken.prefix(2).best(1).notes == broken.notes
    assert broken.notes[0] in broken._repr_html_()


@pytest.mark.usefixtures("place")
def test_every_command_tells_a_failure(monkeypatch, capsys):
    pytest.importorskip("openai", reason="needs the extra `ask`")
    why = "no transcript of the sound: the recognizer broke down"
    Scripted(WORDS, fails_at=range(99)).install(monkeypatch)
    heard = ("--scorer", "table:scores.csv", "--listen", "--listen-model", "scripted")
    asked = ("talk.mkv", ASKED, "-k", 2, *heard)
    monkeypatch.setattr(VideoFeatures, "match_strength", lambda *_: MatchStrength(0.9, "strong"))
    assert why in run(capsys, "rank", *asked, "-o", "ranking.json")[1]
    assert why in json.loads(run(capsys, "rank", *asked, "--json")[1])["notes"]
    assert f"mec: {why}" in run(capsys, "select", *asked, "-o", "selection.json")[2]
    assert why in json.loads(run(capsys, "select", *asked, "--json", "-q")[1])["stats"]["notes"]
    results = [load_result(name) for name in ("ranking.json", "selection.json")]
    for some in (results[:1], results[1:], results):
        assert document(some)["video"]["notes"] == [why]
    with ScriptedServer("A kiln.") as server:
        for verdict, selector in (("strong", "mec"), ("none", "uniform")):
            match = MatchStrength(0.9, verdict)
            monkeypatch.setattr(VideoFeatures, "match_strength", lambda *_, match=match: match)
            assert why in run(capsys, "ask", *asked, "--base-url", server.url)[2]
            answer = json.loads(run(capsys, "ask", *asked, "--base-url", server.url, "--json", "-q")[1])
            assert (answer["selector"], answer["notes"]) == (selector, [why])


def test_listening_is_off_by_default(store):
    assert load_recognizer(ScorerConfig(), store) is None


def test_lines_of_whisper_files_know_their_confidence(tmp_path):
    (tmp_path / "a.json").write_text(
        json.dumps(
            {"segments": [{"start": 0, "end": 1, "text": "a", "avg_logprob": x} for x in (-0.5, 3, "x")]}
        )
    )
    lines, _ = read_lines(tmp_path / "a.json")
    assert [line.confidence for line in lines] == [pytest.approx(np.exp(-0.5)), None, None]
    assert Line(0, 1, "a").confidence is None
