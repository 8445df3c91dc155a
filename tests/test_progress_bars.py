"""Progress bars: where somebody watches, when work takes long, and gone afterwards."""

import io
import multiprocessing
import subprocess
import sys
import threading
import time
from importlib.machinery import ModuleSpec

import pytest
from rich.console import Console

import framenest as fn
from framenest import progress
from framenest.progress import Bars, shown


def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=100, stderr=True)


def drawn(bars):
    return bars._progress is not None


class AtOnce:
    """A timer that does not wait."""

    def __init__(self, seconds, action):
        self.start = action

    def cancel(self):
        pass


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(threading, "Timer", AtOnce)


def test_bars_appear_on_a_terminal_and_are_erased(at_once):
    console = terminal()
    with Bars(console=console) as bars:
        bars("probes", 3, 12)
        bars("probes", 4, 12)
        assert drawn(bars)
    written = console.file.getvalue()
    assert "probes" in written
    assert "4/12" in written
    assert written.rstrip().endswith("\x1b[2K"), "the line was erased"


def test_the_first_step_gives_an_estimate(at_once):
    with Bars(console=terminal()) as bars:
        bars("probes", 0, 12)
        (task,) = bars._progress.tasks
        assert task.time_remaining is None
        bars("probes", 3, 12)
        assert task.time_remaining is not None


def test_short_work_shows_nothing(monkeypatch):
    monkeypatch.setattr(progress, "BAR_DELAY_SECONDS", 3600.0)
    console = terminal()
    with Bars(console=console) as bars:
        bars("probes", 3, 12)
    assert console.file.getvalue() == ""


def test_long_work_is_shown_while_it_is_silent(monkeypatch):
    """A stage that has begun appears in time, though nothing is told for long."""
    monkeypatch.setattr(progress, "BAR_DELAY_SECONDS", 0.01)
    console = terminal()
    with Bars(console=console) as bars:
        bars("probes", 0, 12)
        deadline = time.monotonic() + 60
        while "probes" not in console.file.getvalue():
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize(
    ("console", "off"),
    [(terminal(), True), (Console(file=io.StringIO(), stderr=True), False)],
    ids=["quiet", "no terminal"],
)
def test_silent_where_nobody_watches(at_once, console, off):
    with Bars(off=off, console=console) as bars:
        bars("probes", 3, 12)
        assert not drawn(bars)
    assert console.file.getvalue() == ""


def test_a_worker_process_draws_nothing(at_once, monkeypatch):
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    with Bars(console=terminal()) as bars:
        assert not drawn(bars)


def test_nested_work_closes_at_the_outermost(at_once):
    console = terminal()
    bars = Bars(console=console)
    with bars:
        with bars:
            bars("first", 1, 2)
        bars("second", 1, 2)
        assert "second" in console.file.getvalue()
    bars("third", 1, 2)
    assert "third" not in console.file.getvalue()


def test_what_progress_may_be(at_once):
    told = []
    with shown(lambda *args: told.append(args)) as tell:
        tell("a", 1, 2)
    assert told == [("a", 1, 2)]
    with shown(False) as tell:
        assert not drawn(tell)
    bars = Bars(console=terminal())
    with shown(bars) as tell:
        assert tell is bars
        assert drawn(bars)


@pytest.mark.parametrize("widgets", [ModuleSpec("ipywidgets", None), None])
def test_in_a_notebook_bars_need_widgets(monkeypatch, widgets):
    """Without them rich would only warn."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: widgets)
    with Bars(console=Console(force_jupyter=True)) as bars:
        assert drawn(bars) == (widgets is not None)


def test_rank_shows_bars_by_default_and_none_where_not_wanted(at_once, clip, tmp_path, monkeypatch):
    console, watched = terminal(), progress._watched
    monkeypatch.setattr(progress, "_watched", lambda _: watched(console))
    fn.MEC(scorer=None, progress=False, store=tmp_path / "other").rank(clip, None)
    assert console.file.getvalue() == ""
    prefix = fn.rank(clip, None)
    assert "probes" in console.file.getvalue()
    console.file.truncate(0)
    prefix.images()
    assert "decoding" in console.file.getvalue()


def test_importing_framenest_does_not_load_rich():
    code = "import sys, framenest; print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
