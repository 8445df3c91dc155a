"""`transformers serve` with a random-weight LLaVA: a real OpenAI-compatible server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

MODEL = "local/tiny-llava"


def start(home: Path, log: Path) -> tuple[subprocess.Popen, str]:
    """(process, base URL) of a server that is ready. home: where its model is."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [Path(sys.executable).parent / "transformers", "serve", MODEL, "--host", "127.0.0.1"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--device", "cpu"],
            env=os.environ | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    for _ in range(600):
        time.sleep(0.2)
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return process, f"http://127.0.0.1:{port}/v1"
        except OSError:
            continue
    process.kill()
    raise AssertionError(log.read_text())
