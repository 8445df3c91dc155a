"""Jobs: shared, bounded, cancellable, and still there after a restart."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from framenest.errors import StoreError
from framenest.rank_request import RankRequest
from framenest.server.guard import Refusal
from framenest.server.jobs import MAX_ATTEMPTS, Jobs, Journal
from framenest.server.rankings import Rankings
from media import encode_video, numbered_picture, numbered_video
from processes import PATIENCE, children, standing_still
from served import Server


@pytest.fixture
def journal(tmp_path):
    opened = Journal(tmp_path / "journal.sqlite")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def long_media(tmp_path_factory):
    """A folder with a video that takes a few seconds to index, and a short one."""
    folder = tmp_path_factory.mktemp("long")
    pictures = [numbered_picture(i, 384, 256) for i in range(40)]
    looped = [pictures[i % 40] for i in range(3000)]
    encode_video(folder / "long.mp4", looped, options={"g": "3000", "preset": "ultrafast"})
    numbered_video(folder / "short.mp4", 60)
    return folder


def test_the_same_work_is_one_job(journal):
    jobs = Jobs(journal, limit=5)
    first = jobs.submit("rank", "a", {})
    assert jobs.submit("rank", "a", {}) is first
    assert jobs.submit("rank", "b", {}) is not first
    assert jobs.take() is first
    assert jobs.submit("rank", "a", {}) is first
    jobs.finish(first)
    assert jobs.submit("rank", "a", {}) is not first


def test_a_search_goes_before_work_that_waits(journal):
    """Indexing a folder takes long; a search of what is ready does not wait for all of it."""
    jobs = Jobs(journal, 9)
    jobs.submit("index", "index:a", {"video": "a"})
    jobs.submit("rank", "b", {"video": "b", "question": "?"})
    jobs.submit("search", "c", {"question": "red"})
    assert [jobs.take().kind for _ in range(3)] == ["search", "index", "rank"]


def test_a_full_queue_says_when_to_come_back(journal):
    jobs = Jobs(journal, limit=2)
    jobs.submit("rank", "a", {})
    jobs.take()
    jobs.submit("rank", "b", {})
    jobs.submit("rank", "c", {})
    with pytest.raises(Refusal) as refused:
        jobs.submit("rank", "d", {})
    assert refused.value.status == 429
    assert refused.value.retry_after >= 1
    assert jobs.submit("rank", "b", {}).target == "b"


def test_jobs_come_back_after_a_stop_but_not_for_ever(tmp_path):
    path = tmp_path / "journal.sqlite"
    for start in range(MAX_ATTEMPTS + 1):
        journal = Journal(path)
        jobs = Jobs(journal, limit=5)
        if start == 0:
            jobs.submit("rank", "deadly", {"question": "?"})
            jobs.submit("rank", "waiting", {})
        if start < MAX_ATTEMPTS:
            assert jobs.take().target == "deadly"
        journal.close()  # as if the server had died while at it
    journal = Journal(path)
    jobs = Jobs(journal, limit=5)
    assert "given up" in jobs.latest("deadly").error
    assert jobs.take().target == "waiting"
    journal.close()


def test_an_orderly_stop_does_not_count_as_an_attempt(tmp_path):
    path = tmp_path / "journal.sqlite"
    for start in range(MAX_ATTEMPTS + 2):
        journal = Journal(path)
        jobs = Jobs(journal, limit=5)
        if start == 0:
            jobs.submit("rank", "a", {})
        job = jobs.take()
        assert (job.target, job.attempts) == ("a", 0)
        jobs.close()
        journal.close()


def test_a_waiting_job_is_cancelled_at_once_and_a_finished_one_not(journal):
    jobs = Jobs(journal, limit=5)
    job = jobs.submit("rank", "a", {})
    assert jobs.cancel(job.id).state == "cancelled"
    with pytest.raises(Refusal, match="over"):
        jobs.cancel(job.id)
    assert jobs.counts() == {"queued": 0, "running": 0}


@pytest.mark.parametrize("error", [None, "the disk is full"])
def test_a_job_tells_those_who_wait_when_it_is_over(journal, error):
    jobs = Jobs(journal, limit=5)
    job = jobs.submit("rank", "a", {})
    jobs.take()
    states = []
    job.over.add_done_callback(lambda _: states.append(job.state))
    assert states == []
    jobs.finish(job, error)
    jobs.finish(job, "again")
    assert states == ["failed" if error else "done"]


def test_a_running_job_is_over_as_soon_as_it_is_cancelled(journal):
    told = []
    jobs = Jobs(journal, limit=5, count=lambda _, state: told.append(state))
    job = jobs.submit("rank", "a", {})
    assert jobs.take() is job
    assert jobs.cancel(job.id).state == "cancelled"
    assert job.cancelled.is_set()  # what its worker looks at
    assert jobs.counts() == {"queued": 0, "running": 0}
    assert jobs.submit("rank", "a", {}) is not job
    for late in (lambda: jobs.finish(job), lambda: jobs.finish(job, "failed"), jobs.close):
        late()
        assert jobs.get(job.id).state == "cancelled"
    assert told == ["cancelled"]


def test_jobs_of_a_removed_video_are_cancelled_and_their_questions_forgotten(journal):
    jobs = Jobs(journal, limit=5)
    done, running, waiting, other = (
        jobs.submit("rank", name, {"video": video, "question": f"{name}?"})
        for name, video in (("a", "v"), ("b", "v"), ("c", "v"), ("d", "w"))
    )
    assert [jobs.take(), jobs.take()] == [done, running]
    jobs.finish(done)
    jobs.forget("v")
    found = [jobs.get(job.id) for job in (done, running, waiting, other)]
    assert [job.state for job in found] == ["done", "cancelled", "cancelled", "queued"]
    assert [(job.video, job.question) for job in found] == [("v", None)] * 3 + [("w", "d?")]


def test_questions_wait_for_the_index_of_their_video(journal):
    jobs = Jobs(journal, limit=5)
    index = jobs.submit("index", "index:v", {"video": "v"})
    question, other = (jobs.submit("rank", name, {"video": name}) for name in ("v", "w"))
    assert [jobs.waits_for(job) for job in (index, question, other)] == [None, index.id, None]
    assert [jobs.take(), jobs.take()] == [index, other]
    jobs.finish(index)
    assert jobs.waits_for(question) is None
    assert jobs.take() is question


def test_closing_wakes_those_who_wait(journal):
    jobs = Jobs(journal, limit=5)
    got = []
    waiting = threading.Thread(target=lambda: got.append(jobs.take()))
    waiting.start()
    jobs.close()
    waiting.join(10)
    assert got == [None]


def test_a_journal_serves_one_server_at_a_time(journal, tmp_path):
    with pytest.raises(StoreError, match="another framenest server"):
        Journal(tmp_path / "journal.sqlite")


def stalled(server, video):
    """A server's worker does nothing meanwhile; it was about to index this video."""
    made = server.register(video)
    server.at_work(made["job"])
    return made["video"]["id"], standing_still(children(server.process.pid))


