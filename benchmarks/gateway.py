"""What the gateway adds to a request: without a video, with one that it has seen, with a new one.

    python benchmarks/gateway.py VIDEO

Cuts VIDEO into five parts; each is a new video once. The server behind answers at once, and is also asked
directly with what the gateway sends it. Gateway, server and client share this machine's cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

from machine import empty_cache, options, write
from serve import PORT, cut, wait_until_up

PATH = "/v1/chat/completions"
BUDGET = 32
TIMES, QUESTIONS = 200, 10
ANSWER = json.dumps(
    {"choices": [{"index": 0, "message": {"role": "assistant", "content": "A kiln."}}]}
).encode()


class Upstream(BaseHTTPRequestHandler):
    """Answers at once; `last` is what it was sent."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    last = b""

    def do_POST(self) -> None:
        Upstream.last = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_: object) -> None:
        pass


def milliseconds(port: int, body: bytes, times: int) -> float:
    """The median time of a request over a connection that stays open."""
    connection, taken = HTTPConnection("127.0.0.1", port, timeout=600), []
    for _ in range(times):
        began = time.perf_counter()
        connection.request("POST", PATH, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        said = answer.read()
        taken.append(1000 * (time.perf_counter() - began))
        assert answer.status == 200, said
    connection.close()
    return median(taken)


def chat(text: str, video: str | None = None) -> bytes:
    parts: list[Any] = [{"type": "video_url", "video_url": {"url": video}}] if video else []
    message = {"role": "user", "content": [*parts, {"type": "text", "text": text}]}
    return json.dumps({"model": "m", "messages": [message]}).encode()


def compared(behind: int, bodies: list[bytes], times: int) -> dict[str, float]:
    """Requests through the gateway and what it made of them sent directly; medians in milliseconds."""
    through, direct, sizes = [], [], []
    for body in bodies:
        through.append(milliseconds(PORT, body, times))
        sizes.append(len(Upstream.last))
        direct.append(milliseconds(behind, Upstream.last, max(times, 5)))
    return {
        "gateway_ms": median(through),
        "direct_ms": median(direct),
        "added_ms": median(a - b for a, b in zip(through, direct, strict=True)),
        "sent_kib": median(sizes) / 1024,
        "requests": times * len(bodies),
    }


def measure(behind: int, parts: list[Path]) -> dict[str, Any]:
    new = [chat("Where is a cup of coffee?", part.as_uri()) for part in parts]
    others = [chat(f"Where is number {n}?", parts[0].as_uri()) for n in range(QUESTIONS)]
    return {
        "no_video": compared(behind, [chat("What is a kiln?")], TIMES),
        "new_video": compared(behind, new, 1),
        "seen_video_new_question": compared(behind, others, 1),
        "seen_video_same_question": compared(behind, new[:1], TIMES // 4),
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("video", help="five parts are cut from it")
    given = parser.parse_args()
    behind = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=behind.serve_forever, daemon=True).start()
    load = [round(value, 1) for value in os.getloadavg()]
    with tempfile.TemporaryDirectory() as name, empty_cache() as cache:
        folder = Path(name) / "videos"
        folder.mkdir()
        length = cut(given.video, folder)
        command = [sys.executable, "-m", "framenest", "serve", "--quiet", "--port", str(PORT)]
        command += ["--scorer", "tags", "--videos", str(folder), "--data", f"{name}/data", "--cache", cache]
        command += ["--upstream", f"http://127.0.0.1:{behind.server_port}/v1", "--budget", str(BUDGET)]
        server = subprocess.Popen(command)
        try:
            wait_until_up()
            result = measure(behind.server_port, sorted(folder.iterdir()))
        finally:
            server.terminate()
            server.wait()
            behind.shutdown()
    facts = {"scorer": "tags", "budget": BUDGET, "part_seconds": length, "load_average_before": load}
    print(json.dumps(result, indent=1))
    print(write("gateway", {**facts, **result}))


if __name__ == "__main__":
    main()
