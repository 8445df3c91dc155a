"""Videos of web pages, through yt-dlp's extractor for any page."""

import http.server
import json
import subprocess
import sys
import threading
from contextlib import suppress
from itertools import count

import pytest

pytest.importorskip("yt_dlp", reason="needs the extra `web`")

import framenest as fn
from command_line import FAST, run
from framenest import VideoError, open_video
from framenest.cache.directory import DirectoryStore, collect
from framenest.errors import CacheWarning
from framenest.transcript import find_transcript
from framenest.video import web_page
from local_http import local_http
from media import number_in, numbered_video
from processes import PATIENCE

VTT = "WEBVTT\n\n00:02.000 --> 00:04.000\n{}\n"
PAGE = '<html><head><title>A kiln / fired</title></head><body><video src="{}">{}</video></body></html>'


class Site:
    """What a web server answers: `files` by path, (content type, bytes), a status, or a redirect."""

    def __init__(self, clip):
        self.clip = clip.read_bytes()
        self.files = {"/clip.mp4": ("video/mp4", self.clip)}
        self.asked = []
        self.cut = None  # bytes of the video after which the connection breaks
        self.lengths = True
        self.go_on = threading.Event()
        self.go_on.set()

    def page(self, path="/watch", video="/clip.mp4", tracks=""):
        self.files[path] = "text/html; charset=utf-8", PAGE.format(video, tracks).encode()
        return f"{self.url}{path}"

    def captions(self, language="en", words="Now we fire the kiln."):
        self.files[f"/{language}.vtt"] = "text/vtt", VTT.format(words).encode()
        return f'<track kind="captions" src="/{language}.vtt" srclang="{language}">'

    def videos_asked(self):
        return [wanted for path, wanted in self.asked if path == "/clip.mp4"]

    def handler(self):
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                wanted = self.headers.get("Range")
                site.asked.append((self.path, wanted))
                found = site.files.get(self.path, 404)
                if isinstance(found, int):
                    self.send_error(found)
                    return
                if isinstance(found, str):
                    self.send_response(302)
                    self.send_header("Location", found)
                    self.end_headers()
                    return
                kind, data = found
                start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted else 0
                self.send_response(206 if wanted else 200)
                self.send_header("Content-Type", kind)
                if wanted:
                    self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
                if site.lengths:
                    self.send_header("Content-Length", str(len(data) - start))
                self.end_headers()
                site.go_on.wait(60)
                with suppress(BrokenPipeError, ConnectionResetError):
                    self.wfile.write(data[start : site.cut if data is site.clip else None])

        return Handler


@pytest.fixture
def site(clip):
    made = Site(clip)
    with local_http(made.handler()) as port:
        made.host = f"127.0.0.1:{port}"
        made.url = f"http://{made.host}"
        yield made


def downloads(cache):
    return sorted(file.name for file in (cache / "remote").rglob("*") if file.is_file())


def test_the_video_of_a_page_with_its_captions(site):
    url = site.page(tracks=site.captions())
    steps = []
    decoder = open_video(url, progress=lambda *step: steps.append(step))
    assert decoder.info.path == url
    assert [number_in(p) for batch in decoder.read([0, 151, 299]) for p in batch.pixels[0]] == [0, 151, 299]
    (line,) = find_transcript(decoder).lines
    assert line[:3] == (2.0, 4.0, "Now we fire the kiln.")
    assert {stage for stage, _, _ in steps} == {"download (MiB)"}


def test_it_is_fetched_once(site, cache):
    url = site.page(tracks=site.captions())
    first, second = open_video(url), open_video(url)
    assert first.info == second.info
    assert [path for path, _ in site.asked] == ["/watch", "/watch", "/clip.mp4", "/en.vtt", "/watch"]
    assert collect(DirectoryStore(cache), max_bytes=0).in_use == 1
    del first, second
    assert collect(DirectoryStore(cache), max_bytes=0).in_use == 0
    assert open_video(url).info.num_frames == 300
    assert len(site.videos_asked()) == 2


def test_two_at_once_fetch_it_once(site):
    url = site.page()
    site.go_on.clear()
    found = []
    threads = [threading.Thread(target=lambda: found.append(open_video(url).info)) for _ in range(2)]
    for thread in threads:
        thread.start()
    site.go_on.set()
    for thread in threads:
        thread.join()
    assert found[0] == found[1]
    assert len(site.videos_asked()) == 1


