"""What a client sees: register, index, ask, take prefixes and pictures."""

import io
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from framenest import MECConfig, Ranking
from media import number_in, numbered_video


@pytest.fixture(scope="module")
def video(server):
    return server.indexed("clip.mp4")


@pytest.fixture(scope="module")
def ranking(server, video):
    return server.ask(video)


def frames(answer):
    return [entry["frame"] for entry in answer.json()["frames"]]


def test_the_folder_lists_its_videos(server, media):
    unnamed = Path(os.fsdecode(os.fsencode(media) + b"/caf\xe9.mp4"))  # a name that no JSON can carry
    unnamed.write_bytes(b"")
    try:
        listed = {file["path"] for file in server.http.get("/files").json()["files"]}
    finally:
        unnamed.unlink()
    assert listed == {"clip.mp4", "more/short.mp4"}


def test_a_video_is_indexed_in_the_background_with_progress(server, media):
    file = numbered_video(media / "new.mp4", 100)  # whose content no other test has had indexed
    try:
        made = server.register("new.mp4")
        assert made["video"]["state"] in ("queued", "indexing")
        job = server.wait(made["job"])
        assert (job["kind"], job["stage"], job["done"], job["total"]) == ("index", "probes", 100, 100)
        video = server.http.get(f"/videos/{made['video']['id']}").json()
        assert (video["state"], video["num_frames"], video["duration"]) == ("ready", 100, 4.0)
        again = server.register("new.mp4")
        assert again["job"] is None
        assert again["video"]["id"] == made["video"]["id"]
    finally:
        file.unlink()


def test_descriptions_are_looked_for(server, video, ranking):
    other = server.ask(video, look_for=["a kiln", "cups"])
    assert other != ranking
    file = server.http.get(f"/rankings/{other}/file").json()
    assert file["look_for"]["texts"] == ["a kiln", "cups"]
    assert server.ask(video, look_for=["a kiln"]) not in (ranking, other)
    asked = server.http.get("/rankings", params={"video": video}).json()
    told = {entry["id"]: entry["look_for"] for entry in asked}
    assert (told[ranking], told[other]) == ([], ["a kiln", "cups"])


def test_a_part_of_the_video_is_looked_at(server, video, ranking):
    part = server.ask(video, start="0:02", end=4.5)
    assert part != ranking
    assert part == server.ask(video, start=2, end="4.5")
    shown = server.http.get(f"/rankings/{part}/prefix", params={"k": 50}).json()["frames"]
    assert len(shown) == 50
    assert all(2 <= entry["seconds"] <= 4.5 for entry in shown)
    facts = server.http.get(f"/rankings/{part}").json()
    assert (facts["start"], facts["end"]) == (2.0, 4.5)
    assert server.ask(video, start=0, end=None) == ranking
    late = server.http.post("/rankings", json={"video": video, "question": "Late?", "start": 60})
    assert "no frame between 60 s and the end" in server.wait(late.json()["job"], "failed")["error"]


@pytest.mark.parametrize(("part", "told"), [
    ({"start": "soon"}, "start: give seconds or [HH:]MM:SS"),
    ({"start": []}, "start: give seconds or [HH:]MM:SS"),
    ({"end": True}, "end: give seconds or [HH:]MM:SS"),
    ({"start": -1}, "start = -1.0 is not allowed; it must be seconds, 0 or more"),
    ({"start": 5, "end": 3}, "end = 3.0 is not allowed; it must be seconds, more than start (5)"),
])  # fmt: skip
def test_a_part_that_is_none_is_refused(server, video, part, told):
    answer = server.http.post("/rankings", json={"video": video, "question": "?"} | part)
    assert (answer.status_code, answer.json()["detail"]) == (422, told)


def test_a_question_without_a_preset_has_the_server_s(server, serve, media, video, ranking):
    assert server.http.get("/health").json()["preset"] == "residual"
    assert server.http.get(f"/rankings/{ranking}").json()["preset"] == "residual"
    assert server.ask(video, preset="residual") == ranking
    other = serve("--preset", "paper", videos=media)
    assert other.http.get("/health").json()["preset"] == "paper"
    made = other.ask(other.indexed("clip.mp4"))
    assert other.http.get(f"/rankings/{made}").json()["preset"] == "paper"
    assert other.http.get(f"/rankings/{made}/file").json()["config"] == MECConfig().to_json()


