"""framenest export as a user runs it, and the files of other selectors."""

import json

import numpy as np
import pytest
from PIL import Image

from command_line import FAST, run
from framenest import Ranking, lmm
from media import number_in


@pytest.mark.parametrize("style", list(lmm.STYLES))
def test_every_style_is_written(capsys, ranking, tmp_path, style):
    target = tmp_path / "new" / "out.json"
    code, out, err = run(capsys, "export", ranking, "-k", "3", "--style", style, "-o", target, "--quiet")
    assert (code, err) == (0, "")
    assert f"{style}: 3 frames, about" in out
    made = lmm.messages(Ranking.load(ranking).prefix(3), "Where is it?", style)
    assert f"times the model reads: {' '.join(made.markers) or 'none'}" in out
    data = json.loads(target.read_text())
    if style in lmm.FOR_SERVERS:
        assert "messages" in data
        assert "kind" not in data
    else:
        assert lmm.load(target).style == style


def test_stdout_options_model_and_limits(capsys, ranking):
    code, out, _ = run(
        capsys, "export", ranking, "--option", "a cup", "--option", "a kiln", "-k", "2", "-o", "-",
        "--model", "m", "--max-side", "48", "--quality", "50", "--question", "What is shown?", "--quiet",
    )  # fmt: skip
    assert code == 0
    body = json.loads(out)
    assert body["model"] == "m"
    asked = body["messages"][0]["content"][-1]["text"]
    assert asked.startswith("What is shown?\nA. a cup\nB. a kiln\nAnswer with")


def test_the_rankings_own_options_are_asked_for(capsys, clip, tmp_path):
    made = tmp_path / "r.json"
    scores = tmp_path / "scores.csv"
    scores.write_text("frame,score\n0,0\n149,0\n150,1\n151,0\n299,0\n")
    options = ["--option", "a cup", "--option", "a kiln"]
    run(capsys, "rank", clip, "What is it?", *options, "--scorer", f"table:{scores}", "-o", made, *FAST)
    _, out, _ = run(capsys, "export", made, "-k", "2", "-o", "-", "--quiet")
    asked = json.loads(out)["messages"][0]["content"][-1]["text"]
    assert asked.startswith("What is it?\nA. a cup\nB. a kiln\nAnswer with")


def test_refusals(capsys, ranking, clip, tmp_path):
    code, _, err = run(capsys, "export", ranking, "-k", "2")
    assert (code, err) == (0, "note: nothing will be written; give -o FILE\n")
    code, _, err = run(capsys, "export", "none.json", "-k", "2")  # before the work
    assert (code, err.splitlines()[0]) == (2, "note: nothing will be written; give -o FILE")
    assert "needs an output; give -o" in run(capsys, "export", ranking, "-k", "2", "--style", "vlmevalkit")[2]
    free = tmp_path / "free.json"
    run(capsys, "rank", clip, "--no-question", "-o", free, *FAST)
    assert "give one with --question" in run(capsys, "export", free, "-k", "2")[2]


def test_vlmevalkit_folder(capsys, ranking, clip, tmp_path):
    code, out, _ = run(
        capsys, "export", ranking, "-k", "3", "--style", "vlmevalkit", "-o", tmp_path / "images"
    )
    assert (code, "3 frames in" in out) == (0, True)
    files = [tmp_path / "images" / clip.stem / f"frame-{i}-of-3.jpg" for i in (1, 2, 3)]
    shown = [number_in(np.asarray(Image.open(file))) for file in files]
    assert shown == Ranking.load(ranking).prefix(3).frames.tolist()


def chosen(capsys, clip, selector, budget, tmp_path, question="Where is it?"):
    target = tmp_path / "chosen.json"
    code, _, err = run(
        capsys, "select", clip, question, "--selector", selector, "-k", budget, "-o", target, "--quiet"
    )
    if code:
        return err
    return json.loads(target.read_text())["budgets"][str(budget)]["frames"]


def test_lists_come_back_as_a_selector(capsys, ranking, clip, tmp_path):
    frames = Ranking.load(ranking).prefix(4).frames.tolist()
    rows = [{"question": "Where is it?", "keyframe_indices": frames}]
    for style, entries in (("aks", [frames]), ("wfs-sb", rows)):
        (tmp_path / f"{style}_4.json").write_text(json.dumps(entries))
        assert chosen(capsys, clip, f"file:{tmp_path / style}_4.json", 4, tmp_path) == frames
        assert chosen(capsys, clip, f"file:{tmp_path / style}_{{k}}.json", 4, tmp_path) == frames
    assert chosen(capsys, clip, f"file:{ranking}", 4, tmp_path) == frames
    assert (
        chosen(capsys, clip, f"file:{ranking}", 2, tmp_path)
        == Ranking.load(ranking).prefix(2).frames.tolist()
    )


def test_a_row_is_found_by_question_and_video(capsys, clip, tmp_path):
    file = tmp_path / "rows.jsonl"
    rows = [
        {"question": "What now?", "keyframe_indices": [1, 2]},
        {"question": "Where is it?", "videoID": "other", "keyframe_indices": [3, 4]},
        {"question": "Where is it?", "videoID": clip.stem, "keyframe_indices": [9, 5, 9]},
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    assert chosen(capsys, clip, f"file:{file}", 8, tmp_path) == [5, 9]
    assert chosen(capsys, clip, f"file:{file}", 2, tmp_path, "What now?") == [1, 2]
    assert "0 rows match this question" in chosen(capsys, clip, f"file:{file}", 2, tmp_path, "Who?")
    assert "more than a budget of 1" in chosen(capsys, clip, f"file:{file}", 1, tmp_path)


def test_lists_that_do_not_fit_are_refused(capsys, ranking, clip, tmp_path):
    file = tmp_path / "lists.json"
    for data, said in [
        ([[1], [2]], "2 lists without questions; give rows"),
        ([[5, 300]], "lists frame 300, but this video has 300 frames"),
        ([[]], "lists no frame"),
        ([["a"]], "has no list of frames"),
    ]:
        file.write_text(json.dumps(data))
        assert said in chosen(capsys, clip, f"file:{file}", 4, tmp_path)
    file.write_text("not JSON")
    assert "neither JSON nor JSON lines" in chosen(capsys, clip, f"file:{file}", 4, tmp_path)
    assert "cannot be read" in chosen(capsys, clip, f"file:{tmp_path / 'none.json'}", 4, tmp_path)


def test_a_file_is_compared_with_a_selector(capsys, ranking, clip, tmp_path):
    (tmp_path / "w.json").write_text(json.dumps([{"question": "Where is it?", "keyframe_indices": [1, 2]}]))
    code, out, _ = run(
        capsys, "select", clip, "Where is it?", "--selector", f"uniform,file:{tmp_path / 'w.json'}",
        "-k", "4", "--quiet",
    )  # fmt: skip
    assert code == 0
    assert "file:w.json" in out
