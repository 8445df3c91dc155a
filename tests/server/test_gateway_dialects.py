"""The gateway's other APIs, the clients that speak them, and every shape in which they send a video."""

import asyncio
import base64
import gzip
import io
import json
import threading
from collections import Counter
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from framenest.errors import VideoError
from framenest.image_tokens import TokenBudget
from framenest.lmm.client import Client
from framenest.lmm.prompt import OTHERWISE
from framenest.server import body as body_module
from framenest.server import conversation, gateway
from framenest.server.conversation import thinned
from framenest.server.dialects import DIALECTS, api_path
from framenest.server.rankings import entry
from framenest.server.server_settings import ServerSettings
from media import number_in, numbered_video
from processes import PATIENCE
from upstream import local_gateway, upstream_server

CLIENTS = [json.loads(file.read_text()) for file in sorted(Path(__file__).parent.glob("clients/*.json"))]
RECORDED = [
    pytest.param(request, id=f"{client['client']} {client['version']} {number}")
    for client in CLIENTS
    for number, request in enumerate(client["requests"])
]
"""What clients sent; VIDEO stands for the base64 of a file."""


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
def gate(tmp_path_factory, media, scores, behind):
    folder = tmp_path_factory.mktemp("gate")
    settings = ServerSettings(
        data=folder / "data", cache=str(folder / "cache"), videos=(media,), scorer=scores, port=0,
        upstream=behind.url, budget=(4,),
    )  # fmt: skip
    with local_gateway(settings) as one:
        yield one


@pytest.fixture(autouse=True)
def nothing_remembered(gate):
    """Other tests have the same turns with other settings, which would hold."""
    gate.service.journal.execute("delete from remembered where key like 'shown:%'")


@pytest.fixture(scope="module")
def clip(media):
    return base64.b64encode((media / "clip.mp4").read_bytes()).decode()


def post(gate, path, body, **how):
    return httpx.post(f"{gate.url.removesuffix('/v1')}{path}", json=body, timeout=PATIENCE, **how)


def parts_in(value):
    """All parts of a message, also those inside others."""
    for name in ("content", "output"):
        for part in value.get(name) if isinstance(value.get(name), list) else []:
            yield part
            yield from parts_in(part)


def frame_in(part):
    """The number drawn in an image part of any API."""
    data = {
        "image_url": lambda: part["image_url"]["url"],
        "input_image": lambda: part["image_url"],
        "image": lambda: f",{part['source']['data']}",
    }[part["type"]]()
    return number_in(np.asarray(Image.open(io.BytesIO(base64.b64decode(data.partition(",")[2])))))


def frames_in(message):
    """The frames of a message, if each has its true time before it, in a text part of the same API."""
    parts, numbers = list(parts_in(message)), []
    for before, part in pairwise(parts):
        if part["type"] in ("image_url", "input_image", "image"):
            numbers.append(frame_in(part))
            assert before["text"] == f"<{numbers[-1] / 25:.1f} seconds>"
            assert before["type"] == ("input_text" if part["type"] == "input_image" else "text")
    return numbers


def sent(behind, number=-1):
    """The messages of a request upstream."""
    body = behind.requests[number].json
    return body["input" if "input" in body else "messages"]


def chat(*parts):
    return {"model": "m", "messages": [{"role": "user", "content": list(parts)}]}


QUESTION = {"type": "text", "text": "What happens first?"}
"""That of the recorded bodies: what is ranked once is ranked for all tests."""


def asked_for(gate, answer):
    """The question for which the frames of a request were chosen."""
    id_ = answer.headers["framenest-ranking"].partition("#")[2].partition("&")[0]
    return entry(gate.service.rankings.row(id_))["question"]


# Recorded bodies


@pytest.mark.parametrize("recorded", RECORDED)
def test_what_clients_send_becomes_frames(gate, behind, clip, recorded):
    body = json.loads(json.dumps(recorded["body"]).replace("VIDEO", clip))
    before, follows = len(behind.requests), body.pop("previous_response_id", None)
    answer = post(gate, recorded["path"], body)
    assert answer.status_code == 200, answer.text
    assert len(behind.requests) == before + 1
    exchange = behind.requests[-1]
    assert exchange.path == recorded["path"]
    assert clip[:400].encode() not in exchange.body
    messages, turns = sent(behind), 0 if follows else 1
    if isinstance(messages, str):  # it follows a response that this gateway does not know
        assert messages == body["input"]
        return
    assert sum(bool(frames_in(message)) for message in messages) >= turns
    shown = next(frames_in(message) for message in messages if frames_in(message))
    assert len(shown) == 4
    assert {name: exchange.json[name] for name in body.keys() - {"input", "messages"}} == {
        name: body[name] for name in body.keys() - {"input", "messages"}
    }


def test_every_recorded_client_has_a_version_and_a_video():
    assert len(CLIENTS) > 6
    for client in CLIENTS:
        assert client["version"][0].isdigit()
        assert "VIDEO" in json.dumps(client["requests"])


# The official clients


