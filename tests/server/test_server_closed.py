"""Closed by default: each door is tried."""

import http.server
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

import bombs
from framenest.errors import ConfigError, VideoError
from framenest.server.server_settings import MIB, ServerSettings
from framenest.video import guarded_opening
from framenest.video.guarded_opening import check_guarded
from local_http import local_http
from media import numbered_video
from processes import PATIENCE
from served import Server

TOKEN = "a-token-of-the-tests-0123456789"
PASS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    """A real video outside every allowed folder."""
    return numbered_video(tmp_path_factory.mktemp("outside") / "secret.mp4", 30)


# Addresses and tokens


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org"])
def test_other_addresses_need_a_token(tmp_path, host):
    with pytest.raises(ConfigError, match="needs a token"):
        ServerSettings(data=tmp_path, host=host)
    assert ServerSettings(data=tmp_path, host=host, token=TOKEN).host == host


def test_loopback_addresses_need_no_token(tmp_path):
    urls = [ServerSettings(data=tmp_path, host=host).url for host in ("127.0.0.1", "::1", "localhost")]
    assert urls == ["http://127.0.0.1:8600", "http://[::1]:8600", "http://localhost:8600"]


def test_the_command_refuses_an_open_door_in_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "framenest", "serve", "--host", "0.0.0.0", "--data", str(tmp_path)],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "FRAMENEST_TOKEN"},
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "needs a token" in done.stderr


def test_a_token_is_long_and_does_not_print(tmp_path):
    with pytest.raises(ConfigError, match="too short"):
        ServerSettings(data=tmp_path, token="short")
    assert TOKEN not in repr(ServerSettings(data=tmp_path, token=TOKEN))
    for token in ("ein-Schlüssel-für-alle", f"{TOKEN}\n", f"{TOKEN} "):
        with pytest.raises(ConfigError, match="cannot send"):
            ServerSettings(data=tmp_path, token=token)


def test_it_listens_on_loopback_only(server):
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = [parts[1] for parts in listening if parts[3] == "0A" and int(parts[1][-4:], 16) == server.port]
    assert ours == [f"0100007F:{server.port:04X}"]


@pytest.fixture(scope="module")
def closed(tmp_path_factory, media, scores):
    """A server with a token in its environment."""
    one = Server(
        tmp_path_factory.mktemp("closed"), "--scorer", scores, videos=media, env={"FRAMENEST_TOKEN": TOKEN}
    )
    yield one.start(TOKEN)
    one.stop()


def test_every_route_but_three_needs_the_token(closed):
    with httpx.Client(base_url=closed.url) as bare:
        check_all(closed, bare)


def check_all(closed, bare):
    paths = closed.http.get("/openapi.json").json()["paths"]
    tried = 0
    for path, methods in paths.items():
        for method in methods:
            if path in ("/health", "/session"):
                continue
            where = path.replace("{frame}", "0").replace("{", "").replace("}", "")
            answer = bare.request(method.upper(), where)
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"] == "Bearer"
            tried += 1
    assert tried > 15
    for path in ("/openapi.json", "/metrics"):
        assert bare.get(path).status_code == 401
    for wrong in ("Bearer x", "Bearer", f"Basic {TOKEN}", TOKEN, "Bearer ü"):
        headers = {"Authorization": wrong.encode()}
        assert bare.get("/videos", headers=headers).status_code == 401, wrong
    assert bare.get(f"/videos?token={TOKEN}").status_code == 401
    assert bare.get("/videos", headers=PASS).status_code == 200
    assert bare.get("/health").status_code == 200


def test_a_browser_signs_in_with_a_cookie_that_is_not_the_token(closed):
    with httpx.Client(base_url=closed.url) as browser:
        check_signing_in(closed, browser)


def check_signing_in(closed, browser):
    assert browser.post("/session", json={"token": "wrong"}).status_code == 403
    answer = browser.post("/session", json={"token": TOKEN})
    assert answer.status_code == 204
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    assert browser.get("/videos").status_code == 200
    assert httpx.get(f"{closed.url}/videos", headers={"Cookie": "framenest=forged"}).status_code == 401


