"""The client against a scripted server: streaming, retries, and every kind of trouble in one clear line."""

import gzip
import logging
import socket
import sys
import threading
import time
from contextlib import ExitStack, suppress

import numpy as np
import pytest

from framenest import ConfigError, MissingExtra, ModelError, Prefix, lmm, open_video
from scripted_server import ScriptedServer, completion

pytest.importorskip("openai", reason="needs the extra `ask`")
from framenest.lmm import client as client_module
from framenest.lmm.client import Splitter, most_images

SECRET = "sk-very-secret-0123456789"


@pytest.fixture
def request_of(frames):
    """Makes a request with that many frames."""
    decoder = open_video(frames, fps=10)

    def make(count, style="openai"):
        numbers = np.arange(count, dtype=np.int64)
        prefix = Prefix(decoder.info, count, numbers, decoder.seconds[numbers], None)
        return lmm.messages(prefix, "What is it?", style, video=decoder)

    return make


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def connect():
    """Makes clients, and closes them in the end."""
    with ExitStack() as opened:
        yield lambda *given, **settings: opened.enter_context(client_module.Client(*given, **settings))


def heard(client, request):
    pieces = []
    answer = client.answer(request, on_text=lambda kind, piece: pieces.append((kind, piece)))
    return answer, pieces


def test_a_whole_answer(connect, request_of):
    with ScriptedServer("A kiln [0.1s].") as server:
        answer = connect(server.url, "m", max_tokens=50, temperature=0.0).answer(request_of(2))
        _, headers, body = server.requests[0]
    assert (answer.text, answer.finish_reason, answer.model) == ("A kiln [0.1s].", "stop", "scripted")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (100, 7)
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("m", 50, 0)
    assert body["messages"] == request_of(2).messages
    assert headers["authorization"] == "Bearer none"


def test_a_streamed_answer(connect, request_of):
    with ScriptedServer("A kiln at dawn") as server:
        answer, pieces = heard(connect(server.url, "m"), request_of(2))
        body = server.requests[0][2]
    assert answer.text == "A kiln at dawn"
    assert pieces == [("answer", w) for w in ("A ", "kiln ", "at ", "dawn ")]
    assert body["stream_options"] == {"include_usage": True}
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (100, 7)
    assert 0 < answer.usage.first_seconds <= answer.usage.seconds


def test_a_video_request_brings_its_settings(connect, request_of):
    with ScriptedServer("B") as server:
        connect(server.url, "m", extra_body={"top_k": 1}).answer(request_of(3, "vllm-video"))
        body = server.requests[0][2]
    assert body["media_io_kwargs"]["video"]["num_frames"] == 4  # the third one twice
    assert body["top_k"] == 1


def test_the_only_model_is_the_default(connect, request_of):
    with ScriptedServer("B", models=["only"]) as server:
        connect(server.url).answer(request_of(1))
        assert server.requests[0][2]["model"] == "only"
    with (
        ScriptedServer("B", models=["a", "b"]) as server,
        pytest.raises(ConfigError, match=r"choose a model; http://\S+ lists a, b"),
    ):
        connect(server.url).answer(request_of(1))


def test_busy_and_failing_servers_are_asked_again(connect, request_of):
    busy, broken = (429, {"error": {"message": "busy"}}), (503, {"detail": "loading"})
    with ScriptedServer(busy, broken, "B") as server:
        answer, _ = heard(connect(server.url, "m", retries=3), request_of(1))
        assert (answer.text, answer.usage.retries, len(server.requests)) == ("B", 2, 3)
    with (
        ScriptedServer(busy) as server,
        pytest.raises(ModelError, match=r"answered 429 after 3 tries: busy"),
    ):
        connect(server.url, "m", retries=2).answer(request_of(1))