@pytest.fixture
def openai_client(gate):
    openai = pytest.importorskip("openai", reason="needs the extra `ask`")
    with openai.OpenAI(base_url=gate.url, api_key="k", max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic_client(gate):
    anthropic = pytest.importorskip("anthropic", reason="needs the extra `test-server`")
    with anthropic.Anthropic(base_url=gate.url.removesuffix("/v1"), api_key="k", max_retries=0) as client:
        yield client


def input_file(clip):
    return {"type": "input_file", "file_data": f"data:video/mp4;base64,{clip}", "filename": "clip.mp4"}


def document(clip):
    source = {"type": "base64", "media_type": "video/mp4", "data": clip}
    return {"type": "document", "title": "clip.mp4", "source": source}


@pytest.mark.parametrize("stream", [False, True])
def test_responses_with_the_official_client(openai_client, behind, clip, stream):
    """Follow-ups resend the conversation, or name the response before; both add only new frames."""
    asked = {"type": "input_text", "text": QUESTION["text"]}
    first = {"role": "user", "content": [input_file(clip), asked]}
    settings = {"framenest": {"k": 8}}

    def ask(given, **how):
        answer = openai_client.responses.create(model="m", input=given, stream=stream, **how)
        if not stream:
            return answer.output_text, answer.id
        events = list(answer)
        words = [event.delta for event in events if event.type == "response.output_text.delta"]
        return "".join(words).strip(), events[0].response.id

    text, id_ = ask([first])
    assert text == "a canned answer"
    (shown,) = sent(behind)
    assert len(frames_in(shown)) == 4
    assert shown["content"][-1] == asked
    further = {"role": "user", "content": "And then?"}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    assert ask([first, said, further], extra_body=settings)[0] == text
    again, _, later = sent(behind)
    assert again == shown
    new = frames_in(later)
    assert new
    assert not set(new) & set(frames_in(shown))
    assert later["content"][-1] == {"type": "input_text", "text": "And then?"}
    text, second = ask("And then?", previous_response_id=id_, extra_body=settings)
    assert text == "a canned answer"
    assert sent(behind) == [later]
    assert behind.requests[-1].json["previous_response_id"] == id_
    ask("And last?", previous_response_id=second, extra_body={"framenest": {"k": 16}})
    (last,) = sent(behind)
    assert not set(frames_in(last)) & {*new, *frames_in(shown)}


def test_a_response_that_nobody_knows_is_the_upstreams_error(gate, behind):
    async def reply(exchange):
        await exchange.whole({"error": {"message": "no response resp_0"}}, 404)

    behind.reply = reply
    body = {"model": "m", "input": "And then?", "previous_response_id": "resp_0"}
    answer = post(gate, "/v1/responses", body)
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, "no response resp_0")
    assert behind.requests[-1].json == body


@pytest.mark.parametrize("stream", [False, True])
def test_messages_with_the_official_client(anthropic_client, behind, clip, stream):
    first = {"role": "user", "content": [document(clip), QUESTION]}

    def ask(messages, **how):
        given = {"model": "m", "max_tokens": 9, "messages": messages, **how}
        if not stream:
            return anthropic_client.messages.create(**given).content[0].text
        with anthropic_client.messages.stream(**given) as events:
            return events.get_final_text().strip()

    assert ask([first]) == "a canned answer"
    (shown,) = sent(behind)
    assert len(frames_in(shown)) == 4
    assert shown["content"][-1] == QUESTION
    further = {"role": "user", "content": "And then?"}
    said = {"role": "assistant", "content": "a canned answer"}
    assert ask([first, said, further], extra_body={"framenest": {"k": 8}}) == "a canned answer"
    again, _, later = sent(behind)
    assert again == shown
    assert frames_in(later)
    assert not set(frames_in(later)) & set(frames_in(shown))


def test_frames_stay_behind_the_results_of_tools(gate, behind, clip):
    """Anthropic wants those first; a video inside one becomes frames there."""
    use = {"type": "tool_use", "id": "1", "name": "record", "input": {"video": "file:///a.mp4"}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [document(clip)]}
    messages = [
        {"role": "user", "content": "What happens first?"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [use | {"id": "2"}]},
        {
            "role": "user",
            "content": [
                result | {"tool_use_id": "2", "content": "ok"},
                {"type": "text", "text": "And then?"},
            ],
        },
    ]
    assert post(gate, "/v1/messages", {"messages": messages[:3]}).status_code == 200
    (shown,) = sent(behind)[2]["content"]
    assert shown["tool_use_id"] == "1"
    assert len(frames_in(shown)) == 4
    assert sent(behind)[:2] == messages[:2]
    assert post(gate, "/v1/messages", {"messages": messages, "framenest": {"k": 8}}).status_code == 200
    last = sent(behind)[4]["content"]
    assert last[0] == messages[4]["content"][0]
    assert last[-1] == {"type": "text", "text": "And then?"}
    assert len(frames_in(sent(behind)[4])) > 1


def test_errors_have_the_shape_of_their_api(openai_client, anthropic_client, behind):
    import anthropic
    import openai

    missing, before = (
        {"type": "video", "source": {"type": "url", "url": "file:///no.mp4"}},
        len(behind.requests),
    )
    with pytest.raises(
        anthropic.BadRequestError, match=r"messages\[0\]\.content\[0\]: .*outside the folder"
    ) as wrong:
        anthropic_client.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": [missing]}]
        )
    assert wrong.value.body["error"]["type"] == "invalid_request_error"
    given = [{"role": "user", "content": [{"type": "input_file", "file_url": "file:///no.mp4"}]}]
    with pytest.raises(openai.BadRequestError, match=r"input\[0\]\.content\[0\]: .*outside the folder"):
        openai_client.responses.create(model="m", input=given)
    assert len(behind.requests) == before


@pytest.mark.parametrize(("path", "body"), [
    ("/v1/responses", {"input": [{"role": "user", "content": ["VIDEO"]}]}),
    ("/v1/messages", {"messages": [{"role": "user", "content": ["VIDEO"]}]}),
])  # fmt: skip
@pytest.mark.parametrize("status", [404, 405, 501])
def test_an_upstream_without_that_api_is_said(gate, behind, clip, path, body, status):
    async def reply(exchange):
        await exchange.whole({"detail": "Not Found"}, status)

    behind.reply = reply
    body = json.loads(json.dumps(body).replace('"VIDEO"', json.dumps(document(clip))))
    answer = post(gate, path, {"model": "m-1", **body})
    assert answer.status_code == 501
    message = answer.json()["error"]["message"]
    assert "/v1/chat/completions" in message
    assert path in message
    assert "\n" not in message
    without = post(gate, path, {"model": "m-1"})  # what has no video is none of our business
    assert (without.status_code, without.json()) == (status, {"detail": "Not Found"})

    async def unknown(exchange):
        await exchange.whole({"error": {"message": "there is no model m-1"}}, 404)

    behind.reply = unknown
    assert post(gate, path, {"model": "m-1", **body}).status_code == 404


# Any shape of video


