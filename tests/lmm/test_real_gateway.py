"""The gateway before a real server: the official client asks about a video, `transformers serve` answers."""

import pytest
from transformers_server import MODEL

from media import numbered_video
from served import Server

openai = pytest.importorskip("openai", reason="needs openai; run: make test-ask")
for package in ("torch", "transformers", "fastapi"):
    pytest.importorskip(package, reason=f"needs {package}; run: make test-ask")
pytest.importorskip("accelerate", reason="needs transformers[serving]; run: make test-ask")

SCORES = "frame,score\n0,0\n149,0\n150,1\n159,1\n160,0\n299,0\n"
IMAGE = 16  # tokens


@pytest.fixture(scope="module")
def server(url, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gateway")
    numbered_video(folder / "clip.mp4", 300)
    (folder / "scores.csv").write_text(SCORES)
    scorer = f"table:{folder / 'scores.csv'}"
    one = Server(folder, "--scorer", scorer, "--upstream", url, "--budget", "4", videos=folder)
    yield one.start()
    one.stop()


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as one:
        yield one


def asked(server, *later):
    """A conversation about the video."""
    video = {"type": "video_url", "video_url": {"url": (server.folder / "clip.mp4").as_uri()}}
    return [{"role": "user", "content": [video, {"type": "text", "text": "What is it?"}]}, *later]


def create(client, messages, k, **fields):
    body = {"framenest": {"k": k}}
    return client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=12, extra_body=body, **fields
    )


def test_it_lists_its_models(client):
    assert MODEL in [model.id for model in client.models.list()]


def test_whole_and_streamed_answers_agree(server, client):
    whole = create(client, asked(server), 4)
    stream = create(client, asked(server), 4, stream=True)
    streamed = "".join(event.choices[0].delta.content or "" for event in stream if event.choices)
    assert len(streamed) == 12
    assert whole.choices[0].message.content == streamed


def test_a_frame_costs_an_image_and_its_time(server, client):
    """Tokens are bytes in this model, and the answer depends on the frames."""
    few, many = (create(client, asked(server), k).usage.prompt_tokens for k in (4, 8))
    longest = len("<11.9 seconds>")
    assert 4 * (IMAGE + longest - 1) <= many - few <= 4 * (IMAGE + longest)


def test_a_further_question(server, client):
    first = create(client, asked(server), 4)
    said = {"role": "assistant", "content": first.choices[0].message.content}
    second = create(client, asked(server, said, {"role": "user", "content": "And then?"}), 6)
    assert second.usage.prompt_tokens > first.usage.prompt_tokens + 2 * IMAGE
    assert second.usage.prompt_tokens < first.usage.prompt_tokens + 4 * IMAGE + 100


def test_its_errors_pass(server, client):
    with pytest.raises(openai.APIStatusError) as refused:
        client.chat.completions.create(model="other", messages=asked(server), max_tokens=4)
    assert refused.value.status_code in (400, 404, 422)