def test_everything_that_takes_a_video_takes_a_page(site, capsys, tmp_path, tags_store):
    url = site.page(tracks=site.captions())
    scores = tmp_path / "scores.csv"
    scores.write_text("frame,score\n0,0\n299,0\n")
    given = ("--scorer", f"table:{scores}")
    code, out, _ = run(capsys, "rank", url, "When is the kiln fired?", "-k", "4", "--json", *given, *FAST)
    assert code == 0
    assert json.loads(out)["video"] == url
    assert "“Now we fire the kiln.”" in json.loads(out)["ranks"][0]["reason"]
    code, out, _ = run(capsys, "index", url, *given, "--set", "base_probes=8")
    assert code == 0
    assert "1 lines of A kiln" in out
    session = fn.Session(f"table:{scores}", scoring=fn.ScorerConfig(subtitles="auto"), progress=False)
    assert [passage.start for passage in session.said(url, "When is it fired?")] == [2.0]
    assert len(fn.rank(url, "When is it fired?", k=3, scorer=f"table:{scores}", progress=False)) == 3
    assert len(site.videos_asked()) == 1


@pytest.mark.parametrize(
    ("languages", "chosen"), [(("de", "en-US"), "en-US"), (("de", "fr"), "de"), (("",), "")]
)
def test_captions_in_english_come_first(site, languages, chosen):
    tracks = "".join(site.captions(name, f"in {name}.") for name in languages)
    decoder = open_video(site.page(tracks=tracks.replace('srclang=""', "")))
    assert [line.text for line in find_transcript(decoder).lines] == [f"in {chosen}."]


def test_captions_that_a_machine_translated_do_not_count(site):
    tracks = site.captions("de", "Jetzt brennen wir.") + site.captions("en", "Now we burn.")
    site.files["/en.vtt?lang=en&tlang=en"] = site.files["/en.vtt"]
    decoder = open_video(site.page(tracks=tracks.replace("/en.vtt", "/en.vtt?lang=en&tlang=en")))
    assert [line.text for line in find_transcript(decoder).lines] == ["Jetzt brennen wir."]


def test_captions_that_fail_are_noted_and_tried_again(site):
    url = site.page(tracks=site.captions())
    captions, site.files["/en.vtt"] = site.files["/en.vtt"], 429
    with pytest.warns(CacheWarning, match=r"its captions cannot be fetched; the next run tries .*429"):
        assert find_transcript(open_video(url)) is None
    site.files["/en.vtt"] = captions
    assert len(find_transcript(open_video(url)).lines) == 1
    assert len(site.videos_asked()) == 1


def test_an_interrupted_download_continues(site, cache):
    url, site.cut = site.page(), 5000
    with pytest.raises(VideoError, match="no video can be fetched from this page"):
        open_video(url)
    (part,) = (cache / "remote").rglob("*.part")
    size, asked, site.cut = part.stat().st_size, len(site.videos_asked()), None
    assert size > 0
    assert open_video(url).info.num_frames == 300
    assert site.videos_asked()[asked:] == [f"bytes={size}-"]
    assert not part.exists()


@pytest.mark.parametrize("lengths", [True, False], ids=["announced", "unknown"])
def test_the_limit_for_downloads_holds_and_leaves_nothing_behind(site, cache, monkeypatch, lengths):
    url, site.lengths = site.page(), lengths
    monkeypatch.setenv("FRAMENEST_MAX_DOWNLOAD", "1000")
    with pytest.raises(VideoError, match=r"larger than 1000 B, the limit for downloads; \$FRAMENEST_MAX"):
        open_video(url)
    assert downloads(cache) == []
    monkeypatch.delenv("FRAMENEST_MAX_DOWNLOAD")
    assert open_video(url).info.num_frames == 300


HLS = "#EXTM3U\n#EXT-X-TARGETDURATION:12\n#EXTINF:12,\n/clip.ts\n"
STREAM = '<html><head><title>x</title><meta property="og:video" content="{}"/></head></html>'


def test_a_stream_needs_no_ffmpeg(site, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    site.files["/clip.ts"] = "video/mp2t", numbered_video(tmp_path / "clip.ts", 300).read_bytes()
    site.files["/list.m3u8"] = "application/vnd.apple.mpegurl", f"{HLS}#EXT-X-ENDLIST\n".encode()
    site.files["/watch"] = "text/html", STREAM.format(f"{site.url}/list.m3u8").encode()
    assert open_video(f"{site.url}/watch").info.num_frames == 300


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("<html><title>x</title>nothing here</html>", "Unsupported URL"),
        (
            PAGE.format("/clip.mp4", "") + '<video src="/clip.mp4?2"></video>',
            "it shows several; give the URL",
        ),
        (PAGE.format("/gone.mp4", ""), "404"),
        (STREAM.format("/live.m3u8"), "it is a live stream; it can be fetched when it is over"),
        (PAGE.format("file:///etc/passwd", ""), "Unsupported|file"),
    ],
    ids=["none", "several", "gone", "live", "file"],
)
def test_why_nothing_is_fetched_is_told_in_a_line(site, page, why):
    site.files["/watch"] = "text/html", page.encode()
    site.files["/live.m3u8"] = "application/vnd.apple.mpegurl", HLS.encode()
    with pytest.raises(
        VideoError, match=rf"/watch: no video can be fetched from this page \(.*({why})"
    ) as told:
        open_video(f"{site.url}/watch")
    assert "\n" not in str(told.value)


