"""Every command has its help."""

import pytest
import rich_click as click

from command_line import run
from framenest.cli import app
from framenest.cli.model_options import AnsweringModel


def test_help_and_version(capsys):
    assert run(capsys, "--version")[1].startswith("framenest, version")
    for name in app.commands:
        code, out, _ = run(capsys, name, "--help")
        assert code == 0
        assert "Usage" in out


def commands(group, *path):
    """Every command with its subcommands, as words."""
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


def test_every_option_of_every_command_says_what_it_does(capsys):
    for path, command in commands(app):
        code, out, err = run(capsys, *path, "--help")
        assert (code, err) == (0, ""), path
        assert f"Usage: framenest {' '.join(path)}" in out
        for option in (p for p in command.params if isinstance(p, click.Option)):
            assert option.opts[-1] in out or option.opts[0] in out, (path, option.name)


@pytest.mark.parametrize("name", ["ask", "evaluate qa"])
def test_commands_that_ask_a_model_take_the_same_options_for_it(name):
    command = app
    for word in name.split():
        command = command.commands[word]
    model = {p.name for p in command.params if getattr(p, "panel", None) == "The model"}
    assert model == set(AnsweringModel.__dataclass_fields__)
