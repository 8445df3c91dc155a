"""The four annotation formats, as published and as lmms-eval carries them."""

import json
from pathlib import Path

import pytest

from framenest.errors import ConfigError, StoreError, VideoError
from framenest.evaluation.benchmarks import READERS, MediaFolder, QueryText, load_benchmark
from framenest.lmm.prompt import DIRECTLY
from framenest.transcript import SUBTITLE_SUFFIXES

VIDEOMME = {
    "video_id": "001", "duration": "short", "domain": "Knowledge", "sub_category": "Humanity & History",
    "url": "https://www.youtube.com/watch?v=fFjv93ACGo8", "videoID": "fFjv93ACGo8", "question_id": "001-1",
    "task_type": "Counting Problem", "question": "How many apples are there?",
    "options": ["A. One.", "B. Two.", "C. Three.", "D. Four."], "answer": "C",
}  # fmt: skip
V2 = {
    "video_id": "007", "question_id": "007-2", "question": "What comes next?",
    "options": "\n".join(f"{letter}. Thing {i}" for i, letter in enumerate("ABCDEFGH")), "answer": "H",
    "group_type": "logic", "group_structure": "[1, [2, 3], 4]", "level": 2, "second_head": "x",
    "third_head": "y",
}  # fmt: skip
LVB = {
    "video_id": "86CxyhFV9MI", "question": "When the sea appears, what is on it?",
    "question_wo_referring_query": "What is on it?",
    "candidates": ["Boats", "Birds", "Ice", "Nothing", "A pier"],
    "correct_choice": 3, "position": [854], "topic_category": "NP-News-Programs", "question_category": "TOS",
    "level": "L2-Relation", "id": "86CxyhFV9MI_0", "video_path": "86CxyhFV9MI.mp4",
    "subtitle_path": "86CxyhFV9MI_en.json", "duration_group": 600, "starting_timestamp_for_subtitles": 0,
    "duration": 190.16, "view_count": 259852,
}  # fmt: skip
MLVU = {
    "video": "movie101_66.mp4", "duration": 480.0, "question": "What color is the coat?",
    "candidates": ["Yellow", "Red", "Green", "Blue"], "answer": "Red", "question_type": "plotQA",
}  # fmt: skip


def write(folder, name, rows):
    file = folder / name
    file.write_text(json.dumps(rows))
    return file


def test_videomme(tmp_path):
    (question,) = load_benchmark("videomme", write(tmp_path, "a.json", [VIDEOMME]))
    assert (question.id, question.video, question.answer) == ("001-1", "fFjv93ACGo8", "C")
    assert question.category == "short"
    assert question.options == ("One.", "Two.", "Three.", "Four.")
    assert question.prompt == (
        f"How many apples are there?\nA. One.\nB. Two.\nC. Three.\nD. Four.\n{DIRECTLY}"
    )


def test_parquet_as_published(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="needs the extra `benchmarks`")
    from pyarrow import parquet

    parquet.write_table(arrow.Table.from_pylist([VIDEOMME]), tmp_path / "test-00000-of-00001.parquet")
    assert load_benchmark("videomme", tmp_path / "test-00000-of-00001.parquet") == load_benchmark(
        "videomme", write(tmp_path, "a.json", [VIDEOMME])
    )


def test_videomme_v2(tmp_path):
    lines = tmp_path / "test.jsonl"
    lines.write_text(json.dumps(V2) + "\n")
    (question,) = load_benchmark("videomme-v2", lines)
    assert (question.group, question.category, question.structure) == ("007", "logic", "[1, [2, 3], 4]")
    assert len(question.options) == 8
    assert question.options[7] == "Thing 7"
    assert question.prompt.endswith(f"H. Thing 7\n{DIRECTLY}")


def test_longvideobench_official_and_as_a_data_set(tmp_path):
    (question,) = load_benchmark("longvideobench", write(tmp_path, "lvb_val.json", [LVB]))
    assert (question.answer, question.category, question.video) == ("D", "600", "86CxyhFV9MI.mp4")
    flat = {k: v for k, v in LVB.items() if k != "candidates"}
    flat |= {f"option{i}": text for i, text in enumerate(LVB["candidates"])}
    assert READERS["longvideobench"](flat) == question
    four = READERS["longvideobench"](flat | {"option4": "N/A"})
    assert four.options == ("Boats", "Birds", "Ice", "Nothing")


