"""Measures by hand, question formats, noisy truth, and the commands."""

import json
import runpy
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from command_line import terminal
from framenest import (
    ConfigError,
    FrameBatch,
    Prefix,
    RankingConfig,
    ScorerError,
    Session,
    VideoError,
    VideoInfo,
)
from framenest.cli import main as cli_main
from framenest.evaluation import recall
from framenest.evaluation.grounded_questions import GroundedQuestion, NoStore, TimelineDecoder, load_questions
from framenest.evaluation.noisy_truth import NoisyTruthScorer
from framenest.evaluation.recall import HORIZONS, ablations, collect, evaluate
from framenest.method.ordering import greedy, residual
from framenest.selectors import load_selector
from framenest.testing import TableScorer
from score_tables import zero_elsewhere


def seconds(*values):
    return np.array(values, dtype=float)


def test_hit_and_covered_by_hand():
    intervals = [(1.0, 2.0), (5.0, 6.0)]
    assert recall.hit(seconds(0, 2.0), intervals)  # ends count
    assert not recall.hit(seconds(0, 3, 4), intervals)
    assert recall.covered(seconds(1.5, 1.6), intervals) == 0.5
    assert recall.covered(seconds(1.5, 5.5), intervals) == 1.0


def test_first_hit_by_hand():
    assert recall.first_hit(seconds(9, 8, 1.5, 1.6), [(1.0, 2.0)]) == 3
    assert recall.first_hit(seconds(9, 8), [(1.0, 2.0)]) is None


def test_largest_gap_by_hand():
    """Frames at 2 and 5 of 10 s: gaps 2, 3 and 5."""
    video = VideoInfo("v", "f", 100, 10.0, 10.0, 64, 36, "h264")
    assert Prefix(video, 2, np.array([50, 20]), seconds(5, 2), None).largest_gap == 0.5


def test_redundancy_by_hand():
    """Two alike and one orthogonal: nearest similarities 1, 1 and 0."""
    looks = np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32)
    assert recall.most_similar(looks).mean() == pytest.approx(2 / 3)
    assert recall.most_similar(looks[:1]).mean() == 0


def test_near_duplicates_by_hand():
    """Two alike, one that is nearly so (0.99 < 0.995), one orthogonal: two of four."""
    near = [0.99, np.sqrt(1 - 0.99**2), 0]
    looks = np.array([[1, 0, 0], [1, 0, 0], near, [0, 0, 1]], dtype=np.float32)
    assert recall.near_duplicates(recall.most_similar(looks)) == 0.5
    assert recall.near_duplicates(recall.most_similar(looks[:1])) == 0


def test_seeds_are_averaged_before_the_bootstrap():
    """Two questions, two seeds each: every mean is 0.5, so the interval has no width."""
    rows = [recall.RecallOutcome(by_budget={8: {"hit": float(hit)}}) for hit in (0, 1, 1, 0)]
    together = recall.summarise(rows, seeds=2)["8"]
    assert (together["hit"], together["hit_low"], together["hit_high"]) == (0.5, 0.5, 0.5)
    assert recall.summarise(rows)["8"]["hit_low"] < 0.5


def test_nesting_by_hand():
    assert recall.nesting(np.array([1, 2, 3, 4]), np.array([2, 4, 9])) == 0.5


def test_bootstrap_brackets_the_mean_and_repeats():
    values = np.array([0, 1] * 50, dtype=float)
    low, high = recall.interval_of_mean(values)
    assert 0.38 < low < 0.5 < high < 0.62
    assert (low, high) == recall.interval_of_mean(values)


def test_summary_by_hand():
    rows = []
    for first, hits in ((1, (1, 1)), (9, (0, 1))):
        row = recall.RecallOutcome(first_hit=first, ranked=True, candidates=10, seconds=1.0)
        row.by_budget = {k: {"hit": float(h)} for k, h in zip((8, 16), hits, strict=True)}
        rows.append(row)
    summary = recall.summarise(rows)
    assert summary["8"]["hit"] == 0.5
    assert summary["16"]["hit"] == 1.0
    assert summary["all"]["objective"] == 0.75
    assert summary["all"]["low"] == 0.75
    assert summary["all"]["mean_first_hit"] == 5
    assert "medium" not in summary["all"]


