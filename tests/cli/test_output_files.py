"""An output that cannot be written is refused first: here no command's inputs exist, and none is missed."""

import os
from pathlib import Path

import pytest

from command_line import commands, run
from framenest.cache.files import write_atomic
from framenest.cli import app
from framenest.cli.options import check_writable, check_writable_folder
from framenest.errors import StoreError

RECALL = ("evaluate", "recall", "no-questions.json", "--scorer", "tags")
SEARCH = ("search", "a dog", "no.mp4", "--scorer", "tags")
FILES = {
    "rank": ("rank", "no.mp4", "Why?", "--scorer", "tags", "-o", "{}.json"),
    "ask": ("ask", "no.mp4", "Why?", "--base-url", "http://127.0.0.1:9/v1", "-o", "{}.json"),
    "rank --sheet": ("rank", "no.mp4", "Why?", "--scorer", "tags", "--sheet", "{}.png"),
    "select": ("select", "no.mp4", "Why?", "-k", "4", "-o", "{}.json"),
    "report": ("report", "no.json", "-o", "{}.html"),
    "extract --sheet": ("extract", "no.json", "-k", "4", "--to", ".", "--sheet", "{}.png"),
    "export": ("export", "no.json", "-k", "4", "-o", "{}.json"),
    "evaluate recall --json": (*RECALL, "--json", "{}.json"),
    "evaluate ablations": ("evaluate", "ablations", "no.json", "--scorer", "tags", "--json", "{}.json"),
    "rank --failures": ("rank", "--manifest", "no.csv", "-o", "out", "--failures", "{}.jsonl"),
    "search --sheet": (*SEARCH, "--sheet", "{}.png"),
    "search --failures": (*SEARCH, "--failures", "{}.jsonl"),
    "index --failures": ("index", "no.mp4", "--scorer", "none", "--failures", "{}.jsonl"),
}
FOLDERS = {
    "rank --manifest": ("rank", "--manifest", "no.csv", "--scorer", "tags", "-o", "{}"),
    "rank --to": ("rank", "no.mp4", "Why?", "--scorer", "tags", "--to", "{}"),
    "search --to": (*SEARCH, "--to", "{}"),
    "demo": ("demo", "--to", "{}"),
    "extract": ("extract", "no.json", "-k", "4", "--to", "{}"),
    "export --style vlmevalkit": ("export", "no.json", "-k", "4", "--style", "vlmevalkit", "-o", "{}"),
}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "questions.txt").write_text("Why?\n")


def refused(capsys, command, name):
    code, out, err = run(capsys, *(word.replace("{}", name) for word in command))
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith(f"error: {name}"), err
    return err


@pytest.mark.parametrize("command", FILES.values(), ids=FILES)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(capsys, command):
    ending = next(Path(word).suffix for word in command if word.startswith("{}"))
    Path(f"folder{ending}").mkdir()
    assert "(Not a directory)" in refused(capsys, command, "file/below")
    assert "is a directory" in refused(capsys, command, "folder")
    assert "File name too long" in refused(capsys, command, "x" * 300)


@pytest.mark.parametrize("command", FOLDERS.values(), ids=FOLDERS)
def test_a_folder_that_cannot_be_written_is_refused_before_the_work(capsys, command):
    assert "(Not a directory)" in refused(capsys, command, "file")
    assert "(Not a directory)" in refused(capsys, command, "file/below")
    assert "File name too long" in refused(capsys, command, "x" * 300)


def test_every_option_for_a_file_is_tried_here():
    """Whoever adds one adds it above."""
    tried = set()
    for words in (*FILES.values(), *FOLDERS.values()):
        place = next(i for i, word in enumerate(words) if word.startswith("{}"))
        tried.add((words[:2] if words[0] in ("evaluate", "models") else words[:1], words[place - 1]))
    for path, command in commands(app):
        for option in command.params:
            parse = getattr(option.type, "parse", str)
            if (
                option.type.name in ("FILE", "DIR")
                and parse is not str
                and option.param_type_name == "option"
            ):
                assert any((path, flag) in tried for flag in option.opts), (path, option.opts)


def test_the_longest_name_that_passes_can_be_written(tmp_path):
    for length in range(239, 257):
        file = tmp_path / ("x" * length)
        try:
            check_writable(file)
        except StoreError:
            with pytest.raises(StoreError):
                write_atomic(file, b"x")
        else:
            write_atomic(file, b"x")
            assert file.read_bytes() == b"x"


def test_what_a_link_names_is_what_counts(tmp_path):
    (tmp_path / "good").symlink_to(tmp_path / "new" / "file.json")
    (tmp_path / "bad").symlink_to(tmp_path / "file" / "below.json")
    assert check_writable(tmp_path / "good") == tmp_path / "good"
    for check in (check_writable, check_writable_folder):
        with pytest.raises(StoreError, match=r"bad: cannot be written \(Not a directory\)"):
            check(tmp_path / "bad")
    assert not (tmp_path / "new").exists()
    assert check_writable(Path(os.devnull)) == Path(os.devnull)


def test_a_file_system_that_refuses_is_asked(tmp_path, monkeypatch):
    """Permissions allow everything to root; a read-only or foreign file system refuses all the same."""

    def refuse(**_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("framenest.cli.options.tempfile.NamedTemporaryFile", refuse)
    with pytest.raises(StoreError, match=r"r.json: cannot be written \(Read-only file system\)"):
        check_writable(tmp_path / "r.json")
