"""What is said as evidence: off unless asked for, said where it counts, kept with the ranking."""

import json
from dataclasses import replace

import pytest

from framenest import MEC, Ranking, ScorerConfig, ScorerError, Session
from framenest.corpus.batch_job import BatchJob, WorkItem
from framenest.rank_request import RankRequest
from framenest.report.document import document
from media import numbered_video

SRT = (
    "1\n00:00:01,000 --> 00:00:03,000\nThe barn was a stable once.\n\n"
    "2\n00:00:08,000 --> 00:00:09,500\nWe heated the kiln to twelve hundred degrees.\n"
)
ASKED = "How hot did the kiln get?"
SMALL = {"base_probes": 24, "extra_probes": 8, "horizon": 20}


@pytest.fixture
def place(tmp_path):
    """12 s of video, and scores that find nothing in it."""
    numbered_video(tmp_path / "kiln.mp4", 300)
    (tmp_path / "scores.csv").write_text("frame,score\n0,0\n299,0\n")
    return tmp_path


def ranked(place, question=ASKED, **settings):
    mec = MEC(scorer=f"table:{place / 'scores.csv'}", **SMALL, **settings)
    return mec.rank(place / "kiln.mp4", question)


def timeless(ranking):
    """The ranking file without its seconds, and without the frames decoded, which the cache saves."""
    bare = replace(ranking.stats, seconds={}, decoded=0)
    return json.dumps(replace(ranking, stats=bare).to_json())


def test_without_a_transcript_the_ranking_is_the_papers_bit_for_bit(place):
    paper = timeless(ranked(place))
    assert timeless(ranked(place, subtitles="auto")) == paper
    (place / "kiln.srt").write_text(SRT)
    assert timeless(ranked(place)) == paper
    assert timeless(ranked(place, subtitles="none")) == paper
    assert "transcript" not in json.loads(paper)
    assert "speech" not in json.loads(paper)["pool"]["cues"]


def test_what_is_said_brings_its_frames_to_the_front(place, tags_store):
    (place / "kiln.srt").write_text(SRT)
    ranking = ranked(place, subtitles="auto")
    assert 7 <= ranking.seconds[0] <= 10.5
    assert ranking.cues["speech"][0] > 0.8
    assert ranking.said(1) == "We heated the kiln to twelve hundred degrees."
    assert ranking.transcript.source == "kiln.srt"
    assert "what is said by all-MiniLM-L6-v2, 2 lines of kiln.srt" in ranking.scorer
    cues = {name: ranking.pool.cues[name].astype(float) for name in ranking.pool.cues}
    total = (
        0.7 * cues["relevance"] + 0.2 * cues["change"] + 0.1 * cues["observability"] + 0.6 * cues["speech"]
    )
    assert ranking.pool.evidence == pytest.approx(total, abs=1e-6)


def test_the_file_keeps_it_and_the_report_shows_it(place, tags_store):
    (place / "kiln.srt").write_text(SRT)
    ranking = ranked(place, subtitles="auto")
    ranking.save(place / "ranking.json")
    again = Ranking.load(place / "ranking.json")
    assert timeless(again) == timeless(ranking)
    row = json.loads((place / "ranking.json").read_text())["ranks"][0]
    assert row["said"] == "We heated the kiln to twelve hundred degrees."
    drawn = document([again])["rankings"][0]
    (curve,) = [curve for curve in drawn["curves"] if curve["name"] == "speech"]
    assert curve["weight"] == 0.6
    assert max(curve["values"]) > 0.8
    assert drawn["said"][0] == row["said"]


def test_only_what_is_said_in_the_window_counts(place, tags_store):
    (place / "kiln.srt").write_text(SRT)
    ranking = ranked(place, subtitles="auto", end=6.0)
    assert [line.text for line in ranking.transcript.lines] == ["The barn was a stable once."]
    assert ranking.pool.cues["speech"].max() < 0.5


def test_a_scorer_that_sees_nothing_is_not_believed_where_something_is_said(place, tags_store):
    (place / "kiln.srt").write_text(SRT)
    ranking = ranked(place, subtitles="auto")
    blind = replace(ranking.stats, match=type("Match", (), {"verdict": "none"})())
    assert not replace(ranking, stats=blind).unmatched
    silent = {name: cue for name, cue in ranking.pool.cues.items() if name != "speech"}
    assert replace(ranking, stats=blind, pool=replace(ranking.pool, cues=silent)).unmatched


def test_without_the_sentence_encoder(place):
    """Found by itself a transcript is kept and the note says why it is not used; given, it is an error."""
    (place / "kiln.srt").write_text(SRT)
    ranking = ranked(place, subtitles="auto")
    assert "speech" not in ranking.cues
    assert "the transcript is not used for ranking: " in ranking.transcript.notes[-1]
    assert "framenest models fetch tags" in ranking.transcript.notes[-1]
    with pytest.raises(ScorerError, match="framenest models fetch tags"):
        ranked(place, subtitles=str(place / "kiln.srt"))


def test_without_a_question_nothing_is_weighed(place, tags_store):
    (place / "kiln.srt").write_text(SRT)
    ranking = ranked(place, None, subtitles="auto")
    assert "speech" not in ranking.cues
    assert len(ranking.transcript.lines) == 2


def test_said_finds_passages(place, tags_store):
    (place / "kiln.srt").write_text(SRT)
    session = Session(None, scoring=ScorerConfig(subtitles="auto"))
    best, other = session.said(place / "kiln.mp4", ASKED)
    assert (best.start, best.end, best.text) == (8.0, 9.5, "We heated the kiln to twelve hundred degrees.")
    assert best.score > 0.8 > 0.5 > other.score
    assert Session(None).said(place / "kiln.mp4", ASKED) == []


def test_a_batch_ranks_again_where_the_transcript_has_changed(place, tags_store):
    scorer, scoring = f"table:{place / 'scores.csv'}", ScorerConfig(subtitles="auto")
    job = BatchJob(scorer, scoring, cache=str(tags_store.root))
    video, config = str(place / "kiln.mp4"), MEC(**SMALL).config
    request = RankRequest(video=video, question=ASKED, config=config, scorer=scorer, scoring=scoring)
    item = WorkItem(request, str(place / "out.json"))
    work = job.open()
    statuses = []
    for said in (SRT, SRT, SRT.replace("barn", "house"), None, None):
        if said is None:
            (place / "kiln.srt").unlink(missing_ok=True)
        else:
            (place / "kiln.srt").write_text(said)
        statuses += [outcome.status for outcome in work((item,))]
    assert statuses == ["done", "already", "done", "done", "already"]
