"""Rows of the four benchmarks, as lmms-eval carries them."""

import json
from pathlib import Path

import pytest

from framenest.evaluation.lmms_eval.tasks import READERS

VIDEOMME = {
    "video_id": "001", "duration": "short", "videoID": "fFjv93ACGo8", "question_id": "001-1",
    "question": "How many apples are there?",
    "options": ["A. One.", "B. Two.", "C. Three.", "D. Four."], "answer": "C",
}  # fmt: skip
V2 = {
    "video_id": "007", "question_id": "007-2", "question": "What comes next?",
    "options": "\n".join(f"{letter}. Thing {i}" for i, letter in enumerate("ABCDEFGH")), "answer": "H",
}  # fmt: skip
LVB = {
    "id": "86CxyhFV9MI_0", "question": "When the sea appears, what is on it?",
    **{f"option{i}": text for i, text in enumerate(["Boats", "Birds", "Ice", "Nothing", "A pier"])},
    "correct_choice": 3,
}  # fmt: skip
MLVU = {
    "video_name": "movie101_66.mp4", "task_type": "plotQA", "answer": "B",
    "question": "What color is the coat?\n(A) Yellow\n(B) Red\n(C) Green\n(D) Blue",
}  # fmt: skip


def test_the_options_follow_the_question():
    question = READERS["videomme"](VIDEOMME)
    assert question.question == "How many apples are there?"
    assert question.asked == "How many apples are there?\nA. One.\nB. Two.\nC. Three.\nD. Four."
    assert READERS["videomme-v2"](V2).asked.endswith("G. Thing 6\nH. Thing 7")
    question = READERS["longvideobench"](LVB)
    assert question.asked.splitlines()[1:] == ["A. Boats", "B. Birds", "C. Ice", "D. Nothing", "E. A pier"]
    assert READERS["longvideobench"](LVB | {"option4": "N/A"}).asked.endswith("D. Nothing")


def test_the_options_of_mlvu_stand_in_the_question():
    question = READERS["mlvu"](MLVU)
    assert (question.question, question.asked) == ("What color is the coat?", MLVU["question"])
    with pytest.raises(ValueError, match="no options"):
        READERS["mlvu"](MLVU | {"question": "What?"})


RELEASED = [
    tuple(row.values()) for row in json.loads(Path(__file__).with_name("wfs_sb_released.json").read_text())
]
"""Rows of the files in WFS-SB's repository, shortened, and the text that its preprocessing makes of each."""


@pytest.mark.parametrize(("dataset", "row", "scored"), [*RELEASED, ("mlvu", MLVU, MLVU["question"] + "\n")])
def test_wfs_sb_scores_the_options_as_the_files_write_them(dataset, row, scored):
    flat = {f"option{i}": text for i, text in enumerate(row.get("candidates", []))}
    question = READERS[dataset](row | flat)
    assert question.with_options == scored
    assert question.question == row["question"].partition("\n")[0]