def test_nobody_there(connect, request_of):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ModelError, match=r"cannot connect \(.*refused.*\); is the server running\?"):
        connect(f"http://127.0.0.1:{port}/v1", "m", retries=0).answer(request_of(1))
    with pytest.raises(ConfigError, match="is not an http"):
        connect("localhost:8000")


@pytest.mark.parametrize(
    "reply",
    [
        (404, {"error": {"message": "The model `m` does not exist."}}),
        (400, {"detail": "Server is pinned to 'other', requested 'm'"}),
        (404, {"error": "model 'm' not found, try pulling it first"}),
    ],
)
def test_the_wrong_model(connect, request_of, reply):
    with (
        ScriptedServer(reply, models=["x/one", "x/two"]) as server,
        pytest.raises(ModelError, match=r"does not serve 'm'; it lists x/one, x/two"),
    ):
        connect(server.url, "m").answer(request_of(1))


VLLM = (
    "This model's maximum context length is 1000 tokens. However, you requested 2050 tokens "
    "(2000 in the messages, 50 in the completion)."
)

NEW_VLLM = (
    "This model's maximum context length is 1000 tokens. However, you requested 50 output tokens and your "
    "prompt contains 2000 input tokens, for a total of 2050 tokens."
)


@pytest.mark.parametrize(
    ("reply", "fits"),
    [
        ((400, {"error": {"message": VLLM, "code": "context_length_exceeded"}}), 9),
        ((400, {"error": {"message": NEW_VLLM}}), 9),
        ((400, {"object": "error", "message": "The decoder prompt (length 2000) is longer than the maximum "
                "model length of 1000."}), 9),
        ((400, {"error": {"message": "The input (2000 tokens) is longer than the model's context length "
                "(1000 tokens)."}}), 9),
        ((400, {"error": {"code": 400, "message": "the request exceeds the available context size, try "
                "increasing it", "n_prompt_tokens": 2000, "n_ctx": 1000}}), 9),
    ],
    ids=["vllm", "vllm-new", "vllm-engine", "sglang", "llama.cpp"],
)  # fmt: skip
def test_a_context_that_is_too_long_names_the_budget_that_fits(connect, request_of, reply, fits):
    """20 frames took about 1,980 of 2,000 tokens; of 1,000 about 930 are left for frames."""
    with ScriptedServer(reply) as server, pytest.raises(ModelError, match=rf"; {fits} should fit") as said:
        connect(server.url, "m", max_tokens=50).answer(request_of(20))
    assert said.value.fits == fits
    assert "20 frames exceed the context of 'm' (1000 tokens)" in str(said.value)


def test_a_context_limit_that_the_server_only_lists(connect, request_of):
    reply = (400, {"error": {"message": "context_length_exceeded"}})
    with (
        ScriptedServer(reply, models=["m"], model_fields={"max_model_len": 400}) as server,
        pytest.raises(ModelError) as said,
    ):
        connect(server.url, "m").answer(request_of(20))
    assert said.value.fits == 4  # 381 of 400 tokens, 79 a frame of 96 × 64 by estimate
    with ScriptedServer(reply) as server, pytest.raises(ModelError, match="send fewer frames"):
        connect(server.url, "m").answer(request_of(20))


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ((400, {"error": {"message": "At most 8 image(s) may be provided in one prompt."}}),
         "accepts at most 8 images per request; send 8 frames"),
        ((413, {"error": "too large"}), "the request is too large; send smaller images"),
        ((400, {"error": {"message": "This model does not support image input."}}),
         "answered 400: This model does not support image input."),
    ],
)  # fmt: skip
def test_trouble_that_can_be_put_right(connect, request_of, reply, said):
    with ScriptedServer(reply, models=["m"]) as server, pytest.raises(ModelError) as told:
        connect(server.url, "m").answer(request_of(20))
    assert said in str(told.value)


