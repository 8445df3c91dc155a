"""Toy benchmarks in the real schemas: a few questions on a video that the tests encode."""

from __future__ import annotations

import json
from pathlib import Path

from media import numbered_video

DURATIONS = ("short", "medium", "long")


def videomme() -> list[dict]:
    return [
        {
            "video_id": f"{i:03d}", "duration": DURATIONS[i % 3], "domain": "Knowledge",
            "sub_category": "Astronomy", "url": "", "videoID": "clip", "question_id": f"{i:03d}-1",
            "task_type": "OCR Problems", "question": f"Which number is shown {i} seconds in?",
            "options": ["A. One.", "B. Two.", "C. Three.", "D. Four."], "answer": "ABCD"[i % 4],
        }
        for i in range(6)
    ]  # fmt: skip


def videomme_v2() -> list[dict]:
    return [
        {
            "video_id": video, "question_id": f"{video}-{i + 1}", "question": f"Step {i + 1} of {video}?",
            "options": "\n".join(f"{letter}. Number {place}" for place, letter in enumerate("ABCDEFGH")),
            "answer": "ABCD"[i], "group_type": kind, "group_structure": structure, "level": 1,
            "second_head": "x", "third_head": "y",
        }
        for video, kind, structure in (("001", "logic", "[1, [2, 3], 4]"), ("002", "relevance", "None"))
        for i in range(4)
    ]  # fmt: skip


def longvideobench() -> list[dict]:
    return [
        {
            "id": f"clip_{i}", "video_id": "clip", "video_path": "clip.mp4", "question": f"What is at {i}?",
            **{f"option{k}": text for k, text in enumerate(["Red", "Blue", "Green", "Grey", "N/A"])},
            "correct_choice": i, "duration_group": [15, 60][i], "question_category": "TOS",
            "subtitle_path": "", "duration": 12.0, "starting_timestamp_for_subtitles": 0.0,
        }
        for i in range(2)
    ]  # fmt: skip


def mlvu() -> list[dict]:
    return [
        {
            "video_name": "clip.mp4", "duration": 12.0, "task_type": task, "answer": "B",
            "question": f"How many {task}s are there?\n(A) One\n(B) Two\n(C) Three\n(D) Four",
        }
        for task in ("count", "ego")
    ]  # fmt: skip


def write_home(home: Path) -> None:
    """Rows as JSON, and the video wherever lmms-eval looks for it below HF_HOME."""
    home.mkdir(parents=True, exist_ok=True)
    video = numbered_video(home / "clip.mp4", 300, options={"g": "50", "bf": "3"})
    for place in (
        "videomme/data/clip.mp4",
        "videomme_v2/001.mp4",
        "videomme_v2/002.mp4",
        "datasets/longvideobench/videos/clip.mp4",
        "mlvu/clip.mp4",
    ):
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        (home / place).write_bytes(video.read_bytes())
    for rows in (videomme, videomme_v2, longvideobench, mlvu):
        (home / f"{rows.__name__}.json").write_text(json.dumps(rows()))