SHAPES = {
    "input_video data": {"type": "input_video", "input_video": {"data": "VIDEO"}},
    "input_video url": {"type": "input_video", "input_video": {"url": "data:video/mp4;base64,VIDEO"}},
    "image_url": {"type": "image_url", "image_url": {"url": "data:video/mp4;base64,VIDEO"}},
    "image_url, as image": {"type": "image_url", "image_url": {"url": "data:image/png;base64,VIDEO"}},
    "image_url, plain": {"type": "image_url", "image_url": "data:video/mp4;base64,VIDEO"},
    "video_url, plain": {"type": "video_url", "video_url": "data:video/mp4;base64,VIDEO"},
    "video_url, base64": {"type": "video_url", "video_url": {"url": "VIDEO"}},
    "no type": {"video_url": {"url": "data:video/mp4;base64,VIDEO"}},
    "mimeType": {"type": "video", "data": "VIDEO", "mimeType": "video/mp4"},
    "base64": {"type": "video", "base64": "VIDEO", "mime_type": "video/mp4"},
    "media": {"type": "media", "data": "VIDEO", "mime_type": "video/mp4"},
    "file, base64": {"type": "file", "file": {"file_data": "VIDEO", "filename": "clip.mp4"}},
    "file, no name": {"type": "file", "file": {"file_data": "VIDEO"}},
    "octet-stream": {"type": "file", "file": {"file_data": "data:application/octet-stream;base64,VIDEO"}},
    "pdf": {"type": "file", "file": {"file_data": "data:application/pdf;base64,VIDEO", "filename": "a.pdf"}},
    "no media type": {"type": "file", "file": {"file_data": "data:;base64,VIDEO"}},
    "codecs": {"type": "video_url", "video_url": {"url": 'data:video/mp4;codecs="avc1";base64,VIDEO'}},
    "upper case": {"type": "video_url", "video_url": {"url": "DATA:Video/MP4;BASE64,VIDEO"}},
    "file id": {"type": "file", "file": {"file_id": "framenest://@ID"}},
    "file url": {"type": "file", "file": {"file_data": "@URI"}},
    "source": {"type": "video", "source": {"type": "base64", "media_type": "video/mp4", "data": "VIDEO"}},
    "an image's source": {"type": "image", "source": {"type": "base64", "data": "VIDEO"}},
    "one slash": {"type": "video_url", "video_url": {"url": "file:@PATH"}},
    "white space": {"type": "audio", "audio_url": {"url": " @URI"}},
    "line breaks": {"type": "image_url", "image_url": {"url": "data:video/mp4;base64,LINES"}},
    "of addresses, unpadded": {"type": "file", "file": {"file_data": "OTHER"}},
    "inline_data": {"inline_data": {"mime_type": "video/mp4", "data": "VIDEO"}},
    "file_data": {"file_data": {"mime_type": "video/mp4", "file_uri": "@URI"}},
    "fileData": {"fileData": {"mimeType": "video/mp4", "fileUri": "@URI"}},
    "Bedrock": {"video": {"format": "mp4", "source": {"bytes": "VIDEO"}}},
    "MCP": {"type": "resource", "resource": {"uri": "a://b", "mimeType": "video/mp4", "blob": "VIDEO"}},
    "attachment": {"type": "attachment", "attachment": {"url": "@URI"}},
    "its content": {"type": "attachment", "attachment": {"content": "VIDEO"}},
    "sound, it says": {"type": "input_audio", "input_audio": {"data": "VIDEO", "format": "mp3"}},
    "audio_url": {"type": "audio_url", "audio_url": {"url": "data:video/mp4;base64,VIDEO"}},
    "unknown": {"type": "custom", "payload": {"clip": {"anything": "VIDEO"}}},
    "hidden": {"type": "custom", "url": "a", "payload": {"url": "@URI"}},
    "id first": {"type": "video", "id": "lc_1", "base64": "VIDEO", "mime_type": "video/mp4"},
    "mediaType": {"type": "file", "data": "VIDEO", "mediaType": "video/mp4"},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_any_shape_is_a_video(gate, behind, media, clip, shape):
    file = media / "clip.mp4"
    id_ = gate.service.library.add_path(str(file)).id
    text = (
        json.dumps(SHAPES[shape])
        .replace("@URI", file.as_uri())
        .replace("@PATH", str(file))
        .replace("@ID", id_)
    )
    lines = "\\r\\n".join(clip[place : place + 76] for place in range(0, len(clip), 76))
    other = clip.rstrip("=").replace("+", "-").replace("/", "_")
    part = json.loads(text.replace("VIDEO", clip).replace("LINES", lines).replace("OTHER", other))
    answer = post(gate, "/v1/chat/completions", chat(part, QUESTION))
    assert answer.status_code == 200, answer.text
    assert len(frames_in(sent(behind)[0])) == 4


@pytest.mark.parametrize("role", ["system", "developer", "user", "tool"])
def test_a_video_in_any_message_becomes_frames(gate, behind, clip, role):
    """What the user says chooses them."""
    part = {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{clip}"}}
    other = {"role": role, "content": [{"type": "text", "text": "Be brief."}, part]}
    messages = [{"role": "user", "content": "What happens first?"}]
    calls = [{"role": "assistant", "tool_calls": [{"id": "1"}]}, other | {"tool_call_id": "1"}]
    messages = [*messages, *calls] if role == "tool" else [other, *messages]
    answer = post(gate, "/v1/chat/completions", {"messages": messages})
    assert answer.status_code == 200
    assert [len(frames_in(message)) for message in sent(behind) if "tool_calls" not in message] in (
        [4, 0],
        [0, 4],
    )
    both = "Be brief.\nWhat happens first?"
    assert asked_for(gate, answer) == (both if role == "user" else "What happens first?")


def test_what_is_no_video_stays(gate, behind):
    texts = {"type": "text", "media_type": "text/plain", "data": "See: it is in talk.mp4"}
    pdf = base64.b64encode(b"%PDF-1.7" + bytes(400)).decode()
    parts = [
        {"type": "document", "title": "talk.mp4", "source": texts},
        {"type": "document", "title": "talk.mp4", "source": {"media_type": "application/pdf", "data": pdf}},
        {"type": "input_audio", "input_audio": {"data": "AAAAHGZ0eXBNNEEg", "format": "mp4"}},
        {"type": "file", "file": {"file_data": "data:audio/mp4;base64,AAAAHGZ0eXBpc29t"}},
        {
            "type": "image",
            "source": {"type": "base64", "data": base64.b64encode(b"GIF89a" + bytes(400)).decode()},
        },
        {"type": "image_url", "image_url": {"url": "data:image/avif;base64,AAAAHGZ0eXBhdmlm"}},
        {"type": "web_search_result", "url": "https://example.org/talk.mp4", "title": "A talk"},
        {"type": "text", "text": "data:video/mp4;base64,AAAA"},
    ]
    body = json.dumps({"messages": [{"role": "user", "content": parts}]}, indent=1).encode()
    assert httpx.post(f"{gate.url}/messages", content=body).status_code == 200
    assert behind.requests[-1].body == body


@pytest.mark.parametrize(("part", "told"), [
    ({"type": "video_url", "video_url": {"url": "/home/me/kiln.mp4"}}, "give file:///folder/kiln.mp4"),
    ({"type": "file", "file": {"file_id": "file-1", "filename": "kiln.mp4"}}, "'file-1' is no address"),
    ({"type": "file", "file": {"file_data": "https://host/kiln.mp4"}}, "hosts that it was told to allow"),
    ({"type": "input_file", "file_url": "https://host/kiln.webm?x=1"}, "hosts that it was told to allow"),
    ({"type": "image_url", "image_url": {"url": "FILE:///etc/passwd"}}, "outside the folder"),
    ({"type": "video", "video": ["file:///1.jpg", "file:///2.jpg"]}, "frames at file://"),
    ({"type": "file", "file": {"file_data": "data:;base64,AAAA", "filename": "kiln.MOV"}}, "not accepted"),
    ({"type": "input_video", "input_video": {"data": "%" * 10_000}}, "not base64"),
    ({"type": "file", "file": {"file_data": "/home/me/kiln.mp4"}}, "give file:///folder/kiln.mp4"),
    ({"type": "image_url", "image_url": {"url": r"C:\kiln.mp4"}}, "give file:///folder/kiln.mp4"),
    ({"type": "file", "file": {"file_id": "https://h/x", "format": "video/mp4"}}, "it was told to allow"),
    ({"type": "file", "file": {"file_id": "gs://b/x.mp4", "format": "video/mp4"}}, "it was told to allow"),
    ({"type": "video_url"}, "there is no video"), ({"type": "video_url", "video_url": None}, "is no video"),
    ({"video": {"source": {"s3Location": {"uri": "s3://b/x.mp4"}}}}, "there is no video in this part"),
    ({"type": "video", "video": 5}, "is no video"), ({"type": "video", "video": {"url": 5}}, "is no video"),
    ({"type": "video_url", "video_url": [{"url": "https://h/x.mp4"}]}, "there is no video in this part"),
    ({"type": "text", "text": "See", "video_url": {"url": "file:///a.mp4"}}, "no frames are chosen here"),
])  # fmt: skip
def test_a_video_that_cannot_be_read_is_an_error_that_names_its_part(gate, behind, part, told):
    before = len(behind.requests)
    answer = post(gate, "/v1/chat/completions", chat({"type": "text", "text": "?"}, part))
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert message.startswith("messages[0].content[1]: ")
    assert told in message
    assert "\n" not in message
    assert len(behind.requests) == before


@pytest.mark.parametrize(("path", "body"), [
    ("/v1/embeddings", {"input": [{"content": ["VIDEO"]}]}),
    ("/v1/embeddings", ["VIDEO"]),
    ("/v1/messages/batches", {"requests": [{"params": {"messages": [{"content": ["VIDEO"]}]}}]}),
    ("/v1/completions/", {"prompt": "VIDEO"}),
    ("/v1/responses", {"input": "?", "prompt": {"variables": {"clip": "VIDEO"}}}),
    ("/v1/messages", {"messages": [], "system": ["VIDEO"]}),
    ("/v1/chat/completions", {"messages": ["VIDEO"]}),
    ("/v1/chat/completions", {"messages": {"0": {"content": ["VIDEO"]}}}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "?", "files": ["VIDEO"]}]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"parts": ["VIDEO"]}]}]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"a": {"b": {"c": ["VIDEO"]}}}]}]}),
    ("/v1/responses", {"input": {"role": "user", "content": ["VIDEO"]}}),
    ("/v1/responses", "VIDEO"),
])  # fmt: skip
@pytest.mark.parametrize("local", [True, False])
def test_a_video_where_no_frames_are_chosen_goes_no_further(gate, behind, clip, path, body, local):
    address = "file:///home/me/talk.mp4" if local else f"data:video/mp4;base64,{clip}"
    part, before = {"type": "input_file", "file_data": address}, len(behind.requests)
    answer = post(gate, path, json.loads(json.dumps(body).replace('"VIDEO"', json.dumps(part))))
    assert answer.status_code == 400
    assert "\n" not in answer.json()["error"]["message"]
    assert len(behind.requests) == before