@pytest.mark.parametrize(
    ("message", "most"),
    [
        ("At most 8 image(s) may be provided in one prompt. Set `--limit-mm-per-prompt` to …", 8),  # vLLM
        ("Image count 32 exceeds limit 4 per request.", 4),  # SGLang
        ("Exceeded maximum number of images (50) allowed in the request.", 50),  # Azure
        ("Too many images in request. Max is 10.", 10),
        ("Too many images in request: 64, maximum allowed: 10.", 10),
        ("too many images and documents: 64 + 0 > 20", 20),  # Anthropic, also on Bedrock
        ("Too much media: 0 document pages + 64 images > 20", 20),
        ("Too many images provided. This model supports up to 5 images", 5),  # Groq
        (
            "Too many images in request: 11 images provided, but the model supports a maximum of 10 images.",
            10,
        ),
        ("too many URL images in request (max 20)", 20),  # Copilot
        ("request contains 64 images, exceeding the maximum of 50 allowed per request", 50),  # Meta
        ("too many images in the message, max allowed is 16", 16),  # new-api
        ("Too many images: 1,064 > 1,000", 1000),
        (
            "You set image=8 (or defaulted to 1) in `--limit-mm-per-prompt`, but passed 64 image items.",
            8,
        ),  # vLLM
        ("You set or defaulted to image=16 in --limit-mm-per-prompt, but passed 64 image items", 16),
        ("image limit exceeded: 64/12", 12),
        ("This model only supports one image per request", 1),
        ("only 1 image is supported", 1),
        ("image exceeds 5 MB maximum: 5242881 bytes > 5242880 bytes", None),
        ("image dimensions exceed max allowed size for many-image requests: 2000 pixels", None),
        ("images: at most 20 MB each, 32 px or more", None),
        ("The number of image tokens (5000) exceeds the limit (50)", None),
        ("prompt is too long: 213462 tokens > 200000 maximum", None),
        ("Too many images", None),
        ("At most 0 image(s) may be provided in one prompt.", None),
    ],
)
def test_limits_of_images_in_the_words_of_servers(message, most):
    """The wordings are those of the servers named, from reports of their users."""
    assert most_images(message, 2000 if "1,0" in message else 64) == most
    assert most_images(message, most or 4) is None


def test_an_address_without_its_path(connect, request_of):
    with ScriptedServer((404, {"detail": "Not Found"}), models=[]) as server:
        bare = connect(server.url.removesuffix("/v1"), "m")
        with pytest.raises(ModelError, match=r"answered 404; should the URL end in /v1\?"):
            bare.answer(request_of(1))


def test_a_web_page_where_a_server_should_be(connect, request_of):
    def page(handler, body=None):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/html")
        handler.send_header("Content-Length", "13")
        handler.end_headers()
        handler.wfile.write(b"<html></html>")

    with ScriptedServer(page, models=page) as server:
        client = connect(server.url, "m")
        for attempt in (
            client.models,
            lambda: client.answer(request_of(1)),
            lambda: heard(client, request_of(1)),
        ):
            with pytest.raises(
                ModelError, match=r"is not an OpenAI-compatible server; should the URL end in /v1\?"
            ):
                attempt()


def test_a_line_that_drops_in_mid_answer(connect, request_of):
    def silently(handler, body):
        handler.stream("It is a", die=True)

    def without_a_reason(handler, body):
        handler.stream("It is a", finish=None)

    def in_mid_word(handler, body):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        handler.event({"content": "It is a "})
        handler.close_connection = True

    for death in (silently, without_a_reason, in_mid_word):
        with (
            ScriptedServer(death) as server,
            pytest.raises(ModelError, match="broke off mid-answer") as said,
        ):
            heard(connect(server.url, "m", retries=0), request_of(1))
        assert said.value.partial.strip() == "It is a"
        assert "characters of the answer had arrived" in str(said.value)


def test_an_error_of_the_listener_is_its_own(connect, request_of):
    def listener(kind, piece):
        raise BrokenPipeError("nobody reads")

    with ScriptedServer("It is a kiln") as server, pytest.raises(BrokenPipeError):
        connect(server.url, "m").answer(request_of(1), on_text=listener)


