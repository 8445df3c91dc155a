"""The gateway: any OpenAI-compatible model sees videos."""

import asyncio
import base64
import http.server
import io
import json
import threading
from contextlib import closing, suppress
from http.client import HTTPConnection
from itertools import pairwise
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from PIL import Image

from framenest.lmm.prompt import OTHERWISE
from framenest.processes import own_memory
from framenest.protocols import GUESS, MatchStrength
from framenest.server.conversation import MAX_QUESTION_CHARS
from framenest.server.gateway import match_header
from framenest.server.guard import session
from framenest.server.server_settings import MIB
from local_http import local_http
from media import number_in, numbered_video
from processes import PATIENCE
from served import Server
from upstream import upstream_server

openai = pytest.importorskip("openai", reason="needs the extra `ask`")

TOKEN = "a-token-of-the-tests-0123456789"
QUESTION = {"type": "text", "text": "Where is it?"}


@pytest.fixture(scope="module")
def behind():
    """The server behind the gateway."""
    with upstream_server() as upstream:
        yield upstream


@pytest.fixture(autouse=True)
def reply_as_usual(behind):
    """A test may set `behind.reply`, for itself alone."""
    usual = behind.reply
    yield
    behind.reply = usual


@pytest.fixture(scope="module")
def server(tmp_path_factory, media, scores, behind):
    one = Server(
        tmp_path_factory.mktemp("gate"), "--scorer", scores, "--upstream", behind.url, "--budget", "4",
        videos=media,
    )  # fmt: skip
    yield one.start()
    one.stop()


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="a-key-of-a-client", max_retries=0) as one:
        yield one


@pytest.fixture(scope="module")
def clip_data(media):
    return "data:video/mp4;base64," + base64.b64encode((media / "clip.mp4").read_bytes()).decode()


@pytest.fixture
def first(clip_data, request):
    """The first turn of a conversation that no other test has."""
    return user(video(clip_data), {"type": "text", "text": f"Where is it in {request.node.name}?"})


def video(address):
    return {"type": "video_url", "video_url": {"url": address}}


def user(*parts):
    return {"role": "user", "content": list(parts)}


def said(text="a canned answer"):
    return {"role": "assistant", "content": text}


def ask(server, messages, settings=None, **fields):
    """The response to one request, as it is."""
    body = {"model": "m", "messages": messages, **fields} | ({"framenest": settings} if settings else {})
    return server.http.post("/v1/chat/completions", json=body)


def frames_in(message):
    """The numbers drawn in the images of a message, if each has the true time before it."""
    found = []
    for before, part in zip(message["content"], message["content"][1:], strict=False):
        if part["type"] == "image_url":
            data = base64.b64decode(part["image_url"]["url"].partition(",")[2])
            found.append(number_in(np.asarray(Image.open(io.BytesIO(data)))))
            assert before["text"] == f"<{found[-1] / 25:.1f} seconds>"
    return found


def prefix(server, response):
    """The frames of the ranking to which a response leads."""
    id_, k = response.headers["framenest-ranking"].partition("#")[2].split("&k=")
    listed = server.http.get(f"/rankings/{id_}/prefix", params={"k": k}).json()["frames"]
    return [entry["frame"] for entry in listed]


# Videos


@pytest.mark.parametrize("kind", ["data", "qwen", "file", "below --videos", "id", "framenest://id"])
def test_a_video_of_any_kind_becomes_frames_with_their_times(server, behind, media, clip_data, kind):
    id_ = server.indexed("clip.mp4") if "id" in kind else ""
    part = {
        "data": video(clip_data),
        "qwen": {"type": "video", "video": clip_data},
        "file": {"type": "file", "file": {"file_data": clip_data, "filename": "clip.mp4"}},
        "below --videos": video((media / "clip.mp4").as_uri()),
        "id": video(id_),
        "framenest://id": video(f"framenest://{id_}"),
    }[kind]
    response = ask(server, [user(part, QUESTION)])
    assert response.status_code == 200, response.text
    (message,) = behind.messages
    frames = frames_in(message)
    assert frames == prefix(server, response)
    assert len(frames) == 4
    assert message["content"][-1] == QUESTION
    times = [float(time) for time in response.headers["framenest-times"].split(",")]
    assert response.headers["framenest-evidence"] in [
        f"{count}/{len(times)}" for count in range(len(times) + 1)
    ]
    assert times == [round(frame / 25, 2) for frame in frames]
    assert response.headers["framenest-ranking"].startswith(f"{server.url}/#")


