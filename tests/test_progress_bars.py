"""Progress bars: where somebody watches, when work takes long, and gone afterwards."""

import io
import multiprocessing
import subprocess
import sys
import threading
import types

import pytest
from rich.console import Console

import framenest as fn
from framenest import progress
from framenest.progress import Bars, shown


def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=100, stderr=True)


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)


def test_bars_appear_on_a_terminal_and_are_erased(at_once):
    console = terminal()
    with Bars(console=console) as bars:
        bars("probes", 3, 12)
        bars("probes", 4, 12)
        assert not bars.off
    written = console.file.getvalue()
    assert "probes" in written
    assert "4/12" in written
    assert written.rstrip().endswith("\x1b[2K"), "the line was erased"


def test_short_work_shows_nothing(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 3600.0)
    console = terminal()
    with Bars(console=console) as bars:
        bars("probes", 3, 12)
    assert console.file.getvalue() == ""


def test_long_work_is_shown_while_it_is_silent(monkeypatch):
    """A stage that has begun appears in time, though nothing is told for long."""
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    appeared = threading.Event()

    class Display:
        def draw(self, *stage):
            appeared.set()

        def close(self):
            pass

    monkeypatch.setattr(progress, "_watched", lambda _: Display)
    with Bars() as bars:
        bars._stages["probes"] = (0, 12, "")  # told before PATIENCE was over, however slow this machine is
        assert appeared.wait(60)


@pytest.mark.parametrize(
    ("console", "off"),
    [(terminal(), True), (Console(file=io.StringIO(), stderr=True), False)],
    ids=["quiet", "no terminal"],
)
def test_silent_where_nobody_watches(at_once, console, off):
    with Bars(off=off, console=console) as bars:
        bars("probes", 3, 12)
        assert bars.off
    assert console.file.getvalue() == ""


def test_a_worker_process_draws_nothing(at_once, monkeypatch):
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    with Bars(console=terminal()) as bars:
        assert bars.off


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
        assert tell.off
    bars = Bars(console=terminal())
    with shown(bars) as tell:
        assert tell is bars
        assert not bars.off


def test_in_a_notebook(at_once, monkeypatch):
    """Without widgets: HTML that is drawn over again, and empty in the end."""
    drawn = []
    handle = types.SimpleNamespace(update=drawn.append)

    def display(html, *, display_id):
        drawn.append(html)
        return handle if display_id else None

    fake = types.SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(display=fake))
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    monkeypatch.setattr(progress._Notebook, "EVERY", 0.0)
    with Bars(console=Console(force_jupyter=True)) as bars:
        bars("probes", 3, 12)
    assert drawn[0] == drawn[-1] == ""
    assert '<progress value="3" max="12"></progress> probes 3/12' in drawn[1]


def test_rank_shows_bars_by_default_and_none_where_not_wanted(at_once, clip, tmp_path, monkeypatch):
    console = terminal()
    monkeypatch.setattr(progress, "_watched", lambda _: lambda: progress._Terminal(console))
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