def test_an_error_inside_the_stream(connect, request_of):
    def fails(handler, body):
        handler.stream([{"content": "It is"}], die=True)
        handler.raw({"error": {"message": "out of memory"}})

    with ScriptedServer(fails) as server, pytest.raises(ModelError, match="broke off mid-answer") as said:
        heard(connect(server.url, "m"), request_of(1))
    assert (said.value.partial, "out of memory" in str(said.value)) == ("It is", True)


def test_an_answer_of_nothing(connect, request_of):
    empty = completion("") | {"choices": []}
    with ScriptedServer((200, empty)) as server, pytest.raises(ModelError, match="without content"):
        connect(server.url, "m").answer(request_of(1))


def test_fields_that_a_server_does_not_know_are_left_out(connect, request_of):
    def strict(handler, body):
        if "stream_options" in body:
            return handler.send_json(422, {"detail": "Unexpected fields in the request: {'stream_options'}"})
        if "max_tokens" in body:
            said = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            return handler.send_json(400, {"error": {"message": said}})
        return handler.stream("B")

    with ScriptedServer(strict) as server:
        client = connect(server.url, "m", max_tokens=9)
        assert heard(client, request_of(1))[0].text == "B"
        assert server.requests[-1][2]["max_completion_tokens"] == 9
        heard(client, request_of(1))
        assert len(server.requests) == 4  # learnt once


def test_what_another_thread_learnt_meanwhile_is_no_error(connect, request_of):
    def strict(handler, body):
        if "max_tokens" not in body:
            return handler.send_json(200, completion("B"))
        if len(server.requests) == 1:  # another thread's request is answered before this one
            client.answer(request_of(1))
        return handler.send_json(400, {"error": {"message": "Use 'max_completion_tokens' instead."}})

    with ScriptedServer(strict) as server:
        client = connect(server.url, "m", max_tokens=9)
        assert client.answer(request_of(1)).text == "B"
        assert len(server.requests) == 4


def cut_off(text):
    """A reply of a server without a reasoning parser, out of tokens."""

    def reply(handler, body):
        if body.get("stream"):
            return handler.stream(text, finish="length")
        answer = completion(text)
        answer["choices"][0]["finish_reason"] = "length"
        return handler.send_json(200, answer)

    return reply


@pytest.mark.parametrize(
    ("thinking", "text", "expected"),
    [
        (True, "So B may be", ("So B may be", "")),
        (True, "So B. </think> It is a", ("So B.", "It is a")),
        (None, "So B. </think> It is a", ("So B.", "It is a")),
        (None, "It is a", ("", "It is a")),
        (False, "It is a", ("", "It is a")),
    ],
)
def test_a_thought_that_was_cut_off_is_no_answer(connect, request_of, thinking, text, expected):
    with ScriptedServer(cut_off(text)) as server:
        client = connect(server.url, "m", thinking=thinking)
        for answer in (client.answer(request_of(1)), heard(client, request_of(1))[0]):
            assert (answer.reasoning, answer.text, answer.finish_reason) == (*expected, "length")


