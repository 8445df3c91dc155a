import numpy as np
import pytest

from framenest import FrameBatch, ScorerError
from framenest.testing import TableScorer


def batch(frames, seconds):
    return FrameBatch(np.array(frames), np.array(seconds, dtype=float), ())


def match(scorer, frames, seconds):
    return scorer.match(scorer.encode(batch(frames, seconds)), "any").tolist()


def test_by_frames_missing_ones_score_zero():
    assert match(TableScorer({3: 0.5, 7: 1.0}), [0, 3, 5, 7, 9], [0, 1, 2, 3, 4]) == [0, 0.5, 0, 1, 0]


def test_by_seconds_the_nearest_time_counts():
    scorer = TableScorer({1.0: 0.2, 2.0: 0.8}, by="seconds")
    assert match(scorer, [0, 1, 2, 3], [0, 1.4, 1.6, 9]) == pytest.approx([0.2, 0.2, 0.8, 0.8])
    assert match(TableScorer({5.0: 0.5}, by="seconds"), [0, 1], [0, 9]) == [0.5, 0.5]


@pytest.mark.parametrize(
    ("text", "by"),
    [
        ("frame,score\n3,0.5\n", "frames"),
        ("seconds,score\n3,0.5\n", "seconds"),
        ('{"3": 0.5}', "frames"),
        ('{"frames": {"3": 0.5}}', "frames"),
        ('{"seconds": {"3": 0.5}}', "seconds"),
        ('[{"frame": 3, "score": 0.5}]', "frames"),
        ('[{"seconds": 3, "score": 0.5}]', "seconds"),
    ],
)
def test_files(tmp_path, text, by):
    path = tmp_path / "table"
    path.write_text(text)
    scorer = TableScorer.read(path)
    assert scorer.version.startswith(by)
    assert match(scorer, [3], [3]) == [0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("frame,value\n1,2\n", "not a table"),
        ("frame,score\n1,much\n", "not a table"),
        ('{"a": 1}', "not a table"),
        ("frame,score\n1,2.0\n", r"\[0, 1\]; 1 has 2.0"),
        ("frame,score\n1,nan\n", r"\[0, 1\]; 1 has nan"),
    ],
)
def test_bad_tables(tmp_path, text, message):
    path = tmp_path / "table"
    path.write_text(text)
    with pytest.raises(ScorerError, match=message):
        TableScorer.read(path)


def test_another_table_is_another_version():
    assert TableScorer({1: 0.5}).version != TableScorer({1: 0.6}).version
    assert TableScorer({1: 0.5}).version == TableScorer({1: 0.5}).version
