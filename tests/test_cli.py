"""The command line as a user runs it: in a process of its own where exit codes and streams matter."""

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress

import av
import numpy as np
import pytest
from PIL import Image

from framenest import MECConfig, Ranking
from framenest.cli import app
from framenest.cli import main as cli_main
from framenest.config import DiscoveryConfig, IndexConfig, RankingConfig
from framenest.models import CATALOGUE
from media import number_in, numbered_picture, numbered_video

FAST = ["--base-probes", "24", "--extra-probes", "0", "--horizon", "20", "--quiet"]


def run(capsys, *arguments):
    """(exit code, stdout, stderr) of one command."""
    with pytest.raises(SystemExit) as ended:
        cli_main([str(a) for a in arguments])
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("frame,score\n" + "".join(f"{n},1.0\n" for n in range(150, 160)))
    return f"table:{path}"


@pytest.fixture
def ranking(capsys, clip, table, tmp_path):
    path = tmp_path / "ranking.json"
    assert run(capsys, "rank", clip, "Where is it?", "--scorer", table, "-o", path, *FAST)[0] == 0
    return path


def test_rank_prints_the_ranking_and_the_budgets(capsys, clip, table, tmp_path):
    output = tmp_path / "new" / "ranking.json"
    code, out, err = run(
        capsys, "rank", clip, "Where is it?", "--scorer", table, "-o", output, "-k", "2,4", "-k", "8", *FAST
    )
    assert (code, err) == (0, "")
    assert "Where is it?" in out
    assert "24 probes" in out
    assert "at a stretch, between probes" in out
    assert all(f"K={k}" in out for k in (2, 4, 8))
    saved = Ranking.load(output)
    assert 150 <= saved.frames[0] < 160
    assert saved.scorer.startswith("table frames")


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


def on_a_terminal(*arguments):
    """What a command writes to a terminal, bars and all."""
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-m", "framenest", *map(str, arguments)], stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    written = b""
    with suppress(OSError):  # the terminal is gone when the process is
        while chunk := os.read(ours, 4096):
            written += chunk
    os.close(ours)
    assert done.wait(timeout=60) == 0
    return written.decode()


def test_bars_are_gone_before_the_result_is_printed(clip, tmp_path):
    settings = [a for a in FAST if a != "--quiet"]
    written = on_a_terminal("rank", clip, "--no-question", "-o", tmp_path / "r.json", *settings)
    assert "probes" in written
    erased = max(written.rfind("\x1b[2K"), written.rfind("\x1b[1A"))
    assert 0 < erased < written.index("question")
    assert written.rstrip().endswith("r.json")


def test_every_config_field_is_an_option_and_reaches_the_config(capsys, clip, tmp_path):
    output = tmp_path / "r.json"
    options = ["--preset", "reverse", "--zoom", "1", "--activation", "0.5", "--start", "2", "--end", "9"]
    options += ["--no-coverage-term", "--anchors", "2", "--gamma", "1.5"]
    code, _, err = run(capsys, "rank", clip, "--no-question", "-o", output, *options, *FAST)
    assert (code, err) == (0, "")
    config = Ranking.load(output).config
    assert config.ranking == RankingConfig(20, 0.2, 0.6, 1.5, 0.2, False)
    assert config.discovery == DiscoveryConfig(relevance_weight=0, activation=0.5, anchors=2, zoom=1)
    assert config.index == IndexConfig(24, 0, start=2.0, end=9.0)
    names = {p.name for p in app.commands["rank"].params}
    for part in (IndexConfig, DiscoveryConfig, RankingConfig):
        assert set(part.__dataclass_fields__) <= names


def test_many_questions_index_once(capsys, clip, table, tmp_path):
    questions = tmp_path / "questions.txt"
    questions.write_text("Where is it?\n\nWhat now?\n")
    folder = tmp_path / "rankings"
    code, _, _ = run(capsys, "rank", clip, "--questions", questions, "--scorer", table, "-o", folder, *FAST)
    assert code == 0
    files = sorted(folder.iterdir())
    assert [f.name for f in files] == ["1-where-is-it.json", "2-what-now.json"]
    assert Ranking.load(files[1]).stats.decoded == 0
    questions.write_text(json.dumps([{"question": "A?"}, "B?"]))
    assert run(capsys, "rank", clip, "--questions", questions, "--scorer", table, "-o", folder, *FAST)[0] == 0
    assert (folder / "2-b.json").exists()


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


def test_show(capsys, ranking):
    code, out, _ = run(capsys, "show", ranking, "-k", "4")
    assert code == 0
    assert "16 more ranks" in out
    assert "K=4" in out


