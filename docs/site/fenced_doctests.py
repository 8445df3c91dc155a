"""A griffe extension: examples in docstrings become code blocks, wherever in the docstring they stand."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?m)^([ \t]*)>>> .*(?:\n\1\S.*|\n\1[ \t]+\S.*)*")


class FencedDoctests(griffe.Extension):
    """Fences every block that begins with >>>, up to the next empty line."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Changes the docstring of an object before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(
                lambda m: f"{m[1]}```pycon\n{m[0]}\n{m[1]}```", obj.docstring.value
            )
