"""framenest rank as a user runs it: in a process of its own where exit codes and streams matter."""

import json
import os
import re
import subprocess
import sys

import av
import numpy as np
import pytest
import rich_click as click
from PIL import Image

from command_line import FAST, on_a_terminal, run
from framenest import MECConfig, Ranking
from framenest.cli import app
from framenest.cli import main as cli_main
from framenest.config import DiscoveryConfig, IndexConfig, RankingConfig
from framenest.selectors import mec_config
from media import numbered_picture, numbered_video


def test_rank_prints_the_ranking_and_the_budgets(capsys, clip, table, tmp_path):
    output = tmp_path / "new" / "ranking.json"
    code, out, err = run(
        capsys, "rank", clip, "Where is it?", "--scorer", table, "-o", output, "-k", "2,4,8", *FAST
    )
    assert (code, err) == (0, "")
    assert "Where is it?" in out
    assert "looked at  24 probes + " in out
    assert "s between two probes" in out
    lines = [line.split() for line in out.splitlines() if line.startswith("K=")]
    assert [(name, len(times)) for name, *times in lines] == [("K=2", 2), ("K=4", 4), ("K=8", 8)]
    saved = Ranking.load(output)
    assert 150 <= saved.frames[0] < 160
    assert saved.scorer.startswith("table frames")


def test_descriptions_to_look_for(capsys, clip, table, tmp_path):
    look = ("--look-for", "a kiln", "--look-for", "cups")
    given = ("--scorer", table, "-o", tmp_path / "r.json", *FAST, *look)
    code, out, _ = run(capsys, "rank", clip, "Where is it?", *given)
    assert code == 0
    assert "a kiln" in out
    saved = Ranking.load(tmp_path / "r.json")
    assert saved.look_for.texts == ("a kiln", "cups")
    code, _, err = run(capsys, "rank", clip, "--no-question", *look, *FAST)
    assert (code, "give a question, too" in err) == (2, True)
    code, _, err = run(capsys, "rank", "--manifest", "asked.csv", "-o", tmp_path, "--look-for", "a kiln")
    assert (code, "--manifest does not go with" in err) == (2, True)


def test_the_installed_command_works(clip, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "framenest", "rank", str(clip), "--no-question", *FAST, "-o", "-"],
        capture_output=True,
        text=True,
        env=os.environ | {"FRAMENEST_CACHE": str(tmp_path)},
        check=True,
    )
    assert json.loads(done.stdout)["question"] is None
    assert done.stderr == ""


def test_bars_are_gone_before_the_result_is_printed(clip, tmp_path):
    written = on_a_terminal("rank", clip, "--no-question", "-o", tmp_path / "r.json", *FAST)
    assert "probes" in written
    erased = max(written.rfind("\x1b[2K"), written.rfind("\x1b[1A"))
    assert 0 < erased < written.index("question")
    assert written.rstrip().endswith("r.json")


def test_every_config_field_is_named_in_help_and_reaches_the_config(capsys, clip, tmp_path):
    output = tmp_path / "r.json"
    options = ["--preset", "reverse", "--start", "2", "--end", "9"]
    for setting in ("zoom=1", "activation=0.5", "coverage_term=false", "anchors=2", "gamma=1.5"):
        options += ["--set", setting]
    code, _, err = run(capsys, "rank", clip, "--no-question", "-o", output, *options, *FAST)
    assert (code, err) == (0, "")
    config = Ranking.load(output).config
    assert config.ranking == RankingConfig(20, 0.2, 0.6, 1.5, 0.2, False)
    assert config.discovery == DiscoveryConfig(relevance_weight=0, activation=0.5, anchors=2, zoom=1)
    assert config.index == IndexConfig(24, 0, start=2.0, end=9.0)
    named = {p.name: p.help for p in app.commands["rank"].params if isinstance(p, click.Option)}
    for part in (IndexConfig, DiscoveryConfig, RankingConfig):
        for name in part.__dataclass_fields__:
            assert name in named or re.search(rf"\b{name}\b", named["others"]), name