def test_a_guess_is_told_in_a_header():
    matches = {
        "a": MatchStrength(0.9, "strong"),
        "b": MatchStrength(0.3, "cannot tell", (), ("unicorn",)),
        "c": None,
    }
    rankings = SimpleNamespace(get=lambda id_: SimpleNamespace(stats=SimpleNamespace(match=matches[id_])))
    assert match_header(rankings, [*matches]) == {"framenest-match": f"strong; cannot tell: {GUESS}"}
    assert match_header(rankings, ["c"]) == {}


def test_what_is_no_video_passes_unchanged(server, behind, clip_data):
    others = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBE", "filename": "a.pdf"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "video", "video": ["https://host/1.jpg", "https://host/2.jpg"]},
        {"type": "video_url", "video_url": {"url": "data:video/jpeg;base64,AAAA,AAAA"}},
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
        "odd",
    ]
    fields = {"temperature": 0.1, "tools": [], "seed": 12345678901234567890123, "extra": {"a": None}}
    system, tool = (
        {"role": "system", "content": "Hi 🔥"},
        {"role": "tool", "tool_call_id": "1", "content": "7"},
    )
    sent = [system, user(*others, QUESTION), said(), user(video(clip_data), *others, QUESTION), said(), tool]
    assert ask(server, sent, {"k": 1}, **fields).status_code == 200
    got = behind.requests[-1].json
    assert {name: got[name] for name in fields} == fields
    assert "framenest" not in got
    assert [got["messages"][n] for n in (0, 1, 2, 4, 5)] == [sent[n] for n in (0, 1, 2, 4, 5)]
    assert got["messages"][3]["content"][2:] == [*others, QUESTION]


def test_a_request_without_a_video_is_the_same_byte_for_byte(server, behind):
    body = b'{ "messages":[{"content":"What is a video?","role":"user"}],\n "model": "m", "x": 1.50 }'
    headers = {"content-type": "application/json", "x-request-id": "7"}
    answer = server.http.post("/v1/chat/completions", content=body, headers=headers)
    assert answer.status_code == 200
    assert behind.requests[-1].body == body
    assert behind.requests[-1].headers["x-request-id"] == "7"
    assert "framenest-times" not in answer.headers


def test_settings_without_a_video_are_removed(server, behind):
    assert ask(server, [user(QUESTION)], {"k": 3}).status_code == 200
    assert behind.requests[-1].json == {"model": "m", "messages": [user(QUESTION)]}


def test_several_videos_each_have_their_frames_where_they_stood(server, behind, media):
    parts = [{"type": "text", "text": "First:"}, video((media / "clip.mp4").as_uri())]
    parts += [{"type": "text", "text": "Second:"}, video((media / "more" / "short.mp4").as_uri()), QUESTION]
    before = [user(*parts), said()]
    response = ask(server, [*before, user({"type": "text", "text": "And later?"})], {"k": 6})
    assert response.status_code == 200, response.text
    shown, _, later = behind.messages
    texts = [part.get("text") for part in shown["content"]]
    assert texts.index("First:") < texts.index("Second:") < len(texts) - 1
    assert len(frames_in(shown)) == 12
    labels = ["Video 1: clip.mp4", "Video 2: short.mp4"]
    assert [text for text in texts if text and text.startswith("Video")] == labels
    assert [part.get("text") for part in later["content"]] == [*labels, "And later?"]
    assert ask(server, [*before, user({"type": "text", "text": "And later?"})], {"k": 7}).status_code == 200
    assert len(frames_in(behind.messages[2])) == 2  # the seventh of each
    assert len(response.headers["framenest-ranking"].split(", ")) == 2


def test_the_same_data_is_stored_once_and_the_same_address_fetched_once(serve, behind, tmp_path, clip_data):
    asked = []
    numbered_video(tmp_path / "far.mp4", 60)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *given):
            super().__init__(*given, directory=str(tmp_path))

        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

    with local_http(Handler) as port:
        host = f"127.0.0.1:{port}"
        server = serve("--upstream", behind.url, "--allow-host", host, "--budget", "2")
        turns = []
        for text in ("One?", "Two?", "Three?"):
            parts = [video(f"http://{host}/far.mp4"), video(clip_data)] if not turns else []
            turns += [user(*parts, {"type": "text", "text": text})]
            assert ask(server, turns).status_code == 200
            turns += [said()]
        assert len(asked) == 1
        assert len(list((server.data / "uploads").iterdir())) == 2
        server.stop()
        server.start()
        assert ask(server, turns[:1]).status_code == 200
        assert len(asked) == 1
        first = next(entry for entry in server.http.get("/videos").json() if entry["origin"] == "url")
        assert server.http.delete(f"/videos/{first['id']}").status_code == 204
        assert ask(server, turns[:1]).status_code == 200
        assert len(asked) == 2


