from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from framenest import models
from framenest.cache.directory import DirectoryStore, cache_dir
from framenest.processes import WorkerProcess
from media import numbered_picture, numbered_video

# A busy machine is slow, and no test may fail for that.
settings.register_profile("framenest", deadline=None)
settings.load_profile("framenest")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
USER_CACHE = cache_dir()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """No test touches the user's cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FRAMENEST_CACHE", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))  # weights may be there
    return folder


@pytest.fixture(autouse=True)
def unguarded(monkeypatch) -> None:
    """Videos are opened in the tests' own process, where a test can replace parts; as in a worker."""
    monkeypatch.setattr(WorkerProcess, "inside", True)


@pytest.fixture
def guarded(unguarded, monkeypatch) -> None:
    """Unknown videos are first opened in a process with limits, as for users."""
    monkeypatch.setattr(WorkerProcess, "inside", False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the folder of real media is not beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def tags_weights() -> Path:
    """The folder of the weights of `tags`, in the user's cache."""
    pytest.importorskip("onnxruntime", reason="needs the extra `tags`")
    real = DirectoryStore(USER_CACHE)
    if not all(file.here(real) for file in models.TAGS):
        pytest.skip("the weights of `tags` are not here; run: framenest models fetch tags")
    return USER_CACHE / "models"


@pytest.fixture
def tags_store(cache, tags_weights) -> DirectoryStore:
    """An empty store in which the weights of `tags` are there."""
    cache.mkdir(parents=True)
    (cache / "models").symlink_to(tags_weights, target_is_directory=True)
    return DirectoryStore(cache)


@pytest.fixture(scope="session")
def clip(tmp_path_factory) -> Path:
    """12 s of numbered frames at 25 fps, with B-frames and a key frame every 50."""
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    return numbered_video(path, 300, options={"g": "50", "bf": "3"})


@pytest.fixture(scope="session")
def frames() -> np.ndarray:
    """Numbered frames in memory, (120, 64, 96, 3)."""
    return np.stack([numbered_picture(i) for i in range(120)])


@pytest.fixture(scope="session")
def bucket():
    """A bucket on an S3 server that runs here."""
    fsspec = pytest.importorskip("fsspec", reason="needs the extra `remote`")
    pytest.importorskip("moto", reason="needs moto[server]; make test-ray installs it")
    pytest.importorskip("s3fs", reason="needs s3fs; make test-ray installs it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    settings = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    server = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from moto.server import main; main(['-p', sys.argv[1]])",
            str(port),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(200):
        with suppress(OSError):
            urllib.request.urlopen(address, timeout=5).close()
            break
        time.sleep(0.2)
    fsspec.filesystem("s3").mkdir("library")
    yield "s3://library/kept"
    server.kill()
    server.wait()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
