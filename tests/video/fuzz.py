"""Damage small video files in many ways and read them: whatever happens, the only error is a FramenestError.

    python tests/video/fuzz.py --minutes 30             new seeds until the time is up (make fuzz)
    python tests/video/fuzz.py --seed 7 --trials 150    one seed again
    python tests/video/fuzz.py --seed 7 --trials 150 FILE…   with these files instead of encoded ones

One line per trial. Each seed runs in a process of its own, so that a crash or a hang is found too; the file
that did it is kept and named.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from framenest import FramenestError, ImageSpec, open_video
from framenest.cache.directory import DirectoryStore
from framenest.processes import WorkerProcess
from media import numbered_video

TRIALS = 150
SECONDS = 240.0
"""After which the trials of one seed count as hung."""

# Single-threaded, no real-time modes, no random identifiers: the same bytes in every run. Without x264's
# assembly, whose output differs from run to run on some processors.
_EXACT = {"fflags": "+bitexact"}
_X264 = {"threads": "1", "g": "15", "flags": "+bitexact", "x264-params": "asm=0"}
_CLIPS = [
    ("a.mp4", 60, "libx264", {**_X264, "bf": "2"}),
    ("b.mkv", 60, "libx264", {**_X264, "bf": "2"}),
    ("c.ts", 60, "libx264", _X264),
    ("d.webm", 30, "libvpx-vp9", {"threads": "1", "deadline": "good", "cpu-used": "5", "flags": "+bitexact"}),
    ("e.avi", 60, "mpeg4", {"threads": "1", "g": "15", "bf": "2", "flags": "+bitexact"}),
    ("f.mp4", 30, "libx265", {"x265-params": "log-level=none:pools=none:frame-threads=1:info=0"}),
    ("g.h264", 40, "libx264", _X264),
    ("h.gif", 20, "gif", {"threads": "1"}),
]


def clips(folder: Path) -> list[Path]:
    """A small file of each kind that people have, encoded to the same bytes every time."""
    return [
        numbered_video(
            folder / name,
            count,
            codec=codec,
            options=options,
            container_options=_EXACT,
            pix_fmt="rgb8" if codec == "gif" else "yuv420p",
        )
        for name, count, codec, options in _CLIPS
    ]


def damage(data: bytes, rng: random.Random) -> bytes:
    """The bytes with a cut, a hole, a stretch repeated or overwritten, or single bytes changed."""
    changed = bytearray(data)
    kind = rng.randrange(6)
    at = rng.randrange(len(changed))
    some = rng.randrange(1, 2000)
    if kind == 0:
        return bytes(changed[:at])
    if kind == 1:
        del changed[at : at + some]
    elif kind == 2:
        changed[at:at] = changed[at : at + some]
    elif kind == 3:
        changed[at : at + some] = rng.randbytes(some)
    # Headers lie at the ends of a file, and most of what can go wrong is said there.
    reach = rng.choice([len(changed), min(len(changed), 600)])
    from_end = rng.random() < 0.3
    for _ in range(rng.choice([1, 5, 50])):
        place = rng.randrange(reach) if reach else 0
        if changed:
            changed[-1 - place if from_end else place] = rng.randrange(256)
    return bytes(changed)


def run_trials(folder: Path, seed: int, trials: int, files: list[Path]) -> None:
    """Damage and read `trials` files; the one in hand lies in the folder under the name trial.*"""
    WorkerProcess.inside = True  # a crash must be found here, not kept in the process that opens files
    rng = random.Random(seed)
    for trial in range(trials):
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
        sys.stdout.write(f"seed {seed} trial {trial} {source.name}: {outcome}\n")
        sys.stdout.flush()
        path.unlink()


def check_seed(folder: Path, seed: int, trials: int, files: list[Path]) -> list[str]:
    """The lines of one seed's trials, run in a process of their own; AssertionError where it went wrong."""
    command = [sys.executable, __file__, "--child", str(folder), "--seed", str(seed), "--trials", str(trials)]
    try:
        done = subprocess.run(
            [*command, *map(str, files)], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"seed {seed} hung on {_in_hand(folder)} after {error.stdout!r}") from error
    assert done.returncode == 0, (
        f"seed {seed} failed on {_in_hand(folder)}\n{done.stdout[-500:]}{done.stderr[-3000:]}"
    )
    lines = done.stdout.splitlines()
    assert len(lines) == trials, lines[-3:]
    wrong = [line for line in lines if not line.endswith(("frames", "Error 0"))]
    assert not wrong, wrong  # an error is one line
    return lines


def _in_hand(folder: Path) -> list[str]:
    return [str(path) for path in folder.glob("trial.*")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, help="try new seeds for this long")
    parser.add_argument("--seed", type=int, help="the first seed; default: a random one")
    parser.add_argument("--trials", type=int, default=TRIALS, help="files for each seed")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("files", nargs="*", type=Path)
    asked = parser.parse_args()
    if asked.child:
        faulthandler.enable()
        run_trials(asked.child, asked.seed, asked.trials, asked.files)
        return
    seed = secrets.randbelow(10**9) if asked.seed is None else asked.seed
    end = time.monotonic() + 60 * (asked.minutes or 0)
    trials = errors = 0
    while True:
        folder = Path(tempfile.mkdtemp(prefix="framenest-fuzz-"))
        lines = check_seed(folder, seed, asked.trials, asked.files or clips(folder))
        trials, errors = trials + len(lines), errors + sum("Error 0" in line for line in lines)
        sys.stdout.write(f"seed {seed}: {trials} files so far, {errors} refused, no other error\n")
        sys.stdout.flush()
        subprocess.run(["rm", "-rf", str(folder)], check=True)
        if time.monotonic() >= end:
            return
        seed += 1


if __name__ == "__main__":
    main()