@pytest.mark.parametrize(("address", "told"), [
    ("https://example.org/kiln.mp4", "hosts that it was told to allow"),
    ("ftp://example.org/kiln.mp4", "hosts that it was told to allow"),
    ("file:///etc/passwd", "outside the folder"),
    ("framenest://0123456789abcdef", "no such video"),
    ("kiln.mp4", "give file:///"),
    ("data:video/mp4;base64,AAAA", "not accepted"),
    ("data:video/mp4;base64,?", "not base64"),
    ("data:video/mp4;base64,é", "not base64"),
    ("file://[::1", "no such video"),
    ("file:///a%00b", "no such video"),
    (f"file:///{'a' * 5000}", "outside the folder"),
    ("data:video/mp4;base64,", "empty"),
])  # fmt: skip
def test_a_video_that_cannot_be_read_is_a_400(server, behind, client, address, told):
    before = len(behind.requests)
    with pytest.raises(openai.BadRequestError, match=told) as refused:
        client.chat.completions.create(model="m", messages=[user(video(address), QUESTION)])
    error = refused.value.response.json()["error"]
    assert error == {
        "message": error["message"],
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }
    assert "\n" not in error["message"]
    assert len(behind.requests) == before


# Turns


def bodies(server, behind, turns, settings):
    """What the server behind is sent for a conversation that grows: its messages as text, turn by turn."""
    messages, sent = [], []
    for turn, chosen in zip(turns, settings, strict=True):
        messages.append(turn)
        assert ask(server, messages, chosen).status_code == 200
        whole = behind.requests[-1].body.decode()
        start = whole.index('"messages":[') + len('"messages":[')
        decoded, length = json.JSONDecoder().raw_decode(whole[start - 1 :])
        assert len(decoded) == len(messages)
        sent.append(whole[start : start + length - 2])
        messages.append(said())
    return sent


def test_the_messages_of_a_turn_begin_those_of_the_next(server, behind, first):
    """Also where a turn had settings of its own."""
    turns = [first, *(user({"type": "text", "text": f"And {n}?"}) for n in range(3))]
    settings = [{"k": 3, "preset": "paper"}, {"k": 9, "start": 8}, None, {"k": 12, "question": "What is it?"}]
    sent = bodies(server, behind, turns, settings)
    for before, after in pairwise(sent):
        assert after.startswith(f"{before},")
    assert [len(frames_in(message)) for message in behind.messages[::2]][:2] == [3, 9]


def test_a_further_question_gets_only_frames_that_are_not_shown_yet(server, behind, first):
    assert ask(server, [first]).status_code == 200
    further = {"role": "user", "content": "What is it made of?"}
    response = ask(server, [first, said(), further], {"k": 8})
    shown, _, later = behind.messages
    assert set(prefix(server, response)) == {*frames_in(shown), *frames_in(later)}
    assert set(frames_in(later)).isdisjoint(frames_in(shown))
    assert later["content"][-1] == {"type": "text", "text": "What is it made of?"}
    asked = {entry["question"] for entry in server.http.get("/rankings").json()}
    assert {first["content"][1]["text"], "What is it made of?"} <= asked


def test_how_a_turn_was_answered_survives_a_restart(serve, behind, first, clip_data):
    server = serve("--upstream", behind.url, "--budget", "4")
    assert ask(server, [first], {"k": 7, "preset": "paper"}).status_code == 200
    (before,) = behind.messages
    server.stop()
    server.start()
    assert ask(server, [first, said(), user(QUESTION)]).status_code == 200
    assert behind.messages[0] == before
    other = user(video(clip_data), {"type": "text", "text": "Another?"})
    for settings in ({"k": 5}, {"k": 6}):  # the first is remembered
        assert ask(server, [other, said(), user(QUESTION)], settings).status_code == 200
        assert len(frames_in(behind.messages[0])) == 5