@pytest.mark.parametrize(("path", "body", "place"), [
    ("embeddings", {"input": ["a", "DATA"]}, "input[1]"),
    ("chat/completions", {"messages": [{"role": "user", "content": "?", "images": ["RAW"]}]},
     "messages[0].images[0]"),
    ("messages", {"messages": [], "mm": {"video_urls": ["DATA"]}}, "mm.video_urls[0]"),
    ("responses", {"input": [{"role": "user", "content": [{"type": "media", "blobs": ["RAW"]}]}]},
     "input[0].content[0].blobs[0]"),
])  # fmt: skip
def test_a_video_in_a_list_of_texts_goes_no_further(gate, behind, clip, path, body, place):
    before = len(behind.requests)
    text = json.dumps(body).replace("DATA", "data:video/mp4;base64,RAW").replace("RAW", clip)
    answer = httpx.post(f"{gate.url}/{path}", content=text, timeout=PATIENCE)
    assert (answer.status_code, len(behind.requests)) == (400, before)
    assert answer.json()["error"]["message"].startswith(f"{place}: no frames are chosen here; ")


@pytest.mark.parametrize("method", ["POST", "PUT", "GET", "DELETE"])
@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize("path", ["/v1/rerank", "/v1/chat/completions"])
def test_what_a_body_is_called_does_not_matter(gate, behind, clip, method, kind, path):
    """`curl -d` calls everything a form."""
    content = b" \n" + json.dumps({"documents": [document(clip)]}).encode()
    headers, before = {"content-type": kind} if kind else {}, len(behind.requests)
    url = f"{gate.url.removesuffix('/v1')}{path}"
    answer = httpx.request(method, url, content=content, headers=headers, timeout=PATIENCE)
    assert (answer.status_code, len(behind.requests)) == (400, before)
    assert answer.json()["error"]["message"].startswith("documents[0]: no frames are chosen here; ")


