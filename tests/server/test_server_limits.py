"""What goes wrong or takes too long: a full disk, a broken journal, work that does not end."""

import asyncio
import itertools
import json
import os
import resource
import sqlite3
import threading
import time
from contextlib import closing, suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest

from framenest.config import ScorerConfig
from framenest.errors import StoreError, VideoError
from framenest.method.mec import rank_request
from framenest.processes import ProcessLimits, machine_memory
from framenest.rank_request import RankRequest
from framenest.server import library, service
from framenest.server.guard import Refusal
from framenest.server.library import Library, PartialFile
from framenest.server.rankings import FrameImages
from framenest.server.server_settings import MIB, ServerSettings
from framenest.server.service import Service
from framenest.server.video_worker import VideoWorker
from framenest.session import Session
from framenest.transcript import Transcript
from framenest.video import guarded_opening
from framenest.video.guarded_opening import check_guarded
from processes import PATIENCE, children, standing_still

QUESTION = RankRequest(video="", question="Where is it?")


@pytest.fixture
def here(tmp_path, media, scores):
    """A service whose job threads do not run."""
    made = Service(ServerSettings(data=tmp_path / "data", videos=(media,), scorer=scores))
    yield made
    made.close()


def damage_rankings(server, content: bytes) -> None:
    """Restart a server with this in place of its rankings."""
    server.stop()
    with closing(sqlite3.connect(server.data / "journal.sqlite")) as journal, journal:
        journal.execute("update rankings set ranking = ?", [content])
    server.start()


def fail_writing(journal, broken: bool) -> None:
    """Let SQLite refuse to write, as on a full disk."""
    journal.execute(f"pragma query_only = {int(broken)}")


def test_a_job_stays_as_it_was_while_the_journal_cannot_be_written(here):
    jobs = here.jobs
    job = jobs.submit("rank", "a", {})
    fail_writing(here.journal, True)
    with pytest.raises(StoreError, match="journal cannot be used"):
        jobs.submit("rank", "b", {})
    with pytest.raises(StoreError):
        jobs.take()
    assert (job.state, jobs.active("b")) == ("queued", None)
    fail_writing(here.journal, False)
    assert jobs.take() is job
    fail_writing(here.journal, True)
    with pytest.raises(StoreError):
        jobs.finish(job)
    assert (job.state, jobs.active("a")) == ("running", job)
    fail_writing(here.journal, False)
    jobs.finish(job)
    assert jobs.get(job.id).state == "done"


def test_the_work_goes_on_when_the_journal_can_be_written_again(here, monkeypatch):
    monkeypatch.setattr(service, "RETRY_SECONDS", 0.01)
    failed = threading.Event()
    monkeypatch.setattr(service.log, "error", lambda *_: failed.set())

    def do(*_):
        fail_writing(here.journal, True)

    monkeypatch.setattr(here, "_do", do)
    job = here.jobs.submit("rank", "a", {})
    thread = threading.Thread(target=here._run, args=(here.workers[0],))
    thread.start()
    try:
        assert failed.wait(PATIENCE)
        assert job.state == "running"
        fail_writing(here.journal, False)
        job.over.result(PATIENCE)
        assert job.state == "done"
        assert thread.is_alive()
    finally:
        fail_writing(here.journal, False)
        here._closing.set()
        here.jobs.close()
        thread.join()


@pytest.mark.parametrize(("limits", "told"), [
    (ProcessLimits(seconds=0.001), "not done after 0.001 s"),
    (ProcessLimits(memory=1), "MiB allowed"),
])  # fmt: skip
def test_work_over_its_limits_is_ended(tmp_path, media, scores, limits, told):
    settings = ServerSettings(data=tmp_path, scorer=scores, cache=str(tmp_path / "cache"))
    worker = VideoWorker(settings, limits)
    for _ in range(2):  # in a process of its own each
        with pytest.raises(VideoError, match=told):
            worker.call("index", str(media / "clip.mp4"))
        assert worker._process.pid is None
    worker.close()