def test_a_part_equal_to_a_videos_id_is_not_that_video(server, behind):
    """Otherwise a stranger's request with such a part would change what the turn of another client shows."""
    mine, other = server.indexed("clip.mp4"), server.indexed("more/short.mp4")
    turn = user(video(mine), other, {"type": "text", "text": "Mine?"})
    assert ask(server, [turn]).status_code == 200
    (shown,) = behind.messages
    assert ask(server, [user(mine, video(other), {"type": "text", "text": "Mine?"})]).status_code == 200
    assert ask(server, [turn, said(), user(QUESTION)]).status_code == 200
    assert behind.messages[0] == shown


def test_an_address_that_reads_like_a_turn_is_an_address(server, media):
    id_ = server.indexed("clip.mp4")
    assert ask(server, [user(video(id_), "a:b")]).status_code == 200
    for address in (f'["{id_}","a:b"]', f'[["video","{id_}"],["part","a:b"]]'):
        answer = ask(server, [user(video(address), QUESTION)])
        assert answer.status_code == 400, answer.text
        assert "is no address" in answer.json()["error"]["message"]


def test_two_clients_with_the_same_turn_and_other_settings_keep_their_own(server, behind, first):
    """The second does not change the conversation of the first, nor does the first that of the second."""
    shown = {}
    for k in (8, 1):
        assert ask(server, [first], {"k": k}).status_code == 200
        (shown[k],) = behind.messages
        assert len(frames_in(shown[k])) == k
    further = [said(), user(QUESTION)]
    for k in (8, 1, 8):
        assert ask(server, [first, *further], {"k": k}).status_code == 200
        assert behind.messages[0] == shown[k]
    assert ask(server, [first, *further]).status_code == 200
    assert behind.messages[0] == shown[8]  # nobody asked so; the first counts


def test_a_turn_stays_as_it_was_while_tools_are_called(server, behind, first):
    assert ask(server, [first], {"k": 3}).status_code == 200
    (before,) = behind.messages
    call = {"id": "1", "type": "function", "function": {"name": "count", "arguments": "{}"}}
    used = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "7"},
    ]
    response = ask(server, [first, *used], {"k": 16})
    assert behind.messages == [before, *used]
    assert len(response.headers["framenest-times"].split(",")) == 3


def test_a_long_text_is_cut_for_the_ranking_alone(server, behind, clip_data):
    text = "word " * MAX_QUESTION_CHARS
    assert ask(server, [user(video(clip_data), {"type": "text", "text": text})]).status_code == 200
    assert behind.messages[0]["content"][-1]["text"] == text
    assert (
        server.http.get("/rankings").json()[0]["question"]
        == text[: MAX_QUESTION_CHARS - 1] + text[MAX_QUESTION_CHARS - 1]
    )


# Settings of a request


def test_a_request_has_settings_of_its_own(server, behind, clip_data):
    settings = {"k": 2, "preset": "paper", "max_gap": 0.5, "start": "0:06", "end": 10, "question": "A kiln?"}
    settings |= {"look_for": ["a glowing kiln"], "options": ["yes", "no"]}
    response = ask(server, [user(video(clip_data), QUESTION)], settings)
    frames = frames_in(behind.messages[0])
    assert len(frames) == 2
    assert all(150 <= frame <= 250 for frame in frames)
    id_ = response.headers["framenest-ranking"].partition("#")[2].partition("&")[0]
    made = server.http.get(f"/rankings/{id_}").json()
    del settings["k"]
    assert {name: made[name] for name in settings} == settings | {"start": 6.0, "end": 10.0}
    config = server.http.get(f"/rankings/{id_}/file").json()["config"]
    assert config["index"]["max_gap"] == 0.5


@pytest.mark.parametrize(("settings", "told"), [
    ({"frames": 3}, "framenest.frames: Extra inputs"), ({"k": 0}, "framenest.k"), ({"k": 257}, "framenest.k"),
    ({"max_gap": -1}, "max_gap = -1.0 is not allowed"), ({"preset": "none"}, "no preset 'none'"),
    ([1], "framenest: "), ({"k": 2, "tokens": 500}, "give k or tokens"),
    ({"tiers": True}, "only tokens have"), ({"tokens": 5}, "5 tokens hold no image; give 70"),
])  # fmt: skip
def test_wrong_settings_are_a_400(server, clip_data, settings, told):
    response = ask(server, [user(video(clip_data), QUESTION)], settings)
    assert response.status_code == 400
    assert told in response.json()["error"]["message"]


