"""The examples run."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(Path(__file__).parent / "lmm"))


def run(monkeypatch, name, *arguments):
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    return runpy.run_path(str(EXAMPLES / name), run_name="__main__")


@pytest.fixture
def scorer(tmp_path):
    file = tmp_path / "scores.csv"
    file.write_text("frame,score\n0,0\n149,0\n150,1\n151,0\n299,0\n")
    return f"table:{file}"


def test_openai_chat(monkeypatch, capsys, clip, scorer):
    pytest.importorskip("openai", reason="needs the extra `ask`")
    from scripted_server import ScriptedServer

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with ScriptedServer("A bar code.") as server:
        given = [clip, "What is it?", "-k", 3, "--base-url", server.url, "--scorer", scorer]
        run(monkeypatch, "openai_chat.py", *given)
        assert len([p for p in server.turns()[0]["content"] if p["type"] == "image_url"]) == 3
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("3 frames, about ")
    assert printed[1] == "A bar code."


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_qwen_transformers(capsys, clip, scorer):
    """With a random-weight Qwen3.5; loading it by name needs torchvision, and is tested where that is."""
    pytest.importorskip("torch", reason="needs torch; run: make test-ask")
    pytest.importorskip("transformers", reason="needs transformers; run: make test-ask")
    import random_models

    import framenest as fn

    example = runpy.run_path(str(EXAMPLES / "qwen_transformers.py"))
    request = fn.lmm.messages(
        fn.MEC(scorer=scorer).rank(clip, "What is it?").prefix(3), "What is it?", "qwen"
    )
    assert example["answer"](*random_models.qwen3_5(), request, max_new_tokens=4)
    assert f"the model reads {' '.join(request.markers)}" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
def test_the_notebook(clip, tags_store, tmp_path):
    nbformat = pytest.importorskip("nbformat", reason="needs nbclient; run: make test-ask")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient; run: make test-ask")
    pytest.importorskip("ipykernel", reason="needs ipykernel; run: make test-ask")
    notebook = nbformat.read(EXAMPLES / "three_budgets.ipynb", as_version=4)
    shown = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.outputs]
    assert len(shown) == 6  # kept with what it shows
    for cell in notebook.cells:
        cell.source = cell.source.replace('"photos.mp4"', repr(str(clip)))
    assert str(clip) in notebook.cells[1].source
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/jpeg" in output.get("data", {}) for output in outputs) == 3
    assert [o["data"]["text/plain"] for o in outputs if "[True" in str(o.get("data"))] == ["[True, True]"]


def test_agent_loop(monkeypatch, capsys, clip, scorer):
    """The model looks, asks for more, is told of a mistake, and answers."""
    pytest.importorskip("openai", reason="needs the extra `ask`")
    pytest.importorskip("mcp", reason="needs the extra `mcp`; run: make test-server")
    from scripted_server import ScriptedServer, completion

    def calls(name, arguments):
        function = {"name": name, "arguments": json.dumps(arguments)}
        return 200, completion(None, tool_calls=[{"id": name, "type": "function", "function": function}])

    def more(handler, body):
        look_id = re.search(r"look_id: (\S+)", body["messages"][-2]["content"])[1]
        handler.send_json(*calls("more", {"look_id": look_id, "k": 5}))

    monkeypatch.setenv("OPENAI_API_KEY", "none")
    look = calls("look", {"video": clip.name, "question": "What is it?", "k": 2})
    wrong = calls("look", {"video": "none.mp4", "question": "?"})
    with ScriptedServer(look, more, wrong, "A bar code.") as server:
        given = [clip, "What is it?", "--base-url", server.url, "--scorer", scorer]
        run(monkeypatch, "agent_loop.py", *given)
        told = [turn["content"] for turn in server.turns() if turn["role"] == "tool"]
        pictures = [turn["content"][1:] for turn in server.turns() if isinstance(turn.get("content"), list)]
    assert [len(shown) for shown in pictures] == [2, 3]
    assert "rank 1" in told[0]
    assert "rank 3" in told[1]
    assert "no such video" in told[2]
    assert capsys.readouterr().out.splitlines()[-1] == "A bar code."