def test_thinking_is_switched_and_kept_apart(connect, request_of):
    def thinks(handler, body):
        on = body["chat_template_kwargs"]["enable_thinking"]
        handler.stream([{"reasoning_content": "Hm. "}, {"content": "B"}] if on else [{"content": "A"}])

    with ScriptedServer(thinks) as server:
        answer, pieces = heard(connect(server.url, "m", thinking=True), request_of(1))
        assert (answer.text, answer.reasoning) == ("B", "Hm.")
        assert pieces == [("reasoning", "Hm. "), ("answer", "B")]
        assert heard(connect(server.url, "m", thinking=False), request_of(1))[0].text == "A"
    message = completion("B", reasoning_content="Hm.")
    with ScriptedServer((200, message)) as server:
        answer = connect(server.url, "m", thinking=True).answer(request_of(1))
    assert (answer.text, answer.reasoning) == ("B", "Hm.")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>Is it <b>?</think>\n\nA kiln.", ("Is it <b>?", "A kiln.")),
        ("A <kiln> of 3.", ("", "A <kiln> of 3.")),
        ("<think>never ends", ("never ends", "")),
        ("", ("", "")),
    ],
)
def test_reasoning_is_told_apart_in_any_pieces(text, expected, thinking, size):
    got = {"reasoning": "", "answer": ""}
    splitter = Splitter(lambda kind, piece: got.update({kind: got[kind] + piece}), thinking=thinking)
    for start in range(0, len(text), size):
        splitter.text(text[start : start + size])
    assert splitter.end() == expected
    assert (got["reasoning"].strip(), got["answer"].strip()) == expected


def test_reasoning_whose_opening_tag_is_in_the_template():
    got = []
    splitter = Splitter(lambda *piece: got.append(piece), thinking=True)
    for piece in ("Hm, ", "so </thi", "nk>\n\n", "B"):
        splitter.text(piece)
    splitter.end()
    assert got == [("reasoning", "Hm, so "), ("answer", "B")]


def test_the_key_comes_from_the_environment_and_goes_nowhere_else(connect, request_of, monkeypatch, caplog):
    monkeypatch.setenv("OTHER_KEY", SECRET)
    caplog.set_level(logging.DEBUG)
    echo = (401, {"error": {"message": f"Incorrect API key provided: {SECRET}"}})
    leak = (400, {"error": {"message": f"what is {SECRET}?"}})
    with ScriptedServer("B", echo, leak) as server:
        client = connect(server.url, "m", key_variable="OTHER_KEY", retries=0)
        client.answer(request_of(1))
        assert server.requests[0][1]["authorization"] == f"Bearer {SECRET}"
        with pytest.raises(
            ModelError, match=r"denied access \(401\); the API key in \$OTHER_KEY was rejected"
        ):
            client.answer(request_of(1))
        with pytest.raises(ModelError, match=r"what is \*\*\*\?") as said:
            client.answer(request_of(1))
    chain = said.getrepr(chain=True)
    assert SECRET not in f"{client!r} {caplog.text} {said.value} {said.value.__cause__}"
    assert said.value.__suppress_context__
    assert SECRET not in str(chain)


def test_no_key_where_one_is_needed(connect, request_of):
    with (
        ScriptedServer((401, {"error": "no"})) as server,
        pytest.raises(ModelError, match=r"the API key in \$OPENAI_API_KEY is not set"),
    ):
        connect(server.url, "m").answer(request_of(1))


def test_a_password_in_the_address_is_not_repeated(connect):
    assert connect("http://me:secret@127.0.0.1:1/v1", "m").base_url == "http://127.0.0.1:1/v1"


def test_without_the_extra(connect, monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingExtra, match=r"run.* install .*\[ask\]"):
        connect("http://127.0.0.1:1/v1")


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("where", ["headers", "body"])
def test_an_answer_that_drips_is_ended_in_time(connect, request_of, streamed, where):
    """A byte at a time, each long before a read times out; the server has an hour of them."""
    stop = threading.Event()

    def drip(handler, _):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream" if streamed else "application/json")
        if where == "headers":
            handler.flush_headers()
            handler.wfile.write(b"X-Dripping: ")
        else:
            handler.end_headers()
        with suppress(OSError):
            while not stop.wait(0.05):
                handler.wfile.write(b":\n" if streamed and where == "body" else b" ")
        handler.close_connection = True

    with ScriptedServer(drip) as server:
        client = connect(server.url, "m", timeout=1.0, retries=0)
        try:
            with pytest.raises(ModelError, match=r"no answer within 1 s|not complete in time|timed out"):
                heard(client, request_of(1)) if streamed else client.answer(request_of(1))
        finally:
            stop.set()


