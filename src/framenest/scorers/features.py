"""Features: what a scorer made of the frames seen so far, and their thumbnails; kept per video and scorer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.frames import Array, Pixels
from framenest.protocols import Encoded

FEATURES_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Features:
    """frames: (n,) int64 ascending; thumbnails: (n, h, w, 3) uint8; encoded: named arrays of n rows."""

    frames: NDArray[np.int64]
    thumbnails: Pixels
    encoded: Encoded

    @classmethod
    def gather(cls, parts: Sequence[Features]) -> Features:
        """All frames of the parts, ascending, each once."""
        if len(parts) == 1:
            return parts[0]
        frames, order = np.unique(np.concatenate([p.frames for p in parts]), return_index=True)
        names = parts[0].encoded.keys()
        return cls(
            frames,
            np.concatenate([p.thumbnails for p in parts])[order],
            {name: _join([p.encoded[name] for p in parts])[order] for name in names},
        )

    def missing(self, frames: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the frames that are not here, in their order.

        >>> held = Features(np.array([2, 5]), np.zeros((2, 1, 1, 3), np.uint8), {})
        >>> held.missing(np.array([9, 5, 1])).tolist()
        [9, 1]
        """
        if not len(self.frames):
            return frames
        places = np.searchsorted(self.frames, frames)
        new: NDArray[np.int64] = frames[self.frames.take(places, mode="clip") != frames]
        return new

    def take(self, frames: NDArray[np.int64]) -> Features:
        """Only these frames, ascending, all of which must be here; a view where they lie together."""
        found = np.searchsorted(self.frames, frames)
        together = len(found) > 0 and found[-1] - found[0] + 1 == len(found)
        rows = slice(int(found[0]), int(found[-1]) + 1) if together else found
        return Features(frames, self.thumbnails[rows], {n: a[rows] for n, a in self.encoded.items()})

    def header(self) -> dict[str, Any]:
        return {"format": FEATURES_FORMAT, "kind": "features"}

    def arrays(self) -> dict[str, Array]:
        named = {f"encoded.{name}": np.asarray(rows) for name, rows in self.encoded.items()}
        return {"frames": self.frames, "thumbnails": self.thumbnails, **named}

    @classmethod
    def from_parts(cls, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Features | None:
        """Features as they were kept; None where another version wrote them."""
        if header.get("kind") != "features" or header.get("format") != FEATURES_FORMAT:
            return None
        encoded = {n.removeprefix("encoded."): a for n, a in arrays.items() if n.startswith("encoded.")}
        return cls(arrays["frames"], arrays["thumbnails"], encoded)

    @property
    def nbytes(self) -> int:
        return sum(int(rows.nbytes) for rows in (self.frames, self.thumbnails, *self.encoded.values()))


def _join(parts: Sequence[Any]) -> Any:
    """Rows under one another; where one of them lies on a device, there."""
    elsewhere = next((part for part in parts if not isinstance(part, np.ndarray)), None)
    return np.concatenate(parts) if elsewhere is None else elsewhere.join(parts)