def test_extract_writes_the_frames_themselves(capsys, ranking, clip, tmp_path):
    folder, sheet = tmp_path / "frames", tmp_path / "sheet.png"
    code, _, err = run(
        capsys, "extract", ranking, "-k", "5", "--to", folder, "--format", "png", "--sheet", sheet, "--quiet"
    )
    assert (code, err) == (0, "")
    files = sorted(folder.iterdir())
    prefix = Ranking.load(ranking).prefix(5)
    assert [int(f.name[1:8]) for f in files] == prefix.frames.tolist()
    for file, frame, rank in zip(files, prefix.frames, prefix.ranks, strict=True):
        with Image.open(file) as image:
            pixels = np.asarray(image)
        assert pixels.shape == (64, 96, 3)
        assert number_in(pixels) == frame
        assert f"_t{frame / 25:010.3f}s_r{rank:03d}." in file.name
    with Image.open(sheet) as drawn:
        assert drawn.width > 4 * 320


def test_extract_refuses_a_changed_video(capsys, tmp_path, table):
    video, output = numbered_video(tmp_path / "v.mp4", 40), tmp_path / "r.json"
    run(capsys, "rank", video, "--no-question", "-o", output, *FAST)
    numbered_video(video, 50)
    code, _, err = run(capsys, "extract", output, "-k", "2", "--to", tmp_path / "out")
    assert code == 2
    assert "has changed since it was ranked" in err
    assert not (tmp_path / "out").exists()
    video.unlink()
    code, _, err = run(capsys, "extract", output, "-k", "2", "--to", tmp_path / "out")
    assert (code, "say where the video is now with --video" in err) == (2, True)


def test_extract_finds_a_moved_video(capsys, tmp_path):
    video, output = numbered_video(tmp_path / "v.mp4", 40), tmp_path / "r.json"
    run(capsys, "rank", video, "--no-question", "-o", output, *FAST)
    moved = video.rename(tmp_path / "w.mp4")
    arguments = ("extract", output, "-k", "2", "--to", tmp_path / "out", "--video", moved, "--quiet")
    assert run(capsys, *arguments)[0] == 0


def test_index_then_rank_decodes_no_probe(capsys, clip, table, tmp_path):
    settings = ["--base-probes", "24", "--extra-probes", "0", "--quiet"]
    code, out, _ = run(capsys, "index", clip, "--scorer", table, *settings)
    assert code == 0
    assert "24 probes over 0:12.0, at most 0.52 s apart; timeline from" in out
    output = tmp_path / "r.json"
    run(capsys, "rank", clip, "Where?", "--scorer", table, "-o", output, *settings)
    assert Ranking.load(output).stats.decoded == Ranking.load(output).stats.zoom


def test_index_goes_on_after_a_bad_video(capsys, clip, tmp_path):
    bad = tmp_path / "bad.mp4"
    bad.write_text("no video")
    settings = ["--base-probes", "24", "--extra-probes", "0", "--quiet", "--scorer", "none"]
    report = tmp_path / "failures.jsonl"
    code, out, err = run(capsys, "index", bad, clip, "--failures", report, *settings)
    assert code == 1
    assert "1 video done" in out
    assert json.loads(report.read_text())["error"] == "VideoError"
    assert "1 of 2 videos could not be indexed" in err


def test_cache_commands(capsys, clip, cache):
    run(capsys, "rank", clip, "--no-question", *FAST)
    code, out, _ = run(capsys, "cache", "where")
    assert (code, out.strip()) == (0, str(cache))
    assert "index" in run(capsys, "cache", "size")[1]
    assert "freed" in run(capsys, "cache", "clear")[1]
    assert not list(cache.rglob("*.safetensors"))


def test_models_lists_every_scorer_with_its_needs(capsys):
    code, out, err = run(capsys, "models")
    assert code == 0
    for name, entry in CATALOGUE.items():
        assert name in out
        assert entry.licence in out
    assert "4.38 GiB" in out
    assert "no weights" in out or "needs [" in out
    assert "run `framenest models fetch tags`" in err, "in an empty cache nothing is ready"


