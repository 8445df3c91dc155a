"""A video that names other files is opened only when asked, and then by what all of them hold."""

import http.server

import av
import pytest
from PIL import Image

from command_line import FAST, run
from framenest import MEC, IndexConfig, MECConfig, Ranking, VideoError, open_video
from framenest.cache.directory import DirectoryStore
from framenest.errors import IndexMismatch
from framenest.session import Session
from framenest.video.opening import reopen
from framenest.video.source import CONTAINERS, PLAYLISTS, VIDEO_SUFFIXES, open_options
from local_http import local_http
from media import encode_video, number_in, numbered_picture, numbered_video

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
    with pytest.raises(VideoError, match=r"a playlist.*allow_playlists=True opens them") as refused:
        open_video(playlist)
    assert "\n" not in str(refused.value)
    with pytest.raises(VideoError, match="a playlist"):
        Session(None).open(playlist)


def test_a_playlist_at_an_address_is_refused_and_nothing_it_names_is_asked_for(playlist, served):
    url, asked = served
    with pytest.raises(VideoError, match="a playlist"):
        open_video(f"{url}/{playlist.name}")
    assert set(asked) == {f"/{playlist.name}"}


def test_a_playlist_through_fsspec_is_refused_with_the_flag_too(playlist):
    pytest.importorskip("fsspec", reason="needs the extra `remote`")
    for allowed in (False, True):
        with pytest.raises(VideoError, match="a playlist"):
            open_video(f"file://{playlist}", allow_playlists=allowed)


def test_the_flag_opens_it_exactly(playlist):
    video = open_video(playlist, allow_playlists=True)
    assert video.info.num_frames == 100
    wanted = [0, 17, 49, 50, 73, 99]
    read = [number_in(p) for batch in video.read(wanted) for p in batch.pixels[0]]
    assert read == wanted


def test_the_flag_changes_nothing_for_other_videos(clip):
    assert open_video(clip, allow_playlists=True).info == open_video(clip).info


def test_a_changed_segment_is_another_video(playlist, parts):
    before = open_video(playlist, allow_playlists=True).info
    session = Session(None, allow_playlists=True)
    first = MEC(SMALL, session=session).rank(playlist, None)
    part(parts / "part1.ts", 50, shade=1)
    after = open_video(playlist, allow_playlists=True).info
    assert after.fingerprint != before.fingerprint
    with pytest.raises(IndexMismatch, match="has changed"):
        reopen(before, allow_playlists=True)
    again = MEC(SMALL, session=session).rank(playlist, None)
    assert again.video.fingerprint == after.fingerprint != first.video.fingerprint
    assert again.stats.decoded > 0


def test_what_was_allowed_once_is_refused_without_the_flag(playlist):
    """The timeline that the first opening keeps must not open the second one."""
    open_video(playlist, allow_playlists=True)
    with pytest.raises(VideoError, match="a playlist"):
        open_video(playlist)


def test_a_playlist_at_an_address_opens_addresses(playlist, served):
    """This server has no ranges: the text is downloaded, and what it names is still beside it there."""
    url, asked = served
    assert open_video(f"{url}/{playlist.name}", allow_playlists=True).info.num_frames == 100
    assert {"/part0.ts", "/part1.ts"} <= set(asked)


def test_a_playlist_at_an_address_opens_no_file(parts, served):
    url, _ = served
    (parts / "list.m3u8").write_text(TEXTS["hls"].replace("part0", f"file://{parts}/part0"))
    try:
        found = open_video(f"{url}/list.m3u8", allow_playlists=True).info.num_frames
    except VideoError:
        found = 0
    assert found <= 50, "the segment at the address at the most, and not the file"


def test_every_command_takes_the_flag(capsys, playlist, tmp_path):
    ranking = tmp_path / "ranking.json"
    code, _, err = run(capsys, "rank", playlist, "--no-question", "-o", ranking, *FAST)
    assert (code, "--allow-playlists" in err) == (2, True)
    allow = "--allow-playlists"
    assert run(capsys, "rank", playlist, "--no-question", "-o", ranking, allow, *FAST)[0] == 0
    assert run(capsys, "index", playlist, "--scorer", "none", allow)[0] == 0
    for command in (
        ("extract", ranking, "-k", "2", "--to", tmp_path / "frames"),
        ("report", ranking, "-o", tmp_path / "report.html"),
        ("export", ranking, "-k", "2", "--question", "What?", "-o", tmp_path / "request.json"),
        ("export", ranking, "-k", "2", "--style", "vlmevalkit", "-o", tmp_path / "images"),
    ):
        code, _, err = run(capsys, *command)
        assert (code, "--allow-playlists" in err) == (2, True), command
        assert run(capsys, *command, allow)[0] == 0, command
    assert Ranking.load(ranking).video.path == str(playlist)


def test_a_still_picture_or_a_pattern_of_names_is_no_video(tmp_path):
    """FFmpeg reads `%d` in a name as a series of files."""
    for name in ("1.png", "%d.png"):
        Image.new("RGB", (64, 64)).save(tmp_path / name)
        with pytest.raises(VideoError, match="format that Framenest does not open"):
            open_video(tmp_path / name)


def test_every_kind_of_file_that_counts_as_a_video_has_a_format_on_the_list(tmp_path):
    names = {name for format_ in CONTAINERS for name in format_.split(",")}
    assert not names & PLAYLISTS
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