def test_presets_are_the_choices_of_the_option():
    option = next(p for p in app.commands["rank"].params if p.name == "preset")
    assert option.default == "paper"
    assert MECConfig.preset(option.default) == MECConfig()


def test_a_folder_of_images(capsys, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for i in range(30):
        Image.fromarray(numbered_picture(i)).save(folder / f"{i}.png")
    (folder / "notes.txt").write_text("not an image")
    output = tmp_path / "r.json"
    assert run(capsys, "rank", folder, "--no-question", "--fps", "5", "-o", output, *FAST)[0] == 0
    assert Ranking.load(output).video.duration == 6
    code, _, err = run(capsys, "rank", folder, "--no-question", *FAST)
    assert code == 2
    assert "needs its frame rate; give --fps" in err
    code, _, _ = run(capsys, "extract", output, "-k", "3", "--to", tmp_path / "out", "--quiet")
    assert (code, len(list((tmp_path / "out").iterdir()))) == (0, 3)


def audio_only(path):
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=44100, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 44100, 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def bad_inputs(tmp_path, clip):
    text = tmp_path / "text.mp4"
    text.write_text("this is not a video\n" * 20)
    empty = tmp_path / "empty.mp4"
    empty.touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    unwritable = tmp_path / "file"
    unwritable.write_text("x")
    return {
        "missing file": ([tmp_path / "no.mp4", "--no-question"], "no such file"),
        "directory": ([folder, "--no-question"], "needs its frame rate"),
        "empty directory": ([folder, "--no-question", "--fps", "5"], "no images in this folder"),
        "folder of videos": (
            [empty.parent, "--no-question"],
            "a folder of videos; name one, such as",
        ),
        "empty file": ([empty, "--no-question"], "the file is empty"),
        "text file": ([text, "--no-question"], "not a video"),
        "audio only": ([audio_only(tmp_path / "a.mp4"), "--no-question"], "no video stream"),
        "fps of a file": ([clip, "--no-question", "--fps", "5"], "fps is for folders"),
        "K=0": ([clip, "--no-question", "-k", "0"], "1 or more, not 0"),
        "K no number": ([clip, "--no-question", "-k", "many"], "'many' is not a frame budget"),
        "K too large": ([clip, "--no-question", "-k", "21", *FAST], "give horizon=21 (--horizon 21)"),
        "empty question": ([clip, ""], "give either a QUESTION, which must not be empty"),
        "no question": ([clip], "give either a QUESTION, which must not be empty"),
        "two questions": ([clip, "x", "--no-question"], "or --no-question"),
        "output name too long": ([clip, "--no-question", "-o", tmp_path / ("x" * 300)], "too long"),
        "unwritable output": ([clip, "--no-question", "-o", unwritable / "r.json"], "cannot be written"),
        "output is a folder": ([clip, "--no-question", "-o", folder], "is a directory"),
        "bad setting": (
            [clip, "--no-question", "--set", "activation=2"],
            "error: activation = 2 is not allowed; it must be more than 0, at most 1",
        ),
        "settings at odds": (
            [clip, "--no-question", "--start", "0:09", "--end", "4"],
            "error: end = 4.0 is not allowed; it must be seconds, more than start (9)",
        ),
        "weights at odds": (
            [clip, "--no-question", "--set", "evidence_weight_start=0.9"],
            "error: evidence_weight_start = 0.9 is not allowed; it must be between 0 and 0.8 (1 - div",
        ),
        "no time": (
            [clip, "--no-question", "--start", "1:75"],
            "'1:75' is not a time; give seconds or [HH:]MM",
        ),
        "bad preset": ([clip, "--no-question", "--preset", "best"], "'best' is not one of"),
        "text without a question": (
            [clip, "--no-question", "--ocr", "8"],
            "--ocr has no effect: nothing is scored with --no-question",
        ),
        "a GPU for tags": (
            [clip, "x", "--scorer", "tags", "--device", "cuda"],
            "--device cuda has no effect",
        ),
        "no such setting": ([clip, "--no-question", "--set", "zom=4"], "did you mean 'zoom'?"),
        "no setting": ([clip, "--no-question", "--set", "zoom"], "'zoom' is not a setting; write it like"),
        "no such option": ([clip, "--no-questions"], "--no-question"),
        "unknown scorer": ([clip, "x", "--scorer", "gpt"], "there is no scorer 'gpt'"),
        "missing table": ([clip, "x", "--scorer", "table:none.csv"], "none.csv: cannot be read"),
        "weights missing": ([clip, "x", "--scorer", "tags"], "framenest models fetch tags"),
        "no weights at all": ([clip, "x"], "framenest models fetch tags"),
    }


def test_bad_input_is_one_line_and_exit_code_2(capsys, clip, tmp_path):
    for what, (arguments, message) in bad_inputs(tmp_path, clip).items():
        code, _, err = run(capsys, "rank", *arguments)
        assert code == 2, what
        assert message in err, (what, err)
        assert err.startswith("error: "), what
        assert err.count("\n") == 1, (what, err)


def test_times_are_seconds_or_as_a_clock_shows_them(capsys, clip, tmp_path):
    windows = []
    for start, end in (("2", "9.5"), ("0:02", "0:09.5"), ("0:00:02", "00:00:09.500")):
        given = ("--no-question", "--start", start, "--end", end, "-o", tmp_path / "r.json", *FAST)
        assert run(capsys, "rank", clip, *given)[0] == 0
        ranking = Ranking.load(tmp_path / "r.json")
        windows.append((ranking.config.index.start, ranking.config.index.end, ranking.seconds.max()))
    assert windows == [windows[0]] * 3
    assert windows[0][:2] == (2.0, 9.5)
    assert mec_config("start=0:08+end=1:00:00").index == IndexConfig(start=8.0, end=3600.0)


def test_odd_names_and_links(capsys, clip, tmp_path):
    """Brackets are no markup, a colon is no protocol, a link stays a link, a path holds from anywhere."""
    video = tmp_path / "a:b [bold]x[red].mp4"
    video.write_bytes(clip.read_bytes())
    target = tmp_path / "real.json"
    target.write_text("old")
    link = tmp_path / "[red]x.json"
    link.symlink_to(target)
    code, out, err = run(capsys, "rank", video, "--no-question", "-o", link, *FAST)
    assert (code, err) == (0, "")
    assert "[bold]x[red].mp4" in out
    assert link.is_symlink()
    assert Ranking.load(target).video.path == str(video)


def test_a_question_is_shown_as_it_is(capsys, clip, table):
    assert "[red]Where?[/]" in run(capsys, "rank", clip, "[red]Where?[/]", "--scorer", table, *FAST)[1]


def test_an_unexpected_error_is_one_line_too(capsys, clip, monkeypatch):
    def broken(*_):
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr("framenest.method.ordering.greedy", broken)
    code, _, err = run(capsys, "rank", clip, "--no-question", *FAST)
    assert code == 2
    assert err == "error: unexpected RuntimeError: first line second line (--debug shows where)\n"


def test_a_truncated_file_works_on_what_is_there_and_says_how_much(capsys, tmp_path):
    whole = numbered_video(tmp_path / "whole.mkv", 250, options={"g": "25"})
    cut = tmp_path / "cut.mkv"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    code, out, _ = run(capsys, "rank", cut, "--no-question", *FAST)
    assert code == 0
    assert "the header promises 10.0 s of video" in out


def test_debug_shows_the_traceback(tmp_path):
    from framenest import VideoError

    with pytest.raises(VideoError):
        cli_main(["rank", str(tmp_path / "no.mp4"), "--no-question", "--debug"])


INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background ignores it
from framenest.cli import main
from framenest.scorers.table import TableScorer

encode, batches = TableScorer.encode, []

def press_ctrl_c(self, frames):
    if len(frames):
        batches.append(len(frames))
        if len(batches) == 3:
            signal.raise_signal(signal.SIGINT)
    return encode(self, frames)

TableScorer.encode = press_ctrl_c
main(sys.argv[1:])
"""


def test_ctrl_c_keeps_the_probes_encoded_so_far(capsys, clip, table, tmp_path):
    """A real SIGINT at the third batch; the next run decodes what is missing, and no more."""
    probes = ("--set", "base_probes=200", "--set", "extra_probes=0")
    common = ("rank", clip, "Where is it?", "--scorer", table, *probes)
    given = [*map(str, common), "--cache", str(tmp_path / "cache")]
    stopped = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *given], capture_output=True, text=True, check=False
    )
    assert stopped.returncode == 130, stopped.stderr
    note = re.search(r"note: (\d+) of 200 frames were done and are kept for the next run", stopped.stderr)
    assert note, stopped.stderr
    assert 2 <= int(note[1]) < 200
    assert "error: interrupted" in stopped.stderr
    rankings = {}
    for where in ("cache", "fresh"):
        run(capsys, *common, "--cache", tmp_path / where, "-o", tmp_path / f"{where}.json")
        rankings[where] = Ranking.load(tmp_path / f"{where}.json")
    resumed, whole = rankings["cache"], rankings["fresh"]
    assert resumed.stats.decoded == whole.stats.decoded - int(note[1])
    assert resumed.frames.tolist() == whole.frames.tolist()
    assert resumed.evidence.tolist() == whole.evidence.tolist()


def test_quiet_says_no_notes(capsys, clip, table, tmp_path):
    short = ("select", clip, "Where?", "--selector", "aks-released", "--scorer", table, "-k", 4)
    cache = ("--cache", tmp_path / "cache")
    plain, quiet = (run(capsys, *short, *cache, *more) for more in ((), ("-q",)))
    about, result = plain[1].splitlines(keepends=True)
    assert about.startswith("selector aks-released  scorer table frames ")
    assert quiet[1] == result
    assert "note: aks-released returns 0 frames" in plain[2]
    assert quiet[2] == ""


def test_quiet_prints_results_only(capsys, clip, table, ranking, tmp_path):
    """Of a ranking its ranks and budgets, without facts; where files are the result, nothing."""
    asked = ("rank", clip, "Where is it?", "--scorer", table, *FAST, "-k", 4, "-o", tmp_path / "r.json")
    said = {more: run(capsys, *asked, *more)[1].splitlines() for more in ((), ("--quiet",))}
    start, end = (said[()].index(line) for line in (said["--quiet",][0], "12 more ranks"))
    assert said[()][start:end] + said[()][end + 1 : -1] == said["--quiet",]
    assert said[()][-1] == f"written to {tmp_path / 'r.json'}"
    for command in (
        ("extract", ranking, "-k", 2, "--to", tmp_path / "out", "--sheet", tmp_path / "s.png"),
        ("report", ranking, "-o", tmp_path / "r.html"),
        ("export", ranking, "-k", 2, "--style", "aks", "-o", tmp_path / "aks.json"),
        ("export", ranking, "-k", 2, "--style", "vlmevalkit", "-o", tmp_path / "kit"),
    ):
        assert run(capsys, *command, "-q") == (0, "", ""), command
        assert run(capsys, *command)[1] != "", command


def test_the_scorer_is_not_mentioned_where_none_is_used(capsys, clip, monkeypatch):
    chosen = ("table", "scorer table, the best one")
    monkeypatch.setattr("framenest.cli.option_groups.choose", lambda _: chosen)
    for selector, said in (("uniform", 0), ("aks", 1)):
        _, _, err = run(capsys, "select", clip, "Where?", "--selector", selector, "-k", 4)
        assert err.count("scorer table, the best one") == said
