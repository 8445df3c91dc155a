"""Features: what a scorer made of the frames seen so far, and their thumbnails; kept per video and scorer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.frames import Array, Pixels

FORMAT = 1


@dataclass(frozen=True, eq=False)
class Features:
    """frames: (n,) int64 ascending; thumbnails: (n, h, w, 3) uint8; encoded: named arrays of n rows."""

    frames: NDArray[np.int64]
    thumbnails: Pixels
    encoded: Mapping[str, Array]

    @classmethod
    def gather(cls, parts: list[Features]) -> Features:
        """All frames of the parts, ascending, each once."""
        frames, order = np.unique(np.concatenate([p.frames for p in parts]), return_index=True)
        names = parts[0].encoded.keys()
        return cls(
            frames,
            np.concatenate([p.thumbnails for p in parts])[order],
            {name: np.concatenate([p.encoded[name] for p in parts])[order] for name in names},
        )

    def missing(self, frames: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the frames that are not here."""
        return frames[~np.isin(frames, self.frames)]

    def take(self, frames: NDArray[np.int64]) -> Features:
        """Only these frames, all of which must be here, in the order given."""
        rows = np.searchsorted(self.frames, frames)
        return Features(frames, self.thumbnails[rows], {n: a[rows] for n, a in self.encoded.items()})

    def header(self) -> dict[str, Any]:
        return {"format": FORMAT, "kind": "features"}

    def arrays(self) -> dict[str, Array]:
        named = {f"encoded.{name}": array for name, array in self.encoded.items()}
        return {"frames": self.frames, "thumbnails": self.thumbnails, **named}

    @classmethod
    def from_parts(cls, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Features | None:
        """Features as they were kept; None where another version wrote them."""
        if header.get("kind") != "features" or header.get("format") != FORMAT:
            return None
        encoded = {n.removeprefix("encoded."): a for n, a in arrays.items() if n.startswith("encoded.")}
        return cls(arrays["frames"], arrays["thumbnails"], encoded)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays().values())
