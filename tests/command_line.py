"""Running framenest as a user does, in this process."""

import pytest

from framenest.cli import main

FAST = ["--base-probes", "24", "--extra-probes", "0", "--horizon", "20", "--quiet"]
"""A small index and a short ranking."""


def run(capsys, *arguments):
    """(exit code, stdout, stderr) of one command."""
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err
