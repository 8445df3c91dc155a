"""framenest show and framenest extract: files of rankings, and the frames themselves."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from command_line import FAST, run, terminal
from framenest import Ranking
from framenest.text import clock
from media import number_in, numbered_video


def shown(file, budget):
    """The times of a budget's frames, in order."""
    return " ".join(clock(second) for second in Ranking.load(file).prefix(budget).seconds)


def test_show(capsys, ranking):
    code, out, _ = run(capsys, "show", ranking, "-k", "4")
    assert code == 0
    assert out.splitlines()[-1] == shown(ranking, 4)


def test_show_defaults_to_what_there_is(capsys, clip, tmp_path):
    output = tmp_path / "r.json"
    run(capsys, "rank", clip, "--no-question", "-o", output, *FAST, "--horizon", "5")
    code, out, _ = run(capsys, "show", output)
    assert (code, out.splitlines()[-1]) == (0, shown(output, 5))


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


def test_images_are_no_larger_than_asked_for(capsys, tmp_path):
    """Of a 4K video, and of one that stands on its side in the file."""
    wide = numbered_video(tmp_path / "wide.mp4", 12, 3840, 2160)
    tall = numbered_video(tmp_path / "tall.mp4", 12, 1920, 1080, rotation=90)
    for video, original, small in ((wide, (3840, 2160), (1568, 882)), (tall, (1080, 1920), (882, 1568))):
        ranking, folder = tmp_path / f"{video.stem}.json", tmp_path / video.stem
        rank = ("rank", video, "--no-question", "-k", "2", "-o", ranking, *FAST, "--quiet")
        extract = ("extract", ranking, "-k", "2", "--quiet", "--to")
        most = ("--max-side", "1568")
        for command in (
            (*rank, "--to", folder / "ranked", *most),
            (*extract, folder / "extracted", *most),
            (*extract, folder / "tiers", *most, "--tokens", "4000"),
        ):
            arguments = [one for one in command if "--tokens" not in command or one not in ("-k", "2")]
            assert run(capsys, *arguments)[0] == 0
            for file in sorted(arguments[arguments.index("--to") + 1].iterdir()):
                with Image.open(file) as image:
                    assert image.size == small, arguments
        assert run(capsys, *extract, folder / "original")[0] == 0
        for file in sorted((folder / "original").iterdir()):
            with Image.open(file) as image:
                assert image.size == original
    code, _, err = run(capsys, "rank", wide, "--no-question", "-k", "2", *FAST, *most)
    assert (code, err) == (2, "error: --max-side has no effect: it is the size of images for --to\n")
    code, _, err = run(capsys, *extract, tmp_path / "none", "--max-side", "0")
    assert code == 2
    assert "max_side" in err


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
    assert (code, "if it has moved, give its path with --video" in err) == (2, True)


def test_extract_finds_a_moved_video(capsys, tmp_path):
    video, output = numbered_video(tmp_path / "v.mp4", 40), tmp_path / "r.json"
    run(capsys, "rank", video, "--no-question", "-o", output, *FAST)
    moved = video.rename(tmp_path / "w.mp4")
    arguments = ("extract", output, "-k", "2", "--to", tmp_path / "out", "--video", moved, "--quiet")
    assert run(capsys, *arguments)[0] == 0


def test_sheets_are_checked_before_the_work(capsys, ranking, tmp_path):
    out = tmp_path / "out"
    code, _, err = run(capsys, "extract", ranking, "-k", "2", "--to", out, "--sheet", tmp_path / "s.xyz")
    assert (code, "is a .png, .jpg or .webp file" in err, out.exists()) == (2, True, False)
    deep = tmp_path / "new" / "sheet.png"
    assert run(capsys, "extract", ranking, "-k", "2", "--to", out, "--sheet", deep, "--quiet")[0] == 0
    assert deep.exists()


def test_a_video_is_no_ranking(capsys, clip, tmp_path):
    for command in (["show", clip], ["extract", clip, "-k", "2", "--to", tmp_path / "out"]):
        code, _, err = run(capsys, *command)
        assert (code, err) == (
            2, f"error: {clip}: this is a video; rank it first: framenest rank {clip} QUESTION -o FILE\n",
        )  # fmt: skip


