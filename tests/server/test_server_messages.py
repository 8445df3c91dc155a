"""Messages in every style, and answers through an endpoint."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from framenest.lmm import FOR_SERVERS, STYLES
from framenest.lmm.prompt import CITE
from media import number_in, numbered_video

KEY = "key-of-the-endpoint-42"


@pytest.fixture(scope="module")
def ranking(server):
    return server.ask(server.indexed("clip.mp4"))


def frames_in(body):
    """The numbers drawn in the pictures of a request for a server."""
    found = []
    for part in body["messages"][-1]["content"]:
        if part["type"] == "image_url":
            data = base64.b64decode(part["image_url"]["url"].partition(",")[2])
            found.append(number_in(np.asarray(Image.open(io.BytesIO(data)))))
    return found


@pytest.mark.parametrize("style", sorted(STYLES))
def test_every_style_holds_the_frames_of_the_budget(server, ranking, style):
    answer = server.http.get(f"/rankings/{ranking}/messages", params={"k": 6, "style": style})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    prefix = server.http.get(f"/rankings/{ranking}/prefix?k=6").json()["frames"]
    expected = [entry["frame"] for entry in prefix]
    if style in ("openai", "gpt", "gemini"):
        assert frames_in(body) == expected
    elif style not in FOR_SERVERS:
        assert body["frames"] == expected
        assert body["video"]["path"] == "clip.mp4"
    assert "Where is it?" in answer.text


def test_options_are_asked_for_by_letter(server):
    video = server.indexed("clip.mp4")
    ranking = server.ask(video, options=["on the left", "on the right"])
    assert ranking != server.ask(video)
    assert server.http.get(f"/rankings/{ranking}").json()["options"] == ["on the left", "on the right"]
    text = server.http.get(f"/rankings/{ranking}/messages?k=2").text
    assert "A. on the left" in text
    assert "B. on the right" in text


def test_pictures_are_as_large_as_asked_for(server, ranking):
    body = server.http.get(f"/rankings/{ranking}/messages?k=1&max_side=48").json()
    url = next(p for p in body["messages"][-1]["content"] if p["type"] == "image_url")["image_url"]["url"]
    picture = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
    assert picture.size == (48, 32)


def test_what_cannot_be_made_says_why(server, ranking):
    get = server.http.get
    assert "there is no style" in get(f"/rankings/{ranking}/messages?style=none").json()["detail"]
    asked = server.ask(server.indexed("clip.mp4"), None)
    refused = get(f"/rankings/{asked}/messages")
    assert refused.status_code == 422
    assert "no question" in refused.json()["detail"]
    unanswered = server.http.post(f"/rankings/{ranking}/answer", json={"k": 4})
    assert unanswered.status_code == 404
    assert "--answer-model" in unanswered.json()["detail"]


def test_the_configured_model_answers(serve, media, endpoint):
    server = serve(
        "--upstream", endpoint.url, "--answer-model", "canned", videos=media, env={"OPENAI_API_KEY": KEY}
    )
    assert server.http.get("/health").json()["answer_model"] == "canned"
    ranking = server.ask(server.indexed("clip.mp4"))
    prefix = server.http.get(f"/rankings/{ranking}/prefix?k=5").json()["frames"]
    time = f"{prefix[3]['seconds']:.1f}s"
    endpoint.says = f"🔥 It is there [{time}], for 3 hours."
    answer = server.http.post(f"/rankings/{ranking}/answer", json={"k": 5}).json()
    assert answer.pop("seconds") >= 0
    frame, seconds = prefix[3]["frame"], prefix[3]["seconds"]
    start = endpoint.says.index(time)
    cited = [{"start": start, "end": start + len(time), "frame": frame, "seconds": seconds}]
    assert answer == {"answer": endpoint.says, "model": "canned", "k": 5, "cited": cited, "not_shown": []}
    assert CITE not in str(endpoint.asked[0])
    answered = server.http.post(f"/rankings/{ranking}/answer", json={"k": 5, "cite": True, "max_side": 48})
    assert answered.status_code == 200
    assert CITE in str(endpoint.asked[1])
    assert len(str(endpoint.asked[1])) < len(str(endpoint.asked[0]))  # smaller pictures
    assert frames_in(endpoint.asked[0]) == [entry["frame"] for entry in prefix]
    assert set(endpoint.keys) == {f"Bearer {KEY}"}
    assert KEY not in server.log


def test_messages_and_answers_of_a_copy_need_no_original(serve, tmp_path, endpoint):
    """The index of a video may be one of an identical file that no longer exists."""
    folder = tmp_path / "copies"
    folder.mkdir()
    original = numbered_video(folder / "original.mp4", 90)
    server = serve("--upstream", endpoint.url, "--answer-model", "canned", videos=folder)
    server.ask(server.indexed("original.mp4"))
    (folder / "copy.mp4").write_bytes(original.read_bytes())
    original.unlink()
    ranking = server.ask(server.indexed("copy.mp4"))
    for style in STYLES:
        got = server.http.get(f"/rankings/{ranking}/messages", params={"k": 3, "style": style})
        assert got.status_code == 200, got.text
    assert server.http.post(f"/rankings/{ranking}/answer", json={"k": 3}).status_code == 200
    assert len(frames_in(endpoint.asked[0])) == 3


@pytest.mark.parametrize("wanted", [True, False])
def test_what_is_said_is_sent_where_the_server_shall(serve, media, endpoint, wanted):
    said = "Now we fire the kiln."
    (media / "clip.srt").write_text(f"1\n00:00:02,000 --> 00:00:10,000\n{said}\n")
    answering = ("--upstream", endpoint.url, "--answer-model", "canned")
    try:
        server = serve(*answering, *(["--with-transcript"] if wanted else []), videos=media)
        ranking, silent = server.ask(server.indexed("clip.mp4")), server.ask(server.indexed("more/short.mp4"))
        for id_, expected in ((ranking, wanted), (silent, False)):
            assert (said in server.http.get(f"/rankings/{id_}/messages?k=4").text) is expected
            assert server.http.post(f"/rankings/{id_}/answer", json={"k": 4}).status_code == 200
            assert (said in str(endpoint.asked[-1])) is expected
    finally:
        (media / "clip.srt").unlink()


def test_an_endpoint_that_is_not_there_is_502(serve, media):
    server = serve("--upstream", "http://127.0.0.1:9/v1", "--answer-model", "m", videos=media)
    ranking = server.ask(server.indexed("clip.mp4"))
    answer = server.http.post(f"/rankings/{ranking}/answer", json={"k": 2})
    assert answer.status_code == 502
    assert answer.json()["detail"].count("\n") == 0
