"""Hashes of whole files: right, remembered, and read anew when the file or the caller says so."""

import hashlib
import os
import shutil
import subprocess
import sys

import pytest

from framenest.cache import hashes
from framenest.cache.directory import DirectoryStore
from framenest.cache.hashes import file_hash, file_hashes


@pytest.fixture
def store(tmp_path):
    return DirectoryStore(tmp_path / "store")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(b"weights" * 1000)
    return path


@pytest.fixture
def reads(monkeypatch):
    """Files that were read to be hashed."""
    done, whole = [], hashes._read_hash
    monkeypatch.setattr(hashes, "_read_hash", lambda path, *how: done.append(str(path)) or whole(path, *how))
    return done


def test_every_method_is_the_known_one(file, store):
    assert file_hash(file, store, "sha256") == hashlib.sha256(file.read_bytes()).hexdigest()
    git = shutil.which("git") or pytest.skip("needs git")
    named = subprocess.run([git, "hash-object", file], capture_output=True, text=True, check=True)
    assert file_hash(file, store, "git") == named.stdout.strip()


def test_pieces_are_hashed_apart_and_then_together(file, store, monkeypatch):
    monkeypatch.setattr(hashes, "PIECE_BYTES", 3000)  # 7,000 bytes: two whole pieces and a part
    content = file.read_bytes()
    pieces = [blake(content[start : start + 3000]) for start in (0, 3000, 6000)]
    assert file_hash(file, store) == blake(b"".join(pieces)).hex()
    swapped = content[3000:6000] + content[:3000] + content[6000:]
    file.write_bytes(swapped)
    assert file_hash(file, store, anew=True) == blake(b"".join([pieces[1], pieces[0], pieces[2]])).hex()


ENDING = """
import sys, threading, time
from framenest.cache import hashes
hashes.PIECE_BYTES = 3000
def late():
    while threading.main_thread().is_alive():
        time.sleep(0.01)
    print(hashes.buffer_hash(memoryview(bytes(7000))))
threading.Thread(target=late).start()
"""


def test_what_a_process_writes_at_its_end_is_hashed_too():
    """Python starts no threads then."""
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, check=False)
    pieces = [blake(bytes(size)) for size in (3000, 3000, 1000)]
    assert (done.stdout.strip(), done.stderr) == (blake(b"".join(pieces)).hex(), "")


def test_an_empty_file_has_a_hash(tmp_path, store):
    (tmp_path / "empty").touch()
    assert file_hash(tmp_path / "empty", store) == blake(b"").hex()


def blake(content):
    return hashlib.blake2b(content, digest_size=16).digest()


def test_a_hash_is_remembered_per_method_and_across_processes(file, store, reads):
    first = [file_hash(file, store, method) for method in hashes.METHODS]
    again = [file_hash(file, DirectoryStore(store.root), method) for method in hashes.METHODS]
    assert (first, len(reads)) == (again, len(hashes.METHODS))


def test_a_changed_file_is_read_again(file, store):
    first = file_hash(file, store)
    changed = bytearray(file.read_bytes())
    changed[200] ^= 1
    file.write_bytes(changed)
    os.utime(file, (1, 1))
    assert file_hash(file, store) != first


def test_a_file_rewritten_with_its_old_size_and_time_is_read_again(file, store):
    stat = file.stat()
    first = file_hash(file, store)
    with file.open("r+b") as opened:
        opened.write(b"W")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert file.stat().st_mtime_ns == stat.st_mtime_ns
    assert file_hash(file, store) != first


def test_bytes_that_decay_without_a_trace_are_found_when_asked(file, store, monkeypatch):
    stat = file.stat()
    first = file_hash(file, store)
    with file.open("r+b") as opened:
        opened.write(b"W")
    told = hashes.Path.stat
    monkeypatch.setattr(hashes.Path, "stat", lambda path, **how: stat if path == file else told(path, **how))
    assert file_hash(file, store) == first, "nothing tells"
    assert file_hash(file, store, anew=True) != first
    assert file_hash(file, store) != first, "and what was found is remembered"


def test_a_link_shares_the_hash_of_its_target(file, store, tmp_path, reads):
    link = tmp_path / "link.bin"
    link.symlink_to(file)
    assert file_hash(link, store) == file_hash(file, store)
    assert len(reads) == 1


def test_several_files_at_once(file, store, tmp_path):
    other = tmp_path / "other.bin"
    other.write_bytes(b"other")
    wanted = [(file, "sha256"), (other, "git"), (other, "sha256")]
    assert file_hashes(wanted, store) == [file_hash(path, store, method) for path, method in wanted]
    with pytest.raises(FileNotFoundError):
        file_hashes([(tmp_path / "gone", "git")], store)