def test_extract_as_json(capsys, ranking, tmp_path):
    folder = tmp_path / "frames"
    code, out, _ = run(capsys, "extract", ranking, "-k", "2", "--to", folder, "--json")
    assert (code, json.loads(out)) == (0, {"files": sorted(map(str, folder.iterdir())), "sheet": None})


def test_a_selection_as_json(capsys, clip, tmp_path):
    chosen = tmp_path / "uniform.json"
    given = ("select", clip, "Where?", "--selector", "uniform", "-k", "2,3", "-o", chosen, "--json")
    saved = json.loads(run(capsys, *given)[1])
    assert saved == json.loads(chosen.read_text())
    shown = json.loads(run(capsys, "show", chosen, "-k", "3", "--json")[1])
    assert shown["budgets"] == {"3": saved["budgets"]["3"]}


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


def test_a_ranking_as_csv(capsys, ranking):
    made = Ranking.load(ranking)
    for given, count in ((["-k", "4"], 4), ([], len(made))):
        code, out, _ = run(capsys, "show", ranking, "--csv", *given)
        rows = list(csv.DictReader(out.splitlines()))
        assert (code, len(rows)) == (0, count)
        assert [int(row["frame"]) for row in rows] == made.frames[:count].tolist()
        assert [float(row["seconds"]) for row in rows] == [round(s, 3) for s in made.seconds[:count].tolist()]
        assert float(rows[0]["relevance"]) == pytest.approx(float(made.cues["relevance"][0]), rel=1e-5)


def test_a_selection_as_csv(capsys, clip, tmp_path):
    chosen = tmp_path / "uniform.json"
    run(capsys, "select", clip, "Where?", "--selector", "uniform", "-k", "2,3", "-o", chosen)
    _, out, _ = run(capsys, "show", chosen, "--csv")
    assert out.splitlines() == [
        "budget,rank,frame,seconds",
        "2,,0,0.000", "2,,299,11.960", "3,,0,0.000", "3,,150,6.000", "3,,299,11.960",
    ]  # fmt: skip


def test_frames_of_another_budget_are_not_mixed_in(capsys, ranking, tmp_path):
    folder = tmp_path / "frames"
    extract = ("extract", ranking, "--to", folder, "--quiet", "-k")
    assert run(capsys, *extract, 5)[0] == 0
    assert run(capsys, *extract, 5)[0] == 0  # the same ones again
    assert run(capsys, *extract, 7)[0] == 0  # a larger prefix holds the smaller
    before = sorted(folder.iterdir())
    code, _, err = run(capsys, *extract, 3)
    assert (code, f"{folder}: already holds 4 other frames, such as f0" in err) == (2, True)
    assert sorted(folder.iterdir()) == before


def test_a_selector_that_chooses_nothing_says_why(capsys, clip, table, tmp_path):
    chosen = tmp_path / "aks.json"
    given = ("--selector", "aks-released", "--scorer", table, "-k", "4", "-o", chosen)
    code, _, err = run(capsys, "select", clip, "Where?", *given)
    assert code == 0
    assert "aks-released returns 0 frames for a budget of 4: as published" in err
    code, _, err = run(capsys, "extract", chosen, "-k", "4", "--to", tmp_path / "f")
    assert (code, "no frame was chosen for a budget of 4: as published" in err) == (2, True)


def test_extract_leaves_no_cut_picture_on_a_full_disk(ranking, tmp_path):
    folder = tmp_path / "out"
    script = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000));"
        "from framenest.cli import main; main(sys.argv[1:])"
    )
    command = ["extract", str(ranking), "-k", "3", "--to", str(folder), "--format", "png", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-c", script, *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "cannot be written (File too large)" in done.stderr
    assert not list(folder.iterdir())


def test_ranks_fit_into_a_narrow_terminal_without_a_number_cut(capsys, monkeypatch, ranking):
    """What finds no room is left out and named; CSV has it."""
    lines = {}
    for columns in (50, 80, 120):
        terminal(monkeypatch, columns)
        code, out, _ = run(capsys, "show", ranking, "-k", 4, "--why")
        assert (code, "…" in out) == (0, False)
        lines[columns] = next(line for line in out.splitlines() if line.split()[2:3] == ["frame"])
        assert len(lines[columns].rstrip()) <= columns
        assert ("left out" in out) == (columns == 50)
    assert lines[80].split() == lines[120].split()
    assert lines[50].split()[-1] == lines[80].split()[-1]
