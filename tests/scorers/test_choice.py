"""Which scorer is taken, and what is said where one cannot be."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from framenest import MEC, MissingExtra, ScorerError, StoreError, models, scorers
from framenest.cache.directory import DirectoryStore
from framenest.cli import main
from framenest.models import CATALOGUE
from framenest.scorers import onnx
from plugin_packages import install_example


@pytest.fixture
def machine(monkeypatch, cache):
    """A machine with these scorers installed and with weights, and a GPU or none."""

    def made(installed, weights, gpu=False):
        monkeypatch.setattr(models.ModelEntry, "installed", lambda entry: entry.name in installed)
        monkeypatch.setattr(models.ModelEntry, "here", lambda entry, _: entry.name in weights)
        monkeypatch.setattr(scorers, "has_gpu", lambda: gpu)
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
    with pytest.raises(ScorerError, match="no weights are on this machine; run: framenest models fetch tags"):
        scorers.choose(machine(everything, set()))


def test_unknown_names(cache):
    with pytest.raises(
        ScorerError,
        match=r"there is no scorer 'blip3'; choose from auto, blip2, .*, noisy-truth:SNR, table:FILE$",
    ):
        scorers.load_scorer("blip3", DirectoryStore(cache))
    with pytest.raises(ScorerError, match=r"scorer must be a name or an object with name, .* not int"):
        scorers.load_scorer(3, DirectoryStore(cache))


def test_a_missing_extra_names_the_pip_line(cache, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == "torch" else real(n, *a))
    with pytest.raises(MissingExtra, match=r"torch is not installed; run.* install .*\[blip2\]'?$"):
        scorers.load_scorer("blip2", DirectoryStore(cache))


@pytest.fixture
def empty_hub(monkeypatch, tmp_path):
    hub = pytest.importorskip("huggingface_hub", reason="needs the extra `onnx`")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # where nothing answers
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


def linked(repo, file, content):
    """A file as the hub's cache keeps it."""
    blob = repo / "blobs" / hashlib.sha256(content).hexdigest()
    blob.write_bytes(content)
    file.symlink_to(blob)


def test_a_snapshot_in_the_hubs_cache_is_found_with_its_revision(cache, empty_hub, monkeypatch, tmp_path):
    """The layout that huggingface_hub itself writes."""
    repo = tmp_path / "hub" / "models--someone--some-siglip"
    revision = "0123456789abcdef0123456789abcdef01234567"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(revision)
    snapshot = repo / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    linked(repo, snapshot / "config.json", b"{}")
    real = empty_hub.snapshot_download
    monkeypatch.setattr(
        empty_hub, "snapshot_download", lambda *a, **k: real(*a, cache_dir=tmp_path / "hub", **k)
    )
    store = DirectoryStore(cache)
    with pytest.raises(ScorerError, match="not on this machine"):  # no weights in it
        models.locate("siglip2", "someone/some-siglip", store)
    linked(repo, snapshot / "model.safetensors", b"weights")
    found = models.locate("siglip2", "someone/some-siglip", store)
    assert found.revision == revision
    assert str(found) == "someone/some-siglip@0123456789ab"


def test_another_revision_than_the_pinned_one(cache, empty_hub, monkeypatch, tmp_path):
    """The catalogue's is taken where none is named; a checkpoint of one's own has none."""
    pinned, other = CATALOGUE["siglip2"].repo.revision, "f" * 40
    asked = []

    def download(repo, *, revision, **_):
        asked.append((repo, revision))
        folder = tmp_path / str(revision)
        folder.mkdir(exist_ok=True)
        (tmp_path / "blobs").mkdir(exist_ok=True)
        (folder / "model.safetensors").unlink(missing_ok=True)
        linked(tmp_path, folder / "model.safetensors", b"")
        return str(folder)

    monkeypatch.setattr(empty_hub, "snapshot_download", download)
    store, own = DirectoryStore(cache), CATALOGUE["siglip2"].repo.repo
    assert models.locate("siglip2", "", store).revision == pinned
    assert models.locate("siglip2", "", store, other).revision == other
    assert scorers.identity("siglip2", store) == f"siglip2 {own}@{pinned[:12]}"
    models.locate("siglip2", "me/mine", store)
    models.fetch("siglip2", store, revision="main")
    assert [*dict.fromkeys(asked)] == [(own, pinned), (own, other), ("me/mine", None), (own, "main")]
    with pytest.raises(ScorerError, match="is a folder and has no revisions; leave out the revision"):
        models.locate("siglip2", str(tmp_path), store, other)


