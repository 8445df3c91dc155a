"""The four metrics, on cases worked by hand."""

import pytest

from framenest.evaluation.benchmarks import (
    MAIN_TABLE,
    BenchmarkQuestion,
    accuracy,
    accuracy_in,
    group_score,
    macro,
    nonlinear,
)


def question(name, category="", group="", structure=""):
    return BenchmarkQuestion(name, "v", "q", "q", ("x", "y"), "A", category, group, structure)


def marks(*rows):
    return [(question(f"{i}", category), bool(right)) for i, (category, right) in enumerate(rows)]


def bits(text):
    return [letter == "1" for letter in text]


@pytest.mark.parametrize(
    ("correct", "points"),
    [("0000", 0), ("0100", 6.25), ("1010", 25), ("0111", 56.25), ("1111", 100)],
)
def test_a_relevance_group_earns_the_square_of_its_share(correct, points):
    assert group_score("relevance", "None", bits(correct)) == points


@pytest.mark.parametrize(
    ("structure", "correct", "points"),
    [
        ("[1, 2, 3, 4]", "0111", 0),
        ("[1, 2, 3, 4]", "1011", 6.25),
        ("[1, 2, 3, 4]", "1101", 25),
        ("[1, 2, 3, 4]", "1110", 56.25),
        ("[1,2,3,4]", "1111", 100),
        # 2 and 3 stand side by side: with 1 right, either of them makes the run two long.
        ("[1, [2, 3], 4]", "0111", 0),
        ("[1, [2, 3], 4]", "1001", 100 / 12),
        ("[1, [2, 3], 4]", "1100", 400 / 12),
        ("[1, [2, 3], 4]", "1011", 400 / 12),
        ("[1, [2, 3], 4]", "1110", 700 / 12),
        ("[1, [2, 3], 4]", "1111", 100),
        # 1 and 2 stand side by side: either begins the run, both make it two long.
        ("[[1, 2], 3, 4]", "0011", 0),
        ("[[1, 2], 3, 4]", "1000", 10),
        ("[[1, 2], 3, 4]", "0111", 10),
        ("[[1, 2], 3, 4]", "1101", 20),
        ("[[1, 2], 3, 4]", "1110", 50),
        ("[[1, 2], 3, 4]", "1111", 100),
    ],
)
def test_a_logic_group_earns_its_run(structure, correct, points):
    assert group_score("logic", structure, bits(correct)) == pytest.approx(points)


def test_a_group_that_is_none_is_refused():
    for kind, structure, correct in (
        ("relevance", "None", "111"),
        ("logic", "[4, 3, 2, 1]", "1111"),
        ("order", "None", "1111"),
    ):
        with pytest.raises(ValueError, match="group"):
            group_score(kind, structure, bits(correct))


def test_the_nonlinear_score_is_the_mean_of_the_groups():
    def group(name, kind, structure, correct):
        # given out of order: the suffix of the id says which question of the group it is
        rows = [
            (question(f"{name}-{i + 1}", kind, name, structure), right)
            for i, right in enumerate(bits(correct))
        ]
        return [rows[2], rows[0], rows[3], rows[1]]

    given = (
        group("001", "relevance", "None", "1100")  # 25
        + group("002", "logic", "[1, 2, 3, 4]", "1011")  # 6.25
        + group("003", "logic", "[[1, 2], 3, 4]", "1110")  # 50
    )
    assert nonlinear(given) == pytest.approx((25 + 6.25 + 50) / 3)
    assert accuracy(given) == pytest.approx(100 * 8 / 12)
    assert nonlinear(given[:-1]) == pytest.approx((25 + 6.25) / 2)  # an incomplete group is left out
    assert nonlinear(given[:3]) is None


def test_accuracy_overall_and_by_duration():
    given = marks(("short", 1), ("short", 0), ("long", 1), ("short", 1), ("medium", 0))
    assert accuracy(given) == 60
    by_duration = [accuracy_in(category, given) for category in ("short", "medium", "long", "endless")]
    assert by_duration == [pytest.approx(200 / 3), 0, 100, None]


def test_mlvu_counts_every_task_the_same():
    given = marks(("count", 0), ("count", 0), ("count", 1), ("ego", 1))
    assert macro(given) == pytest.approx((100 / 3 + 100) / 2)


def test_the_main_table_has_the_papers_scores():
    given = marks(("short", 1), ("short", 0), ("long", 1), ("short", 1), ("medium", 0))
    found = {column: score(given) for column, (dataset, score) in MAIN_TABLE.items() if dataset == "videomme"}
    assert found == {"Short": pytest.approx(200 / 3), "Medium": 0, "Long": 100, "Overall": 60}
    assert {column: dataset for column, (dataset, _) in MAIN_TABLE.items() if column not in found} == {
        "Non-Lin.": "videomme-v2", "Micro Acc.": "videomme-v2", "LVB": "longvideobench", "MLVU": "mlvu",
    }  # fmt: skip