def test_what_is_said_goes_beside_the_frames(serve, behind, media):
    (media / "clip.srt").write_text("1\n00:00:02,000 --> 00:00:10,000\nNow we fire the kiln.\n")
    try:
        server = serve("--upstream", behind.url, "--with-transcript", videos=media)
        assert ask(server, [user(video((media / "clip.mp4").as_uri()), QUESTION)]).status_code == 200
    finally:
        (media / "clip.srt").unlink()
    assert [part for part in behind.messages[0]["content"] if "Now we fire" in part.get("text", "")]


# The ladder


def unsure(*rungs):
    """Answers that say "cannot tell" while a request has fewer frames than the last of these."""

    async def reply(exchange):
        shown = sum(part["type"] == "image_url" for part in exchange.json["messages"][-1]["content"])
        await exchange.says("CANNOT TELL." if shown < rungs[-1] else "Cannot tellurium do it? A kiln.")

    return reply


@pytest.mark.parametrize("stream", [False, True])
def test_the_ladder_asks_with_more_frames_while_the_model_cannot_tell(
    server, behind, client, clip_data, stream
):
    behind.reply = unsure(2, 4)
    text = {"type": "text", "text": f"On a ladder? {stream}"}
    asked = {"model": "m", "messages": [user(video(clip_data), text)], "stream": stream}
    ask(server, asked["messages"], {"k": [8, 2, 4]})  # so that a stream need not begin with comments
    before = len(behind.requests)
    response = client.chat.completions.with_raw_response.create(
        **asked, extra_body={"framenest": {"k": [8, 2, 4]}}
    )
    answer = response.parse()
    if stream:
        answer = "".join(event.choices[0].delta.content or "" for event in answer).strip()
    else:
        answer = answer.choices[0].message.content
    assert answer == "Cannot tellurium do it? A kiln."
    rungs = [exchange.json["messages"][0] for exchange in behind.requests[before:]]
    assert [len(frames_in(rung)) for rung in rungs] == [2, 4]
    assert all(rung["content"][-1]["text"] == OTHERWISE for rung in rungs)
    assert set(frames_in(rungs[0])) < set(frames_in(rungs[1]))
    assert len(response.headers["framenest-times"].split(",")) == 4
    ask(server, [*asked["messages"], said(answer), user(QUESTION)], {"k": [2, 8]})
    assert behind.messages[0] == rungs[1]  # with the offer


def test_on_the_last_rung_the_model_must_answer(server, behind, clip_data):
    behind.reply, before = unsure(1000), len(behind.requests)
    response = ask(server, [user(video(clip_data), {"type": "text", "text": "Must you?"})], {"k": [2, 4]})
    assert response.json()["choices"][0]["message"]["content"] == "CANNOT TELL."
    assert [OTHERWISE in exchange.body.decode() for exchange in behind.requests[before:]] == [True, False]


@pytest.mark.parametrize(("pieces", "held"), [
    ([{"role": "assistant"}, {"reasoning": "Hm."}, {"content": "Can"}, {"content": "not tell"}], True),
    ([{"content": "<think>Cannot"}, {"content": " tell?</think>"}, {"content": "cannot"}], True),
    ([{"content": "Cannot say"}], False),
    ([{"content": "A"}], False),
    ([{"content": None, "tool_calls": [{"index": 0}]}], False),
])  # fmt: skip
def test_a_streamed_answer_is_held_back_only_while_it_may_be_that_reply(
    server, behind, clip_data, pieces, held
):
    arrived, go_on = threading.Event(), threading.Event()
    ask(server, [user(video(clip_data), QUESTION)])  # so that the stream does not begin with comments

    async def reply(exchange):
        await exchange.start(kind="text/event-stream")
        for piece in pieces:
            await exchange.event(piece)
        arrived.set()
        await asyncio.to_thread(go_on.wait, PATIENCE)
        await exchange.event({"content": " nobody knows."})
        await exchange.piece(b"data: [DONE]\n\n", more=False)

    behind.reply = reply
    body = {"messages": [user(video(clip_data), QUESTION)], "stream": True, "framenest": {"k": [2, 4]}}
    sent = threading.Event()

    def read():
        with server.http.stream("POST", "/v1/chat/completions", json=body) as response:
            whole = b""
            for piece in response.iter_raw():
                sent.set()
                whole += piece
        return whole

    results = []
    reader = threading.Thread(target=lambda: results.append(read()))
    reader.start()
    assert arrived.wait(PATIENCE)
    if not held:
        assert sent.wait(PATIENCE)
    assert sent.is_set() is not held
    go_on.set()
    reader.join(PATIENCE)
    assert results[0].count(b"data: ") == len(pieces) + 2


