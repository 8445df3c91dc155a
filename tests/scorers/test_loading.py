"""A scorer that loads in a thread of its own, and a process that ends meanwhile."""

import subprocess
import sys

from processes import PATIENCE

NEVER_LOADED = """
import sys, threading
from framenest import cli
from framenest.scorers import loading
loading.load_scorer = lambda *_: threading.Event().wait()
sys.argv = ["framenest", "rank", "http://127.0.0.1:1/kiln.mp4", "Where?", "--scorer", "table:scores.csv"]
cli.main()
"""
LOADED_LATE = """
import time
from framenest import Session
from framenest.scorers import loading
def slow(*_):
    time.sleep(0.3)
    print("loaded")
loading.load_scorer = slow
Session("tags").begin_loading()
raise SystemExit(3)
"""


def ended(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_a_command_that_failed_does_not_wait_for_its_model():
    done = ended(NEVER_LOADED)
    assert done.returncode == 2
    assert done.stderr.startswith("error: http://127.0.0.1:1/kiln.mp4")
    assert len(done.stderr.splitlines()) == 1


def test_a_script_ends_after_its_model_is_loaded():
    """Model libraries abort a process that ends in the midst of their work."""
    done = ended(LOADED_LATE)
    assert (done.returncode, done.stdout) == (3, "loaded\n")