def test_no_secret_is_in_the_log(serve, media, endpoint):
    key = "key-of-the-endpoint-42"
    url = endpoint.url.replace("://", "://user:password-of-the-endpoint@")
    server = serve(
        "--upstream", url, "--answer-model", "m",
        videos=media, token=TOKEN, env={"FRAMENEST_TOKEN": TOKEN, "OPENAI_API_KEY": key},
    )  # fmt: skip
    server.http.get(f"/videos?token={TOKEN}")
    server.http.post("/session", json={"token": TOKEN})
    server.http.post("/session", json={"token": [TOKEN]})
    server.http.post("/rankings", content=f'{{"{TOKEN}":')
    ranking = server.ask(server.indexed("clip.mp4"), "A private question?")
    assert server.http.post(f"/rankings/{ranking}/answer", json={"k": 4}).status_code == 200
    server.stop()
    assert "GET /videos 200" in server.log
    for hidden in (TOKEN, key, "private question", "?token", "password-of"):
        assert hidden not in server.log


# Other sites


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1"])
def test_foreign_names_for_this_machine_are_refused(server, host):
    assert server.http.get("/health", headers={"Host": host}).status_code in (400, 403)
    assert server.http.get("/health", headers={"Host": f"localhost:{server.port}"}).status_code == 200