def test_an_error_on_a_rung_passes(server, behind, clip_data):
    async def reply(exchange):
        await exchange.whole({"error": {"message": "the context is too long"}}, 400)

    behind.reply = reply
    response = ask(server, [user(video(clip_data), QUESTION)], {"k": [2, 4]})
    assert (response.status_code, response.json()["error"]["message"]) == (400, "the context is too long")


# The official client


def test_the_official_client_lists_models_and_asks(client, behind, clip_data):
    assert [model.id for model in client.models.list()] == ["m"]
    messages = [user(video(clip_data), QUESTION)]
    answer = client.chat.completions.create(model="m", messages=messages)
    assert answer.choices[0].message.content == "a canned answer"
    assert answer.usage.total_tokens == 107
    assert behind.requests[-1].headers["authorization"] == "Bearer a-key-of-a-client"


def test_the_official_client_streams(client, behind, clip_data):
    with client.chat.completions.create(
        model="m", messages=[user(video(clip_data), QUESTION)], stream=True
    ) as stream:
        words = [event.choices[0].delta.content for event in stream]
    assert words == ["a ", "canned ", "answer ", None]


def test_the_official_client_asks_asynchronously(server, behind, clip_data):
    async def both():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k") as client:
            asked = {"model": "m", "messages": [user(video(clip_data), QUESTION)]}
            whole, stream = await asyncio.gather(
                client.chat.completions.create(**asked), client.chat.completions.create(**asked, stream=True)
            )
            words = [event.choices[0].delta.content or "" async for event in stream]
            return whole.choices[0].message.content, "".join(words).strip()

    assert asyncio.run(both()) == ("a canned answer", "a canned answer")


def test_the_official_client_calls_tools(client, behind, clip_data):
    call = {"id": "1", "type": "function", "function": {"name": "zoom", "arguments": '{"second": 6}'}}

    async def reply(exchange):
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
        shape = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        await exchange.whole(shape)

    behind.reply = reply
    tool = {"type": "function", "function": {"name": "zoom", "parameters": {"type": "object"}}}
    asked = {"messages": [user(video(clip_data), QUESTION)], "tools": [tool], "tool_choice": "required"}
    answer = client.chat.completions.create(model="m", **asked)
    assert answer.choices[0].message.tool_calls[0].function.name == "zoom"
    assert behind.requests[-1].json["tools"] == [tool]


# What passes through


def test_a_stream_flows_piece_by_piece(server, behind, clip_data):
    heard = threading.Event()
    ask(server, [user(video(clip_data), QUESTION)])  # so that the stream does not begin with comments

    async def reply(exchange):
        await exchange.start(kind="text/event-stream")
        await exchange.piece(b"data: one\r\n\r\n: a comment\n")
        assert await asyncio.to_thread(heard.wait, PATIENCE)  # what was sent has arrived
        await exchange.piece(b"data: [DO", more=True)
        await exchange.piece(b"NE]", more=False)

    behind.reply = reply
    body = {"messages": [user(video(clip_data), QUESTION)], "stream": True}
    with server.http.stream("POST", "/v1/chat/completions", json=body) as response:
        pieces = response.iter_raw()
        assert next(pieces) == b"data: one\r\n\r\n: a comment\n"
        heard.set()
        assert b"".join(pieces) == b"data: [DONE]"


def test_other_paths_methods_and_errors_pass(server, behind):
    async def reply(exchange):
        headers = {
            "x_ratelimit_remaining": "3",
            "set_cookie": "framenest=x; path=/",
            "access_control_allow_origin": "*",
            "clear_site_data": '"*"',
            "x_frame_options": "ALLOWALL",
            "content_security_policy": "default-src *",
            "referrer_policy": "unsafe-url",
        }
        await exchange.whole(b"no such file", 404, retry_after="7", **headers)

    behind.reply = reply
    answer = server.http.delete("/v1/files/a%2Fb?limit=2&x=%20")
    asked = behind.requests[-1]
    assert (asked.method, asked.path, asked.query) == ("DELETE", "/v1/files/a%2Fb", "limit=2&x=%20")
    assert (answer.status_code, answer.text, answer.headers["retry-after"]) == (404, "no such file", "7")
    assert answer.headers["x-ratelimit-remaining"] == "3"
    assert not {"set-cookie", "access-control-allow-origin", "clear-site-data"} & set(answer.headers)
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    for method in ("HEAD", "OPTIONS"):
        assert server.http.request(method, "/v1/files", headers={"connection": "close"}).status_code == 404
    assert "Traceback" not in server.log
    sent = server.http.post(
        "/v1/audio/transcriptions", content=b"\x00\xff", headers={"cookie": "framenest=1"}
    )
    assert sent.status_code == 404
    assert behind.requests[-1].body == b"\x00\xff"
    assert "cookie" not in behind.requests[-1].headers


