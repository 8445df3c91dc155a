"""PairingCost: which frames of a request are fused, and what other pairings would take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from framenest.lmm.times import FUSES, NEAR, Pairing, fused
from framenest.lmm.tokens import estimate


@dataclass(frozen=True)
class PairingCost:
    """How a request for a model that fuses two frames is made up.

    Attributes:
        pairing: as it was asked for.
        pairs: how many times two different frames share one set of tokens and one time.
        alone: how many frames have a set of tokens and their own time.
        tokens: the estimate for the whole request under each pairing of a video.
    """

    pairing: Pairing
    pairs: int
    alone: int
    tokens: dict[str, int]

    @classmethod
    def of(
        cls,
        style: str,
        seconds: Sequence[float],
        size: tuple[int, int],
        text: str,
        pairing: Pairing,
        frame_pixels: int | None = None,
    ) -> PairingCost | None:
        """None where nothing is fused: another kind of model, or images instead of a video.

        The arguments are those of `estimate`.

        >>> print(PairingCost.of("qwen", [10.0, 90.0, 92.0], (640, 352), "What is it?", "auto"))
        pairing auto: 1 pair within 2 s, 1 frame alone: about 477 tokens (pairs 477, duplicate 706)
        """
        if style not in FUSES or pairing == "images":
            return None
        groups = fused(pairing, seconds)
        pairs = sum(first != second for first, second in groups)
        of_a_video: tuple[Pairing, ...] = ("auto", "pairs", "duplicate")
        tokens = {
            str(one): estimate(style, seconds, size, text, pairing=one, frame_pixels=frame_pixels).total
            for one in of_a_video
        }
        return cls(pairing, pairs, len(groups) - pairs, tokens)

    def __str__(self) -> str:
        near = f" within {NEAR:g} s" if self.pairing == "auto" else ""
        frames = "frame" if self.alone == 1 else "frames"
        others = ", ".join(f"{name} {count:,}" for name, count in self.tokens.items() if name != self.pairing)
        return (
            f"pairing {self.pairing}: {self.pairs} {'pair' if self.pairs == 1 else 'pairs'}{near}, "
            f"{self.alone} {frames} alone: about {self.tokens[self.pairing]:,} tokens ({others})"
        )

    def to_json(self) -> dict[str, Any]:
        """The fields, for a request's file."""
        return vars(self).copy()
