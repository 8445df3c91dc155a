"""Prefixes as JSON bytes, the ones asked for last kept ready."""

from __future__ import annotations

import json

from framenest.server.refusals import Unusable
from framenest.server.service import Service


def prefix_json(service: Service, ranking: str, k: int, after: int) -> bytes:
    """PrefixOut of ranks after+1 … k, in time order."""
    key = (ranking, k, after)
    known = service.prefixes.get(key)
    if known is not None:
        return known
    if after >= k:
        raise Unusable(f"after={after} leaves nothing of k={k}; after must be less than k")
    chosen = service.ranking(ranking).prefix(k)
    assert chosen.ranks is not None
    video = service.request_of(ranking)["video"]
    rows = zip(chosen.frames.tolist(), chosen.seconds.tolist(), chosen.ranks.tolist(), strict=True)
    frames = [
        {"frame": frame, "seconds": seconds, "rank": rank, "image": f"/videos/{video}/frames/{frame}"}
        for frame, seconds, rank in rows
        if rank > after
    ]
    body = {"ranking": ranking, "k": k, "after": after, "complete": chosen.complete, "frames": frames}
    return service.prefixes.setdefault(key, json.dumps(body, separators=(",", ":")).encode())
