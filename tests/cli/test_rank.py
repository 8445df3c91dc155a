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

from command_line import FAST, on_a_terminal, run, terminal
from framenest import MEC, MECConfig, Ranking
from framenest.cli import app
from framenest.cli import main as cli_main
from framenest.config import PRESETS, DiscoveryConfig, IndexConfig, RankingConfig
from framenest.selectors import mec_config
from framenest.text import clock
from media import numbered_picture, numbered_video


def test_rank_prints_the_ranking_and_the_budgets(capsys, clip, table, tmp_path):
    output = tmp_path / "new" / "ranking.json"
    code, out, err = run(
        capsys, "rank", clip, "Where is it?", "--scorer", table, "-o", output, "-k", "2,4,8", *FAST
    )
    assert (code, err) == (0, "")
    saved = Ranking.load(output)
    about, rows, times = parts(out)
    assert [name for name, *_ in about] == ["video", "question", "scorer"]
    assert ["question", "Where is it?"] in about
    assert rows[:2] == [
        ["1", clock(saved.seconds[0]), "evidence", "relevance 1.00"],
        ["2", clock(saved.seconds[1]), "context", "the beginning"],
    ]
    assert len(rows) == 8
    assert times == {k: " ".join(map(clock, saved.prefix(k).seconds)) for k in (2, 4, 8)}
    assert 150 <= saved.frames[0] < 160
    assert saved.scorer.startswith("table frames")


def parts(out):
    """Facts and ranks as cells, and the times by budget, of what `rank` or `show` prints into a pipe."""
    lines = [line for line in out.splitlines() if not re.match(r"\d+ of \d+ frames match", line)]
    ranks = lines.index("rank\ttime\trole\treason")
    end = next(i for i, line in enumerate(lines) if line.endswith("frames in time order:"))
    about, rows = ([line.split("\t") for line in part] for part in (lines[:ranks], lines[ranks + 1 : end]))
    heads = [i for i, line in enumerate(lines) if line.endswith("frames in time order:")]
    return about, rows, {int(lines[i].split()[0]): lines[i + 1] for i in heads}


def test_rank_prints_as_many_frames_as_were_asked_for(capsys, clip, table):
    asked = ("rank", clip, "Where is it?", "--scorer", table, *FAST)
    for given, count in (((), 8), (("-k", "4"), 4), (("-k", "10"), 10), (("--horizon", "5"), 5)):
        _, rows, times = parts(run(capsys, *asked, *given)[1])
        assert (len(rows), list(times)) == (count, [count])
        quiet = run(capsys, *asked, *given, "-q")
        assert quiet == (0, f"{times[count]}\n", "")


def test_rank_as_json(capsys, clip, table, tmp_path):
    asked = ("rank", clip, "Where is it?", "--scorer", table, *FAST, "-o", tmp_path / "r.json")
    code, out, err = run(capsys, *asked, "-k", "2,4", "--to", tmp_path / "frames", "--json")
    assert (code, err) == (0, "")
    made, saved = json.loads(out), Ranking.load(tmp_path / "r.json")
    assert (made["video"], made["question"]) == (str(clip), "Where is it?")
    assert [row["frame"] for row in made["ranks"]] == saved.frames[:4].tolist()
    assert (made["ranks"][0]["role"], made["ranks"][0]["reason"]) == ("evidence", "relevance 1.00")
    assert saved.prefix(4).roles == tuple(saved.roles[rank - 1] for rank in saved.prefix(4).ranks)
    assert " of 4 frames match" in run(capsys, "show", tmp_path / "r.json", "-k", "4")[1]
    assert made["budgets"] == {str(k): saved.prefix(k).seconds.tolist() for k in (2, 4)}
    shown = json.loads(run(capsys, "show", tmp_path / "r.json", "-k", "4", "--json")[1])
    assert shown["ranks"] == made["ranks"]


def test_rank_writes_the_frames_too(capsys, clip, table, tmp_path):
    """The same files as `extract`, of the largest budget, and the contact sheet."""
    file, sheet = tmp_path / "r.json", tmp_path / "sheet.png"
    asked = ("rank", clip, "Where is it?", "--scorer", table, *FAST, "-o", file, "-k", "2,4")
    code, out, _ = run(capsys, *asked, "--to", tmp_path / "a", "--sheet", sheet)
    assert (code, out.splitlines()[-2:]) == (
        0, [f"4 frames in {tmp_path / 'a'}", f"contact sheet in {sheet}"],
    )  # fmt: skip
    run(capsys, "extract", file, "-k", 4, "--to", tmp_path / "b", "--sheet", tmp_path / "again.png")
    written = [{f.name: f.read_bytes() for f in (tmp_path / name).iterdir()} for name in "ab"]
    assert written[0] == written[1]
    assert len(written[0]) == 4
    assert sheet.read_bytes() == (tmp_path / "again.png").read_bytes()