FORMATS = {
    "framenest": ("qa.json", [{"video": "a.mp4", "question": "Q?", "intervals": [[1, 2]]}], [(1.0, 2.0)]),
    "qvhighlights": ("qvh.jsonl", [{"vid": "a", "query": "Q?", "relevant_windows": [[1, 2]]}], [(1.0, 2.0)]),
    "m2m": (
        "m2m.json",
        [
            {
                "video_id": "a",
                "question": "Q?",
                "options": {},
                "answer": "A",
                "start": 1,
                "end": "00:00:02.500",
            }
        ],
        [(1.0, 2.5)],
    ),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_question_formats(tmp_path, kind):
    name, rows, intervals = FORMATS[kind]
    path = tmp_path / name
    if name.endswith("jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text(json.dumps(rows))
    (found,) = load_questions(path, kind=kind)
    assert found == GroundedQuestion(str(tmp_path / "a.mp4"), "Q?", tuple(intervals))
    (moved,) = load_questions(path, kind=kind, videos="/elsewhere")
    assert moved.video == "/elsewhere/a.mp4"


TIMELINES = [
    {"video": 3, "last_end": 300.0, "intervals": [[20.0, 40.0], [280.0, 300.0]]},
    {"video": "talk", "duration": 600.0, "question": "When?", "intervals": [[100.0, 120.0], [400.0, 410.0]]},
]


@pytest.fixture
def timelines(tmp_path):
    path = tmp_path / "timelines.json"
    path.write_text(json.dumps(TIMELINES))
    return path


def test_timelines_are_questions_without_videos(timelines):
    first, second, talk = load_questions(timelines, kind="timeline")
    assert (first.video, first.question, first.intervals) == ("real 3", "real 3 0", ((20.0, 40.0),))
    assert second.intervals == ((280.0, 300.0),)
    assert first.duration == second.duration  # drawn, as none is given
    assert 300 <= first.duration <= 600
    assert first.part == second.part
    assert (talk.video, talk.duration, len(talk.intervals)) == ("talk", 600.0, 2)


@pytest.mark.parametrize("duration", [0, 409.9, "6:49"])
def test_a_timeline_that_ends_before_its_intervals_is_refused(tmp_path, duration):
    """No selection could find them, whatever the rule."""
    path = tmp_path / "timelines.json"
    path.write_text(json.dumps([TIMELINES[1] | {"duration": duration}]))
    with pytest.raises(ConfigError, match=r"an interval of 'talk' ends at 410 s, but it lasts"):
        load_questions(path, kind="timeline")
    path.write_text(json.dumps([TIMELINES[1] | {"duration": "6:50"}]))
    assert load_questions(path, kind="timeline")[0].duration == 410


def test_timelines_are_evaluated_and_have_no_looks(timelines):
    names = [
        "mec",
        "mec:residual",
        "min-gap",
        "uniform",
        "top-k",
        "aks",
        "wfs-sb",
        "bolt",
        "facility-location",
    ]
    questions = load_questions(timelines, kind="timeline")
    result = evaluate(questions, names, [2, 8], Session("noisy-truth:20", store=NoStore()))
    for name in names:
        found = result["selectors"][name]["8"]
        assert (found["redundancy"], found["near_duplicates"]) == (None, None)
        assert found["hit"] == 1.0 or name == "uniform"
    with pytest.raises(ConfigError, match="a timeline has no images to score"):
        evaluate(questions, ["mec"], [2], Session(TableScorer(zero_elsewhere({1: 1.0}))))


def test_questions_on_one_timeline_share_what_is_known_of_it(timelines, monkeypatch):
    """Two questions on one timeline, then one on another: each is read once, and one is held at a time."""
    read = []
    pictures = TimelineDecoder.pictures
    monkeypatch.setattr(
        TimelineDecoder,
        "pictures",
        lambda self, frames, sizes: (
            [read.extend((self.info.path, n) for n in frames.tolist())] and pictures(self, frames, sizes)
        ),
    )
    session = Session("noisy-truth:20", store=NoStore())
    evaluate(load_questions(timelines, kind="timeline"), ["mec"], [2], session)
    assert {path for path, _ in read} == {"real 3", "talk"}
    assert len(read) == len(set(read))
    held = {item.info.path for item in session.held() if isinstance(item, TimelineDecoder)}
    assert held == {"talk"}


def test_on_a_timeline_looks_move_no_frame():
    """All alike, or each with a look of its own: the same order by both rules."""
    rng = np.random.default_rng(0)
    times, scores = np.arange(40) * 3.0, rng.random(40).astype(np.float32)
    alike, own = np.tile(np.eye(40, dtype=np.float32)[0], (40, 1)), np.eye(40, dtype=np.float32)
    config = RankingConfig()
    orders = [residual(times, scores, scores, looks, config).order.tolist() for looks in (alike, own)]
    assert orders[0] == orders[1]
    places = np.arange(40) * 90
    orders = [greedy(places, scores, looks, 3600, config).order.tolist() for looks in (alike, own)]
    assert orders[0] == orders[1]


def test_every_question_belongs_to_one_part(tmp_path):
    """The names in the file decide, wherever the videos lie."""
    rows = [{"video": "a.mp4", "question": f"Q{n}?", "intervals": [[1, 2]]} for n in range(20)]
    (tmp_path / "qa.json").write_text(json.dumps(rows))
    both = [load_questions(tmp_path / "qa.json", part=part) for part in ("tune", "report")]
    whole = load_questions(tmp_path / "qa.json")
    assert sorted(q.question for part in both for q in part) == sorted(q.question for q in whole)
    assert all(4 < len(part) < 16 for part in both)
    elsewhere = load_questions(tmp_path / "qa.json", part="tune", videos="/elsewhere")
    assert [q.question for q in elsewhere] == [q.question for q in both[0]]
    (tmp_path / "one.json").write_text(json.dumps([r for r in rows if r["question"] == both[0][0].question]))
    with pytest.raises(ConfigError, match="belong to the part report"):
        load_questions(tmp_path / "one.json", part="report")


def test_keyframes_of_toolmerge_are_found_by_their_seconds(question_set, clip, tmp_path):
    """frames_used number the frames of a video sampled at 2 a second, and are not looked at."""
    rows = [
        {"uid": f"c_{n}", "video_id": clip.stem, "question": question, "options": {}, "ground_truth": "A",
         "frames_used": [int(2 * s) for s in times], "timestamps_used": times}
        for n, (question, times) in enumerate({"First?": [2.5, 7.0], "Second?": [0.0, 8.5]}.items())
    ]  # fmt: skip
    (tmp_path / "keyframes.json").write_text(json.dumps(rows))
    spec = f"file:{tmp_path / 'keyframes.json'}"
    made = load_selector(spec, Session(None)).select(clip, "First?", [2])
    assert made.prefix(2).frames.tolist() == [62, 175]  # 2.5 s lies between 62 and 63
    result = evaluate(load_questions(question_set), [spec], [2], Session(None))
    assert result["selectors"][spec]["2"]["hit"] == 1.0
    assert result["selectors"][spec]["2"]["covered"] == 0.75
    rows[0]["timestamps_used"] = [99.0]
    (tmp_path / "keyframes.json").write_text(json.dumps(rows))
    with pytest.raises(VideoError, match=r"lists 99 s, but this video's last frame is at 11\.96 s"):
        load_selector(spec, Session(None)).select(clip, "First?", [2])


@pytest.mark.parametrize(
    "text", ["[]", "[{}]", "nonsense", '[{"video": "a", "question": "b", "intervals": [[2, 1]]}]']
)
def test_bad_question_sets(tmp_path, text):
    path = tmp_path / "qa.json"
    path.write_text(text)
    with pytest.raises(ConfigError):
        load_questions(path)


def relevance(snr, seed=0, question="Where?"):
    times = np.arange(0, 600, 1.0)
    scorer = NoisyTruthScorer(snr, [(100, 110)], seed)
    encoded = scorer.encode(FrameBatch(np.arange(600), times, ()))
    return scorer.match(encoded, question)


def test_noisy_truth():
    inside = slice(100, 111)
    assert relevance(20)[inside].min() > 0.95
    assert (relevance(1) == relevance(1)).all()
    assert (relevance(1) != relevance(1, seed=1)).any()
    assert (relevance(1) != relevance(1, question="Else?")).any()
    noise = relevance(0)
    assert abs(noise[inside].mean() - noise.mean()) < 0.5
    neighbours = np.corrcoef(noise[:-1], noise[1:])[0, 1]
    assert neighbours > 0.9  # the noise changes slowly


def test_noisy_truth_does_not_depend_on_which_frames_are_asked():
    scorer = NoisyTruthScorer(2, [(10, 12)])
    whole = scorer.encode(FrameBatch(np.arange(50), np.arange(50) / 2, ()))
    some = {"second": whole["second"][7:9]}
    together = scorer.match(whole, "Q")
    assert np.allclose(scorer.match(some, "Q", reference=whole), together[7:9])


def test_noisy_truth_without_a_truth_is_refused(clip):
    with pytest.raises(ScorerError, match="noisy-truth works only in `framenest evaluate`"):
        load_selector("top-k", Session("noisy-truth:2")).select(clip, "Where?", [4])


@pytest.fixture
def question_set(clip, tmp_path):
    path = tmp_path / "qa.json"
    rows = [
        {"video": str(clip), "question": "First?", "intervals": [[2.0, 2.6]]},
        {"video": str(clip), "question": "Second?", "intervals": [[8.0, 9.0], [11.0, 11.4]]},
    ]
    path.write_text(json.dumps(rows))
    return path


def test_evaluate_finds_what_the_truth_says(question_set):
    names = ["mec", "mec:no-zoom", "uniform", "top-k", "aks", "wfs-sb", "bolt"]
    result = evaluate(load_questions(question_set), names, [2, 4, 8], Session("noisy-truth:20"))
    assert result["questions"] == 2
    assert list(result["selectors"]) == names
    assert result["selectors"]["mec"]["4"]["hit"] == 1.0
    assert result["selectors"]["mec"]["8"]["nesting"] == 1.0
    assert result["selectors"]["uniform"]["2"]["hit"] == 0.0  # both ends of the video
    assert result["selectors"]["uniform"]["all"]["mean_first_hit"] is None
    for measures in result["selectors"]["aks"].values():
        assert all(v is None or np.isfinite(v) for v in measures.values())


def test_every_question_on_a_video_has_its_own_truth(clip):
    questions = [GroundedQuestion(str(clip), f"Q{n}?", ((n, n + 0.5),)) for n in (1.0, 5.0, 9.0)]
    result = evaluate(questions, ["top-k", "mec", "min-gap"], [1], Session("noisy-truth:50"))
    assert [result["selectors"][name]["1"]["hit"] for name in ("top-k", "mec", "min-gap")] == [1, 1, 1]


def test_seeds_give_one_number_for_each_question(question_set):
    questions, budgets = load_questions(question_set), [2, 4]
    one = [evaluate(questions, ["top-k"], budgets, Session(f"noisy-truth:{snr}"), seeds=3) for snr in (0, 20)]
    assert [found["seeds"] for found in one] == [3, 3]
    found = collect(questions, {"top-k": "top-k"}, budgets, Session("noisy-truth:0"), seeds=3)["top-k"]
    assert len(found) == 6
    hits = recall.by_question(found, 4, "hit", seeds=3)
    assert one[0]["selectors"]["top-k"]["4"]["hit"] == pytest.approx(hits.mean())
    with pytest.raises(ConfigError, match="several seeds need noisy truth"):
        evaluate(questions, ["top-k"], budgets, Session(TableScorer(zero_elsewhere({1: 1.0}))), seeds=2)


def test_ablations_have_the_papers_rows(question_set):
    scores = {n: float(50 <= n <= 65) for n in range(300)}
    result = ablations(load_questions(question_set)[:1], Session(TableScorer(scores)))
    paper = json.loads((Path(__file__).parents[2] / "benchmarks" / "paper.json").read_text())
    for table in ("components", "schedules"):
        assert list(result[table]) == [{"mec": "paper"}.get(n, n.removeprefix("mec:")) for n in paper[table]]
    assert list(result["horizons"]) == [str(h) for h in HORIZONS]
    assert list(result["horizons"]["32"]) == ["8", "16", "32"]
    assert set(result["components"]["paper"]) == {"low", "medium", "high", "average"}


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        cli_main([str(a) for a in arguments])
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


def test_the_recall_command(capsys, question_set, tmp_path):
    out = tmp_path / "r.json"
    code, printed, err = run(
        capsys, "evaluate", "recall", question_set, "--scorer", "noisy-truth:8",
        "--selectors", "mec,mec:no-zoom,uniform", "--budgets", "2,4,8", "--quiet",
        "--json", out,
    )  # fmt: skip
    assert code == 0, err
    data = json.loads(out.read_text())
    rows = [line.split() for line in printed.splitlines()]
    for name, summary in data["selectors"].items():
        assert any(row[:4] == [name, *(f"{summary[k]['hit']:.2f}" for k in ("2", "4", "8"))] for row in rows)
    assert data["questions"] == 2
    measures = {"hit", "covered", "largest_gap", "redundancy", "near_duplicates", "nesting"}
    assert measures <= set(data["selectors"]["mec"]["8"])
    assert "dup@8" in printed
    assert "mec is the paper's rule\n" in printed


def test_the_plot_of_recall(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra `plots`")
    folder = Path(__file__).parents[2] / "benchmarks"
    result = json.loads((folder / "results" / "recall_tags.json").read_text())
    runpy.run_path(str(folder / "recall_plot.py"))["draw"](result, tmp_path / "r.svg")
    assert ET.parse(tmp_path / "r.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_no_number_of_the_recall_tables_is_cut_at_80_columns(capsys, monkeypatch, timelines):
    terminal(monkeypatch, 80)
    _, printed, _ = run(
        capsys, "evaluate", "recall", timelines, "--kind", "timeline", "--scorer", "noisy-truth:20",
        "--selectors", "mec:static-coverage-heavy",
    )  # fmt: skip
    hits, rest = (line.split() for line in printed.splitlines() if "mec:static-coverage-heavy" in line)
    assert len(hits) == 1 + 7 + 2
    assert len(rest) == 1 + 9
    assert "…" not in printed


def test_the_recall_command_on_timelines(capsys, timelines, tmp_path):
    code, _, err = run(
        capsys, "evaluate", "recall", timelines, "--kind", "timeline", "--scorer", "noisy-truth:20",
        "--seeds", "2", "--part", "report", "--selectors", "mec:residual,min-gap", "--budgets", "2,4",
        "--quiet", "--json", tmp_path / "r.json",
    )  # fmt: skip
    assert code == 0, err
    data = json.loads((tmp_path / "r.json").read_text())
    parts = [question.part for question in load_questions(timelines, kind="timeline")]
    assert (data["part"], data["seeds"], data["questions"]) == ("report", 2, parts.count("report"))
    assert data["selectors"]["min-gap"]["4"]["near_duplicates"] is None


def test_the_select_and_compare_commands(capsys, clip, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("frame,score\n" + "".join(f"{n},{float(n == 150)}\n" for n in range(300)))
    scorer = ["--scorer", f"table:{table}", "--quiet"]
    out = tmp_path / "s.json"
    code, printed, err = run(
        capsys, "select", clip, "Where?", "--selector", "aks", "-k", "4,8", "-o", out, *scorer
    )
    assert (code, err) == (0, "")
    assert [len(line.split()) for line in printed.splitlines()] == [4, 8]
    assert run(capsys, "show", out)[0] == 0
    assert run(capsys, "extract", out, "-k", "4", "--to", tmp_path / "frames", "--quiet")[0] == 0
    assert len(list((tmp_path / "frames").iterdir())) == 4
    code, _, err = run(capsys, "extract", out, "-k", "5", "--to", tmp_path / "frames", "--quiet")
    assert (code, "holds budgets 4, 8, not 5" in err) == (2, True)


def test_several_selectors_are_compared_in_a_table(capsys, clip, tmp_path):
    (tmp_path / "scores.csv").write_text("frame,score\n0,0\n149,0\n150,1\n159,1\n160,0\n299,0\n")
    asked = ("select", clip, "Where?", "--scorer", f"table:{tmp_path / 'scores.csv'}", "-k", "4,8")
    code, printed, err = run(capsys, *asked, "--selector", "mec,uniform,mec:no-zoom")
    assert code == 0, err
    assert "also in first" in printed
    rows = [line.split()[:3] for line in printed.splitlines() if " %\t" in line]
    assert rows == [[name, k, k] for name in ("mec", "uniform", "mec:no-zoom") for k in ("4", "8")]
    code, _, err = run(capsys, *asked, "--selector", "mec,uniform", "-o", tmp_path / "s.json")
    assert (code, "one at a time" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scorer", "noisy-truth:much"], "noisy-truth needs a ratio"),
        (["--scorer", "noisy-truth:1", "--selectors", "mec,best"], "there is no selector 'best'"),
        (["--scorer", "noisy-truth:1", "--selectors", ","], "at least one selector"),
        ([], "--scorer"),
    ],
)
def test_bad_evaluations(capsys, question_set, arguments, message):
    code, _, err = run(capsys, "evaluate", "recall", question_set, *arguments)
    assert (code, message in err) == (2, True), err


def test_a_time_that_is_no_text_is_one_line(tmp_path):
    row = {"vid": "kiln", "query": "What is fired?", "relevant_windows": [[7, None]]}
    (tmp_path / "qvh.json").write_text(json.dumps([row]))
    with pytest.raises(ConfigError, match="not a question set of the kind qvhighlights"):
        load_questions(tmp_path / "qvh.json", kind="qvhighlights", videos=tmp_path)
