"""One real server for all tests that want one."""

from __future__ import annotations

import signal

import pytest
from random_models import save_in_hub_layout
from transformers_server import start


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A folder with the model of `transformers serve`."""
    folder = tmp_path_factory.mktemp("hub")
    save_in_hub_layout(folder, "tiny-llava")
    return folder


@pytest.fixture(scope="session")
def url(home, tmp_path_factory):
    """Where `transformers serve` answers."""
    process, address = start(home, tmp_path_factory.mktemp("log") / "serve.log")
    yield address
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=30)
