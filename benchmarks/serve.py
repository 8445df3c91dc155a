"""The service under load: cached prefixes with wrk, then 50 users asking on 5 indexed videos with locust.

    python benchmarks/serve.py VIDEO --seconds 600

Cuts VIDEO into five parts. Users ask for three minutes, then memory is watched while they go on. Needs
pip install 'framenest[bench-server]' and wrk. Server, load and wrk share this machine's cores.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import av
from machine import empty_cache, options, write

USERS, VIDEOS, CONNECTIONS, WRK_SECONDS = 50, 5, 16, 20
WARMING = 180  # seconds of asking before memory is watched
PORT = 8699
URL = f"http://127.0.0.1:{PORT}"


def cut(video: str, folder: Path) -> float:
    """Five parts of equal length, copied without encoding; returns their length in seconds."""
    with av.open(video) as source:
        stream = source.streams.video[0]
        packets = [packet for packet in source.demux(stream) if packet.size]
        length = float(packets[-1].pts * stream.time_base) / VIDEOS
        starts = [packet.is_keyframe for packet in packets]
        for part in range(VIDEOS):
            chosen, begun = [], False
            for packet, key in zip(packets, starts, strict=True):
                inside = part * length <= float(packet.pts * stream.time_base) < (part + 1) * length
                begun = begun or (inside and key)
                if begun and inside:
                    chosen.append(packet)
            with av.open(str(folder / f"part{part + 1}.mkv"), "w") as target:
                out = target.add_stream_from_template(stream)
                for packet in chosen:
                    packet.stream = out
                    target.mux(packet)
    return length


def call(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.loads(answer.read())


def over(job: dict[str, Any] | None) -> None:
    while job is not None and job["state"] in ("queued", "running"):
        job = call("GET", f"/jobs/{job['id']}?wait=30")
    assert job is None or job["state"] == "done", job


def family(pid: int) -> list[int]:
    """A process and its children."""
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        for thread in Path(f"/proc/{found[-1]}").glob("task/*/children"):
            with suppress(OSError):
                left += map(int, thread.read_text().split())
    return found


def memory(pid: int) -> tuple[float, float]:
    """MiB of a process, and of its children; what they share is counted once (proportional set size)."""
    found = []
    for one in family(pid):
        with suppress(OSError):
            pss = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{one}/smaps_rollup").read_text(), re.M)
            found.append(int(pss[1]) / 1024 if pss else 0.0)
    return found[0], sum(found[1:])


class Watch(threading.Thread):
    """Samples of memory every five seconds: (seconds, MiB of the server, MiB of its children)."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.samples, self.done = pid, [], threading.Event()

    def run(self) -> None:
        began = time.monotonic()
        while not self.done.wait(5):
            self.samples.append((time.monotonic() - began, *memory(self.pid)))


def processor_seconds(pid: int) -> float:
    """What a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wrk(path: str, pid: int) -> dict[str, float]:
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{WRK_SECONDS}s", "--latency", URL + path]
    used = processor_seconds(pid)
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = processor_seconds(pid) - used
    print(said)
    assert "Non-2xx" not in said, said
    units = {"us": 1e-3, "ms": 1.0, "s": 1e3}
    shares = {
        share: float(n) * units[unit] for share, n, unit in re.findall(r"(\d+)%\s+([\d.]+)(us|ms|s)", said)
    }
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    count = re.search(r"(\d+) requests in", said)
    assert rate is not None
    assert count is not None
    return {
        "connections": CONNECTIONS,
        "seconds": WRK_SECONDS,
        "requests_per_second": float(rate[1]),
        "p50_ms": shares["50"],
        "p99_ms": shares["99"],
        "processor_ms_per_request": 1000 * used / int(count[1]),
    }


def users(seconds: int, folder: Path, pid: int) -> dict[str, Any]:
    watch = Watch(pid)
    watch.start()
    locustfile = Path(__file__).with_name("serve_users.py")
    command = [sys.executable, "-m", "locust", "-f", str(locustfile), "--headless", "--only-summary"]
    whole = WARMING + seconds
    command += [
        "--host",
        URL,
        "-u",
        str(USERS),
        "-r",
        "10",
        "-t",
        f"{whole}s",
        "--csv",
        str(folder / "locust"),
    ]
    used = sum(map(processor_seconds, family(pid)))
    done = subprocess.run(command, check=False)
    used = sum(map(processor_seconds, family(pid))) - used
    watch.done.set()
    assert done.returncode == 0, "a request failed"
    with (folder / "locust_stats.csv").open() as file:
        rows = {row["Name"]: row for row in csv.DictReader(file)}
    requests = {
        name: {"count": int(r["Request Count"]), "failures": int(r["Failure Count"]),
               "p50_ms": float(r["50%"]), "p99_ms": float(r["99%"])}
        for name, r in rows.items() if name != "Aggregated"
    }  # fmt: skip
    warm = [(ours, theirs) for at, ours, theirs in watch.samples if at >= WARMING]
    both = [ours + theirs for ours, theirs in warm]
    minute = min(12, len(both))
    return {
        "users": USERS,
        "videos": VIDEOS,
        "seconds": whole,
        "requests": requests,
        "processor_seconds_per_ranking": used / requests["question to ranking"]["count"],
        "rankings_made_per_second": requests["question to ranking"]["count"] / whole,
        "memory": {
            "watched_seconds": seconds,
            "first_minute_mib": sum(both[:minute]) / minute,
            "last_minute_mib": sum(both[-minute:]) / minute,
            "most_mib": max(both),
            "server_every_minute_mib": [round(ours, 1) for ours, _ in warm[::12]],
            "workers_every_minute_mib": [round(theirs, 1) for _, theirs in warm[::12]],
        },
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("video", help="five parts are cut from it")
    parser.add_argument("--seconds", type=int, default=600, help="how long memory is watched")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, empty_cache() as cache:
        folder = Path(name)
        (folder / "videos").mkdir()
        length = cut(given.video, folder / "videos")
        command = [sys.executable, "-m", "framenest", "serve", "--quiet", "--port", str(PORT)]
        command += ["--scorer", "tags", "--videos", str(folder / "videos")]
        command += ["--data", str(folder / "data"), "--cache", cache]
        server = subprocess.Popen(command)
        try:
            result = measure(server.pid, given.seconds, folder)
        finally:
            server.terminate()
            server.wait()
    load = [round(value, 1) for value in os.getloadavg()]
    print(write("serve", {"part_seconds": length, "scorer": "tags", "load_average_after": load, **result}))


def wait_until_up() -> None:
    """Until the server answers; it loads its scorer first."""
    for _ in range(3000):
        try:
            call("GET", "/health")
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server did not start")


def measure(pid: int, seconds: int, folder: Path) -> dict[str, Any]:
    wait_until_up()
    load = [round(value, 1) for value in os.getloadavg()]
    began = time.perf_counter()
    for file in call("GET", "/files")["files"]:
        over(call("POST", "/videos", {"path": file["path"]})["job"])
    indexed = time.perf_counter() - began
    video = call("GET", "/videos")[0]["id"]
    asked = call("POST", "/rankings", {"video": video, "question": "Where is a cup of coffee?"})
    over(asked["job"])
    path = f"/rankings/{asked['ranking']}/prefix?k=16"
    call("GET", path)
    print(f"indexed {VIDEOS} videos in {indexed:.0f} s")
    return {
        "load_average_before": load,
        "index_seconds": indexed,
        "cached_prefix": wrk(path, pid),
        "asking": users(seconds, folder, pid),
    }


if __name__ == "__main__":
    main()
