"""Search over all videos, as a client of the service sees it."""

import io

import numpy as np
import pytest
from PIL import Image

from colour_scorer import coloured_video, install_colour_scorer
from framenest.processes import Cancelled
from framenest.server.guard import Refusal
from framenest.server.server_settings import ServerSettings
from framenest.server.service import Service
from served import Server

TOKEN = "a-token-of-the-tests-0123456789"


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """Three videos: red from 4 to 7 s in one, green at the end of another, only grey; and a text."""
    folder = tmp_path_factory.mktemp("films")
    coloured_video(folder / "sunset.mp4", ("grey", 4), ("red", 3), ("grey", 3))
    (folder / "more").mkdir()
    coloured_video(folder / "more" / "meadow.mp4", ("grey", 6), ("green", 2))
    coloured_video(folder / "fog.mp4", ("grey", 5))
    (folder / "letter.mp4").write_text("Dear server,")
    return folder


@pytest.fixture(scope="module")
def start(tmp_path_factory, films):
    """Starts a server that can search; stops it at the end."""
    started = []

    def go(*options, videos=films, **how):
        env = install_colour_scorer(tmp_path_factory.mktemp("site")) | how.pop("env", {})
        folder = tmp_path_factory.mktemp("server")
        server = Server(folder, "--scorer", "colour", *options, videos=videos, env=env)
        started.append(server.start(**how))
        return server

    yield go
    for server in started:
        server.stop()


@pytest.fixture(scope="module")
def server(start):
    """With all videos indexed but one."""
    one = start()
    for name in ("sunset.mp4", "more/meadow.mp4"):
        one.indexed(name)
    return one


def search(server, query, **settings):
    """A search that is done."""
    answer = server.http.post("/searches", json={"query": query, **settings})
    assert answer.status_code == 202, answer.text
    server.wait(answer.json()["job"])
    return server.http.get(f"/searches/{answer.json()['id']}").json()


def test_moments_of_all_videos_best_first(server):
    found = search(server, "something red", n=3)
    assert (found["query"], found["n"], found["job"]["state"]) == ("something red", 3, "done")
    best, *others = found["moments"]
    assert (best["name"], best["source"]) == ("sunset.mp4", "seen")
    assert best["why"].startswith("red 0.8")
    assert 3.5 <= best["start"] <= 4 <= best["time"] < 7 <= best["end"] <= 7.5
    assert best["frame"] == round(25 * best["time"])
    assert all(other["score"] < best["score"] for other in others)
    assert (found["verdict"], best["confident"], found["does_not_know"]) == ("strong", True, [])
    assert search(server, "green, please", n=3)["moments"][0]["name"] == "more/meadow.mp4"


def test_the_picture_of_a_moment_shows_it(server):
    best = search(server, "red")["moments"][0]
    picture = server.http.get(best["image"], params={"size": 32})
    red, green, blue = np.asarray(Image.open(io.BytesIO(picture.content))).mean(axis=(0, 1))
    assert red > 200 > 60 > max(green, blue)


def test_videos_that_are_not_searched_are_named(server):
    found = search(server, "red")
    assert found["searched"] == 2
    assert sorted((entry["name"], entry["why"]) for entry in found["left_out"]) == [
        ("fog.mp4", "not indexed yet"),
        ("letter.mp4", "not indexed yet"),
    ]


def test_a_file_that_is_gone_is_no_ghost(start, tmp_path):
    coloured_video(tmp_path / "first.mp4", ("red", 3))
    coloured_video(tmp_path / "second.mp4", ("grey", 2), ("red", 3))
    server = start(videos=tmp_path)
    for name in ("first.mp4", "second.mp4"):
        server.indexed(name)
    (tmp_path / "first.mp4").unlink()
    found = search(server, "red")
    assert {moment["name"] for moment in found["moments"]} == {"second.mp4"}
    assert found["searched"] == 1
    assert [(one["name"], one["why"]) for one in found["left_out"]] == [
        ("first.mp4", "file changed or missing")
    ]


def test_a_removed_video_takes_its_searches_along(start, tmp_path):
    coloured_video(tmp_path / "one.mp4", ("red", 3))
    coloured_video(tmp_path / "other.mp4", ("grey", 2), ("red", 3))
    server = start(videos=tmp_path)
    ids = [server.indexed(name) for name in ("one.mp4", "other.mp4")]
    found = search(server, "red")
    server.http.delete(f"/videos/{ids[0]}")
    answer = server.http.get(f"/searches/{found['id']}")
    assert (answer.status_code, answer.json()["detail"]) == (404, "no such search")
    assert {moment["video"] for moment in search(server, "red")["moments"]} == {ids[1]}