@pytest.mark.parametrize("flag", ["rank -v", "show --why"])
def test_the_scores_are_told_to_whoever_asks(capsys, clip, table, ranking, flag):
    asked = ("rank", clip, "Where is it?", "--scorer", table, *FAST) if "rank" in flag else ("show", ranking)
    _, out, _ = run(capsys, *asked, flag.split()[1])
    assert re.search(r"^looked at\t24 probes \+ \d+ zoom frames$", out, re.M)
    assert re.search(r"^not seen\tup to [\d.]+ s between two probes$", out, re.M)
    assert "rank\ttime\tframe\tfrom\tevid.\trelev.\tchange\tobserv.\tevent\tlook\tby\tutility\n" in out
    assert "evid." not in run(capsys, *asked)[1]


def test_output_is_padded_and_wrapped_on_a_terminal_only(capsys, monkeypatch, clip, table, tmp_path):
    long = "Where is it, the thing that was seen on the table before everybody left the room, and why?"
    asked = ("rank", clip, long, "--scorer", table, *FAST)
    piped = run(capsys, *asked)[1]
    assert f"question\t{long}\n" in piped
    assert not re.search(r"  |[ \t]$", piped, re.M)
    terminal(monkeypatch, 60)
    shown = run(capsys, *asked)[1].splitlines()
    times = shown.index("8 frames in time order:") + 1
    assert max(map(len, shown[:times])) <= 60
    assert shown[times] == piped.splitlines()[-1]


def test_the_scorer_is_told_once(capsys, clip, monkeypatch):
    """Not again by the next command, unless the choice changes; never where nothing is ranked."""
    chosen = ["table", "scorer table, the best one"]
    monkeypatch.setattr("framenest.cli.options.choose", lambda _: chosen)
    assert run(capsys, "rank") == (2, "", "error: give a VIDEO, or --manifest FILE for many\n")
    asked = ("select", clip, "Where?", "--selector", "aks", "-k", 4)
    assert "the best one" not in run(capsys, *asked, "-q")[2]
    told = [run(capsys, *asked)[2].count("the best one") for _ in range(3)]
    assert told == [1, 0, 0]
    chosen[1] = "scorer table, now the best one"
    assert "now the best one" in run(capsys, *asked)[2]


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
    assert list(option.type.choices) == list(PRESETS)
    assert option.default == "residual"
    assert MECConfig.preset("paper") == MECConfig()


