"""QueryText: which text each selector scores frames for, the question alone or with its choices."""

from __future__ import annotations

from dataclasses import dataclass

from framenest.errors import ConfigError
from framenest.selectors import check_selector

KINDS = ("question", "question+options")


@dataclass(frozen=True)
class QueryText:
    """`question` or `question+options` for all selectors, and exceptions by selector.

    The paper has the same question text for all; WFS-SB's released code scores the choices, too:

    >>> text = QueryText.parse("question,wfs-sb=question+options")
    >>> text.kind("wfs-sb"), text.kind("mec:no-zoom")
    ('question+options', 'question')
    """

    default: str = "question"
    exceptions: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> QueryText:
        """From KIND and SELECTOR=KIND between commas; what is said of `mec` holds for `mec:SETTINGS`, too."""
        default, exceptions = cls.default, {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            selector, _, kind = part.rpartition("=")
            if kind not in KINDS:
                raise ConfigError(
                    f"query = {part!r}; it must be one of {', '.join(KINDS)}, or SELECTOR=… with one of them"
                )
            if selector:
                check_selector(selector)
                exceptions[selector] = kind
            else:
                default = kind
        return cls(default, tuple(sorted(exceptions.items())))

    def __str__(self) -> str:
        return ",".join([self.default, *(f"{selector}={kind}" for selector, kind in self.exceptions)])

    def kind(self, selector: str) -> str:
        """What a selector scores frames for."""
        own = dict(self.exceptions)
        return own.get(selector) or own.get(selector.partition(":")[0]) or self.default