def test_an_onnx_checkpoint_of_ones_own_is_not_the_catalogues(cache, empty_hub, monkeypatch, tmp_path):
    """The catalogue's own are float16 files."""
    repo, snapshot = tmp_path / "made", tmp_path / "made" / "snapshot"
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    fetched = []

    def download(repo, *, allow_patterns=(), **_):
        fetched.extend(allow_patterns)
        return str(snapshot)

    monkeypatch.setattr(empty_hub, "snapshot_download", download)
    store = DirectoryStore(cache)
    models.fetch("onnx:org/made", store)
    assert {"*vision_model.onnx", "*text_model.onnx", "*.json"} < set(fetched)
    linked(repo, snapshot / "vision_model.onnx", b"image")
    with pytest.raises(ScorerError, match="not on this machine"):
        models.locate("onnx", "org/made", store)
    linked(repo, snapshot / "text_model.onnx", b"text")
    assert models.locate("onnx-fast", "org/made", store).path == snapshot
    for name in ("onnx", "onnx-fast"):
        assert CATALOGUE[name].repo.weights == (("*vision_model_fp16.onnx", "*text_model_fp16.onnx"),)
        assert not CATALOGUE[name].here(store), "another checkpoint is not the catalogue's"


def test_a_revision_that_the_hub_does_not_have(cache, empty_hub, monkeypatch):
    import httpx

    def refuse(*_, **__):
        answer = httpx.Response(404, request=httpx.Request("GET", "https://hub"))
        raise empty_hub.errors.RevisionNotFoundError("gone (made up)", response=answer)

    monkeypatch.setattr(empty_hub, "snapshot_download", refuse)
    with pytest.raises(StoreError, match="there is no revision 'v9'; main is the newest"):
        models.fetch("siglip2", DirectoryStore(cache), revision="v9")


def test_all_weights_of_the_hub_are_pinned():
    pins = [entry.repo.revision for entry in CATALOGUE.values() if entry.repo is not None]
    assert all(re.fullmatch("[0-9a-f]{40}", pin) for pin in pins)


def test_a_folders_revision_changes_with_its_files(tmp_path):
    store = DirectoryStore(tmp_path / "store")
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"one")
    first = models.from_folder(folder, store).revision
    (folder / "model.safetensors").write_bytes(b"other")
    assert models.from_folder(folder, store).revision != first


def test_every_scorer_says_what_it_needs():
    for entry in CATALOGUE.values():
        assert entry.what
        assert entry.licence
        assert entry.packages


@pytest.mark.parametrize("wanted", ["tags:mine", "ocr:org/name"])
def test_a_checkpoint_where_there_is_only_one_is_refused(cache, wanted):
    with pytest.raises(ScorerError, match="has one set of weights and takes no checkpoint"):
        scorers.load_scorer(wanted, DirectoryStore(cache))


def test_a_table_needs_its_file(cache):
    with pytest.raises(ScorerError, match="needs a file: table:FILE"):
        scorers.load_scorer("table", DirectoryStore(cache))


def test_a_scorer_of_ones_own_is_found_through_its_entry_point(monkeypatch, tmp_path, clip, capsys):
    install_example(monkeypatch, tmp_path / "site", "scorer_plugin")
    store = DirectoryStore(tmp_path / "store")
    bright, dark = (scorers.load_scorer(name, store) for name in ("brightness", "brightness:dark"))
    assert (bright.version, dark.version) == ("1", "1 dark")
    ranking = MEC(scorer="brightness:dark", store=store).rank(clip, "Where?")
    assert ranking.scorer == "brightness 1 dark"
    assert scorers.identity("brightness:dark", store) == "brightness dark of framenest-brightness 0.1.0"
    with pytest.raises(SystemExit):
        main(["models"])
    assert re.search(r"^brightness\tfrom", capsys.readouterr().out, re.M)


