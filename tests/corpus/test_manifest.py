"""Folders, addresses and lists become videos and questions."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from framenest import ConfigError, StoreError
from framenest.corpus.manifest import find_videos, ranking_groups
from framenest.rank_request import RankRequest
from framenest.video.source import CONTAINERS, VIDEO_SUFFIXES

SETTINGS = RankRequest(video="", scorer="tags")


def test_a_folder_is_searched_and_each_video_comes_once(tmp_path):
    for name in ("b.MP4", "a.mkv", "sub/c.webm", "sub/notes.txt", "sub/.hidden.mp4", "poster.jpg"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    found = find_videos([str(tmp_path), str(tmp_path / "a.mkv")])
    assert [Path(video).name for video in found] == ["a.mkv", "b.MP4", "c.webm"]
    (tmp_path / "stills").mkdir()
    (tmp_path / "stills" / "001.JPG").touch()
    assert find_videos([str(tmp_path / "stills")]) == [str(tmp_path / "stills")]


LISTS = {
    "list.txt": "# films\na.mp4\n\ns3://bucket/b.mp4\n",
    "list.csv": "id,video\n1,a.mp4\n2,s3://bucket/b.mp4\n",
    "list.tsv": "id\tvideo\n1\ta.mp4\n2\ts3://bucket/b.mp4\n",
    "list.json": '["a.mp4", {"video": "s3://bucket/b.mp4"}]',
    "list.jsonl": '{"video": "a.mp4"}\n"s3://bucket/b.mp4"\n',
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_every_kind(tmp_path, name):
    (tmp_path / name).write_text(LISTS[name])
    assert find_videos([str(tmp_path / name)]) == [str(tmp_path / "a.mp4"), "s3://bucket/b.mp4"]


def test_a_parquet_list(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="needs the extra `parquet`")
    from pyarrow import parquet

    parquet.write_table(arrow.table({"video": ["a.mp4", "b.mp4"], "n": [1, 2]}), tmp_path / "list.parquet")
    assert find_videos([str(tmp_path / "list.parquet")]) == [str(tmp_path / n) for n in ("a.mp4", "b.mp4")]


def test_an_address_is_searched_where_it_ends_in_a_slash():
    fsspec = pytest.importorskip("fsspec", reason="needs the extra `remote`")
    memory = fsspec.filesystem("memory")
    for name in ("a.mp4", "deep/b.mkv", "c.txt"):
        memory.pipe_file(f"/films/{name}", b"x")
    assert find_videos(["memory://films/"]) == ["memory:///films/a.mp4", "memory:///films/deep/b.mkv"]
    assert find_videos(["memory://films/c.txt"]) == ["memory://films/c.txt"]


def test_wrong_lists_are_refused_in_one_line(tmp_path):
    (tmp_path / "list.csv").write_text("path\na.mp4\n")
    with pytest.raises(ConfigError, match="every row needs a column `video`; its columns are path"):
        find_videos([str(tmp_path / "list.csv")])
    (tmp_path / "list.json").write_text("[1, 2]")
    with pytest.raises(ConfigError, match="not a list of videos"):
        find_videos([str(tmp_path / "list.json")])
    with pytest.raises(StoreError, match="cannot be read"):
        find_videos([str(tmp_path / "none.txt")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no videos found"):
        find_videos([str(tmp_path / "empty")])


def test_questions_are_grouped_by_video_and_named_by_settings(tmp_path):
    rows = [("a.mp4", "Where?"), ("b.mp4", "When?"), ("a.mp4", "Who?"), ("a.mp4", "Where?"), ("b.mp4", None)]
    lines = [json.dumps({"video": video, "question": question}) for video, question in rows]
    (tmp_path / "asked.jsonl").write_text("\n".join(lines))
    groups = ranking_groups(tmp_path / "asked.jsonl", tmp_path / "out", SETTINGS)
    assert [[item.request.question for item in group] for group in groups] == [
        ["Where?", "Who?"],
        ["When?", None],
    ]
    targets = [item.target for group in groups for item in group]
    assert len(set(targets)) == 4
    assert Path(targets[0]).name.startswith("a-where-")
    others = ranking_groups(tmp_path / "asked.jsonl", tmp_path / "out", replace(SETTINGS, scorer="clip"))
    assert not set(targets) & {item.target for group in others for item in group}


def test_an_empty_question_is_refused(tmp_path):
    (tmp_path / "asked.csv").write_text("video,question\na.mp4,\n")
    with pytest.raises(ConfigError, match="is not a question"):
        ranking_groups(tmp_path / "asked.csv", tmp_path)


def test_a_question_on_several_lines(tmp_path):
    file = tmp_path / "asked.csv"
    file.write_text('video,question\na.mp4,"What\nhappens?"\n')
    assert [group[0].request.question for group in ranking_groups(file, tmp_path)] == ["What\nhappens?"]
    (group,) = ranking_groups(file, tmp_path, replace(SETTINGS, scorer=None))
    assert group[0].request.question is None


def test_a_folder_holds_every_kind_that_the_service_takes():
    assert set(CONTAINERS.values()) <= VIDEO_SUFFIXES