def test_without_yt_dlp_the_extra_is_named(site, monkeypatch, capsys):
    url = site.page()
    real = web_page.importlib.util.find_spec
    monkeypatch.setattr(
        web_page.importlib.util, "find_spec", lambda name, *a: None if name == "yt_dlp" else real(name, *a)
    )
    code, _, err = run(capsys, "rank", url, "--no-question")
    assert code == 2
    assert err.count("\n") == 1
    assert "a web page, not a video; to fetch the video on it, run" in err
    assert "[web]" in err
    assert open_video(f"{site.url}/clip.mp4").info.num_frames == 300  # which needs none


def test_neither_plugins_nor_settings_of_yt_dlp_are_used(site, tmp_path, monkeypatch):
    """A plug-in runs when it is imported; a setting would name another file."""
    for variable in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    plugin = tmp_path / "yt-dlp" / "plugins" / "mine" / "yt_dlp_plugins" / "extractor" / "mine.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (tmp_path / "yt-dlp" / "config").write_text(f"--write-info-json --exec 'touch {tmp_path / 'ran'}'\n")
    decoder = open_video(site.page())
    assert decoder.info.num_frames == 300
    assert not (tmp_path / "ran").exists()
    assert not list(web_page.Path(decoder.source.local).parent.glob("*.info.json"))


# On a server


def fetch(site, url, cache, *hosts):
    return web_page.fetch_page(url, DirectoryStore(cache), False, hosts=[site.host, *hosts])


def test_a_guarded_page_reaches_no_internal_address(site, clip, cache):
    """Neither by what it shows, nor by a redirect, nor by a name; only an allowed host."""
    other = Site(clip)
    with local_http(other.handler()) as port:
        away = f"http://127.0.0.1:{port}/clip.mp4"
        named = f"http://localhost:{port}/clip.mp4"
        site.files["/redirect.mp4"] = away
        pages = [site.page(f"/{number}", to) for number, to in zip(count(), (away, named, "/redirect.mp4"))]
        for page in pages:
            with pytest.raises(VideoError, match="not allowed on this server"):
                fetch(site, page, cache)
        assert other.asked == []
        for page in pages[::2]:
            assert fetch(site, page, cache, f"127.0.0.1:{port}").stat().st_size == len(other.clip)


@pytest.mark.parametrize(
    "attempt",
    [
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "import socket; socket.create_connection(('::1', 9))",
        "import socket; socket.create_connection(('169.254.169.254', 80))",
        "import socket; socket.socket(socket.AF_UNIX).connect('/run/any.sock')",
        "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 53))",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "import curl_cffi",
    ],
)
def test_the_guard_knows_other_ways_out(attempt):
    code = f"from framenest.video.web_page import guard\nguard(['example.invalid'])\n{attempt}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    told = done.stderr.splitlines()[-1]
    assert told.startswith(("PermissionError: not allowed", "ValueError: ", "ModuleNotFoundError: ")), told


def test_a_page_without_end_ends(site, cache, monkeypatch):
    """By memory, and by time if it is slow."""
    stopped = threading.Event()

    class Endless(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<html><video src='/clip.mp4'>")
            if self.path == "/slow":
                stopped.wait(PATIENCE)
            with suppress(OSError):
                while not stopped.is_set():
                    self.wfile.write(b"<p>more</p>" * 100_000)

    with local_http(Endless) as port:
        address = f"http://127.0.0.1:{port}"
        monkeypatch.setattr(web_page, "PAGE_SECONDS", PATIENCE)
        with pytest.raises(VideoError, match=r"reading it takes more than 1.00 GiB of memory"):
            fetch(site, f"{address}/long", cache, f"127.0.0.1:{port}")
        monkeypatch.setattr(web_page, "PAGE_SECONDS", 2.0)
        with pytest.raises(VideoError, match="or took over 2 s"):
            fetch(site, f"{address}/slow", cache, f"127.0.0.1:{port}")
        stopped.set()


def test_a_page_that_needs_javascript_says_so(site, monkeypatch, tmp_path):
    """As yt-dlp says it where an extractor needs a runtime and there is none."""
    (tmp_path / "yt_dlp.py").write_text(
        "class YoutubeDL:\n"
        "    def __init__(self, settings): self.log = settings['logger']\n"
        "    def __enter__(self): return self\n"
        "    def __exit__(self, *_): pass\n"
        "    def extract_info(self, url, download):\n"
        "        self.log.warning('No supported JavaScript runtime could be found')\n"
        "        raise ValueError('HTTP Error 403: Forbidden')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "yt_dlp", raising=False)
    with pytest.raises(
        VideoError, match=r"403: Forbidden\. No supported JavaScript runtime could be found\)"
    ):
        open_video(site.page())