@pytest.mark.parametrize("content", [b"[" * 3000 + b"]" * 3000, b'{"a":' * 3000 + b"1" + b"}" * 3000])
@pytest.mark.parametrize("path", ["embeddings", "chat/completions"])
def test_json_too_deep_to_be_looked_through_is_a_400(gate, behind, content, path):
    before = len(behind.requests)
    answer = httpx.post(f"{gate.url}/{path}", content=content, timeout=PATIENCE)
    assert (answer.status_code, len(behind.requests)) == (400, before)
    assert "\n" not in answer.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["lists", "parts"])
@pytest.mark.parametrize("depth", [90, 110, 250, 400])
def test_a_video_deep_inside_parts_becomes_frames_or_an_error(gate, behind, media, kind, depth):
    """Deeper ones were a 500."""
    part = {"type": "video_url", "video_url": {"url": (media / "clip.mp4").as_uri()}}
    for _ in range(depth):
        part = [part] if kind == "lists" else {"content": [part]}
    answer = post(gate, "/v1/chat/completions", chat(part, QUESTION))
    assert answer.status_code == (200 if depth == 90 else 400), answer.text
    assert depth == 90 or "more than 100 deep" in answer.json()["error"]["message"]


@pytest.mark.parametrize("content", [b"not JSON", b'{"x": NaN}', b"{", b"", b'{"input": "\xff"}', b"5"])
def test_what_is_not_json_passes_elsewhere(gate, behind, content):
    behind.reply = lambda exchange: exchange.whole({"ok": True})
    assert httpx.post(f"{gate.url}/embeddings", content=content).status_code == 200
    assert behind.requests[-1].body == content


def test_uploads_pass(gate, behind, media):
    behind.reply = lambda exchange: exchange.whole({"id": "file-1"})
    files = {"file": ("clip.mp4", (media / "clip.mp4").read_bytes(), "video/mp4")}
    assert httpx.post(f"{gate.url}/files", files=files, data={"purpose": "user_data"}).status_code == 200
    assert (media / "clip.mp4").read_bytes() in behind.requests[-1].body


def test_a_page_that_cannot_be_read_is_an_error_that_names_its_part(gate, behind, monkeypatch):
    told = "https://host/a-page: no video can be fetched from this page (it shows none)"

    def fetch(url):
        raise VideoError(told)

    monkeypatch.setattr(gate.service.library, "fetch", fetch)
    before = len(behind.requests)
    part = {"type": "video_url", "video_url": {"url": "https://host/a-page"}}
    answer = post(gate, "/v1/chat/completions", chat(QUESTION, part))
    assert (answer.status_code, len(behind.requests)) == (400, before)
    assert answer.json()["error"]["message"] == f"messages[0].content[1]: {told}"


# The same request


