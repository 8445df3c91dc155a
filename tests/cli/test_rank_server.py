"""framenest rank --server: a running `framenest serve` does the work, and nothing else changes."""

import json
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("httpx", reason="needs the extra `test`")
pytest.importorskip("fastapi", reason="needs the extra `server`")

from command_line import run
from framenest.cli.ranking_server import WAITING_STAGE as WAITING
from framenest.cli.ranking_server import RankingServer
from framenest.errors import FramenestError
from media import numbered_video
from processes import PATIENCE, children, standing_still
from scripted_server import ScriptedServer
from served import Server, unanswered_port

ASKED = {
    "a question": ["Where is it?", "-k", "4,8"],
    "what is looked for": ["Where?", "--look-for", "a kiln", "--look-for", "cups"],
    "options": ["Which?", "--option", "cup", "--option", "tile"],
    "a preset": ["Which?", "--preset", "residual", "--horizon", "40"],
    "a part": ["Where is it?", "--start", "1.5", "--end", "0:04"],
    "no question": ["--no-question"],
}  # fmt: skip
TOKEN = "a-token-of-more-than-16-characters"
INTERRUPTIBLE = (
    "import signal; from framenest.cli import main; "
    "signal.signal(signal.SIGINT, signal.default_int_handler); main()"
)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("FRAMENEST_SERVER", "FRAMENEST_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def offered(tmp_path_factory):
    """A folder with a video and what is said in it."""
    folder = tmp_path_factory.mktemp("offered")
    numbered_video(folder / "clip.mp4", 300, options={"g": "50", "bf": "3"})
    (folder / "clip.srt").write_text("1\n00:00:02,000 --> 00:00:04,000\nWhere is the kiln?\n")
    (folder / "text.mp4").write_text("not a video")
    return folder


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    path = tmp_path_factory.mktemp("scores") / "scores.csv"
    path.write_text("frame,score\n0,0\n149,0\n150,1\n159,1\n160,0\n299,0\n")
    return f"table:{path}"


@pytest.fixture(scope="module")
def server(tmp_path_factory, offered, scores):
    one = Server(tmp_path_factory.mktemp("server"), "--scorer", scores, videos=offered).start()
    yield one
    one.stop()


def written(path):
    """A ranking file but for what its making took."""
    found = json.loads(path.read_text())
    for name in ("seconds", "decoded"):
        del found["stats"][name]
    return found


def lines(text):
    """What was printed but for what it took, with the blanks that follow from that, and where it went."""
    kept = (line.rstrip() for line in text.splitlines())
    return [line for line in kept if not line.lstrip().startswith(("seconds ", "written to"))]


@pytest.mark.parametrize("asked", ASKED)
def test_the_output_and_the_file_are_those_of_a_local_run(
    capsys, server, offered, scores, tmp_path, asked, monkeypatch
):
    monkeypatch.setattr("framenest.cli.printing.out._width", 1000)  # the seconds stay on their line
    here, there = tmp_path / "here.json", tmp_path / "there.json"
    own = [] if asked == "no question" else ["--scorer", scores]
    local = run(capsys, "rank", offered / "clip.mp4", *ASKED[asked], *own, "-o", here)
    remote = run(capsys, "rank", offered / "clip.mp4", *ASKED[asked], "--server", server.url, "-o", there)
    assert (local[0], remote[0]) == (0, 0), remote
    assert lines(remote[1]) == lines(local[1])
    assert written(there) == written(here)


def test_asking_again_makes_nothing_again(capsys, monkeypatch, server, offered, tmp_path):
    monkeypatch.setenv("FRAMENEST_SERVER", server.url + "/")
    monkeypatch.chdir(offered)
    asked = ("rank", "clip.mp4", "Again?", "-o", "-")
    first = run(capsys, *asked)
    made = len(server.http.get("/jobs").json())
    assert run(capsys, *asked) == first
    assert first[0] == 0
    assert len(server.http.get("/jobs").json()) == made
    assert json.loads(first[1])["video"]["path"] == str(offered / "clip.mp4")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--stream", "0"], "--stream"),
        (["--scorer", "clip", "--device", "cpu"], "--scorer, --device"),
        (["--start", "2", "--max-gap", "1", "--probing", "keyframes"], "--probing"),
        (["--set", "coverage_term=false"], "--set"),
        (["--cache", "elsewhere"], "--cache"),
        (["--jobs", "2"], "--jobs"),
        (["--subtitles", "none"], "--subtitles"),
    ],
)
def test_what_the_server_cannot_be_told_is_refused_before_any_request(capsys, clip, given, named):
    code, _, err = run(capsys, "rank", clip, "Where?", "--server", "http://127.0.0.1:9", *given)
    assert (code, err) == (
        2,
        f"error: {named}: not possible with --server; --server '' ranks here\n",
    )


def test_an_empty_server_ranks_here(capsys, monkeypatch, clip, scores):
    monkeypatch.setenv("FRAMENEST_SERVER", "http://127.0.0.1:9")
    assert run(capsys, "rank", clip, "Where?", "--server", "", "--scorer", scores)[0] == 0