def test_a_folder_of_images(capsys, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for i in range(30):
        Image.fromarray(numbered_picture(i)).save(folder / f"{i}.png")
    (folder / "notes.txt").write_text("not an image")
    output = tmp_path / "r.json"
    assert run(capsys, "rank", folder, "--no-question", "--fps", "5", "-o", output, *FAST)[0] == 0
    assert Ranking.load(output).video.duration == 6
    code, out, _ = run(capsys, "rank", folder, "--no-question", *FAST)
    assert code == 0
    assert "(0:30.0, 96×64)" in out
    assert "no frame rate given: 1 image per second" in out
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
        "empty directory": ([folder, "--no-question"], "no images in this folder"),
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
        "K too large": ([clip, "--no-question", "-k", "21", *FAST], "give horizon=21"),
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
            [clip, "--no-question", "--ocr", "on"],
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


DEEP = "[" * 100_000 + "]" * 100_000
LONG = "a" * 300


def odd_files(tmp_path, clip):
    """Arguments with files and names that no reader of ours can take, and a part of the message."""
    (tmp_path / "deep.json").write_text(DEEP)
    (tmp_path / "deep.jsonl").write_text('{"video": ' + DEEP + "}")
    (tmp_path / "wide.csv").write_text("videos,question\na.mp4," + "x" * 200_000 + "\n")
    (tmp_path / "scores.csv").write_text("frame,score\n0," + "1" * 200_000 + "\n")
    (tmp_path / "huge.json").write_text('{"1' + 400 * "0" + '": 0.5}')
    (tmp_path / "far.json").write_text('[{"frame": 1' + 400 * "0" + ', "score": 0.5}]')
    deep, ranking = tmp_path / "deep.json", tmp_path / "ranking.json"
    MEC(MECConfig(IndexConfig(base_probes=12, extra_probes=0)), None).rank(clip, None).save(ranking)
    out = ("-o", tmp_path / "out")
    return {
        "a deep table": (["rank", clip, "x", "--scorer", f"table:{deep}"], "nested too deeply"),
        "a wide table": (
            ["rank", clip, "x", "--scorer", f"table:{tmp_path / 'scores.csv'}"],
            "score of 0 is inf",
        ),
        "a far frame": (
            ["rank", clip, "x", "--scorer", f"table:{tmp_path / 'huge.json'}"],
            "must hold numbers",
        ),
        "a frame at no place": (
            ["rank", clip, "x", "--scorer", f"table:{tmp_path / 'far.json'}"],
            "not a table",
        ),
        "a deep manifest": (["rank", "--manifest", tmp_path / "deep.jsonl", *out], "nested too deeply"),
        "a wide manifest": (["rank", "--manifest", tmp_path / "wide.csv", *out], "needs a column `video`"),
        "a deep list": (["index", deep], "nested too deeply"),
        "deep questions": (["evaluate", "recall", deep, "--scorer", "noisy-truth:2"], "nested too deeply"),
        "a deep ranking": (["show", deep], "nested too deeply"),
        "a deep selection": (
            ["select", clip, "x", "-k", "2", "--selector", f"file:{deep}", *out],
            "too deeply",
        ),
        "a deep transcript": (["rank", clip, "x", "--subtitles", deep, "--scorer", "tags"], ""),
        "a video of a long name": (["rank", f"{LONG}.mp4", "--no-question"], "File name too long"),
        "a folder of a long name": (["index", LONG], "File name too long"),
        "videos of a long name": (["serve", "--videos", LONG], "File name too long"),
        "no URL of a video": (["rank", "http://[::1", "--no-question"], "cannot be reached"),
        "no URL of a model": (["ask", clip, "x", "--base-url", "http://[::1"], "is not an http(s) URL"),
        "no URL of a server": (["rank", clip, "x", "--server", "http://[::1"], "give a URL such as"),
        "a size beyond all": (["cache", "gc", "--max-size", "9" * 400], "is not a size"),
        "a time beyond all": (
            ["rank", clip, "--no-question", "--start", f"{'9' * 400}:00:00"],
            "is not a time",
        ),
        "a number beyond all": (
            ["rank", clip, "--no-question", "--set", f"gamma={'9' * 400}"],
            "not allowed",
        ),
    }


def test_odd_files_and_names_are_one_line_and_exit_code_2(capsys, clip, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for what, (arguments, message) in odd_files(tmp_path, clip).items():
        code, _, err = run(capsys, *arguments)
        assert (code, err[:7], err.count("\n")) == (2, "error: ", 1), (what, err)
        assert message in err, (what, err)
        assert "unexpected" not in err, (what, err)


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

    monkeypatch.setattr("framenest.method.ordering.residual", broken)
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
    about, _, result = plain[1].splitlines(keepends=True)
    assert about.startswith("selector aks-released  scorer table frames ")
    assert quiet[1] == result
    assert "note: aks-released returns 0 frames" in plain[2]
    assert quiet[2] == ""


def test_quiet_prints_results_only(capsys, clip, table, ranking, tmp_path):
    """Of a ranking the times, without ranks and facts; where files are the result, nothing."""
    asked = ("rank", clip, "Where is it?", "--scorer", table, *FAST, "-k", 4, "-o", tmp_path / "r.json")
    said = {more: run(capsys, *asked, *more)[1].splitlines() for more in ((), ("--quiet",))}
    assert said["--quiet",] == said[()][-2:-1]
    assert said[()][-1] == f"written to {tmp_path / 'r.json'}"
    for command in (
        ("extract", ranking, "-k", 2, "--to", tmp_path / "out", "--sheet", tmp_path / "s.png"),
        ("report", ranking, "-o", tmp_path / "r.html"),
        ("export", ranking, "-k", 2, "--style", "vlmevalkit", "-o", tmp_path / "kit"),
    ):
        assert run(capsys, *command, "-q") == (0, "", ""), command
        assert run(capsys, *command)[1] != "", command


def test_the_scorer_is_not_mentioned_where_none_is_used(capsys, clip, monkeypatch):
    chosen = ("table", "scorer table, the best one")
    monkeypatch.setattr("framenest.cli.options.choose", lambda _: chosen)
    for selector, said in (("uniform", 0), ("aks", 1)):
        _, _, err = run(capsys, "select", clip, "Where?", "--selector", selector, "-k", 4)
        assert err.count("scorer table, the best one") == said