@pytest.mark.parametrize("path", ["/v1/../metrics", "/v1/%2e%2e/metrics", "/v1/a/..%2f..%2fmetrics"])
def test_no_path_leads_out_of_the_api(server, behind, path):
    before = len(behind.requests)
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)) as connection:
        connection.request("GET", path)  # httpx would resolve it
        assert connection.getresponse().status == 400
    assert len(behind.requests) == before


def test_without_an_upstream_there_is_no_gateway(serve):
    server = serve()
    for answer in (server.http.get("/v1/models"), ask(server, [user(QUESTION)])):
        assert answer.status_code == 404
        assert "--upstream" in answer.json()["error"]["message"]
    assert server.http.get("/health").json()["answer_model"] is None


# Keys and limits


def test_the_servers_token_lets_in_and_goes_no_further(serve, behind, clip_data):
    server = serve("--upstream", behind.url, token=TOKEN, env={"FRAMENEST_TOKEN": TOKEN})
    bare = httpx.post(f"{server.url}/v1/chat/completions", json={"messages": []})
    assert bare.status_code == 401
    assert bare.json()["error"]["type"] == "authentication_error"
    stranger = openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong")
    with stranger, pytest.raises(openai.AuthenticationError, match="a token is needed"):
        stranger.models.list()
    assert ask(server, [user(video(clip_data), QUESTION)]).status_code == 200
    assert "authorization" not in behind.requests[-1].headers
    assert TOKEN not in str(behind.requests[-1])


@pytest.mark.parametrize("given", ["token", "session"])
def test_the_servers_token_goes_no_further_wherever_a_client_puts_it(serve, behind, given):
    """By its value: which names clients use for a key is theirs to choose."""
    token = "a-token+of/the:tests=0123456789"
    server = serve("--upstream", behind.url, token=token, env={"FRAMENEST_TOKEN": token})
    secret = token if given == "token" else session(token)
    quoted = "".join(f"%{ord(letter):02x}" for letter in secret)
    names = ["api-key", "x-api-key", "x-goog-api-key", "referer", "x-own", "proxy-authorization"]
    headers = {name: f"https://here/?key={secret}&x=1" if name == "referer" else secret for name in names}
    headers |= {"x-quoted": quoted, "x-inside": f"Token {secret};", "x-kept": "kept"}
    url = f"{server.url}/v1/models?a=1&key={secret}&api-key={quoted}&b=x%20{quoted}x&c=2"
    answer = server.http.get(url, headers=headers)
    assert answer.status_code == 200
    asked = behind.requests[-1]
    assert asked.query == "a=1&c=2"
    assert asked.headers["x-kept"] == "kept"
    assert secret not in str(asked)
    assert quoted not in str(asked)
    before = len(behind.requests)
    for named in (secret.replace("/", "%2f"), quoted):
        refused = server.http.get(f"{server.url}/v1/{named}")
        assert refused.status_code == 400
        assert secret not in refused.text
    assert len(behind.requests) == before
    assert given == "session" or token not in server.log


def test_the_upstreams_key_comes_from_the_environment_and_is_not_logged(serve, behind, clip_data):
    key = "key-of-the-upstream-42"
    url = behind.url.replace("://", "://user:password-of-the-upstream@")
    for where in (behind.url, url):
        server = serve("--upstream", where, env={"OPENAI_API_KEY": key})
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="a-key-of-a-client") as client:
            asked = [user(video(clip_data), {"type": "text", "text": "A private question?"})]
            client.chat.completions.create(model="m", messages=asked)
        sent = behind.requests[-1].headers["authorization"]
        assert sent == (f"Bearer {key}" if where == behind.url else sent)
        assert "a-key-of-a-client" not in sent
        server.stop()
        assert "POST /v1/chat/completions 200" in server.log
        for hidden in (key, "password-of", "private question", clip_data[:60], "a-key-of-a-client"):
            assert hidden not in server.log


