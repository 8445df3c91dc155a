"""framenest lmms-eval tasks."""

from __future__ import annotations

import rich_click as click

from framenest.cli import options
from framenest.cli.options import CommaSeparated, Common, option
from framenest.cli.terminal import say
from framenest.evaluation.lmms_eval.tasks import SELECTORS, write_tasks


@click.group("lmms-eval")
def lmms_eval() -> None:
    """Evaluate with lmms-eval, on frames that Framenest selects."""


@lmms_eval.command("tasks")
@options.from_parameters
def tasks(
    *,
    selectors: list[str] = option("One task each.", type=CommaSeparated(), default=",".join(SELECTORS)),
    list_names: bool = option("Print the names of the tasks instead.", flag="--list"),
    common: Common,
) -> None:
    """Write the task files, and print their folder for --include_path.

    K is the model's own frame argument. $FRAMENEST_SCORER, $FRAMENEST_SELECTOR, $FRAMENEST_ON_ERROR and
    others set the rest (docs/lmms-eval.md).

    \b
    python -m lmms_eval --model qwen3_5 \\
      --model_args pretrained=Qwen/Qwen3.5-9B,max_num_frames=32 \\
      --tasks framenest_videomme --include_path $(framenest lmms-eval tasks)
    """
    folder = write_tasks(common.local, selectors)
    if list_names:
        for file in sorted(folder.glob("*.yaml")):
            say(file.stem)
    else:
        say(str(folder))
