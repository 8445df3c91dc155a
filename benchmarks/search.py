"""Stage one of search: how its time and memory grow with the library, and how much of it LanceDB finds.

    python benchmarks/search.py --folder vectors
    python benchmarks/search.py --folder vectors --only library

The vectors are made: 768 numbers, float16, 500 probes a video. A video stays around a theme, frames next to
each other are alike, and queries lie beside the pictures, as words do. The exact scan runs in a new process
for each size, on two cores. "cold": the first query, after the files were dropped from the page cache;
"warm": later ones. Core seconds are those of all threads together; they depend less on what else runs.
Memory is private (RssAnon): mapped files are not counted. Writes results/search.json, after each measurement
anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from machine import RESULTS, options, write
from numpy.typing import NDArray

from framenest.cache.directory import DirectoryStore
from framenest.retrieval.vectors import LibraryVectors, VectorStore, open_vectors, optimize

SIZES = (1_000, 10_000, 100_000, 1_000_000, 2_500_000)
NUMBERS, PROBES, THEMES, QUERIES = 768, 500, 200, 20
SPACE = "made"
COUNT, CORES = 100, 2
LIBRARY_SIZES = (100_000, 1_000_000)


def themes() -> NDArray[np.float32]:
    return unit(np.random.default_rng(0).standard_normal((THEMES, NUMBERS), dtype=np.float32))


def unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32)


def video(number: int, count: int, centres: NDArray[np.float32]) -> NDArray[np.float16]:
    """(count, 768): what all pictures share, five scenes of other themes, the video's own look, and noise."""
    rng = np.random.default_rng([1, number])
    shared = centres[0]
    scenes = centres[rng.integers(1, THEMES, 5)][np.arange(count) * 5 // count]
    look, noise = unit(rng.standard_normal(NUMBERS)), unit(rng.standard_normal((count, NUMBERS)))
    walk = unit(np.cumsum(noise, axis=0))
    return unit(shared + scenes + 0.7 * look + 0.5 * walk + 0.5 * noise).astype(np.float16)


def queries(centres: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, 768): half a theme, half noise; not what the pictures share."""
    rng = np.random.default_rng(2)
    chosen = centres[rng.integers(1, THEMES, QUERIES)]
    return unit(chosen + unit(rng.standard_normal((QUERIES, NUMBERS))))


def fill(vectors: VectorStore, frames: int) -> float:
    """Put the videos that are not there yet. Returns the seconds that `put` took."""
    centres, there, seconds = themes(), vectors.videos(), 0.0
    for number in range(-(-frames // PROBES)):
        if f"made {number}" in there:
            continue
        made = video(number, min(PROBES, frames), centres)
        about = {"fingerprint": f"made {number}", "video": {"path": f"{number}.mp4"}, "config": {}}
        began = time.perf_counter()
        vectors.put(f"made {number}", about, np.arange(len(made)), made)
        seconds += time.perf_counter() - began
    return seconds


def drop(folder: Path) -> None:
    """Drop a folder's files from the page cache."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def private() -> float:
    """MiB of this process that are not mapped files."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def measure(folder: Path, repeats: int) -> dict[str, Any]:
    """In a new process: seconds of the first query and of later ones, and private memory."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    asked = queries(themes())
    before, peak, ended = private(), [0.0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):
            peak.append(private())

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    vectors = open_vectors(DirectoryStore(folder), SPACE)
    there = vectors.videos()
    listed = time.perf_counter() - began
    began, busy = time.perf_counter(), time.process_time()
    vectors.videos()
    again = {"seconds": time.perf_counter() - began, "core_seconds": time.process_time() - busy}
    seconds, worked = [], []
    for number in range(1 + repeats):
        began, busy = time.perf_counter(), time.process_time()
        vectors.nearest(asked[number % QUERIES], COUNT, there)
        seconds.append(time.perf_counter() - began)
        worked.append(time.process_time() - busy)
    ended.set()
    watcher.join()
    return {
        "videos": len(there),
        "list_seconds_cold": listed,
        "list_again": again,
        "cold_seconds": seconds[0],
        "warm_seconds": statistics(seconds[1:]),
        "warm_core_seconds": statistics(worked[1:]),
        "load_average": os.getloadavg()[0],
        "private_mib": {"before": before, "peak": max(peak)},
    }


def statistics(values: list[float]) -> dict[str, float]:
    return {"median": float(np.median(values)), "least": min(values), "most": max(values), "n": len(values)}


def growth(folder: Path, sizes: Sequence[int], repeats: int) -> None:
    """The exact scan, for each size of library."""
    for frames in sizes:
        place = folder / str(frames)
        fill(open_vectors(DirectoryStore(place), SPACE), frames)
        drop(place)
        command = [sys.executable, __file__, "--folder", str(place), "--repeats", str(repeats), "--measure"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        row = {"frames": frames, **json.loads(done.stdout)}
        print(json.dumps(row))
        kept = [one for one in results().get("scan", []) if one["frames"] != frames]
        save(scan=sorted([*kept, row], key=lambda one: int(one["frames"])))


def library(folder: Path, sizes: Sequence[int]) -> None:
    """How much of the exact scan's best rows LanceDB finds, and how fast."""
    asked = queries(themes())
    for frames in sizes:
        exact, place = open_vectors(DirectoryStore(folder / str(frames)), SPACE), folder / f"library {frames}"
        fill(exact, frames)
        vectors = LibraryVectors(str(place), SPACE)
        put = fill(vectors, frames)
        began = time.perf_counter()
        optimize(str(place))
        optimized, there = time.perf_counter() - began, exact.videos()
        found, seconds = [], []
        for query in asked:
            best = exact.nearest(query, COUNT, there)
            wanted = set(zip(best.videos, best.frames.tolist(), strict=True))
            began = time.perf_counter()
            mine = vectors.nearest(query, COUNT)
            seconds.append(time.perf_counter() - began)
            found.append(len(wanted & set(zip(mine.videos, mine.frames.tolist(), strict=True))) / COUNT)
        row = {
            "frames": frames,
            "put_seconds": put,
            "optimize_seconds": optimized,
            "share_of_the_exact_first_100": {"mean": float(np.mean(found)), "least": min(found)},
            "seconds": statistics(seconds[1:]),
            "megabytes": sum(path.stat().st_size for path in place.rglob("*") if path.is_file()) / 1e6,
        }
        print(json.dumps(row))
        kept = [one for one in results().get("library", []) if one["frames"] != frames]
        save(library=sorted([*kept, row], key=lambda one: int(one["frames"])))


def results() -> dict[str, Any]:
    path = RESULTS / "search.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def save(**new: Any) -> None:
    told = {"vectors": f"made, not of real pictures: {NUMBERS} numbers, float16, {PROBES} a video"}
    kept = {name: value for name, value in results().items() if name in ("scan", "library")}
    write("search", {**told, "cores": CORES, "best": COUNT, **kept, **new})


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="for the vectors; 10 GB, kept")
    parser.add_argument("--only", choices=["scan", "library"])
    parser.add_argument("--sizes", type=int, nargs="*", help="frames")
    parser.add_argument("--repeats", type=int, default=10, help="warm queries")
    parser.add_argument("--measure", action="store_true", help="what is in the folder, in this process")
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.folder, given.repeats)))
        return
    if given.only != "library":
        growth(given.folder, given.sizes or SIZES, given.repeats)
    if given.only != "scan":
        library(given.folder, given.sizes or LIBRARY_SIZES)


if __name__ == "__main__":
    main()