def test_mlvu_official_and_as_a_data_set(tmp_path):
    folder = tmp_path / "json"
    folder.mkdir()
    write(folder, "1_plotQA.json", [MLVU])
    write(folder, "9_summary.json", [{"video": "a.mp4", "question": "Sum it up", "answer": "…",
                                      "question_type": "summary"}])  # fmt: skip
    (question,) = load_benchmark("mlvu", folder)  # the open-ended task is left out
    assert (question.answer, question.category) == ("B", "plotQA")
    copied = READERS["mlvu"](
        {"video_name": "movie101_66.mp4", "question": question.asked, "answer": "B", "task_type": "plotQA"}
    )
    assert copied == question
    assert copied.question == "What color is the coat?"


RELEASED = [
    tuple(row.values()) for row in json.loads(Path(__file__).with_name("wfs_sb_released.json").read_text())
]
"""Rows of the files in WFS-SB's repository, shortened, and the text that its preprocessing makes of each."""


@pytest.mark.parametrize(
    ("dataset", "row", "scored"),
    [*RELEASED, ("mlvu", MLVU, "What color is the coat?\n(A) Yellow\n(B) Red\n(C) Green\n(D) Blue\n")],
)
def test_wfs_sb_scores_the_options_as_the_files_write_them(dataset, row, scored):
    question = READERS[dataset](row)
    text = QueryText("wfs-sb=question+options")
    assert question.query(text, "wfs-sb") == scored
    assert question.query(text, "aks") == row["question"].partition("\n")[0]


def test_an_empty_option_of_mlvu_is_an_option():
    question = READERS["mlvu"](RELEASED[2][1])
    assert question.options == ("In the garage", "In the toolbox", "", "On the shelf")
    assert (question.answer, question.question) == ("C", "Where was the drill before I picked it up?")


def test_questions_with_one_id_are_told_apart(tmp_path):
    made = load_benchmark("mlvu", write(tmp_path, "a.json", [MLVU, MLVU]))
    assert len({q.id for q in made}) == 2


@pytest.mark.parametrize(
    ("dataset", "rows"),
    [
        ("videomme", [LVB]),
        ("videomme", [VIDEOMME | {"answer": "E"}]),
        ("mlvu", [MLVU | {"answer": "Pink"}]),
        ("mlvu", [{"video_name": "a.mp4", "question": "What?", "answer": "A", "task_type": "ego"}]),
        ("longvideobench", [LVB | {"correct_choice": 7}]),
        ("videomme", []),
    ],
)
def test_a_foreign_file_is_refused(tmp_path, dataset, rows):
    with pytest.raises(ConfigError, match=r"a\.json"):
        load_benchmark(dataset, write(tmp_path, "a.json", rows))


def test_a_missing_file_and_an_unknown_benchmark(tmp_path):
    with pytest.raises(StoreError, match="cannot be read"):
        load_benchmark("videomme", tmp_path / "none.json")
    with pytest.raises(ConfigError, match="choose from videomme"):
        load_benchmark("imagenet", tmp_path / "none.json")


def test_videos_are_found_by_the_names_annotations_use(tmp_path):
    (tmp_path / "1_plotQA").mkdir()
    for name in ("1_plotQA/movie101_66.mp4", "fFjv93ACGo8.mkv", "fFjv93ACGo8.json", "fFjv93ACGo8.en.srt"):
        (tmp_path / name).write_bytes(b"x")
    folder = MediaFolder(tmp_path)
    assert folder.find("movie101_66.mp4") == tmp_path / "1_plotQA" / "movie101_66.mp4"
    assert folder.find("fFjv93ACGo8") == tmp_path / "fFjv93ACGo8.mkv"
    assert MediaFolder(tmp_path, SUBTITLE_SUFFIXES).find("fFjv93ACGo8") == tmp_path / "fFjv93ACGo8.json"
    with pytest.raises(VideoError, match="no such file"):
        folder.find("other")
    with pytest.raises(StoreError, match="no such folder"):
        MediaFolder(tmp_path / "none")
