"""Damage small files in many ways and read them; run by test_fuzz.py in a process of its own.

    python fuzz.py FOLDER SEED COUNT FILE…

Prints one line per trial. Anything but a result or a FramenestError ends the process with a traceback.
"""

import random
import sys
from pathlib import Path

from framenest import FramenestError, ImageSpec, open_video
from framenest.store import DirectoryStore


def damage(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    kind = rng.randrange(4)
    if kind == 0:  # a cut
        return bytes(changed[: rng.randrange(len(changed))])
    if kind == 1:  # a hole
        start = rng.randrange(len(changed))
        changed[start : start + rng.randrange(1, 2000)] = b""
    for _ in range(rng.choice([1, 5, 50])):  # flipped bytes
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def main(folder: Path, seed: int, count: int, files: list[Path]) -> None:
    rng = random.Random(seed)
    for trial in range(count):
        source = rng.choice(files)
        path = folder / f"trial{source.suffix}"
        path.write_bytes(damage(source.read_bytes(), rng))
        try:
            decoder = open_video(path, store=DirectoryStore(folder / f"store{trial}"))
            total = decoder.info.num_frames
            wanted = sorted({rng.randrange(total) for _ in range(6)} | {0, total - 1})
            found = sum(len(b) for b in decoder.read(wanted, sizes=(ImageSpec.short_side(16),)))
            outcome = f"{found} of {len(wanted)} frames"
        except FramenestError as error:
            outcome = f"{type(error).__name__} {str(error).count(chr(10))}"
        sys.stdout.write(f"{trial} {source.name}: {outcome}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), [Path(a) for a in sys.argv[4:]])
