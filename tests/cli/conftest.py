import pytest

from command_line import FAST, run


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