@pytest.mark.parametrize(
    "path",
    ["//v1/chat/completions", "/v1//chat//completions/", "/chat/completions", "/v1/v1/chat/completions"],
)
def test_other_spellings_of_a_path_are_the_same_request(gate, behind, clip, path):
    part = {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{clip}"}}
    assert post(gate, path, chat(part, QUESTION)).status_code == 200
    assert behind.requests[-1].path == "/v1/chat/completions"
    assert len(frames_in(sent(behind)[0])) == 4


def test_only_the_known_paths_are_spelled_anew():
    for name in DIALECTS:
        assert {
            api_path(f"{before}/{name}{after}")
            for before in ("", "/", "/v1", "//v1/")
            for after in ("", "//")
        } == {f"/v1/{name}"}
    for path in (
        "/",
        "/v1",
        "/v1/",
        "/v1/models/",
        "//v1/files",
        "/x/v1/messages",
        "/v1/messages/x",
        "/v1messages",
    ):
        assert api_path(path) == path
    assert api_path("/v1//messages/count_tokens/") == "/v1/messages/count_tokens"


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/v1/responses/input_tokens"])
def test_tokens_are_counted_with_frames(gate, behind, clip, path):
    body = {"messages" if "messages" in path else "input": [{"role": "user", "content": [document(clip)]}]}
    assert post(gate, path, body).status_code == 200
    assert len(frames_in(sent(behind)[0])) == 4


def test_a_packed_body_is_the_same_request(gate, behind, clip):
    part = {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{clip}"}}
    body = gzip.compress(json.dumps(chat(part, QUESTION)).encode())
    half = len(body) // 2
    for packed in (body, body[:half] + body[half:]):
        answer = httpx.post(
            f"{gate.url}/chat/completions",
            content=packed,
            headers={"content-encoding": "gzip"},
            timeout=PATIENCE,
        )
        assert answer.status_code == 200, answer.text
        assert "content-encoding" not in behind.requests[-1].headers
        assert len(frames_in(sent(behind)[0])) == 4


@pytest.mark.parametrize(("packed", "how", "status"), [
    (b"{}", "br", 415), (b"{}", "gzip", 400), (gzip.compress(b"{}", mtime=0)[:-9], "gzip", 400),
    (gzip.compress(bytes(2**21), mtime=0), "gzip", 413),
])  # fmt: skip
def test_a_body_that_cannot_be_unpacked_is_refused(gate, behind, monkeypatch, packed, how, status):
    monkeypatch.setattr(body_module, "MAX_UNPACKED_BYTES", 2**20)
    before = len(behind.requests)
    answer = httpx.post(f"{gate.url}/chat/completions", content=packed, headers={"content-encoding": how})
    assert answer.status_code == status
    assert len(behind.requests) == before


# Turns


def test_a_video_and_its_question_in_two_messages_are_one_turn(gate, behind, clip):
    part = {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{clip}"}}
    asked = [{"role": "user", "content": [part]}, {"role": "user", "content": "What happens first?"}]
    answer = post(gate, "/v1/chat/completions", {"messages": asked})
    assert answer.status_code == 200
    first, second = sent(behind)
    assert len(frames_in(first)) == 4
    assert second == asked[1]
    assert asked_for(gate, answer) == "What happens first?"
    more = [*asked, {"role": "assistant", "content": "A kiln."}, {"role": "user", "content": "And then?"}]
    assert post(gate, "/v1/chat/completions", {"messages": more}).status_code == 200
    assert sent(behind)[:2] == [first, second]


def test_thinning_takes_from_the_oldest_first():
    kiln, shelf = ("kiln", range(100)), ("shelf", range(100))
    assert thinned([(8, [kiln]), (16, [kiln])], 16, {}) == [8, 16]  # 8 of the 16 are shown already
    assert thinned([(8, [kiln]), (8, [shelf])], 15, {}) == [2, 8]
    assert thinned([(8, [kiln]), (8, [shelf])], 8, {}) == [0, 8]
    assert thinned([(64, [kiln, shelf])], 10, {}) == [5]
    assert thinned([(64, [kiln, shelf])], 1, {}) == [0]
    assert thinned([(4, [kiln])], 2, {"kiln": [0, 1]}) == [4]
    assert thinned([(64, [shelf]), (200, [("kiln", range(300))])], 256, {}) == [32, 200]  # as many as fit
    assert thinned([(64, [shelf]), (300, [("kiln", range(400))])], 256, {}) == [0, 256]
    assert thinned([(8, [kiln, kiln]), (8, [kiln]), (4, [shelf])], 10, {}) == [0, 2, 4]
    assert thinned([], 2, {}) == []


def test_thinned_turns_stay_for_some_turns():
    """Whoever adds a turn to a full conversation does not change all of it every time."""
    turns = [(32, [(f"video {n}", range(100))]) for n in range(40)]
    states = [thinned(turns[: n + 1], 256, {}) for n in range(40)]
    assert all(sum(state) <= 256 for state in states)
    assert all(state[-1] == 32 for state in states)
    changed = sum(before != after[:-1] for before, after in pairwise(states))
    assert 0 < changed <= 20


def test_a_conversation_has_a_limit_of_images(gate, behind, media, clip, monkeypatch):
    """The oldest turns shrink, as prefixes; only a turn with more videos than images is refused."""
    monkeypatch.setitem(vars(gate.service.settings), "max_images", 8)
    part = {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{clip}"}}
    messages, shown = [], []
    for n in range(4):
        ask = {"type": "text", "text": "And then?"} if n else QUESTION
        messages += [{"role": "user", "content": [part, ask] if not n else [ask]}]
        body = {"messages": messages, "framenest": {"k": 4 + 4 * n}}
        assert post(gate, "/v1/chat/completions", body).status_code == 200
        shown.append([frames_in(message) for message in sent(behind)[::2]])
        messages += [{"role": "assistant", "content": "There."}]
    assert all(sum(map(len, turn)) <= 8 for turn in shown)
    assert set(shown[3][0]) < set(shown[0][0])
    two = {"type": "video_url", "video_url": {"url": (media / "more" / "short.mp4").as_uri()}}
    many = post(gate, "/v1/chat/completions", chat(*[part, two] * 5, QUESTION))
    assert many.status_code == 200
    monkeypatch.setitem(vars(gate.service.settings), "max_images", 1)
    refused = post(gate, "/v1/chat/completions", chat(part, two, QUESTION))
    assert refused.status_code == 413
    told = "a request has at most 1 images and 64 MiB; this turn, of 2 videos, has more"
    assert refused.json()["error"]["message"] == told


def test_the_bytes_sent_upstream_are_capped(gate, behind, clip, monkeypatch):
    part = {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{clip}"}}
    body = chat(part, QUESTION)
    assert post(gate, "/v1/chat/completions", body | {"framenest": {"k": 16}}).status_code == 200
    whole = behind.requests[-1].body
    monkeypatch.setattr(conversation, "MAX_SENT_BYTES", len(whole) // 2)
    assert post(gate, "/v1/chat/completions", body | {"framenest": {"k": 16}}).status_code == 200
    assert len(behind.requests[-1].body) <= len(whole) // 2
    assert set(frames_in(sent(behind)[0])) < set(frames_in(sent(behind, -2)[0]))
    before = len(behind.requests)
    text = {"type": "text", "text": "x" * len(whole)}  # no image fits beside it
    further = [{"role": "assistant", "content": "y"}, {"role": "user", "content": [text]}]
    for messages in (chat(part, QUESTION, text)["messages"], [*body["messages"], *further]):
        answer = post(gate, "/v1/chat/completions", {"messages": messages})
        assert answer.status_code == 413
        assert "at most 256 images and" in answer.json()["error"]["message"]
    assert len(behind.requests) == before


# Budgets in tokens, and limits of images


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    file = numbered_video(tmp_path_factory.mktemp("large") / "large.mp4", 200, 480, 320)
    data = base64.b64encode(file.read_bytes()).decode()
    return {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{data}"}}


def sizes_in(exchange):
    """(frame, size) of each image upstream, by size."""
    images = [
        part["image_url"]["url"] for part in parts_in(exchange.json["messages"][0]) if "image_url" in part
    ]
    return Counter(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).size for url in images)


def test_a_budget_in_tokens_is_sharp_first_and_small_later(gate, behind, large):
    """480 × 320 costs Qwen 150 tokens, and every small image 70: 4 × 150 + 4 × 70 = 880."""
    body = chat(large, QUESTION) | {"framenest": {"tokens": 900}}
    assert post(gate, "/v1/chat/completions", body).status_code == 200
    first = behind.requests[-1]
    small = next(size for size in sizes_in(first) if size != (480, 320))
    assert sizes_in(first) == {(480, 320): 4, small: 4}
    assert 320 < small[0] < 350
    more = [{"role": "assistant", "content": "There."}, {"role": "user", "content": "And then?"}]
    for settings in ({"tokens": 2000, "tiers": False}, {"k": 2}):
        body |= {"messages": [*body["messages"][:1], *more], "framenest": settings}
        assert post(gate, "/v1/chat/completions", body).status_code == 200
        assert sent(behind)[0] == first.json["messages"][0]
    body = chat(large, QUESTION) | {"framenest": {"tokens": 900, "tiers": False}}
    assert post(gate, "/v1/chat/completions", body).status_code == 200
    assert sizes_in(behind.requests[-1]) == {(480, 320): 6}


def test_the_server_has_a_budget_in_tokens_for_requests_without_one(gate, behind, large, monkeypatch):
    monkeypatch.setitem(vars(gate.service.settings), "tokens", TokenBudget(900, None))
    body = chat(large, QUESTION) | {"model": "limited"}
    assert post(gate, "/v1/chat/completions", body).status_code == 200
    assert sizes_in(behind.requests[-1]) == {(480, 320): 6}
    assert post(gate, "/v1/chat/completions", body | {"framenest": {"k": 2}}).status_code == 200
    assert sizes_in(behind.requests[-1]) == {(480, 320): 2}


def images_in(exchange):
    """Numbers of frames, and how many other images there are, in a request upstream."""
    body = exchange.json
    parts = [
        part
        for message in body["input" if "input" in body else "messages"]
        for part in parts_in(message)
        if part["type"] in ("image_url", "input_image", "image")
    ]
    frames = [frame_in(part) for part in parts if "PNG" not in str(part)]
    return frames, len(parts) - len(frames)


def at_most(count, status=400):
    """Answers of a server that takes so many images, which it counts in all messages."""

    async def reply(exchange):
        if len(exchange.body.split(b'"type":"' + kinds[exchange.path].encode() + b'"')) - 1 > count:
            told = f"At most {count} image(s) may be provided in one prompt."
            await exchange.whole({"object": "error", "message": told}, status)
        else:
            await exchange.says("well")

    kinds = {"/v1/chat/completions": "image_url", "/v1/responses": "input_image", "/v1/messages": "image"}
    return reply


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["chat/completions", "responses", "messages"])
def test_a_server_that_takes_fewer_images_gets_the_best(gate, behind, clip, monkeypatch, name, stream):
    """It says so once; then it is known, for that model."""
    monkeypatch.setattr(gateway, "COMMENT_SECONDS", PATIENCE)
    behind.reply, before = at_most(3), len(behind.requests)
    body = BODIES[name](clip, QUESTION["text"]) | {"model": f"{name} {stream}", "stream": stream}
    first = post(gate, f"/v1/{name}", body | {"framenest": {"k": 8}})
    second = post(gate, f"/v1/{name}", body | {"framenest": {"k": 8}})
    shown = [images_in(exchange)[0] for exchange in behind.requests[before:]]
    assert [len(frames) for frames in shown] == [8, 3, 3]
    best = first.headers["framenest-ranking"].partition("#")[2].partition("&")[0]
    assert shown[1] == shown[2] == gate.service.rankings.get(best).prefix(3).frames.tolist()
    for answer in (first, second):
        assert answer.status_code == 200
        assert "well" in answer.text
        assert answer.headers["framenest-images"] == "3"
        assert len(answer.headers["framenest-times"].split(",")) == 3
        assert answer.headers["framenest-ranking"].endswith("&k=3")
    other = post(gate, f"/v1/{name}", body | {"model": "another", "framenest": {"k": 3}})
    assert "framenest-images" not in other.headers


def test_a_clients_own_images_count_towards_the_limit(gate, behind, clip):
    behind.reply, before = at_most(3, 413), len(behind.requests)
    body = chat_body(clip, QUESTION["text"]) | {"model": "own", "framenest": {"k": 8}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,PNG"}}
    body["messages"][0]["content"] += [image, image]
    assert post(gate, "/v1/chat/completions", body).status_code == 200
    counts = [images_in(exchange) for exchange in behind.requests[before:]]
    assert [(len(frames), others) for frames, others in counts] == [(8, 2), (1, 2)]
    body["messages"][0]["content"].append(image)
    before = len(behind.requests)
    refused = post(gate, "/v1/chat/completions", body)
    assert (refused.status_code, refused.json()["message"][:9]) == (413, "At most 3")
    assert len(behind.requests) == before + 1


@pytest.mark.parametrize(("status", "told"), [
    (400, "At most 0 image(s) may be provided"), (429, "at most 2 images a minute"), (400, "no such thing"),
])  # fmt: skip
def test_other_errors_pass_as_they_are(gate, behind, clip, status, told):
    async def reply(exchange):
        await exchange.whole({"error": told}, status)

    behind.reply, before = reply, len(behind.requests)
    refused = post(gate, "/v1/chat/completions", chat_body(clip, QUESTION["text"]) | {"model": told})
    assert (refused.status_code, refused.json()) == (status, {"error": told})
    assert len(behind.requests) == before + 1


def test_a_ladder_ends_at_the_servers_limit(gate, behind, clip):
    """More frames cannot be sent, so the model must answer."""
    behind.reply, before = at_most(3), len(behind.requests)
    body = chat_body(clip, QUESTION["text"]) | {"model": "ladder", "framenest": {"k": [4, 8]}}
    assert post(gate, "/v1/chat/completions", body).status_code == 200
    sent_bodies = [exchange.body.decode() for exchange in behind.requests[before:]]
    assert [OTHERWISE in one for one in sent_bodies] == [True, False]


def test_the_page_answers_with_as_many_images_as_the_server_takes(gate, behind, media):
    service, url = gate.service, gate.url.removesuffix("/v1")
    video = httpx.post(f"{url}/videos", json={"path": "clip.mp4"}, timeout=PATIENCE).json()["video"]["id"]
    asked = {"video": video, "question": QUESTION["text"]}
    ranking = httpx.post(f"{url}/rankings", json=asked, timeout=PATIENCE).json()
    if ranking["job"]:
        httpx.get(f"{url}/jobs/{ranking['job']['id']}?wait=60", timeout=PATIENCE)
    behind.reply, before = at_most(3), len(behind.requests)
    service._model = Client(behind.url, "m")
    try:
        for _ in range(2):
            answer = httpx.post(
                f"{url}/rankings/{ranking['ranking']}/answer", json={"k": 8}, timeout=PATIENCE
            )
            assert (answer.json()["answer"], answer.json()["k"]) == ("well", 3)
    finally:
        service._model.close()
        service._model = None
    assert [len(images_in(exchange)[0]) for exchange in behind.requests[before:]] == [8, 3, 3]


# Streams


@contextmanager
def held(gate, monkeypatch):
    """Rankings that wait for the event that is given."""
    go_on, do = threading.Event(), gate.service._do

    def wait(worker, job):
        while not go_on.wait(0.01) and not job.cancelled.is_set():
            pass
        do(worker, job)

    monkeypatch.setattr(gate.service, "_do", wait)
    monkeypatch.setattr(gateway, "COMMENT_SECONDS", 0.01)
    try:
        yield go_on
    finally:
        go_on.set()


def chat_body(clip, text):
    part = {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{clip}"}}
    return {"messages": [{"role": "user", "content": [part, {"type": "text", "text": text}]}]}


def responses_body(clip, text):
    return {"input": [{"role": "user", "content": [input_file(clip), {"type": "input_text", "text": text}]}]}


def messages_body(clip, text):
    return {"messages": [{"role": "user", "content": [document(clip), {"type": "text", "text": text}]}]}


BODIES = {"chat/completions": chat_body, "responses": responses_body, "messages": messages_body}


def streamed(gate, name, body, go_on):
    """A stream whose frames are chosen only when its first comment has arrived."""
    with httpx.stream("POST", f"{gate.url}/{name}", json=body | {"stream": True}, timeout=PATIENCE) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        first = next(lines)
        go_on.set()
        return [first, *lines]


@pytest.mark.parametrize("name", BODIES)
def test_a_stream_has_comments_while_frames_are_chosen(gate, behind, clip, monkeypatch, name):
    with held(gate, monkeypatch) as go_on:
        lines = streamed(gate, name, BODIES[name](clip, f"What is alive in {name}?"), go_on)
    assert lines[0] == ": framenest is choosing frames"
    assert any(line.startswith(": framenest-times: ") for line in lines)
    data = [line for line in lines if line.startswith("data: ")]
    assert "canned" in "".join(data)
    assert lines.index(data[0]) > lines.index(next(line for line in lines if "framenest-times" in line))


@pytest.mark.parametrize("name", BODIES)
def test_an_error_after_the_stream_began_is_an_event_of_its_api(gate, behind, clip, monkeypatch, name):
    async def reply(exchange):
        await exchange.whole({"error": {"message": "the context is too long"}}, 400)

    behind.reply = reply
    with held(gate, monkeypatch) as go_on:
        lines = streamed(gate, name, BODIES[name](clip, f"What fails in {name}?"), go_on)
    (data,) = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert "the context is too long" in data["error"]["message"]
    assert data["error"]["type"] == "invalid_request_error"
    events = [line for line in lines if line.startswith("event: ")]
    assert events == ([] if name == "chat/completions" else ["event: error"])
    assert data.get("type") == (None if name == "chat/completions" else "error")


def test_the_official_clients_raise_such_an_error(openai_client, anthropic_client, gate, clip, monkeypatch):
    import anthropic
    import openai

    usual, commented = gateway.ClientReply.comment, []

    async def comment(reply, *lines):
        await usual(reply, *lines)
        commented[-1].set()

    async def rankings(*_):
        await commented[-1].wait()
        raise conversation.Refusal(422, "no more kilns")

    monkeypatch.setattr(gateway.ClientReply, "comment", comment)
    monkeypatch.setattr(conversation.ChatFrames, "rankings", rankings)
    monkeypatch.setattr(gateway, "COMMENT_SECONDS", 0.01)
    asks = [
        (openai.APIError, openai_client.responses.create, responses_body, {}),
        (openai.APIError, openai_client.chat.completions.create, chat_body, {}),
        (anthropic.APIStatusError, anthropic_client.messages.create, messages_body, {"max_tokens": 9}),
    ]
    for error, create, body, fields in asks:
        commented.append(asyncio.Event())
        with pytest.raises(error, match="no more kilns"):
            list(create(model="m", stream=True, **body(clip, "Why?"), **fields))


def test_what_is_quick_or_does_not_stream_has_no_comments(gate, behind, clip, monkeypatch):
    with held(gate, monkeypatch) as go_on:
        go_on.set()
        monkeypatch.setattr(gateway, "COMMENT_SECONDS", PATIENCE)
        body = BODIES["messages"](clip, "What is quick?")
        lines = httpx.post(f"{gate.url}/messages", json=body | {"stream": True}, timeout=PATIENCE)
        assert ": " not in lines.text.splitlines()[0][:2]
        assert lines.headers["framenest-times"]
        monkeypatch.setattr(gateway, "COMMENT_SECONDS", 0.0)
        whole = post(gate, "/v1/messages", BODIES["messages"](clip, "What does not stream?"))
        assert whole.json()["content"][0]["text"] == "a canned answer"


# Keys


def test_a_key_is_sent_where_the_client_has_put_its_own(tmp_path, scores, behind, monkeypatch):
    token = "a-token-of-the-tests-0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", "the-upstreams-key")
    settings = ServerSettings(
        data=tmp_path / "data", cache=str(tmp_path / "cache"), scorer=scores, upstream=behind.url, token=token
    )
    with local_gateway(settings) as gate:
        for headers, name, value in (
            ({"x-api-key": token}, "x-api-key", "the-upstreams-key"),
            ({"authorization": f"Bearer {token}"}, "authorization", "Bearer the-upstreams-key"),
        ):
            assert (
                httpx.post(f"{gate.url}/messages", json={"messages": []}, headers=headers).status_code == 200
            )
            got = behind.requests[-1].headers
            assert {one: got.get(one) for one in ("authorization", "x-api-key")} == {
                "authorization": None,
                "x-api-key": None,
            } | {name: value}
        wrong = httpx.post(f"{gate.url}/messages", json={}, headers={"x-api-key": "wrong"})
        assert wrong.status_code == 401
        assert wrong.json()["type"] == "error"
        assert wrong.json()["error"]["type"] == "authentication_error"
        assert httpx.get(f"{gate.url[:-3]}/videos", headers={"x-api-key": token}).status_code == 401