@pytest.mark.parametrize("workers", [1, 3])
def test_all_workers_together_leave_the_machine_a_quarter_of_its_memory(tmp_path, scores, workers):
    made = Service(ServerSettings(data=tmp_path / "data", scorer=scores, workers=workers))
    every = [*made.workers, made.picture_worker]
    try:
        assert len(every) == workers + 1
        assert 0 < sum(worker.limits.memory for worker in every) <= 3 * machine_memory() // 4
    finally:
        made.close()


def test_a_file_is_looked_at_to_the_end_however_little_processor_time_there_is(clip):
    """The checking process stands still for longer than all the processor time that it may take."""
    seconds = 2
    stopped = threading.Event()

    def starve():
        while not (pids := children(os.getpid())):
            time.sleep(0.01)
        with suppress(ProcessLookupError), standing_still(pids):
            stopped.set()
            time.sleep(3.5 * seconds)

    thread = threading.Thread(target=starve)
    thread.start()
    try:
        assert check_guarded(clip, seconds=seconds, memory=2**31)["codec"] == "h264"
    finally:
        thread.join()
    assert stopped.is_set()


def test_a_file_that_cannot_be_looked_at_in_time_may_come_again(here, tmp_path, monkeypatch):
    monkeypatch.setattr(guarded_opening, "CHECK_WAIT_SECONDS", 3)
    script = tmp_path / "sleeps.py"
    script.write_text("import time; time.sleep(3600)")
    monkeypatch.setattr(guarded_opening, "__file__", str(script))
    with pytest.raises(Refusal, match="too busy") as refused:
        here.library.check_file(script)
    assert (refused.value.status, refused.value.retry_after) == (503, 60)


def test_the_check_finds_packages_where_the_server_finds_them(here, tmp_path, monkeypatch):
    packages = tmp_path / "packages"  # as of pip install --user or --target
    packages.mkdir()
    (packages / "av.py").write_text("raise ImportError('read from the path')")
    monkeypatch.syspath_prepend(packages)
    with pytest.raises(Refusal, match="read from the path"):
        here.library.check_file(packages / "av.py")


@pytest.mark.parametrize("begun", [False, True], ids=["waiting", "running"])
def test_a_video_with_work_under_way_is_removed_and_the_work_cancelled(here, begun):
    video = here.library.add_path("clip.mp4")
    ranking, job = here.ask(replace(QUESTION, video=video.id))
    if begun:
        assert here.jobs.take() is job
    here.remove(video)
    assert (job.state, job.cancelled.is_set()) == ("cancelled", True)
    assert here.library.all() == []
    with pytest.raises(Refusal, match="no such ranking"):
        here.video_of(ranking)


def test_a_ranking_of_another_format_is_another_ranking(here, monkeypatch):
    video = here.library.add_path("clip.mp4")
    first, _ = here.ask(replace(QUESTION, video=video.id))
    assert here.ask(replace(QUESTION, video=video.id))[0] == first
    monkeypatch.setattr(service, "RANKING_FORMAT", service.RANKING_FORMAT + 1)
    assert here.ask(replace(QUESTION, video=video.id))[0] != first


def test_the_cache_may_be_at_an_address(serve, media, tmp_path):
    pytest.importorskip("fsspec", reason="needs the extra `remote`")
    server = serve("--cache", f"file://{tmp_path}/shared", videos=media)
    server.indexed("clip.mp4")
    assert list((tmp_path / "shared" / "index").rglob("*.*")), server.log


def test_warnings_of_the_cache_are_in_the_log(serve, media):
    server = serve(videos=media)
    video = server.indexed("clip.mp4")
    server.stop()
    (entry,) = (server.folder / "cache" / "index").rglob("*.safetensors")
    entry.write_bytes(entry.read_bytes()[:-1] + b"?")
    server.start()
    server.ask(video)
    assert "damaged" in server.log


