"""Transcript: lines with their times, on the clock of the frames."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from framenest.text import clock

LASTS = 5.0
"""Seconds that a line without an end is on, unless another one begins."""
NEXT = 0.05
"""Seconds between two captions that follow each other directly, as rolling ones do."""


REACH = 1.0
"""Seconds before and after it is said that a passage still counts, less and less: half at the end."""


class Line(NamedTuple):
    """Something said: seconds from the first frame, and the words. NaN where a file does not tell a time."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class Transcript:
    """What is said in a video.

    Attributes:
        source: where it was found, for people: "kiln.srt", "track 2 (subrip, eng)".
        lines: in order of their beginning, none empty.
        notes: what was wrong with it.

    >>> said = Transcript("kiln.srt", (Line(1.0, 3.0, "Now we fire it."), Line(9.0, 11.0, "Let it cool.")))
    >>> [line.text for line in said.around(3.5, 1.0)]
    ['Now we fire it.']
    """

    source: str
    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        source: str,
        lines: Iterable[Line],
        duration: float,
        *,
        shift: float = 0.0,
        notes: Sequence[str] = (),
    ) -> Transcript:
        """From lines as a file has them, broken ones and all.

        Args:
            source: where they were found.
            lines: in any order.
            duration: of the video in seconds; what begins later is left out.
            shift: seconds to add to every time, so that 0 is the first frame.
            notes: what is known to be wrong already.
        """
        given = [line for line in lines if line.text.strip()]
        timed = [Line(a + shift, b + shift, t) for a, b, t in given if math.isfinite(a) and not b < a]
        here = [line for line in sorted(timed) if line.start < duration and not line.end < 0]
        said = [*notes]
        if len(timed) < len(given):
            said.append(
                f"{source}: {len(given) - len(timed)} of {len(given)} lines have no usable times; left out"
            )
        if len(here) < len(timed):
            last = clock(max(0.0, *(line.start for line in timed)))
            said.append(
                f"{source}: {len(timed) - len(here)} of {len(timed)} lines are not in this video of "
                f"{clock(duration)} (the last begins at {last}); is it the transcript of another?"
            )
        if not given:
            said.append(f"{source}: no lines in it")
        return cls(source, tuple(_unrolled(here)), tuple(said))

    @property
    def nbytes(self) -> int:
        """Bytes of all words in memory, roughly."""
        return sum(len(line.text) for line in self.lines)

    def within(self, start: float, end: float) -> Transcript:
        """Only the lines that are on between two times, in seconds."""
        kept = tuple(line for line in self.lines if line.end >= start and line.start <= end)
        return Transcript(self.source, kept, self.notes)

    def around(self, seconds: float, reach: float) -> list[Line]:
        """The lines that are on within `reach` seconds of a time."""
        return [*self.within(seconds - reach, seconds + reach).lines]

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "lines": [list(line) for line in self.lines],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Transcript:
        lines = tuple(Line(float(start), float(end), str(text)) for start, end, text in data["lines"])
        return cls(str(data["source"]), lines, tuple(data["notes"]))


def _unrolled(lines: Sequence[Line]) -> list[Line]:
    """Lines with an end each and one row of text; what rolling captions show again is said once."""
    found: list[Line] = []
    before: list[str] = []
    for place, (start, end, text) in enumerate(lines):
        following = lines[place + 1].start if place + 1 < len(lines) else math.inf
        until = end if math.isfinite(end) else min(start + LASTS, max(start, following))
        rows = [" ".join(row.split()) for row in text.splitlines() if row.strip()]
        rolls = bool(found) and start <= found[-1].end + NEXT
        new = [row for row in rows if not (rolls and row in before)]
        if new:
            found.append(Line(start, until, " ".join(new)))
        elif found[-1].end < until:
            found[-1] = found[-1]._replace(end=until)
        before = rows
    return found
