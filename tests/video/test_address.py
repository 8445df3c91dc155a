"""Videos at an address: with and without ranges, and through fsspec."""

import http.server
import threading
from contextlib import suppress

import pytest

from framenest import MEC, ConfigError, IndexConfig, MECConfig, VideoError, open_video
from framenest.cache.directory import DirectoryStore
from framenest.video import address
from local_http import local_http
from media import number_in, numbered_video

SMALL = MECConfig(IndexConfig(base_probes=12, extra_probes=0))


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves one file; with ranges or without."""

    data = b""
    ranges = True
    asked: list[str]

    def do_GET(self):
        if self.path != "/clip.mp4":
            self.send_error(404)
            return
        wanted = self.headers.get("Range")
        type(self).asked.append(wanted or "all")
        if wanted and self.ranges:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last or len(self.data)), len(self.data) - 1)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(self.data)}")
        else:
            start, end = 0, len(self.data) - 1
            self.send_response(200)
        self.send_header("Content-Length", str(end - start + 1))
        self.send_header("ETag", '"v1"')
        if self.ranges:
            self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):  # FFmpeg hangs up when it has seen enough
            self.wfile.write(self.data[start : end + 1])


@pytest.fixture(params=[True, False], ids=["ranges", "no-ranges"])
def server(request, clip):
    class Mine(Handler):
        data, ranges, asked = clip.read_bytes(), request.param, []

    with local_http(Mine) as port:
        yield f"http://127.0.0.1:{port}", Mine


def test_http(server, clip, tmp_path):
    address, handler = server
    decoder = open_video(f"{address}/clip.mp4", store=DirectoryStore(tmp_path))
    assert decoder.info.path == f"{address}/clip.mp4"
    assert decoder.info.num_frames == 300
    wanted = [0, 77, 151, 299]
    found = [number_in(p) for batch in decoder.read(wanted) for p in batch.pixels[0]]
    assert found == wanted
    if not handler.ranges:
        assert len(handler.asked) == 1  # fetched whole, once


def test_http_rankings_match_the_file(server, clip, tmp_path):
    address, _ = server
    remote = MEC(SMALL, None, store=tmp_path).rank(f"{address}/clip.mp4", None)
    local = MEC(SMALL, None, store=tmp_path).rank(clip, None)
    assert remote.frames.tolist() == local.frames.tolist()
    assert remote.evidence.tobytes() == local.evidence.tobytes()


def test_what_is_not_there(server):
    address, _ = server
    with pytest.raises(VideoError, match=r"nothing.mp4: the server answers 404"):
        open_video(f"{address}/nothing.mp4")
    with pytest.raises(VideoError, match="cannot be reached"):
        open_video("http://127.0.0.1:9/clip.mp4")


def test_fsspec(clip, tmp_path):
    fsspec = pytest.importorskip("fsspec", reason="needs the extra `remote`")
    fsspec.filesystem("memory").pipe("/bucket/clip.mp4", clip.read_bytes())
    decoder = open_video("memory://bucket/clip.mp4", store=DirectoryStore(tmp_path))
    wanted = [5, 123, 290]
    assert [number_in(p) for batch in decoder.read(wanted) for p in batch.pixels[0]] == wanted
    with pytest.raises(VideoError, match="cannot be opened"):
        open_video("memory://bucket/nothing.mp4")


def test_a_changed_remote_video_is_another_video(tmp_path):
    fsspec = pytest.importorskip("fsspec", reason="needs the extra `remote`")
    memory = fsspec.filesystem("memory")
    for count in (20, 30):
        path = numbered_video(tmp_path / "v.mp4", count)
        memory.pipe("/bucket/v.mp4", path.read_bytes())
        found = open_video("memory://bucket/v.mp4", store=DirectoryStore(tmp_path / "s")).info
        assert found.num_frames == count


@pytest.mark.parametrize("server", [False], indirect=True)
def test_a_download_has_a_limit_and_leaves_nothing_behind(server, cache, monkeypatch):
    url, _ = server
    monkeypatch.setenv("FRAMENEST_MAX_DOWNLOAD", "1000")
    with pytest.raises(VideoError, match=r"larger than 1000 B, the limit for downloads; \$FRAMENEST_MAX"):
        open_video(f"{url}/clip.mp4")
    assert not list((cache / "remote").iterdir())
    monkeypatch.setenv("FRAMENEST_MAX_DOWNLOAD", "much")
    with pytest.raises(ConfigError, match=r"\$FRAMENEST_MAX_DOWNLOAD: 'much' is not a size"):
        open_video(f"{url}/clip.mp4")
    monkeypatch.setenv("FRAMENEST_MAX_DOWNLOAD", "1 GB")
    assert open_video(f"{url}/clip.mp4").info.num_frames > 0


@pytest.mark.parametrize("server", [False], indirect=True)
@pytest.mark.parametrize(
    "fault", [OSError(28, "No space left on device"), KeyboardInterrupt(), ValueError("?")]
)
def test_a_download_that_any_error_ends_leaves_nothing_behind(server, cache, monkeypatch, fault):
    def broken(_):
        raise fault

    monkeypatch.setattr("framenest.cache.files.share", broken)  # in the midst of it
    with pytest.raises((VideoError, KeyboardInterrupt, ValueError)):
        open_video(f"{server[0]}/clip.mp4")
    assert not list((cache / "remote").iterdir())


@pytest.mark.parametrize("server", [True, False], ids=["ranges", "no-ranges"], indirect=True)
def test_an_answer_that_drips_is_ended_in_time(server, cache, monkeypatch):
    """A byte at a time, each long before a read times out; the server has an hour of them."""
    url, handler = server
    stop = threading.Event()

    class Drip:
        def __init__(self, file):
            self._file = file

        def write(self, data):
            for byte in data:
                self._file.write(bytes([byte]))
                if stop.wait(0.05):
                    break

        def __getattr__(self, name):
            return getattr(self._file, name)

    def dripping(self):
        self.wfile = Drip(self.wfile)

    monkeypatch.setattr(address, "PIECE_SECONDS", 0.5)
    original = handler.end_headers
    monkeypatch.setattr(handler, "end_headers", lambda self: (original(self), dripping(self)))
    try:
        with pytest.raises(VideoError, match=r"too slow|could not be|cannot be"):
            open_video(f"{url}/clip.mp4", store=DirectoryStore(cache))
    finally:
        stop.set()


def test_what_is_no_url_is_named():
    for url in ("http://[::1", "http://[::1]:x/a.mp4", "http://127.0.0.1:99999/a.mp4", "https://"):
        with pytest.raises(VideoError, match="cannot be reached"):
            open_video(url)