def test_help_and_version(capsys):
    assert run(capsys, "--version")[1].startswith("framenest, version")
    for name in app.commands:
        code, out, _ = run(capsys, name, "--help")
        assert code == 0
        assert "Usage" in out


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
    latin = tmp_path / "latin.txt"
    latin.write_bytes("Où?".encode("latin-1"))
    listed = tmp_path / "listed.json"
    listed.write_text('{"questions": ["a"]}')
    unwritable = tmp_path / "file"
    unwritable.write_text("x")
    return {
        "missing file": ([tmp_path / "no.mp4", "--no-question"], "no such file"),
        "directory": ([folder, "--no-question"], "needs its frame rate"),
        "empty directory": ([folder, "--no-question", "--fps", "5"], "no images in this folder"),
        "empty file": ([empty, "--no-question"], "the file is empty"),
        "text file": ([text, "--no-question"], "not a video"),
        "audio only": ([audio_only(tmp_path / "a.mp4"), "--no-question"], "no video stream"),
        "fps of a file": ([clip, "--no-question", "--fps", "5"], "fps is for folders"),
        "K=0": ([clip, "--no-question", "-k", "0"], "1 or more, not 0"),
        "K no number": ([clip, "--no-question", "-k", "many"], "'many' is not a frame budget"),
        "K too large": ([clip, "--no-question", "-k", "21", *FAST], "give --horizon 21"),
        "empty question": ([clip, ""], "the question is empty"),
        "no question": ([clip], "the question is empty"),
        "two questions": ([clip, "x", "--no-question"], "not several of them"),
        "no questions in file": ([clip, "--questions", empty], "no questions in this file"),
        "output name too long": ([clip, "--no-question", "-o", tmp_path / ("x" * 300)], "too long"),
        "questions not in UTF-8": ([clip, "--questions", latin], "not a text in UTF-8"),
        "questions not a list": ([clip, "--questions", listed], "not a JSON list of questions"),
        "unwritable output": ([clip, "--no-question", "-o", unwritable / "r.json"], "cannot be written"),
        "output is a folder": ([clip, "--no-question", "-o", folder], "is a directory"),
        "bad setting": ([clip, "--no-question", "--activation", "2"], "activation = 2.0 is not allowed"),
        "bad preset": ([clip, "--no-question", "--preset", "best"], "'best' is not one of"),
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


def test_bad_ranking_files(capsys, ranking, tmp_path):
    newer = tmp_path / "newer.json"
    newer.write_text(json.dumps(json.loads(ranking.read_text()) | {"format": 99}))
    half = tmp_path / "half.json"
    half.write_text(ranking.read_text()[:500])
    other = tmp_path / "other.json"
    other.write_text("{}")
    lacking = json.loads(ranking.read_text())
    del lacking["ranks"][3]["utility"]
    partial = tmp_path / "partial.json"
    partial.write_text(json.dumps(lacking))
    for file, message in (
        (newer, "format 99"),
        (half, "not a ranking file"),
        (other, "not a ranking file"),
        (partial, "damaged ranking file"),
        (tmp_path / "none.json", "cannot be read"),
    ):
        for command in (["show", file], ["extract", file, "-k", "2", "--to", tmp_path / "out"]):
            code, _, err = run(capsys, *command)
            assert (code, message in err) == (2, True), err
    code, _, err = run(capsys, "show", ranking, "-k", "21")
    assert (code, "too few for a budget of 21" in err) == (2, True)


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


def test_show_defaults_to_what_there_is(capsys, clip, tmp_path):
    output = tmp_path / "r.json"
    run(capsys, "rank", clip, "--no-question", "-o", output, *FAST, "--horizon", "5")
    code, out, _ = run(capsys, "show", output)
    assert (code, "K=5" in out) == (0, True)


def test_an_unexpected_error_is_one_line_too(capsys, clip, monkeypatch):
    def broken(*_):
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr("framenest.method.mec.greedy", broken)
    code, _, err = run(capsys, "rank", clip, "--no-question", *FAST)
    assert code == 2
    assert err == "error: unexpected RuntimeError: first line second line (--debug shows where)\n"


def test_sheets_are_checked_before_the_work(capsys, ranking, tmp_path):
    out = tmp_path / "out"
    code, _, err = run(capsys, "extract", ranking, "-k", "2", "--to", out, "--sheet", tmp_path / "s.xyz")
    assert (code, "is a .png, .jpg or .webp file" in err, out.exists()) == (2, True, False)
    deep = tmp_path / "new" / "sheet.png"
    assert run(capsys, "extract", ranking, "-k", "2", "--to", out, "--sheet", deep, "--quiet")[0] == 0
    assert deep.exists()


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


def test_presets_are_the_choices_of_the_option():
    option = next(p for p in app.commands["rank"].params if p.name == "preset")
    assert option.default == "paper"
    assert MECConfig.preset(option.default) == MECConfig()
