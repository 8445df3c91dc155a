"""framenest lmms-eval tasks."""

from __future__ import annotations

import rich_click as click

from framenest.cache.directory import local_directory
from framenest.cli import options
from framenest.cli.terminal import out
from framenest.evaluation.lmms_eval.tasks import SELECTORS, write_tasks
from framenest.protocols import Store


@click.group("lmms-eval")
def lmms_eval() -> None:
    """Evaluate with lmms-eval, on frames that Framenest selects."""


@lmms_eval.command("tasks")
@click.option("--selectors", default=",".join(SELECTORS), show_default=True, help="One task each.")
@click.option("--list", "list_names", is_flag=True, help="Print the names of the tasks instead.")
@options.common
def tasks(selectors: str, list_names: bool, cache: Store, quiet: bool) -> None:
    """Write the task files, and print their folder for --include_path.

    K is the model's own frame argument. $FRAMENEST_SCORER, $FRAMENEST_PRESET, $FRAMENEST_ON_ERROR and
    others set the rest (docs/lmms-eval.md).

    \b
    python -m lmms_eval --model qwen3_5 --model_args pretrained=Qwen/Qwen3.5-9B,max_num_frames=32 \\
      --tasks framenest_videomme --include_path $(framenest lmms-eval tasks)
    """
    folder = write_tasks(local_directory(cache), options.names(selectors))
    if list_names:
        for file in sorted(folder.glob("*.yaml")):
            out.print(file.stem, soft_wrap=True, markup=False)
    else:
        out.print(str(folder), soft_wrap=True, markup=False)