@pytest.mark.parametrize("streamed", [True, False])
def test_a_deadline_that_passes_between_two_reads_is_a_model_error(
    connect, request_of, streamed, monkeypatch
):
    late = threading.Event()
    monkeypatch.setattr(client_module, "monotonic", lambda: time.monotonic() + 1000 * late.is_set())

    def pause(handler, _):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream" if streamed else "application/json")
        handler.end_headers()
        late.set()
        with suppress(OSError):
            for _ in range(100):
                handler.wfile.write(b":\n" if streamed else b" ")
                time.sleep(0.02)
        handler.close_connection = True

    with ScriptedServer(pause) as server:
        client = connect(server.url, "m", timeout=60.0, retries=0)
        with pytest.raises(ModelError, match=r"no answer within 60 seconds|not complete in time"):
            heard(client, request_of(1)) if streamed else client.answer(request_of(1))


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("kind", ["words", "line", "compressed"])
def test_an_answer_without_end_is_ended(connect, request_of, streamed, kind, monkeypatch):
    monkeypatch.setattr(client_module, "MAX_ANSWER_BYTES", 2**20)
    sent = 0

    def pour(handler, _):
        nonlocal sent
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream" if streamed else "application/json")
        if kind == "compressed":
            handler.send_header("Content-Encoding", "gzip")
        handler.end_headers()
        word = b'data: {"choices": [{"index": 0, "delta": {"content": "kiln "}}]}\n\n'
        piece = gzip.compress(bytes(2**24)) if kind == "compressed" else word * 100
        with suppress(OSError):
            while sent < 2**26:
                handler.wfile.write(piece if kind != "line" else b" " * 2**16)
                sent += len(piece)
        handler.close_connection = True

    with ScriptedServer(pour) as server:
        client = connect(server.url, "m", retries=0)
        with pytest.raises(ModelError, match=r"more than 1 MiB|a compressed answer") as broken:
            heard(client, request_of(1)) if streamed else client.answer(request_of(1))
    assert sent < 2**26  # what the system takes, and no more
    assert len(str(broken.value)) < 200


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://", "http://[::1]:x/v1", "http://host:99999/v1", "host"]
)
def test_what_is_no_url_is_named(connect, url):
    with pytest.raises(ConfigError, match=r"is not an http\(s\) URL"):
        connect(url, "m")


def test_a_streamed_answer_may_take_long_as_long_as_words_come(connect, request_of, monkeypatch):
    pieces = []
    monkeypatch.setattr(client_module, "monotonic", lambda: time.monotonic() + 50 * len(pieces))
    with ScriptedServer("A kiln at dawn") as server:
        client = connect(server.url, "m", timeout=60.0, retries=0)
        assert (
            client.answer(request_of(1), on_text=lambda *piece: pieces.append(piece)).text == "A kiln at dawn"
        )
    assert len(pieces) == 4  # 50 s each


def test_the_time_of_an_answer_is_not_that_of_what_comes_after_it(connect, request_of, monkeypatch):
    with ScriptedServer("A kiln.") as server:
        client = connect(server.url, "m", timeout=60.0)
        client.answer(request_of(1))
        monkeypatch.setattr(client_module, "monotonic", lambda: time.monotonic() + 3600)
        assert list(client.models()) == ["scripted"]  # over the same connection
        assert client.answer(request_of(1)).text == "A kiln."


def test_a_redirect_carries_no_frames_elsewhere(connect, request_of):
    with ScriptedServer("never asked") as other:

        def elsewhere(handler, _):
            handler.send_response(307)
            handler.send_header("Location", f"{other.url}/chat/completions")
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        with ScriptedServer(elsewhere) as server:
            client = connect(server.url, "m", retries=0)
            with pytest.raises(ModelError, match=r"redirects to .*; use that URL if frames may go there"):
                client.answer(request_of(1))
        assert other.requests == []
