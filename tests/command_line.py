"""Running framenest as a user does, in this process."""

import os
import pty
import subprocess
import sys
from contextlib import suppress

import pytest
import rich_click as click

from framenest.cli import main
from processes import PATIENCE

FAST = ["--set", "base_probes=24", "--set", "extra_probes=0", "--horizon", "20"]
"""A small index and a short ranking."""


def run(capsys, *arguments):
    """(exit code, stdout, stderr) of one command."""
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


def terminal(monkeypatch, columns):
    """From now on, commands print as on a terminal of so many columns, without colours."""
    monkeypatch.setattr("framenest.cli.printing.out._force_terminal", True)
    monkeypatch.setattr("framenest.cli.printing.out._width", columns)


def help_of(capsys, path, command):
    """What --help-all of a command prints, or --help if it has no more to say."""
    return run(capsys, *path, "--help-all" if getattr(command, "usual", ()) else "--help")


def commands(group, *path):
    """Every command with its subcommands, as words."""
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


AT_ONCE = "from framenest import cli, progress; progress.BAR_DELAY_SECONDS = 0; cli.main()"


def on_a_terminal(*arguments, cwd=None):
    """What a command writes to a terminal, bars and all, though the work is short."""
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-c", AT_ONCE, *map(str, arguments)], stdout=theirs, stderr=theirs, cwd=cwd
    )
    os.close(theirs)
    written = b""
    with suppress(OSError):  # the terminal is gone when the process is
        while chunk := os.read(ours, 4096):
            written += chunk
    os.close(ours)
    assert done.wait(timeout=PATIENCE) == 0
    return written.decode()
