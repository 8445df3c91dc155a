"""Which scorer is taken, and what is said where one cannot be."""

from __future__ import annotations

import importlib.util

import pytest

from framenest import MissingExtra, ScorerError, StoreError, models, scorers
from framenest.cache.directory import DirectoryStore
from framenest.models import CATALOGUE, HubRepo


@pytest.fixture
def machine(monkeypatch, cache):
    """A machine with these scorers installed and with weights, and a GPU or none."""

    def made(installed, weights, gpu=False):
        monkeypatch.setattr(models.ModelEntry, "installed", lambda entry: entry.name in installed)
        monkeypatch.setattr(models.ModelEntry, "here", lambda entry, _: entry.name in weights)
        monkeypatch.setattr(scorers, "_gpu", lambda: gpu)
        return DirectoryStore(cache)

    return made


def test_auto_takes_the_best_that_is_ready_and_says_why(machine):
    everything = set(CATALOGUE)
    assert scorers.choose(machine(everything, everything, gpu=True))[0] == "blip2"
    name, why = scorers.choose(machine(everything, everything, gpu=False))
    assert name == "siglip2"
    assert why == "scorer siglip2, the best one that is ready here (no GPU for blip2)"
    name, why = scorers.choose(machine({"tags", "onnx"}, {"tags"}))
    assert name == "tags"
    assert "blip2 is not installed; siglip2 is not installed; no weights of onnx" in why
    with pytest.raises(ScorerError, match="run `framenest models fetch tags`"):
        scorers.choose(machine(everything, set()))


def test_unknown_names(cache):
    with pytest.raises(
        ScorerError, match="there is no scorer 'blip3'; choose from auto, table:FILE, blip2, "
    ):
        scorers.load_scorer("blip3", DirectoryStore(cache))
    with pytest.raises(ScorerError, match="is not a scorer"):
        scorers.load_scorer(3, DirectoryStore(cache))


def test_a_missing_extra_names_the_pip_line(cache, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == "torch" else real(n, *a))
    with pytest.raises(MissingExtra, match=r"torch is not installed; run: pip install 'framenest\[blip2\]'"):
        scorers.load_scorer("blip2", DirectoryStore(cache))


@pytest.fixture
def empty_hub(monkeypatch, tmp_path):
    hub = pytest.importorskip("huggingface_hub", reason="needs the extra `onnx`")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return hub


def test_missing_weights_name_the_command(cache, empty_hub):
    for wanted in ("onnx", "onnx:someone/some-siglip"):
        with pytest.raises(ScorerError, match=f"not on this machine; run: framenest models fetch {wanted}"):
            scorers.load_scorer(wanted, DirectoryStore(cache))


def test_no_network_is_said_so(cache, empty_hub, monkeypatch):
    def refuse(*_, **__):
        raise empty_hub.errors.LocalEntryNotFoundError("no connection (made up)")

    monkeypatch.setattr(empty_hub, "snapshot_download", refuse)
    with pytest.raises(StoreError, match="no network, or the hub does not answer"):
        models.fetch("siglip2", DirectoryStore(cache))


def test_a_snapshot_in_the_hubs_cache_is_found_with_its_revision(cache, empty_hub, monkeypatch, tmp_path):
    """The layout that huggingface_hub itself writes."""
    repo = tmp_path / "hub" / "models--someone--some-siglip"
    revision = "0123456789abcdef0123456789abcdef01234567"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(revision)
    snapshot = repo / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    entry = HubRepo("someone/some-siglip", 1, "MIT")
    real = empty_hub.snapshot_download
    monkeypatch.setattr(
        empty_hub, "snapshot_download", lambda *a, **k: real(*a, cache_dir=tmp_path / "hub", **k)
    )
    assert entry.locate() is None, "no weights in it"
    (snapshot / "model.safetensors").write_bytes(b"")
    found = entry.locate()
    assert found.revision == revision
    assert str(found) == "someone/some-siglip@0123456789ab"


def test_a_folders_revision_changes_with_its_files(tmp_path):
    store = DirectoryStore(tmp_path / "store")
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"one")
    first = models.hub.from_folder(folder, store).revision
    (folder / "model.safetensors").write_bytes(b"other")
    assert models.hub.from_folder(folder, store).revision != first


def test_every_scorer_says_what_it_needs():
    for entry in CATALOGUE.values():
        assert entry.what
        assert entry.licence
        assert entry.packages
        module, _, kind = entry.loader.partition(":")
        assert importlib.util.find_spec(module) is not None
        assert kind[0].isupper()
