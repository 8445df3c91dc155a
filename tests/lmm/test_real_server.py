"""End to end against a real server: `transformers serve` with a random-weight LLaVA made on the fly."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from transformers_server import MODEL, start

from framenest import ModelError, Prefix, Selection, lmm, open_video
from framenest.cli import main as cli_main
from framenest.lmm import ask as ladder_module
from framenest.lmm.client import Client

for package in ("openai", "torch", "transformers"):
    pytest.importorskip(package, reason=f"needs {package}; run: make test-ask")
pytest.importorskip("accelerate", reason="needs transformers[serving]; run: make test-ask")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def chosen(frames):
    """(open video, prefixes of 2 and 4 frames)."""
    decoder = open_video(frames, fps=10)
    prefixes = {}
    for numbers in ([10, 90], [10, 40, 90, 110]):
        array = np.array(numbers, dtype=np.int64)
        prefixes[len(numbers)] = Prefix(decoder.info, len(numbers), array, decoder.seconds[array], None)
    return decoder, Selection(decoder.info, "What?", "by hand", "none", prefixes, {})


def test_whole_and_streamed_answers_agree(url, chosen):
    decoder, selection = chosen
    request = lmm.messages(selection.prefix(4), "What is it?", video=decoder)
    pieces = []
    with Client(url, MODEL, max_tokens=24) as client:
        whole = client.answer(request)
        streamed = client.answer(request, on_text=lambda kind, piece: pieces.append((kind, piece)))
    assert whole.text == streamed.text == "".join(piece for _, piece in pieces).strip()
    assert len(pieces) > 10
    assert {kind for kind, _ in pieces} == {"answer"}
    assert whole.finish_reason == streamed.finish_reason == "length"
    for usage in (whole.usage, streamed.usage):
        assert usage.completion_tokens == 24
        # 16 tokens an image, one a byte of text, and the template's three
        words = sum(len(p["text"].encode()) for p in request.messages[0]["content"] if p["type"] == "text")
        assert usage.prompt_tokens == 4 * 16 + words + 2
    assert streamed.usage.first_seconds < streamed.usage.seconds


def test_several_turns(url, chosen):
    decoder, selection = chosen
    request = lmm.messages(selection.prefix(2), "What is it?", video=decoder)
    with Client(url, MODEL, max_tokens=8) as client:
        first = client.answer(request)
        second = client.answer(request.then(first.text, "And then?"))
    added = len(first.text) + len("And then?") + 2  # and the two turns' own tokens
    assert second.usage.prompt_tokens == first.usage.prompt_tokens + added


def test_the_ladder_costs_what_the_server_counts(url, chosen, monkeypatch):
    """A random model never says that it cannot tell: that one verdict is put in its mouth."""
    decoder, selection = chosen
    monkeypatch.setattr(ladder_module.prompt, "cannot_tell", lambda _: True)
    with Client(url, MODEL, max_tokens=8) as client:
        asked = ladder_module.ask(client, selection, "What is it?", [2, 4], video=decoder)
    assert [len(step.prefix) for step in asked.steps] == [2, 4]
    assert [step.cannot_tell for step in asked.steps] == [True, False]
    costs = [step.answer.usage.prompt_tokens for step in asked.steps]
    assert costs[1] > costs[0] + 2 * 16 - len("If these frames do not show the answer, reply only with: ")


def test_the_command(url, clip, capsys):
    given = ["--base-url", url, "--answer-tokens", "12", "--selector", "uniform"]
    with pytest.raises(SystemExit) as ended:
        cli_main(["ask", str(clip), "What is it?", "-k", "4", *given])
    printed = capsys.readouterr()
    assert ended.value.code == 0
    assert "local/tiny-llava" in printed.out
    assert "the answer was cut off" in printed.err
    with pytest.raises(SystemExit) as ended:
        cli_main(["ask", str(clip), "What?", "--option", "a", "--option", "b", "-k", "2,4", "--json", *given])
    data = json.loads(capsys.readouterr().out)
    assert len(data["answer"]) == 12
    assert data["steps"][0]["completion_tokens"] == 12


def test_questions_in_parallel(url, chosen):
    decoder, selection = chosen
    request = lmm.messages(selection.prefix(2), "What is it?", video=decoder)
    with Client(url, MODEL, max_tokens=8) as client, ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(client.answer, [request] * 8))
    assert len({answer.text for answer in answers}) == 1


def test_errors(url, chosen):
    decoder, selection = chosen
    request = lmm.messages(selection.prefix(2), "What is it?", video=decoder)
    unserved = pytest.raises(ModelError, match=f"does not serve 'other'; it lists {MODEL}")
    with Client(url, "other", max_tokens=8) as client, unserved:
        client.answer(request)
    with Client(url, MODEL, max_tokens=8, retries=1) as client:
        video = lmm.messages(selection.prefix(2), "What is it?", "vllm-video", video=decoder)
        with pytest.raises(ModelError, match="answered 422: Unexpected fields in the request"):
            client.answer(video)
        broken = json.loads(json.dumps(request.messages))
        broken[0]["content"][1]["image_url"]["url"] = "data:image/jpeg;base64,AAAA"
        bad = lmm.Request(**vars(request) | {"messages": broken})
        with pytest.raises(ModelError, match="answered 500 after 2 tries"):
            client.answer(bad)
        assert client.answer(request).text


def test_a_server_that_goes_away_in_mid_answer(home, chosen, tmp_path):
    decoder, selection = chosen
    process, url = start(home, tmp_path / "serve.log")
    request = lmm.messages(selection.prefix(2), "What is it?", video=decoder)
    arrived = []

    def hear(kind, piece):
        arrived.append(piece)
        if len(arrived) == 5:
            process.kill()

    with Client(url, MODEL, max_tokens=2000, retries=0) as client:
        with pytest.raises(ModelError, match="broke off mid-answer") as said:
            client.answer(request, on_text=hear)
        assert said.value.partial == "".join(arrived)
        process.wait(timeout=30)
        with pytest.raises(ModelError, match="cannot connect"):
            client.answer(request)