def test_errors_are_one_line(capsys, server, offered, clip, tmp_path):
    def refused(video, *more, url=server.url):
        code, out, err = run(capsys, "rank", video, "Where?", "--server", url, *more)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        return err

    told = refused(clip)
    assert f"does not serve this folder; start it with --videos {clip.parent}" in told
    assert "no such file" in refused(offered / "none.mp4")
    assert "ranks files of this machine only" in refused(offered)
    assert "ranks files of this machine only" in refused("https://example.org/kiln.mp4")
    assert f"{server.url}: " in refused(offered / "text.mp4")
    with unanswered_port() as port:
        told = refused(clip, url=f"http://127.0.0.1:{port}")
    assert "no response from a Framenest server (Connection refused)" in told
    for wrong in ("localhost:8600", "http://", "http://h:port", "file:///etc"):
        assert f"--server {wrong}: " in refused(clip, url=wrong)
    output = tmp_path / "short.json"
    assert "too few for a budget of 64" in refused(
        offered / "clip.mp4", "-k", "64", "--horizon", "32", "-o", output
    )
    assert not output.exists()


@pytest.mark.parametrize("reply", [(200, "<html>"), (200, "[]"), (404, {"detail": "Not Found"}), (301, "{}")])
def test_another_server_is_told_from_ours(capsys, clip, reply):
    status, body = reply
    with ScriptedServer((status, body if isinstance(body, str) else json.dumps(body))) as other:
        code, _, err = run(capsys, "rank", clip, "Where?", "--server", other.url)
    assert (code, err.count("\n"), other.url in err) == (2, 1, True)
    assert "unexpected" not in err


def test_the_token_is_sent(capsys, monkeypatch, offered, scores, tmp_path):
    server = Server(tmp_path, "--scorer", scores, videos=offered, env={"FRAMENEST_TOKEN": TOKEN}).start(TOKEN)
    try:
        asked = ("rank", offered / "clip.mp4", "Where?", "--server", server.url)
        code, _, err = run(capsys, *asked)
        assert (code, err.count("\n"), "set $FRAMENEST_TOKEN" in err) == (2, 1, True)
        monkeypatch.setenv("FRAMENEST_TOKEN", TOKEN)
        assert run(capsys, *asked)[0] == 0
        monkeypatch.setenv("FRAMENEST_TOKEN", "secret\nX-Header: 1")
        code, _, err = run(capsys, *asked)
        assert (code, "secret" in err) == (2, False)
    finally:
        server.stop()


def test_an_interrupt_cancels_the_work_at_the_server(offered, scores, tmp_path):
    server = Server(tmp_path, "--scorer", scores, videos=offered).start()
    command = ["rank", str(offered / "clip.mp4"), "Where?", "--server", server.url]
    try:
        with standing_still(children(server.process.pid)):  # so that the work does not end before
            asking = subprocess.Popen(
                [sys.executable, "-c", INTERRUPTIBLE, *command], stderr=subprocess.PIPE, text=True
            )
            until = time.monotonic() + PATIENCE
            while "GET /jobs/" not in server.log:  # then it knows both jobs
                assert time.monotonic() < until
                time.sleep(0.02)
            asking.send_signal(signal.SIGINT)
            _, err = asking.communicate(timeout=PATIENCE)
            jobs = server.http.get("/jobs").json()
        assert (asking.returncode, err.strip()) == (130, "error: interrupted")
        assert [(job["kind"], job["state"]) for job in jobs] == [
            ("rank", "cancelled"),
            ("index", "cancelled"),
        ]
    finally:
        server.stop()


class Watched:
    """Stands in for progress bars; `told` holds what they would show."""

    def __init__(self):
        self.told = []

    def __call__(self, *progress):
        self.told.append(progress)

    def end(self, stage):
        self.told.append((stage, "ends"))


def test_progress_is_that_of_the_job_or_of_the_index_it_waits_for(monkeypatch):
    def job(state, stage=None, done=0, waits_for=None, error=None):
        return {"id": "r", "state": state, "stage": stage, "done": done, "total": 9, "waits_for": waits_for,
                "error": error}  # fmt: skip

    answers = [
        job("running", None), job("queued", waits_for="i"), job("running", "probes", 4),
        job("running", "zoom", 2), job("failed", error="clip.mp4: cannot be decoded"),
    ]  # fmt: skip
    monkeypatch.setattr(RankingServer, "_call", lambda *_: answers.pop(0))
    bars, server = Watched(), RankingServer("http://127.0.0.1:8600")
    with pytest.raises(FramenestError, match=r"8600: clip\.mp4: cannot be decoded"):
        server._wait(job("queued", waits_for="i"), bars)
    assert bars.told == [
        (WAITING, 0, 0), (WAITING, "ends"), ("probes", 4, 9), (WAITING, "ends"), ("zoom", 2, 9),
    ]  # fmt: skip
