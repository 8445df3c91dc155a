import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framenest import FrameBatch, ScorerError
from framenest.testing import TableScorer


def batch(frames, seconds):
    return FrameBatch(np.array(frames), np.array(seconds, dtype=float), ())


def match(scorer, frames, seconds):
    return scorer.match(scorer.encode(batch(frames, seconds)), "any").tolist()


@pytest.mark.parametrize("by", ["frames", "seconds"])
def test_scores_between_rows_are_interpolated_and_the_ends_hold(by):
    scorer = TableScorer({3: 0.5, 7: 1.0, 8: 0.0}, by=by)
    numbers = [0, 3, 4, 5, 7, 8, 100]
    other = [0] * len(numbers)  # by frames no second counts, by seconds no frame number
    found = match(scorer, *((numbers, other) if by == "frames" else (other, numbers)))
    assert found == [0.5, 0.5, 0.625, 0.75, 1, 0, 0]


def test_one_row_holds_everywhere():
    assert match(TableScorer({5: 0.5}), [0, 5, 9], [0, 1, 2]) == [0.5] * 3
    assert match(TableScorer({5.0: 0.5}, by="seconds"), [0, 1], [0, 9]) == [0.5, 0.5]


@given(st.integers(0, 1000), st.integers(1, 1000), st.floats(0, 1), st.floats(0, 1))
def test_interpolated_scores_stay_between_their_rows(first, gap, before, after):
    scorer = TableScorer({first: before, first + gap: after})
    found = np.array(match(scorer, range(first, first + gap + 1), np.zeros(gap + 1)))
    low, high = sorted(np.float32([before, after]).tolist())
    assert ((found >= low - 1e-6) & (found <= high + 1e-6)).all()
    assert (found.min() >= 0, found.max() <= 1) == (True, True)
    assert (found[0], found[-1]) == (np.float32(before), np.float32(after))


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
