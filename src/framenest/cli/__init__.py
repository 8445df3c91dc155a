"""The command line: parse, call, print."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import rich_click as click
from click.shell_completion import get_completion_class

import framenest
from framenest.cli import ask, demo, evaluate, exports, machine, many_videos, rank, serve
from framenest.cli.printing import fail, out, warnings_as_notes
from framenest.errors import FramenestError, error_line
from framenest.scorers.checkpoint import still_loading
from framenest.scorers.feature_store import finish_writes


# A blank line between paragraphs of help, and before the examples.
@click.rich_config({"text_paragraph_linebreaks": "\n\n", "padding_helptext_first_line": (0, 0, 1, 0)})
@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}
)
@click.version_option(framenest.__version__, prog_name="framenest")
def app() -> None:
    """One ranking of a video's frames per question; every frame budget is a prefix of it.

    \b
    framenest models fetch tags
    framenest rank kiln.mp4 "What does the potter do after firing?" \\
      -o kiln.json --to frames/
    framenest report kiln.json -o kiln.html
    framenest ask kiln.mp4 "What does the potter do after firing?" \\
      --base-url http://localhost:8000/v1
    """


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that lets SHELL complete commands, options and files.

    \b
    echo 'eval "$(framenest completion bash)"' >> ~/.bashrc
    echo 'eval "$(framenest completion zsh)"' >> ~/.zshrc
    framenest completion fish > ~/.config/fish/completions/framenest.fish
    """
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(app, {}, "framenest", "_FRAMENEST_COMPLETE").source())


PANELS: dict[str, list[Any]] = {
    "Look": [rank.rank, exports.show, exports.report, exports.extract, many_videos.index, many_videos.search],
    "Ask": [ask.ask, exports.export],
    "Measure": [rank.select, evaluate.evaluate, evaluate.lmms_eval],
    "Serve": [serve.serve, serve.mcp],
    "This machine": [demo.demo, machine.doctor, machine.models, machine.cache, completion],
}
for panel, commands in PANELS.items():  # --help lists them in this order
    app.add_panel(click.RichCommandPanel(panel, commands=[command.name for command in commands]))
    for command in commands:
        app.add_command(command)


def _with_options(message: str) -> str:
    """The message of a library error with options for Python's settings: `fps=` becomes `--fps`."""
    setting = r"(?<=\s)([a-z_]+)=(?:True)?(?=[\s;,]|$)"
    return re.sub(setting, lambda match: "--" + match[1].replace("_", "-"), message)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. An error is one line on stderr and exit code 2."""
    words = sys.argv[1:] if arguments is None else arguments
    code = 2
    out.brief = False
    try:
        with warnings_as_notes():
            try:
                result = app.main(words, prog_name="framenest", standalone_mode=False)
            finally:
                finish_writes()  # inside warnings_as_notes, since it may warn
        sys.exit(result if isinstance(result, int) else 0)
    except (click.Abort, KeyboardInterrupt):
        fail("interrupted")
        code = 130
    except click.ClickException as error:
        hint = "; put a question of several words in quotes"
        message = error.format_message()
        fail(message + hint * message.startswith("Got unexpected extra argument"))
    except Exception as error:
        if "--debug" in words:
            raise
        message = error_line(error)
        ours = isinstance(error, FramenestError)
        fail(_with_options(message) if ours else f"{message} (--debug shows where)")
    if arguments is None and still_loading():  # end at once: nobody waits for the model any more
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