def test_a_class_that_is_no_scorer_is_refused(monkeypatch, cache):
    class Half:
        load = classmethod(lambda cls, *_: cls())

    monkeypatch.setattr(scorers, "load_plugin", lambda _: Half)
    with pytest.raises(ScorerError, match="an object with name, version, inputs, encode and match, not Half"):
        scorers.load_scorer("table:x", DirectoryStore(cache))
    del Half.load
    with pytest.raises(ScorerError, match=r"'table' of framenest .* has no load\(checkpoint, store, config"):
        scorers.load_scorer("table:x", DirectoryStore(cache))


def test_an_onnx_export_without_a_known_output_is_refused(monkeypatch):
    named = [SimpleNamespace(name=name) for name in ("last_hidden_state", "logits")]
    session = SimpleNamespace(get_inputs=list, get_outputs=lambda: named)
    monkeypatch.setattr(onnx, "onnx_session", lambda *_, **__: session)
    with pytest.raises(
        ScorerError,
        match="neither image_embeds nor pooler_output, but last_hidden_state, logits",
    ):
        onnx._Side(Path("vision_model.onnx"), "image_embeds")


def test_a_bare_install_is_told_the_real_cause_and_the_command(monkeypatch, cache, clip, capsys):
    """Fetching weights first would not help."""
    real = importlib.util.find_spec
    gone = {package for entry in CATALOGUE.values() for package in entry.packages}
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n in gone else real(n, *a))
    with pytest.raises(ScorerError) as error:
        scorers.choose(DirectoryStore(cache))
    assert re.match(
        r"no scorer is ready: onnxruntime is not installed; run.* install .*\[tags\]'? && framenest models f",
        str(error.value),
    )
    with pytest.raises(SystemExit) as end:
        main(["rank", str(clip), "Where is the cup?"])
    assert end.value.code == 2
    assert "onnxruntime is not installed; run" in capsys.readouterr().err


def test_fetch_is_not_done_where_the_scorer_cannot_run(monkeypatch, cache, capsys):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *a: None if n == "onnxruntime" else real(n, *a)
    )
    monkeypatch.setattr(models, "fetch", lambda *_: "/weights")
    with pytest.raises(SystemExit) as end:
        main(["models", "fetch", "tags"])
    said = capsys.readouterr()
    assert (end.value.code, said.out) == (2, "")
    assert "the weights of tags are in /weights, but it cannot run: onnxruntime is not installed" in said.err


@pytest.mark.parametrize("scorer", ["blip2", "onnx", "clip"])
def test_the_hubs_client_comes_with_the_scorers_own_extra(monkeypatch, cache, scorer):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match=rf"huggingface_hub is not installed; run.*\[{scorer}\]"):
        models.fetch(scorer, DirectoryStore(cache))


@pytest.mark.parametrize(("gpu", "best", "why"), [(True, "blip2", "has a GPU"), (False, "onnx", "no GPU")])
def test_fetch_without_a_name_takes_the_best_for_this_machine(monkeypatch, capsys, gpu, best, why):
    fetched = []
    monkeypatch.setattr(scorers, "has_gpu", lambda: gpu)
    monkeypatch.setattr(models, "fetch", lambda scorer, *_: fetched.append(scorer) or "/weights")
    monkeypatch.setattr(models.ModelEntry, "missing", lambda _: None)
    with pytest.raises(SystemExit) as end:
        main(["models", "fetch"])
    said = capsys.readouterr()
    assert (end.value.code, fetched) == (0, [best])
    assert re.search(rf"note: {best}: .*{why}", said.err)
    assert said.out == f"{best}: all files in /weights\n"


@pytest.mark.parametrize(
    "checkpoint",
    ["/no/such/model", "./model", "~/no-such-model", "a/b/c", "model/", "here/model", "no\\model"],
)
def test_a_folder_that_is_not_there_is_called_so(cache, tmp_path, monkeypatch, checkpoint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    for act in (scorers.identity, models.fetch):
        with pytest.raises(ScorerError, match=f"^{re.escape(checkpoint)}: no such folder$"):
            act(f"siglip2:{checkpoint}", DirectoryStore(cache))


def test_a_file_is_no_folder_with_a_model(cache, tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(ScorerError, match="no such folder"):
        scorers.identity(f"onnx:{tmp_path / 'model.onnx'}", DirectoryStore(cache))
