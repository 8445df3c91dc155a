"""Damaged files never hang, crash the process, or raise anything but our own errors."""

import subprocess
import sys
from pathlib import Path

import pytest

from media import numbered_video

TRIALS, SECONDS = 150, 240


def fuzz(folder, seed, files):
    command = [sys.executable, str(Path(__file__).with_name("fuzz.py")), str(folder), str(seed), str(TRIALS)]
    done = subprocess.run(
        [*command, *map(str, files)], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert len(lines) == TRIALS
    assert all(line.endswith(("frames", "Error 0")) for line in lines)  # errors are one line
    return lines


def test_files_of_many_kinds(tmp_path):
    files = [
        numbered_video(tmp_path / "a.mp4", 60, options={"g": "15", "bf": "2"}),
        numbered_video(tmp_path / "b.mkv", 60, options={"g": "15", "bf": "2"}),
        numbered_video(tmp_path / "c.ts", 60, options={"g": "15"}),
        numbered_video(
            tmp_path / "d.webm", 30, codec="libvpx-vp9", options={"deadline": "realtime", "cpu-used": "8"}
        ),
        numbered_video(tmp_path / "e.avi", 60, codec="mpeg4", options={"g": "15", "bf": "2"}),
        numbered_video(tmp_path / "f.mp4", 30, codec="libx265", options={"x265-params": "log-level=none"}),
        numbered_video(tmp_path / "g.h264", 40, options={"g": "15"}),
    ]
    lines = fuzz(tmp_path, 1, files)
    assert any("VideoError 0" in line for line in lines)
    assert any("8 of 8 frames" in line for line in lines)


def test_small_real_files(tmp_path, shared_data):
    files = [f for f in sorted((shared_data / "odd").iterdir()) if 0 < f.stat().st_size < 150_000]
    if not files:
        pytest.skip("no small real files are here")
    fuzz(tmp_path, 2, files)
