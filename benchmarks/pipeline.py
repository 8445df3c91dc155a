"""Where the seconds go for a first and a second question, and how much memory is used at the most.

python benchmarks/pipeline.py VIDEO        a long video of one's own
python benchmarks/pipeline.py              a 1080p video of one minute, made here
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from machine import write

from framenest import MEC
from framenest.cache.directory import DirectoryStore, cache_dir

QUESTIONS = ("Where is a red laptop on a table?", "When does somebody walk across the lawn?")


def make_1080p(path: Path) -> None:
    """One minute of drifting noise at 1080p: hard to compress, so a heavy file."""
    rng = np.random.default_rng(0)
    texture = rng.integers(0, 256, (1180, 2020, 3), dtype=np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 1920, 1080, "yuv420p"
        stream.options = {"preset": "ultrafast", "crf": "35"}
        for i in range(25 * 60):
            left, top = i % 100, (i // 15) % 100
            picture = np.ascontiguousarray(texture[top : top + 1080, left : left + 1920])
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = i, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def child(video: str, store: str) -> None:
    """One process as a user has it: the first question, then the second."""
    mec = MEC(scorer="tags", store=store)
    questions = []
    for question in QUESTIONS:
        began = time.perf_counter()
        ranking = mec.rank(video, question)
        wall = time.perf_counter() - began
        questions.append({"question": question, "wall_seconds": wall, **ranking.stats.to_json()})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    info = ranking.video
    video_facts = {
        "name": Path(video).name,
        "seconds": info.duration,
        "width": info.width,
        "height": info.height,
    }
    print(json.dumps({"video": video_facts, "questions": questions, "peak_memory_mib": peak / 1024}))


def measure(video: str) -> dict:  # type: ignore[type-arg]
    with tempfile.TemporaryDirectory() as folder:
        models = DirectoryStore(cache_dir()).root / "models"
        (Path(folder) / "models").symlink_to(models, target_is_directory=True)
        command = [sys.executable, __file__, "--child", video, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        first = json.loads(done.stdout)
        again = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for question in first["questions"]:
        stages = ", ".join(f"{k} {v:.2f}" for k, v in question["seconds"].items())
        print(f"{question['wall_seconds']:6.1f} s, {question['candidates']} candidates: {stages}")
    print(f"{again['questions'][0]['wall_seconds']:6.1f} s for the first question again in a new process")
    print(f"{first['peak_memory_mib']:.0f} MiB at the most")
    return first | {"first_question_cached_wall_seconds": again["questions"][0]["wall_seconds"]}


def main() -> None:
    if len(sys.argv) > 1:
        print(write("pipeline", measure(sys.argv[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        video = Path(folder) / "made_1080p.mp4"
        make_1080p(video)
        print(write("pipeline_1080p", measure(str(video))))


if __name__ == "__main__":
    child(*sys.argv[2:]) if sys.argv[1:2] == ["--child"] else main()