def test_a_ranking_that_cannot_be_read_is_made_anew(serve, media):
    server = serve(videos=media)
    video = server.indexed("clip.mp4")
    id_ = server.ask(video)
    good = server.http.get(f"/rankings/{id_}/file").json()
    large = json.dumps(good).replace('"saturation": 1800.0', f'"saturation": {10**400}')
    for wrong in (large, "[" * 100_000, "{}"):
        damage_rankings(server, wrong.encode())
        assert server.http.get(f"/rankings/{id_}/prefix?k=4").status_code == 409
        assert server.ask(video) == id_
        assert len(server.http.get(f"/rankings/{id_}/prefix?k=4").json()["frames"]) == 4
        assert server.http.get(f"/rankings/{id_}/file").json()["ranks"] == good["ranks"]


def test_a_full_disk_is_told_as_such(serve):
    server = serve()
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (4 * MIB, 4 * MIB))
    answer = server.http.post("/videos/upload", params={"name": "x.mp4"}, content=bytes(6 * MIB))
    assert answer.status_code == 507, answer.text
    assert "cannot be stored" in answer.json()["detail"]
    assert list((server.data / "uploads").iterdir()) == []
    assert "Traceback" not in server.log


def test_partial_files_share_the_quota(tmp_path):
    shared = ServerSettings(tmp_path, max_upload=100, max_stored=100), threading.Lock()
    folder = tmp_path / "uploads"
    folder.mkdir()
    first, second = PartialFile(*shared), PartialFile(*shared)
    first.write(bytes(60))
    with pytest.raises(Refusal, match="no room"):
        second.write(bytes(60))
    second.write(bytes(40))
    first.path.rename(folder / "kept")
    first.close()
    with pytest.raises(Refusal, match="no room"):
        second.write(b"x")
    second.close()
    (folder / "kept").unlink()
    third = PartialFile(*shared)
    third.write(bytes(100))
    third.close()
    assert list(folder.iterdir()) == []


async def in_pieces(data: bytes, size: int):
    for start in range(0, len(data), size):
        yield data[start : start + size]


def test_an_upload_is_checked_once_and_not_kept_without_a_row(here, media, monkeypatch):
    data, seen = (media / "clip.mp4").read_bytes(), []
    check = here.library.check_file
    monkeypatch.setattr(here.library, "check_file", lambda file: seen.append(file) or check(file))
    fail_writing(here.journal, True)
    with pytest.raises(StoreError):
        asyncio.run(here.library.upload(in_pieces(data, 1000), "clip.mp4"))
    assert list(here.settings.uploads.iterdir()) == []
    fail_writing(here.journal, False)
    video = asyncio.run(here.library.upload(in_pieces(data, 1000), "clip.mp4"))
    assert video.path.read_bytes() == data
    assert len(seen) == 2  # once each time


def test_an_upload_has_an_end(here, monkeypatch):
    monkeypatch.setattr(library, "UPLOAD_SECONDS", -1.0)
    with pytest.raises(Refusal, match="not here after"):
        asyncio.run(here.library.upload(in_pieces(b"some bytes", 1), "x.mp4"))


