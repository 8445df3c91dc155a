"""Hints name a command that works for how Framenest was installed."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from framenest import MissingExtra, errors
from framenest.errors import install_hint


@pytest.fixture
def installed(monkeypatch):
    """An installation with this direct_url.json (None: from an index)."""
    monkeypatch.setattr(errors, "_installer", lambda: "pip install")

    def made(origin):
        written = None if origin is None else json.dumps(origin)
        distribution = SimpleNamespace(read_text=lambda name: {"direct_url.json": written}[name])
        monkeypatch.setattr("importlib.metadata.distribution", lambda _: distribution)

    return made


@pytest.fixture
def clone(tmp_path):
    folder = tmp_path / "my clone"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("")
    return folder


def test_from_an_index(installed):
    installed(None)
    assert install_hint("tags") == "run: pip install 'framenest[tags]'"
    assert str(MissingExtra("tags", "onnxruntime")) == (
        "onnxruntime is not installed; run: pip install 'framenest[tags]'"
    )


def test_from_a_clone(installed, clone):
    installed({"url": clone.as_uri(), "dir_info": {}})
    assert install_hint("tags") == f"run: pip install '{clone}[tags]'"
    installed({"url": clone.as_uri(), "dir_info": {"editable": True}})
    assert install_hint("tags") == f"run: pip install -e '{clone}[tags]'"


def test_from_a_wheel(installed, tmp_path):
    wheel = tmp_path / "framenest-0.1.0-py3-none-any.whl"
    installed({"url": wheel.as_uri(), "archive_info": {}})
    assert install_hint("tags") == f"run: pip install 'framenest[tags] @ {wheel.as_uri()}'"


def test_from_a_repository(installed):
    installed({"url": "https://host/f.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}})
    assert install_hint("tags") == "run: pip install 'framenest[tags] @ git+https://host/f.git@abc'"


def test_the_installer_is_one_that_installs_here(monkeypatch, tmp_path):
    real = importlib.util.find_spec
    found = {"pip": True}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *a: (found["pip"] or None) if n == "pip" else real(n, *a)
    )
    beside = str(Path(sys.executable).parent / "pip")
    monkeypatch.setattr(shutil, "which", lambda _: beside)
    assert errors._installer() == "pip install"
    monkeypatch.setattr(shutil, "which", lambda _: "/another/environment/bin/pip")
    assert errors._installer() == f"{sys.executable} -m pip install"
    found["pip"] = False
    assert errors._installer() == f"uv pip install --python {sys.executable}"
