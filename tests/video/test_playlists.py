"""A video that names other files is refused, and nothing that it names is opened."""

import http.server

import av
import pytest
from PIL import Image

from framenest import IndexConfig, MECConfig, VideoError, open_video
from framenest.cache.directory import DirectoryStore
from framenest.session import Session
from framenest.video.source import CONTAINERS, VIDEO_SUFFIXES, open_options
from local_http import local_http
from media import encode_video, numbered_picture, numbered_video

SMALL = MECConfig(IndexConfig(base_probes=12, extra_probes=0))
TEXTS = {
    "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:2,\npart0.ts\n#EXTINF:2,\npart1.ts\n#EXT-X-ENDLIST\n",
    "concat": "ffconcat version 1.0\nfile part0.ts\nfile part1.ts\n",
}


def part(path, first, shade=0):
    pictures = [numbered_picture(first + i) // (1 + shade) for i in range(50)]
    return encode_video(
        path, pictures, options={"g": "10", "bf": "0"}, ticks=[40 * (first + i) for i in range(50)]
    )


@pytest.fixture
def parts(tmp_path):
    """A folder with two segments of 50 frames."""
    folder = tmp_path / "films"
    folder.mkdir()
    for number in (0, 1):
        part(folder / f"part{number}.ts", 50 * number)
    return folder


@pytest.fixture(params=list(TEXTS))
def playlist(request, parts):
    path = parts / ("list.m3u8" if request.param == "hls" else "list.mp4")
    path.write_text(TEXTS[request.param])
    return path


@pytest.fixture
def served(parts):
    """The folder at an address, and the paths asked for."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

        def __init__(self, *request):
            super().__init__(*request, directory=str(parts))

    with local_http(Handler) as port:
        yield f"http://127.0.0.1:{port}", asked


def test_a_playlist_is_refused_in_one_line_that_says_how(playlist):
    with pytest.raises(VideoError, match=r"a playlist.*ffmpeg -i PLAYLIST") as refused:
        open_video(playlist)
    assert "\n" not in str(refused.value)
    with pytest.raises(VideoError, match="a playlist"):
        Session(None).open(playlist)


def test_a_playlist_at_an_address_is_refused_and_nothing_it_names_is_asked_for(playlist, served):
    url, asked = served
    with pytest.raises(VideoError, match="a playlist"):
        open_video(f"{url}/{playlist.name}")
    assert set(asked) == {f"/{playlist.name}"}


def test_a_playlist_through_fsspec_is_refused_too(playlist):
    pytest.importorskip("fsspec", reason="needs the extra `remote`")
    with pytest.raises(VideoError, match="a playlist"):
        open_video(f"file://{playlist}")


def test_a_still_picture_or_a_pattern_of_names_is_no_video(tmp_path):
    """FFmpeg reads `%d` in a name as a series of files."""
    for name in ("1.png", "%d.png"):
        Image.new("RGB", (64, 64)).save(tmp_path / name)
        with pytest.raises(VideoError, match="format that Framenest does not open"):
            open_video(tmp_path / name)


def test_a_format_outside_the_list_is_named_with_pyav_15_too(tmp_path, monkeypatch):
    """Where `av.error.ArgumentError` is called ValueError."""
    Image.new("RGB", (64, 64)).save(tmp_path / "1.png")
    monkeypatch.delattr("av.error.ArgumentError", raising=False)
    with pytest.raises(VideoError, match="format that Framenest does not open"):
        open_video(tmp_path / "1.png")


def test_every_kind_of_file_that_counts_as_a_video_has_a_format_on_the_list(tmp_path):
    names = {name for format_ in CONTAINERS for name in format_.split(",")}
    assert not names & {"hls", "concat", "dash"}
    for suffix, codec in ((".avi", "mpeg4"), (".flv", "flv"), (".gif", "gif"), (".h264", "libx264"),
                          (".mkv", "libx264"), (".mpg", "mpeg2video"), (".mxf", "mpeg2video"),
                          (".ts", "libx264"), (".webm", "libvpx"), (".wmv", "wmv2"), (".ivf", "libvpx"),
                          (".y4m", "wrapped_avframe"), (".m2v", "mpeg2video"), (".h265", "libx265"),
                          (".mov", "mpeg4"), (".3gp", "mpeg4"), (".ogv", "libtheora")):  # fmt: skip
        assert suffix in VIDEO_SUFFIXES
        if codec not in av.codecs_available:
            continue
        colours = {"gif": "rgb8", "libx265": "yuv420p"}.get(codec, "yuv420p")
        settings = {"x265-params": "log-level=none"} if codec == "libx265" else {}
        path = numbered_video(tmp_path / f"v{suffix}", 5, codec=codec, pix_fmt=colours, options=settings)
        assert open_video(path, store=DirectoryStore(tmp_path / "store")).info.num_frames == 5, suffix


def test_the_whitelist_is_given_to_every_opening(clip, monkeypatch):
    given, whole = [], av.open
    monkeypatch.setattr(av, "open", lambda *a, **k: given.append(k.get("options")) or whole(*a, **k))
    video = open_video(clip)
    list(video.read([3]))
    assert len(given) > 1
    assert given == [open_options(str(clip))] * len(given)


def test_an_image_that_needs_a_program_is_no_image(tmp_path, monkeypatch):
    """Pillow reads EPS by running Ghostscript, whatever the file is called."""
    from PIL import EpsImagePlugin

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_: pytest.fail("a program was run"))
    Image.new("RGB", (8, 8)).save(tmp_path / "1.eps")
    (tmp_path / "1.eps").rename(tmp_path / "1.png")
    with pytest.raises(VideoError, match="not an image"):
        open_video(tmp_path, fps=5)