def test_an_upload_that_drips_ends_soon(here, media, monkeypatch):
    """Four of them would keep all others out for an hour; 128 KiB a second are enough."""
    data = (media / "clip.mp4").read_bytes()

    def clock(step):
        return SimpleNamespace(monotonic=itertools.count(0, step).__next__, time=time.time)

    monkeypatch.setattr(library, "time", clock(12))
    with pytest.raises(Refusal, match=r"not here after 30 s \(2 bytes\)"):
        asyncio.run(here.library.upload(in_pieces(data, 1), "x.mp4"))
    assert list(here.settings.uploads.iterdir()) == []
    monkeypatch.setattr(library, "time", clock(1))
    padded = data + bytes(20 * MIB)
    assert asyncio.run(here.library.upload(in_pieces(padded, MIB // 4), "x.mp4")).origin == "upload"


def test_files_that_vanish_are_left_out(here, media, monkeypatch):
    gone = media / "gone.mp4"
    monkeypatch.setattr(type(media), "rglob", lambda *_: [gone, media / "clip.mp4"])
    monkeypatch.setattr(type(media), "is_file", lambda _: True)
    assert [file["path"] for file in here.library.files()["files"]] == ["clip.mp4"]


def test_a_picture_is_there_before_the_rest_of_its_batch(here, media):
    released = threading.Event()

    class Worker:
        def call(self, task, info, frames, short, *, progress):
            progress(frames[0], b"the first")
            assert released.wait(PATIENCE)
            progress(frames[1], b"the second")

    async def scenario():
        images, video = FrameImages(Worker()), here.library.add_path("clip.mp4")
        first, second, broken = (asyncio.create_task(images.get(video, frame, 90)) for frame in (3, 5, 7))
        assert await asyncio.wait_for(first, PATIENCE) == b"the first"
        assert not second.done()
        again = asyncio.create_task(images.get(video, 3, 90))
        released.set()
        assert [await again, await second] == [b"the first", b"the second"]
        with pytest.raises(Refusal, match="cannot be decoded"):
            await broken

    asyncio.run(scenario())


def test_hosts_are_the_same_in_any_case(here):
    allowed = Library(here.journal, replace(here.settings, hosts=("Example.ORG",)))
    allowed._check_address("https://EXAMPLE.org/kiln.mp4")
    with pytest.raises(Refusal, match="only from hosts"):
        allowed._check_address("https://example.com/kiln.mp4")


def test_a_ranking_without_the_speech_that_could_not_be_recognized_is_made_again(here, scores):
    listening = ScorerConfig(listen_url="http://127.0.0.1:9/v1")
    request = replace(here.default, video=here.library.add_path("clip.mp4").id, question="?")
    path = str(here.library.get(request.video).path)
    ranking = rank_request(replace(request, video=path), Session(scores))

    def answered(scoring, transcript):
        id_, job = here.ask(replace(request, scoring=scoring))
        assert job is not None
        pool = replace(ranking.pool, transcript=transcript)
        here.rankings.store(id_, replace(ranking, pool=pool).dumps().encode())
        here.jobs.finish(job)
        assert here.rankings.get(id_).transcript == transcript
        return here.ask(replace(request, scoring=scoring))[1]

    deaf = Transcript("", (), ("no transcript of the sound: no server answers",))
    assert answered(ScorerConfig(), deaf) is None
    again = answered(listening, deaf)
    assert again is not None
    here.jobs.finish(again)
    assert answered(listening, Transcript("the sound, by whisper")) is None


@pytest.mark.parametrize("content", [b"", b"{}", b"\x00\xff", b'{"format": 99}'])
def test_a_ranking_that_cannot_be_read_is_made_again(serve, media, content):
    server = serve(videos=media)
    ranking = server.ask(server.indexed("clip.mp4"))
    whole = server.http.get(f"/rankings/{ranking}/prefix", params={"k": 4}).json()
    damage_rankings(server, content)
    answer = server.http.get(f"/rankings/{ranking}/prefix", params={"k": 4})
    assert answer.status_code == 409, answer.text
    assert server.ask(server.indexed("clip.mp4")) == ranking
    assert server.http.get(f"/rankings/{ranking}/prefix", params={"k": 4}).json() == whole


def test_a_changed_subtitle_file_makes_another_ranking(serve, media):
    server = serve(videos=media)
    video, subtitles = server.indexed("clip.mp4"), media / "clip.srt"
    line = "1\n00:00:02,000 --> 00:00:04,000\n{}\n"
    try:
        first = server.ask(video)
        assert server.ask(video) == first
        subtitles.write_text(line.format("Now we fire the kiln."))
        second = server.ask(video)
        assert server.ask(video) == second
        subtitles.write_text(line.format("Now we open it."))
        third = server.ask(video)
    finally:
        subtitles.unlink(missing_ok=True)
    assert server.ask(video) == first
    said = [
        server.http.get(f"/rankings/{id_}/file").json().get("transcript") for id_ in (first, second, third)
    ]
    assert said[0] is None
    assert ["fire the kiln" in str(said[1]), "open it" in str(said[2])] == [True, True]
