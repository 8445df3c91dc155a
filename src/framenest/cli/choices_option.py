"""The option --options: the choices of a question, several values in a row."""

from __future__ import annotations

import re

import rich_click as click

from framenest.cli.options import option

_NEGATIVE = re.compile(r"-[.]?\d")  # a choice may be a number below zero


class ChoicesCommand(click.RichCommand):
    """A command whose --options takes several values in a row: --options A B C D."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        several = {flag for p in self.params if p.name == "choices" for flag in p.opts}
        spread: list[str] = []
        current = ""
        for place, arg in enumerate(args):
            if arg.startswith("-") and arg != "-" and not (current and _NEGATIVE.match(arg)):
                current = arg if arg in several else ""
                spread.append(arg)
            elif current and args[place - 1] != current:
                spread += [current, arg]
            else:
                spread.append(arg)
        return super().parse_args(ctx, spread)


CHOICES = option(
    "The choices, each in quotes if it has spaces; the answer is then a letter.",
    flag="--options",
    multiple=True,
    metavar="A B C …",
)