def test_prefixes_nest_and_sixteen_more_are_only_those_added(server, ranking):
    get = server.http.get
    first = get(f"/rankings/{ranking}/prefix", params={"k": 16})
    both = get(f"/rankings/{ranking}/prefix", params={"k": 32})
    more = get(f"/rankings/{ranking}/prefix", params={"k": 32, "after": 16})
    assert len(frames(first)) == len(frames(more)) == 16
    assert all(shown == sorted(shown) for shown in (frames(first), frames(both), frames(more)))
    assert sorted(frames(first) + frames(more)) == frames(both)
    assert {entry["rank"] for entry in more.json()["frames"]} == set(range(17, 33))
    assert any(150 <= frame < 160 for frame in frames(first))


@pytest.mark.parametrize(("query", "told"), [
    ("k=1024", "too few for a budget of 1024"),
    ("k=8&after=8", "after must be less than k"),
    ("k=0", "greater than or equal to 1"),
    ("k=many", "k: "),
])  # fmt: skip
def test_budgets_that_cannot_be_served_say_why(server, ranking, query, told):
    answer = server.http.get(f"/rankings/{ranking}/prefix?{query}")
    assert answer.status_code == 422
    assert told in answer.json()["detail"]


def test_the_ranking_file_is_the_one_of_the_command_line(server, ranking, tmp_path):
    answer = server.http.get(f"/rankings/{ranking}/file")
    (tmp_path / "ranking.json").write_bytes(answer.content)
    loaded = Ranking.load(tmp_path / "ranking.json")
    assert (loaded.video.path, len(loaded)) == ("clip.mp4", 256)
    facts = server.http.get(f"/rankings/{ranking}").json()
    assert (facts["length"], facts["scorer"], facts["question"]) == (256, loaded.scorer, "Where is it?")


def test_frames_are_exact_at_any_size(server, video):
    for number, size in ((0, None), (157, None), (299, 48)):
        answer = server.http.get(f"/videos/{video}/frames/{number}", params={"size": size} if size else {})
        assert answer.headers["content-type"] == "image/jpeg"
        picture = np.asarray(Image.open(io.BytesIO(answer.content)))
        assert picture.shape == ((48, 72, 3) if size else (64, 96, 3))
        assert number_in(picture) == number
    larger = server.http.get(f"/videos/{video}/frames/0?size=2000").content
    assert Image.open(io.BytesIO(larger)).size == (96, 64)
    assert server.http.get(f"/videos/{video}/frames/300").status_code == 404


def test_the_video_plays_from_anywhere(server, video, media):
    whole = (media / "clip.mp4").read_bytes()
    part = server.http.get(f"/videos/{video}/file", headers={"Range": "bytes=100-199"})
    assert (part.status_code, part.content) == (206, whole[100:200])
    assert part.headers["content-type"] == "video/mp4"
    assert server.http.get(f"/videos/{video}/file").content == whole


def test_a_second_question_decodes_no_probe_again(server, video):
    stats = [
        server.http.get(f"/rankings/{server.ask(video, question)}").json()["stats"]
        for question in ("What is first?", "What is second?")
    ]
    # This table of scores answers every question alike, so even the zoom frames have been seen.
    assert stats[1]["decoded"] == 0
    assert stats[1]["probes"] > 200


def test_the_same_question_is_the_same_ranking(server, video, ranking):
    again = server.http.post("/rankings", json={"video": video, "question": "  Where is it? "})
    assert again.status_code == 200
    assert again.json() == {"ranking": ranking, "ready": True, "job": None}
    other = server.ask(video, preset="no-zoom")
    assert other != ranking
    asked = server.http.get("/rankings", params={"video": video}).json()
    assert {ranking, other} <= {entry["id"] for entry in asked}


def test_without_a_question_and_with_another_horizon(server, video):
    ranking = server.ask(video, None, horizon=12)
    facts = server.http.get(f"/rankings/{ranking}").json()
    assert (facts["question"], facts["length"]) == (None, 12)


def test_a_video_tells_how_often_it_was_asked_about(server, media):
    (media / "asked.mp4").write_bytes((media / "more" / "short.mp4").read_bytes())
    try:
        video = server.indexed("asked.mp4")
        for question in ("Where?", "When?"):
            server.ask(video, question)
        assert server.http.get(f"/videos/{video}").json()["questions"] == 2
        listed = {entry["id"]: entry for entry in server.http.get("/videos").json()}
        assert (listed[video]["questions"], listed[video]["state"]) == (2, "ready")
        asked = server.http.get("/rankings", params={"video": video}).json()
        assert [entry["question"] for entry in asked] == ["When?", "Where?"]
        assert all(entry["ready"] for entry in asked)
        assert server.http.delete(f"/videos/{video}").status_code == 204
    finally:
        (media / "asked.mp4").unlink()


