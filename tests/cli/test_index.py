"""framenest index."""

import json
import re

from command_line import on_a_terminal, run
from framenest import Ranking


def test_index_then_rank_decodes_no_probe(capsys, clip, table, tmp_path):
    settings = ["--set", "base_probes=24", "--set", "extra_probes=0", "--quiet"]
    code, out, _ = run(capsys, "index", clip, "--scorer", table, *settings)
    assert code == 0
    assert "24 probes over 0:12.0, at most 0.52 s apart; timeline from" in out
    output = tmp_path / "r.json"
    run(capsys, "rank", clip, "Where?", "--scorer", table, "-o", output, *settings)
    assert Ranking.load(output).stats.decoded == Ranking.load(output).stats.zoom


def test_index_as_json(capsys, clip, tmp_path):
    bad = tmp_path / "bad.mp4"
    bad.write_text("no video")
    settings = ["--set", "base_probes=24", "--set", "extra_probes=0", "--scorer", "none", "--json"]
    (done,) = map(json.loads, run(capsys, "index", clip, *settings)[1].splitlines())
    assert (done["video"], done["status"], done["duration"]) == (str(clip), "done", 12)
    code, out, _ = run(capsys, "index", bad, clip, "--failures", tmp_path / "failures.jsonl", *settings)
    found = {row["video"]: (row["status"], row["error"]) for row in map(json.loads, out.splitlines())}
    assert code == 1
    assert found[str(bad)] == ("failed", "VideoError")
    assert found[str(clip)][0] in ("done", "already")


def test_index_goes_on_after_a_bad_video(capsys, clip, tmp_path):
    bad = tmp_path / "bad.mp4"
    bad.write_text("no video")
    settings = ["--set", "base_probes=24", "--set", "extra_probes=0", "--quiet", "--scorer", "none"]
    report = tmp_path / "failures.jsonl"
    code, out, err = run(capsys, "index", bad, clip, "--failures", report, *settings)
    assert code == 1
    assert "1 video done" in out
    assert json.loads(report.read_text())["error"] == "VideoError"
    assert "1 of 2 videos could not be indexed" in err


def test_a_folder_shows_how_far_each_video_is(clip, tmp_path):
    """From the start, and by name; `on_a_terminal` sees every bar that was drawn."""
    (tmp_path / "talks").mkdir()
    for name in ("one.mp4", "a-name-that-is-far-too-long-for-a-bar.mkv"):
        (tmp_path / "talks" / name).write_bytes(clip.read_bytes())
    settings = ["--scorer", "none", "--set", "base_probes=200", "--set", "extra_probes=0", "--jobs", "2"]
    written = on_a_terminal("index", "talks", "--cache", tmp_path / "cache", *settings, cwd=tmp_path)
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    for name in ("one.mp4", "…-far-too-long-for-a-bar.mkv"):
        assert re.search(rf"{name}\s.*starting", drawn), name
    assert "done" in drawn.splitlines()[-1]