def test_other_sites_cannot_make_a_browser_ask(server):
    body = {"path": "clip.mp4"}
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://[x"},
                    {"Sec-Fetch-Site": "cross-site"},
                    {"Origin": f"http://127.0.0.1:{server.port + 1}"}):  # fmt: skip
        assert server.http.post("/videos", json=body, headers=headers).status_code == 403, headers
    assert server.http.get("/videos", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert server.http.post("/videos", json=body, headers={"Origin": server.url}).status_code == 201


def test_security_headers_are_on_every_answer(server):
    for path in ("/", "/health", "/videos", "/nothing", "/openapi.json", "/assets/none.js"):
        headers = server.http.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


# Paths


def test_paths_outside_the_folder_are_refused(server, media, secret):
    (media / "link.mp4").symlink_to(secret)
    (media / "linked").symlink_to(secret.parent, target_is_directory=True)
    (media / "inside.mp4").symlink_to(media / "clip.mp4")
    up = "../" * 20
    outside = [str(secret), "link.mp4", "linked/secret.mp4", "more/../link.mp4", "/etc/passwd"]
    outside += [f"{up}etc/passwd", f"more/../../{secret.parent.name}/x", f"{up}none/at/all"]
    try:
        for path in outside:
            answer = server.http.post("/videos", json={"path": path})
            assert answer.status_code == 403, path
            assert "outside" in answer.json()["detail"]
        for path in ("none.mp4", "more", "", ".", "\0", "clip.mp4/x", "x" * 1000):
            assert server.http.post("/videos", json={"path": path}).status_code == 404, path
        assert server.register("inside.mp4")["video"]["name"] == "clip.mp4"
        found = server.http.get("/files").json()
        assert not {"link.mp4", "linked/secret.mp4"} & {file["path"] for file in found["files"]}
        assert found["outside"] == ["link.mp4", "linked"]
    finally:
        for name in ("link.mp4", "linked", "inside.mp4"):
            (media / name).unlink()


def test_a_registered_file_swapped_for_a_link_is_refused(server, media, secret):
    file = media / "swapped.mp4"
    file.write_bytes((media / "more" / "short.mp4").read_bytes())
    video = server.indexed("swapped.mp4")
    file.unlink()
    file.symlink_to(secret)
    try:
        assert server.http.get(f"/videos/{video}/file").status_code == 409
        assert server.http.get(f"/videos/{video}/frames/0").status_code == 409
    finally:
        file.unlink()


def test_without_a_folder_no_path_is_taken(serve, media):
    server = serve()
    assert server.http.get("/files").json() == {"files": [], "outside": []}
    assert server.http.post("/videos", json={"path": str(media / "clip.mp4")}).status_code == 403


def test_answers_do_not_tell_where_files_are(server, media):
    (media / "broken.mp4").write_bytes(b"not a video at all")
    try:
        answer = server.http.post("/videos", json={"path": "broken.mp4"})
        assert answer.status_code == 422
        assert str(media) not in answer.text
    finally:
        (media / "broken.mp4").unlink()
    ranking = server.ask(server.indexed("clip.mp4"))
    for path in (f"/rankings/{ranking}/file", f"/rankings/{ranking}", "/videos", "/files", "/jobs"):
        assert str(media.parent) not in server.http.get(path).text, path


# Uploads


def upload(server, data, name="new.mp4"):
    return server.http.post("/videos/upload", params={"name": name}, content=data)


def uploads(server):
    return sorted(file.name for file in (server.data / "uploads").iterdir())


def test_an_upload_is_indexed_and_kept_by_content(serve, media):
    server = serve()
    data = (media / "clip.mp4").read_bytes()
    first = upload(server, data, "../../etc/kiln.mp4")
    assert first.status_code == 201
    assert first.json()["video"]["name"] == "kiln.mp4"
    server.wait(first.json()["job"])
    again = upload(server, data, "other name.mp4")
    assert again.json()["video"]["id"] == first.json()["video"]["id"]
    assert len(uploads(server)) == 1
    ranking = server.ask(first.json()["video"]["id"])
    assert len(server.http.get(f"/rankings/{ranking}/prefix?k=8").json()["frames"]) == 8
    assert server.http.delete(f"/videos/{first.json()['video']['id']}").status_code == 204
    assert uploads(server) == []


def test_uploads_are_limited_in_size(serve, media):
    server = serve("--max-upload", "1MiB", "--max-stored", "1MiB")
    assert upload(server, b"x" * (MIB + 1)).status_code == 413

    def endless():
        for _ in range(1000):
            yield b"x" * 65536

    with suppress(httpx.WriteError):  # the server may hang up first
        assert upload(server, endless()).status_code == 413
    assert uploads(server) == []
    (server.data / "uploads" / "full").write_bytes(b"x" * MIB)
    answer = upload(server, (media / "clip.mp4").read_bytes())
    assert answer.status_code == 413
    assert "no room" in answer.json()["detail"]


def test_an_upload_that_breaks_off_leaves_nothing(serve, media):
    server = serve()
    data = (media / "clip.mp4").read_bytes()
    with socket.create_connection(("127.0.0.1", server.port)) as line:
        head = (
            f"POST /videos/upload?name=x HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        line.sendall(head.encode() + data[: len(data) // 2])
    until = time.monotonic() + PATIENCE
    while "POST /videos/upload 422" not in server.log and time.monotonic() < until:
        time.sleep(0.05)
    assert "POST /videos/upload 422" in server.log
    assert uploads(server) == []
    assert "Traceback" not in server.log


def test_other_requests_are_small(server):
    body = json.dumps({"path": "x" * 70_000})
    assert server.http.post("/videos", content=body).status_code == 413
    assert server.http.post("/videos", content=iter([b"{}"])).status_code == 411


def test_what_is_no_video_is_not_kept(serve, secret, media):
    server = serve()
    reference = f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:1,\nfile://{secret}\n#EXT-X-ENDLIST\n"
    concat = f"ffconcat version 1.0\nfile {secret}\n"
    text = (media / "notes.txt").read_bytes()
    cut = (media / "clip.mp4").read_bytes()[:2000]
    for data in (b"", text, os.urandom(5000), reference.encode(), concat.encode(), cut, b"\x89PNG\r\n\x1a\n"):
        for name in ("x.mp4", "x.m3u8"):
            answer = upload(server, data, name)
            assert answer.status_code == 422, (data[:20], answer.text)
            assert str(secret.parent) not in answer.text
    assert uploads(server) == []
    assert server.http.get("/videos").json() == []


def test_playlists_in_the_folder_are_refused_too(server, media, secret):
    (media / "list.mp4").write_text(
        f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:1,\nfile://{secret}\n#EXT-X-ENDLIST\n"
    )
    try:
        assert server.http.post("/videos", json={"path": "list.mp4"}).status_code == 422
    finally:
        (media / "list.mp4").unlink()


def test_the_check_has_limits_of_memory_and_time(media, tmp_path, monkeypatch):
    clip = media / "clip.mp4"
    assert check_guarded(clip, seconds=80, memory=2048 * MIB)["format"].startswith("mov")
    with pytest.raises(VideoError, match="memory"):
        check_guarded(clip, seconds=80, memory=16 * MIB)
    endless = tmp_path / "bomb.mov"
    endless.write_bytes(bombs.MOVIES["edit list"]())
    monkeypatch.setattr(guarded_opening, "OPENING_BYTES", 2**40)
    with pytest.raises(VideoError, match="1 s of processor time"):
        check_guarded(endless, seconds=1, memory=2**40)
    hanging = tmp_path / "pipe.mp4"
    os.mkfifo(hanging)  # never delivers a byte
    with pytest.raises(VideoError, match="it is no file"):
        check_guarded(hanging, seconds=80, memory=2048 * MIB)


# Addresses to fetch from


@pytest.fixture
def web(media, secret):
    """A web server with a video, pages that show one, and redirects away from it."""
    asked = []
    pages = {"/watch": "/clip.mp4", "/inside": "http://127.0.0.1:9/clip.mp4", "/redirected": "/away"}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            if self.path in pages:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(f"<title>A kiln</title><video src='{pages[self.path]}'></video>".encode())
                return
            if self.path.startswith("/away"):
                self.send_response(302)
                self.send_header("Location", f"http://localhost:{self.server.server_port}/clip.mp4")
                self.end_headers()
                return
            data = (media / "clip.mp4").read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[:-100] if self.path == "/short.mp4" else data)

    with local_http(Handler) as port:
        yield port, asked


def test_no_address_is_fetched_unless_its_host_is_allowed(serve, web):
    port, asked = web
    server = serve()
    for url in (
        f"http://127.0.0.1:{port}/clip.mp4",
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "s3://bucket/x",
        "x",
    ):
        assert server.http.post("/videos", json={"url": url}).status_code == 403, url
    allowed = serve("--allow-host", f"127.0.0.1:{port}")
    for url in (f"http://127.0.0.1:{port}@localhost:{port}/x", f"http://localhost:{port}/x", "http://127.0.0.1/x",
                f"http://127.0.0.1:{port}.evil.example/x", "http://[/x"):  # fmt: skip
        assert allowed.http.post("/videos", json={"url": url}).status_code in (403, 422), url
    assert asked == []
    answer = allowed.http.post("/videos", json={"url": f"http://127.0.0.1:{port}/a/clip.mp4"})
    assert answer.status_code == 201
    assert (answer.json()["video"]["name"], answer.json()["video"]["origin"]) == ("clip.mp4", "url")
    redirected = allowed.http.post("/videos", json={"url": f"http://127.0.0.1:{port}/away"})
    assert redirected.status_code == 403
    assert asked == ["/a/clip.mp4", "/away"]
    broken = allowed.http.post("/videos", json={"url": f"http://127.0.0.1:{port}/short.mp4"})
    assert broken.status_code == 422
    assert "broke off" in broken.json()["detail"]
    assert len(uploads(allowed)) == 1


def test_a_page_is_fetched_only_from_an_allowed_host(serve, web):
    pytest.importorskip("yt_dlp", reason="needs the extra `web`")
    port, asked = web
    page = f"http://127.0.0.1:{port}/watch"
    assert serve().http.post("/videos", json={"url": page}).status_code == 403
    assert asked == []
    server = serve("--allow-host", f"127.0.0.1:{port}")
    made = server.http.post("/videos", json={"url": page}).json()
    assert (made["video"]["name"], made["video"]["origin"]) == ("A kiln (1)-0.mp4", "url")
    server.wait(made["job"])
    again = server.http.post("/videos", json={"url": page}).json()
    assert again["video"]["id"] == made["video"]["id"]
    assert asked.count("/clip.mp4") == 1
    assert len(server.http.get(f"/videos/{made['video']['id']}/file").content) > 0
    assert server.http.delete(f"/videos/{made['video']['id']}").status_code == 204
    assert list((server.folder / "cache" / "remote").iterdir()) == []
    away = server.http.post("/videos", json={"url": f"http://127.0.0.1:{port}/away"})
    assert away.status_code == 403


def test_what_a_page_shows_is_not_fetched_from_internal_addresses(serve, web):
    pytest.importorskip("yt_dlp", reason="needs the extra `web`")
    port, asked = web
    server = serve("--allow-host", f"127.0.0.1:{port}")
    for page in ("inside", "redirected"):
        answer = server.http.post("/videos", json={"url": f"http://127.0.0.1:{port}/{page}"})
        assert answer.status_code == 422
        assert "not allowed on this server" in answer.json()["detail"]
        assert str(server.folder) not in answer.text
    assert "/clip.mp4" not in asked


@pytest.mark.parametrize("option", ["--max-upload", "--max-stored"])
def test_videos_of_pages_count_as_stored(serve, web, option):
    pytest.importorskip("yt_dlp", reason="needs the extra `web`")
    server = serve("--allow-host", f"127.0.0.1:{web[0]}", option, "1KB")
    answer = server.http.post("/videos", json={"url": f"http://127.0.0.1:{web[0]}/watch"})
    assert answer.status_code == 422
    assert "the limit for downloads" in answer.json()["detail"]
    assert list((server.folder / "cache" / "remote").iterdir()) == []


def test_several_folders_are_offered_and_no_others(serve, media, secret, tmp_path):
    more = tmp_path / "more"
    more.mkdir()
    (more / "second.mp4").write_bytes((media / "clip.mp4").read_bytes())
    http = serve("--videos", str(more), videos=media).http
    assert {"clip.mp4", "second.mp4"} <= {file["path"] for file in http.get("/files").json()["files"]}
    for path in ("clip.mp4", "second.mp4", str(more / "second.mp4")):
        assert http.post("/videos", json={"path": path}).status_code == 201
    for path in (str(secret), "../secret.mp4"):
        assert http.post("/videos", json={"path": path}).status_code == 403
