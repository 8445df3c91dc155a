"""The page shows times as the command line does: rounded to the tenth that models are told."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import framenest
from framenest.text import clock
from processes import PATIENCE

MARKS = Path(framenest.__file__).parent / "report" / "assets" / "marks.js"
SECONDS = [
    23.150000000000002,
    0.0,
    0.04,
    0.05,
    0.25,
    0.75,
    9.96,
    59.96,
    83.25,
    83.26,
    3599.97,
    3683.5,
    11.96,
    7.96,
]


def test_the_page_rounds_as_python_does():
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    shown = f"JSON.stringify({SECONDS}.map((s) => marks.clock(s)))"
    script = f"import({json.dumps(MARKS.as_uri())}).then((marks) => console.log({shown}))"
    done = subprocess.run([node, "-e", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [clock(second) for second in SECONDS]


SPANS = [(0, 12), (0, 86400), (0, 1e6), (0, 1e15), (1e15, 1e15 + 0.1), (1e300, 1e300), (5, 5 + 5e-324)]


@pytest.mark.parametrize(("start", "end"), SPANS)
def test_an_axis_has_as_many_ticks_as_fit(start, end):
    """However broken the rate of a video is: 900 pixels have room for ten."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    element = "{setAttribute() {}, made: [], append(...more) { this.made.push(...more); }}"
    drawn = f"drawAxis([{start}, {end}], {{width: 900, x: (s) => s}}).made.length"
    script = f"""
        globalThis.document = {{createElementNS: () => ({element})}};
        import({json.dumps(MARKS.with_name("axis.js").as_uri())}).then((axis) => console.log(axis.{drawn}))
    """
    command = [node, "--max-old-space-size=256", "-e", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert int(done.stdout) <= 2 * 11  # a line and a text each


def test_times_are_rounded_as_models_are_told():
    for second in SECONDS:
        minutes, rest = clock(second).rsplit(":", 1)
        assert f"{second:.1f}".endswith(rest[-1]), (second, minutes)