def test_large_requests_are_bounded(serve, behind, clip_data):
    server = serve("--upstream", behind.url, "--max-upload", "2MiB")
    text = {"type": "text", "text": "x" * 100_000}  # more than other routes take
    assert ask(server, [user(text)]).status_code == 200
    large = ask(server, [user(video(clip_data), {"type": "text", "text": "x" * 2**22})])
    assert large.status_code == 413
    assert "at most" in large.json()["error"]["message"]

    def unmeasured():
        yield b"{}"

    answer = server.http.post("/v1/chat/completions", content=unmeasured())
    assert answer.status_code == 411
    assert "error" in answer.json()
    assert server.http.post("/videos", content="x" * 100_000).status_code == 413


@pytest.mark.parametrize("measured", [True, False])
def test_no_request_for_reading_brings_gigabytes(serve, behind, measured):
    """A body is bounded whatever the method: a GET has none."""
    server, before = serve("--upstream", behind.url), len(behind.requests)

    def large():
        for _ in range(1000):
            yield bytes(10**6)

    length = {"content-length": str(10**9)} if measured else {}
    with suppress(httpx.WriteError, httpx.ReadError):  # it is refused before it is all sent
        answer = server.http.request("GET", "/v1/models", content=large(), headers=length)
        assert answer.status_code == (413 if measured else 411)
    assert len(behind.requests) == before
    assert own_memory(server.process.pid) < 400 * MIB


def test_a_conversation_has_a_bounded_number_of_videos(server, behind, media):
    one, before = video((media / "clip.mp4").as_uri()), len(behind.requests)
    assert ask(server, [user(*[one] * 3, QUESTION)]).status_code == 200
    answer = ask(server, [user(*[one] * 200), said("Yes."), user(*[one] * 57, QUESTION)])
    assert (answer.status_code, len(behind.requests)) == (400, before + 1)
    assert answer.json()["error"]["message"] == "a conversation has at most 256 videos"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("deep", [True, False])
def test_an_answer_that_does_not_come_to_the_point_is_passed_on(server, behind, clip_data, stream, deep):
    """Held back is only so much, and what cannot be read is an answer."""
    arrived = threading.Event()
    ask(server, [user(video(clip_data), QUESTION)])  # so that the stream does not begin with comments

    async def reply(exchange):
        await exchange.start(kind="text/event-stream" if stream else "application/json")
        if deep:
            await exchange.piece(b"data: " + b"[" * 100_000 + b"\n\n")
        else:
            while not arrived.is_set():
                await exchange.piece(b": thinking\n\n" * 1000 if stream else b" " * 10_000)
        await exchange.piece(b"", more=False)

    behind.reply = reply
    body = {"messages": [user(video(clip_data), QUESTION)], "stream": stream, "framenest": {"k": [2, 4]}}
    with server.http.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200
        assert next(response.iter_raw())
        arrived.set()


def test_too_long_a_video_is_413_and_a_full_queue_429(serve, behind, media, clip_data):
    server = serve("--upstream", behind.url, "--max-upload", "1KiB", "--queue", "1", videos=media)
    small = ask(server, [user(video(clip_data), QUESTION)])
    assert small.status_code == 413, small.text
    address = (media / "clip.mp4").as_uri()
    refused = []

    def client(n):
        text = {"type": "text", "text": f"Question {n}?"}
        answer = httpx.post(
            f"{server.url}/v1/chat/completions",
            json={"messages": [user(video(address), text)]},
            timeout=PATIENCE,
        )
        if answer.status_code != 200:
            refused.append(answer)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert refused
    assert {answer.status_code for answer in refused} == {429}
    assert refused[0].json()["error"]["type"] == "rate_limit_error"
    assert int(refused[0].headers["retry-after"]) > 0


@pytest.mark.parametrize("body", [
    b'{"video', b'["video"]', b'{"x": "\\ud800", "video": 1}', b"[" * 5000 + b'"video',
    b'{"x": "\xff", "video": 1}',
    b'{"\xe9": "video"}', b'\xff{"video": 1}',
])  # fmt: skip
def test_what_is_no_json_object_is_a_400(server, body):
    answer = server.http.post("/v1/chat/completions", content=body)
    assert answer.status_code == 400
    assert "not a JSON object" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "messages", [None, {}, [None, 5, "video"], [{"role": "user", "content": {"video": 1}}]]
)
def test_messages_that_the_upstream_would_refuse_are_left_to_it(server, behind, messages):
    assert ask(server, messages).status_code == 200
    assert behind.messages == messages
