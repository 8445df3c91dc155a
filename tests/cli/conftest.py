import pytest

from command_line import FAST, run


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("frame,score\n0,0\n149,0\n150,1\n159,1\n160,0\n299,0\n")
    return f"table:{path}"


@pytest.fixture
def ranking(capsys, clip, table, tmp_path):
    path = tmp_path / "ranking.json"
    assert run(capsys, "rank", clip, "Where is it?", "--scorer", table, "-o", path, *FAST)[0] == 0
    return path