def test_two_who_ask_at_once_share_the_work(serve, long_media):
    server = serve(videos=long_media)
    video, standing = stalled(server, "long.mp4")
    body = {"video": video, "question": "Who shares?"}
    with standing, ThreadPoolExecutor(8) as several:
        answers = list(several.map(lambda _: server.http.post("/rankings", json=body).json(), range(8)))
    assert len({answer["ranking"] for answer in answers}) == 1
    assert len({answer["job"]["id"] for answer in answers if answer["job"]}) == 1
    server.wait(next(answer["job"] for answer in answers if answer["job"]))
    assert server.metric('framenest_jobs_total{kind="rank",state="done"}') == 1
    assert server.metric("framenest_shared_total") == 7


def test_a_full_server_answers_429_with_retry_after(serve, long_media):
    server = serve("--queue", "2", videos=long_media)
    video, standing = stalled(server, "long.mp4")
    data = (long_media / "long.mp4").read_bytes()
    with standing:
        answers = [
            server.http.post("/rankings", json={"video": video, "question": f"Question {i}?"})
            for i in range(5)
        ]
        upload = server.http.post("/videos/upload?name=other.mp4", content=data + b"0")
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert {answer.status_code for answer in answers} == {202, 429}
    assert upload.status_code == 429
    assert not list((server.data / "uploads").iterdir())  # refused before it was taken in