def test_a_removed_video_is_gone_with_its_rankings(server, media):
    (media / "gone.mp4").write_bytes((media / "more" / "short.mp4").read_bytes())
    video = server.indexed("gone.mp4")
    ranking = server.ask(video)
    assert server.http.get(f"/rankings/{ranking}/prefix?k=4").status_code == 200
    assert server.http.delete(f"/videos/{video}").status_code == 204
    assert server.http.get(f"/videos/{video}").status_code == 404
    assert server.http.get(f"/rankings/{ranking}/prefix?k=4").status_code == 404
    assert (media / "gone.mp4").exists()
    (media / "gone.mp4").unlink()


def test_a_changed_file_is_refused_until_registered_again(server, media):
    file = media / "changing.mp4"
    file.write_bytes((media / "more" / "short.mp4").read_bytes())
    video = server.indexed("changing.mp4")
    file.write_bytes((media / "clip.mp4").read_bytes())
    for answer in (
        server.http.post("/rankings", json={"video": video, "question": "Still?"}),
        server.http.get(f"/videos/{video}/frames/1"),
        server.http.get(f"/videos/{video}/file"),
    ):
        assert answer.status_code == 409
        assert "has changed" in answer.json()["detail"]
    assert server.http.get(f"/videos/{video}").json()["state"] == "gone"
    assert server.http.post(f"/videos/{video}/index").status_code == 409
    assert server.indexed("changing.mp4") != video
    file.unlink()


def test_unknown_things_are_404_and_bad_requests_422(server, video):
    for path in (
        "/videos/x",
        "/rankings/x",
        "/jobs/x",
        "/rankings/x/prefix?k=8",
        "/videos/x/frames/1",
        "/nothing",
    ):
        assert server.http.get(path).status_code == 404, path
    asked = {"video": video, "question": "?"}
    wrong = (
        {},
        {"video": video},
        asked | {"question": ""},
        asked | {"k": 1},
        asked | {"preset": "none"},
        asked | {"look_for": [""]},
        asked | {"question": None, "look_for": ["a kiln"]},
    )
    for body in wrong:
        assert server.http.post("/rankings", json=body).status_code == 422, body


def test_health_and_metrics(server, ranking):
    health = server.http.get("/health").json()
    assert (health["status"], health["folder"], health["answer_model"]) == ("ok", True, None)
    assert server.http.get(f"/rankings/{ranking}/prefix?k=4").status_code == 200
    text = server.http.get("/metrics").text
    assert 'framenest_jobs_total{kind="rank",state="done"}' in text
    assert 'route="/rankings/{ranking}/prefix",status="200"' in text
    assert "process_resident_memory_bytes" in text
    assert ranking not in text


def test_the_api_is_described_in_an_openapi_document(server):
    paths = server.http.get("/openapi.json").json()["paths"]
    assert {"/videos", "/videos/upload", "/rankings/{ranking}/prefix", "/jobs/{job}"} <= set(paths)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--scorer", "none-such"], "there is no scorer 'none-such'"),
        (["--scorer", "tags"], "framenest models fetch tags"),
        (["--videos", "nowhere"], "not a folder"),
        (["--port", "99999"], "must be a port"),
        (["--queue", "0"], "must be 1 or more"),
        (
            ["--answer-model", "m"],
            "--answer-model has no effect: nothing is sent to a model without --upstream",
        ),
        (["--upstream", "ftp://x"], "is not an http"),
        (["--upstream", "http://127.0.0.1:9/v1", "--budget", "8,300"], "must be 1 to 256 frames"),
        (["--budget", "8"], "without --upstream"),
    ],
)
def test_what_cannot_start_says_why_in_one_line(tmp_path, options, told):
    command = [sys.executable, "-m", "framenest", "serve", "--port", "0", "--data", str(tmp_path), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_in_use_is_told_before_any_work(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [
            sys.executable,
            "-m",
            "framenest",
            "serve",
            "--data",
            str(tmp_path / "data"),
            "--port",
            port,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        f"error: cannot listen at http://127.0.0.1:{port} (Address already in use); "
        "--port names another port, 0 any free one\n"
    )
    assert not (tmp_path / "data").exists()