MOMENT = {"start": 1.0, "end": 2.0, "time": 1.5, "frame": 37, "score": 0.5, "why": "fog", "source": "seen",
          "confident": False}  # fmt: skip


def moments(video):
    """What a worker reports."""
    words = {"verdict": "weak", "knows": ["fog"], "does_not_know": ["unicorn"]}
    return {"query": "fog", **words, "moments": [MOMENT | {"video": str(video.path)}]}


@pytest.fixture
def service(films, scores, tmp_path):
    """Two videos that count as indexed, and no worker; run(call) lets one search with what the call does."""
    made = Service(ServerSettings(tmp_path, (films,), str(tmp_path / "cache"), scorer=scores))
    made.videos = [made.library.add_path(name) for name in ("fog.mp4", "sunset.mp4")]
    for video in made.videos:
        made.library.indexed(video.id, {})
    made.id, made.job = made.search("fog", 5)

    def run(call):
        made.workers[0].call = call
        made._do(made.workers[0], made.job)
        made.jobs.finish(made.job)
        return made.search_state(made.id)

    made.run = run
    yield made
    made.close()


def test_moments_are_there_before_the_search_is_over_and_failures_without_paths(service):
    sunset = str(service.videos[1].path)
    read = []

    def call(task, *asked, progress, cancelled):
        progress("videos", 0, 2)
        progress("moments", moments(service.videos[0]))
        progress("zoom", 1, 4)
        read.append((service.search_state(service.id), service.job.stage))
        return {sunset: f"{sunset}: it has changed"}

    after = service.run(call)
    before, stage = read[0]
    fog_id = service.videos[0].id
    assert [(found["video"], found["name"]) for found in before["moments"]] == [(fog_id, "fog.mp4")]
    assert (before["searched"], stage) == (2, "videos")
    assert (before["verdict"], before["knows"], before["does_not_know"]) == ("weak", ["fog"], ["unicorn"])
    assert (after["moments"], after["searched"]) == (before["moments"], 1)
    assert ("sunset.mp4", "it has changed") in [(one["name"], one["why"]) for one in after["left_out"]]


def test_a_cancelled_search_keeps_what_it_found(service):
    def call(task, *asked, progress, cancelled):
        progress("moments", moments(service.videos[0]))
        service.jobs.cancel(service.job.id)
        raise Cancelled

    with pytest.raises(Cancelled):
        service.run(call)
    found = service.search_state(service.id)
    assert (found["job"].state, len(found["moments"])) == ("cancelled", 1)


def test_a_search_does_not_come_back_when_its_video_was_removed_meanwhile(service):
    def call(task, *asked, progress, cancelled):
        service.remove(service.videos[1])
        return {}

    with pytest.raises(Refusal, match="no such search"):
        service.run(call)


def test_the_same_search_is_one_job_while_it_runs(server):
    first, second = (server.http.post("/searches", json={"query": "blue"}).json() for _ in range(2))
    assert first["id"] == second["id"]
    server.wait(second["job"])


@pytest.mark.parametrize(("body", "status", "told"), [
    ({"query": "   "}, 422, "query: String should have at least 1 character"),
    ({"query": "?!"}, 422, "the query '?!' has no words; say what to look for"),
    ({"query": "red", "n": 0}, 422, "n: Input should be greater than or equal to 1"),
    ({"query": "red", "videos": []}, 422, "videos: Extra inputs are not permitted"),
])  # fmt: skip
def test_bad_requests_are_refused_in_a_line(server, body, status, told):
    answer = server.http.post("/searches", json=body)
    assert (answer.status_code, answer.json()["detail"]) == (status, told)


def test_a_scorer_that_cannot_search_says_so(serve, media):
    server = serve(videos=media)
    server.indexed("clip.mp4")
    job = server.http.post("/searches", json={"query": "red"}).json()["job"]
    assert "scorer 'table' cannot search many videos" in server.wait(job, "failed")["error"]


def test_nothing_to_search_is_refused(start, films, tmp_path):
    for folder, told in ((films, "no video is indexed yet"), (tmp_path, "there are no videos to search")):
        answer = start(videos=folder).http.post("/searches", json={"query": "red"})
        assert (answer.status_code, answer.json()["detail"]) == (409, told)


def test_a_search_needs_the_token(start):
    server = start(env={"FRAMENEST_TOKEN": TOKEN}, token=TOKEN)
    server.indexed("fog.mp4")
    found = search(server, "red")
    del server.http.headers["Authorization"]
    assert server.http.get(f"/searches/{found['id']}").status_code == 401
    assert server.http.post("/searches", json={"query": "red"}).status_code == 401