def test_a_question_says_which_index_it_waits_for_and_a_cancel_is_felt_at_once(serve, long_media):
    server = serve(videos=long_media)
    get = server.http.get
    video, standing = stalled(server, "long.mp4")
    with standing:  # the worker cannot hear of it
        asked = server.http.post("/rankings", json={"video": video, "question": "And then?"}).json()
        active = get("/jobs", params={"active": True}).json()
        assert [(job["kind"], job["video"], job["question"]) for job in active] == [
            ("rank", video, "And then?"),
            ("index", video, None),
        ]
        index = get(f"/jobs/{asked['job']['waits_for']}").json()
        assert (index["kind"], index["state"], index["waits_for"]) == ("index", "running", None)
        assert get(f"/videos/{video}").json()["state"] == "indexing"
        for job in (asked["job"], index):
            assert server.http.delete(f"/jobs/{job['id']}").json()["state"] == "cancelled"
        assert get("/jobs", params={"active": True}).json() == []
        assert get(f"/videos/{video}").json()["state"] == "new"
    again = server.http.post(f"/videos/{video}/index").json()
    assert again["job"]["id"] != index["id"]
    server.wait(again["job"])
    assert get(f"/videos/{video}").json()["state"] == "ready"
    assert server.http.post(f"/videos/{video}/index").json()["job"] is None


def test_a_video_is_removed_in_the_middle_of_its_work(serve, long_media):
    server = serve(videos=long_media)
    video = server.indexed("short.mp4")
    made = server.register("long.mp4")
    server.at_work(made["job"])
    body = {"video": made["video"]["id"], "question": "A private one?"}
    asked = server.http.post("/rankings", json=body).json()
    assert server.http.delete(f"/videos/{made['video']['id']}").status_code == 204
    assert server.http.get(f"/videos/{made['video']['id']}").status_code == 404
    for job in (made["job"], asked["job"]):
        found = server.http.get(f"/jobs/{job['id']}").json()
        assert (found["state"], found["question"]) == ("cancelled", None)
    kept = server.ask(video)  # the worker goes on
    assert [entry["id"] for entry in server.http.get("/rankings").json()] == [kept]


def test_what_a_cancelled_job_makes_after_its_video_was_removed_does_not_stay(journal):
    rankings = Rankings(journal, Jobs(journal, limit=5))
    rankings.ask("known", RankRequest(video="v"))
    for id_ in ("known", "removed"):
        rankings.store(id_, b"{}")
    assert [entry["id"] for entry in rankings.all(None) if entry["ready"]] == ["known"]


def test_a_running_job_is_cancelled_and_can_be_asked_again(serve, long_media):
    server = serve(videos=long_media)
    made = server.register("long.mp4")
    server.at_work(made["job"])
    assert server.http.delete(f"/jobs/{made['job']['id']}").status_code == 200
    server.wait(made["job"], "cancelled")
    assert server.http.delete(f"/jobs/{made['job']['id']}").status_code == 409
    server.wait(server.register("short.mp4")["job"])  # the worker goes on
    again = server.register("long.mp4")
    assert again["job"]["id"] != made["job"]["id"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_jobs_survive_a_restart(serve, long_media, how):
    server = serve(videos=long_media)
    video = server.register("long.mp4")
    asked = server.http.post(
        "/rankings", json={"video": video["video"]["id"], "question": "And then?"}
    ).json()
    server.at_work(video["job"])
    workers = children(server.process.pid)
    server.stop(how)
    until = time.monotonic() + PATIENCE
    while alive := [pid for pid in workers if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < until, f"{alive} outlived the server"
        time.sleep(0.05)
    server.start()
    server.wait(asked["job"])
    answer = server.http.get(f"/rankings/{asked['ranking']}/prefix?k=8")
    assert len(answer.json()["frames"]) == 8
    assert server.http.get(f"/jobs/{video['job']['id']}").json()["state"] == "done"


def test_a_server_that_dies_is_told_with_its_exit_code_and_log(tmp_path, scores):
    """By any request, and at the end: what killed one in the middle of a run must be seen."""
    server = Server(tmp_path, "--scorer", scores).start()
    server.process.send_signal(signal.SIGSEGV)
    with pytest.raises(pytest.fail.Exception, match=r"exit code -11(.|\n)*Segmentation fault"):
        server.http.get("/health")
    with pytest.raises(pytest.fail.Exception, match="exit code -11"):
        server.stop()


def test_a_worker_that_dies_fails_its_job_and_nothing_else(serve, long_media):
    server = serve(videos=long_media)
    made = server.register("long.mp4")
    server.at_work(made["job"])
    proc = Path("/proc")
    threads = (proc / str(server.process.pid)).glob("task/*/children")
    children = [pid for thread in threads for pid in thread.read_text().split()]
    workers = [pid for pid in children if "spawn_main" in (proc / pid / "cmdline").read_text()]
    assert len(workers) == 1  # the one for pictures starts with the first picture
    os.kill(int(workers[0]), signal.SIGKILL)
    job = server.wait(made["job"], "failed")
    assert "broke down" in job["error"]
    server.wait(server.register("short.mp4")["job"])
