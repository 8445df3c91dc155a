"""WorkerProcess: supervised, limited, restarted; never left behind."""

import os
import signal
import time
import warnings
from functools import partial
from pathlib import Path

import pytest

from framenest.errors import ConfigError, FramenestError
from framenest.processes import (
    START_RETRIES,
    Cancelled,
    ProcessLimits,
    WorkerLost,
    WorkerProcess,
    machine_memory,
    process_memory,
)


def load_echo(report, starts, deadly_starts=0):
    """Answers with what it is told to do; its first starts may end in SIGKILL. `starts`: counts them."""
    with Path(starts).open("a") as file:
        file.write("start\n")
    if count(starts) <= deadly_starts:
        os.kill(os.getpid(), signal.SIGKILL)
    return partial(echo, report)


def count(starts):
    return len(Path(starts).read_text().splitlines())


def echo(report, what, *rest):
    if what == "sleep":
        for _ in range(rest[0]):
            time.sleep(0.5)
            report(*rest[1:])
    if what == "warn":
        warnings.warn("half a cache", stacklevel=1)
    if what == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "refuse":
        raise ConfigError("not like this")
    if what == "memory":
        return process_memory()
    if what == "slip":
        raise KeyError("frame")
    return what, *rest


def load_nothing(report):
    raise ConfigError("no such model")


def load_slowly(report):
    time.sleep(4)
    return partial(echo, report)


@pytest.fixture
def start():
    """Makes workers; ends them afterwards."""
    made = []

    def make(load, *arguments, limits=None):
        worker = WorkerProcess(load, *arguments, limits=limits or ProcessLimits())
        made.append(worker)
        return worker

    yield make
    for worker in made:
        worker.kill()


def answer(worker, *call):
    worker.send(*call)
    return wait(worker)


def wait(worker):
    while True:
        message = worker.poll(0.05)
        if message is not None and message[0] == "done":
            return message[1]


def test_a_worker_answers_and_stays(start, tmp_path):
    worker = start(load_echo, str(tmp_path / "starts"))
    assert answer(worker, "hello", 1) == ("hello", 1)
    pid = worker.pid
    assert answer(worker, "again") == ("again",)
    assert worker.pid == pid


def test_a_worker_knows_its_limit(start, tmp_path):
    """What its session keeps is a share of it (tests/test_session.py)."""
    limited = start(load_echo, str(tmp_path / "starts"), limits=ProcessLimits(memory=2**30))
    assert answer(limited, "memory") == 2**30
    assert answer(start(load_echo, str(tmp_path / "starts")), "memory") == machine_memory()


def test_a_worker_killed_while_it_starts_is_started_again(start, tmp_path):
    worker = start(load_echo, str(tmp_path / "starts"), START_RETRIES)
    assert answer(worker, "hello") == ("hello",)
    assert count(tmp_path / "starts") == START_RETRIES + 1


def test_a_worker_that_never_starts_is_given_up(start, tmp_path):
    worker = start(load_echo, str(tmp_path / "starts"), 100)
    with pytest.raises(WorkerLost, match="could not start: the worker was killed by SIGKILL") as lost:
        answer(worker, "hello")
    assert lost.value.kind == "StartFailed"
    assert count(tmp_path / "starts") == START_RETRIES + 1
    assert worker.pid is None


def test_an_error_while_loading_is_raised_and_not_retried(start):
    with pytest.raises(ConfigError, match="no such model"):
        answer(start(load_nothing), "hello")


def test_a_worker_that_dies_is_replaced_by_the_next_call(start, tmp_path):
    worker = start(load_echo, str(tmp_path / "starts"))
    with pytest.raises(WorkerLost, match="killed by SIGSEGV") as lost:
        answer(worker, "die")
    assert (lost.value.kind, worker.pid) == ("WorkerDied", None)
    assert answer(worker, "hello") == ("hello",)


def test_errors_of_a_call_come_through(start, tmp_path):
    worker = start(load_echo, str(tmp_path / "starts"))
    with pytest.raises(ConfigError, match="not like this"):
        answer(worker, "refuse")
    with pytest.raises(FramenestError, match="unexpected KeyError: 'frame'"):
        answer(worker, "slip")
    assert count(tmp_path / "starts") == 1


def test_loading_does_not_count_and_a_heartbeat_starts_the_clock_again(start):
    worker = start(load_slowly, limits=ProcessLimits(seconds=3))
    assert answer(worker, "sleep", 8, "heartbeat")[0] == "sleep"
    with pytest.raises(WorkerLost, match="not done after 3 s") as lost:
        answer(worker, "sleep", 100, "progress", "probes", 1, 2)
    assert lost.value.kind == "TimeLimit"


def test_a_call_is_cancelled_at_its_next_report(start, tmp_path):
    worker = start(load_echo, str(tmp_path / "starts"))
    worker.send("sleep", 100, "progress", "probes", 1, 2)
    while worker.poll(0.05) != ("progress", "probes", 1, 2):
        pass
    worker.cancel()
    with pytest.raises(Cancelled):
        wait(worker)
    assert answer(worker, "hello") == ("hello",)
    assert count(tmp_path / "starts") == 1


def test_warnings_of_a_worker_are_logged_here(start, tmp_path, caplog):
    assert answer(start(load_echo, str(tmp_path / "starts")), "warn") == ("warn",)
    assert "half a cache" in caplog.messages
