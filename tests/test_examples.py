"""The examples run."""

import asyncio
import base64
import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import command_line
from media import numbered_video

EXAMPLES = Path(__file__).parents[1] / "examples"
SKILL = Path(__file__).parents[1] / "skills" / "framenest" / "SKILL.md"
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
        cell.source = cell.source.replace('"demo/x59_quiet_crew.mp4"', repr(str(clip)))
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


def upload(name, content_type, size=9):
    """An attached file as Open WebUI 0.12.4 sends it; written after its code, not recorded."""
    meta = {"name": f"{name}.mp4", "content_type": content_type, "size": size}
    file = {
        "id": name,
        "user_id": "ann",
        "filename": meta["name"],
        "data": {"status": "completed"},
        "meta": meta,
    }
    return {
        "type": "file", "file": file, "id": name, "url": name, "name": meta["name"], "collection_name": "",
        "status": "uploaded", "size": size, "error": "", "itemId": f"{name}-1", "content_type": content_type,
    }  # fmt: skip


class TestOpenWebUI:
    """Bodies as `inlet` gets them: the messages without their files, and the files of the whole chat."""

    @pytest.fixture(autouse=True)
    def open_webui(self, monkeypatch, tmp_path):
        pytest.importorskip("pydantic", reason="needs the extra `server`")
        (tmp_path / "kiln.mp4").write_bytes(b"the kiln")
        (tmp_path / "pot.webm").write_bytes(b"the pot")
        kept = {
            "kiln": SimpleNamespace(user_id="ann", path=str(tmp_path / "kiln.mp4")),
            "pot": SimpleNamespace(user_id="ann", path=str(tmp_path / "pot.webm")),
            "secret": SimpleNamespace(user_id="bob", path=str(tmp_path / "kiln.mp4")),
        }

        async def get_file_by_id(name):
            return kept.get(name)

        files, provider = ModuleType("open_webui.models.files"), ModuleType("open_webui.storage.provider")
        files.Files = SimpleNamespace(get_file_by_id=get_file_by_id)
        provider.Storage = SimpleNamespace(get_file=lambda path: path)
        for name in ("open_webui", "open_webui.models", "open_webui.storage"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.setitem(sys.modules, files.__name__, files)
        monkeypatch.setitem(sys.modules, provider.__name__, provider)

    def inlet(self, texts, files, new=(), made=None, chat="c1", **valves):
        """What becomes of a chat with these user messages, if the files `new` came with the last one.

        made: a filter that has answered before; by default a new one.
        """
        made = made or runpy.run_path(str(EXAMPLES / "open_webui_filter.py"))["Filter"]()
        made.valves = made.Valves(**valves)
        answers = [{"role": "assistant", "content": "A kiln."}] * (len(texts) - 1)
        turns = [{"role": "user", "content": text} for text in texts]
        messages = [m for pair in zip(turns, [*answers, None], strict=True) for m in pair if m]
        asked = {
            "id": "m1",
            "role": "user",
            "content": "What is it?",
            "files": [f for f in files if f["id"] in new],
        }
        body = {
            "messages": [{"role": "system", "content": "Be brief."}, *messages],
            "stream": True, "model": "qwen", "files": files,
            "metadata": {"chat_id": chat, "user_id": "ann", "user_message": asked, "files": files},
        }  # fmt: skip
        return asyncio.run(made.inlet(body, __user__={"id": "ann", "role": "user"}))

    def test_an_uploaded_video(self):
        body = self.inlet(
            ["<attached_files>…</attached_files> What is it?"], [upload("kiln", "video/mp4")], {"kiln"}
        )
        url = f"data:video/mp4;base64,{base64.b64encode(b'the kiln').decode()}"
        assert body["messages"][1]["content"] == [
            {"type": "video_url", "video_url": {"url": url}},
            {"type": "text", "text": "<attached_files>…</attached_files> What is it?"},
        ]
        assert body["files"] == []
        assert body["framenest"] == {"k": 32, "question": "What is it?"}

    def test_the_next_turn_begins_with_the_same_messages(self):
        files = [upload("kiln", "video/mp4")]
        first = self.inlet(["What is it?"], files, {"kiln"})["messages"]
        second = self.inlet(["What is it?", "And then?"], files)["messages"]
        assert second[: len(first)] == first
        assert second[-1] == {"role": "user", "content": "And then?"}

    def test_a_later_video_belongs_to_its_message(self):
        files = [upload("kiln", "video/mp4"), upload("pot", "video/webm")]
        messages = self.inlet(["What is it?", "And this?"], files, {"pot"}, by_path=True)["messages"]
        urls = [[part["video_url"]["url"] for part in messages[n]["content"][:-1]] for n in (1, 3)]
        assert [[Path(url).name for url in turn] for turn in urls] == [["kiln.mp4"], ["pot.webm"]]
        assert urls[0][0].startswith("file:///")

    def test_a_video_stays_with_the_message_that_lists_it(self):
        """Open WebUI 0.12.4 puts such tags before the text of a message that came with files."""
        files = [upload("kiln", "video/mp4"), upload("pot", "video/webm")]
        tags = [
            f'<attached_files>\n<file type="file" id="{name}"/>\n</attached_files>\n\n'
            for name in ("kiln", "pot")
        ]
        texts = [f"{tags[0]}What is it?", f"{tags[1]}And this?", "And then?"]
        second = self.inlet(texts[:2], files, {"pot"})["messages"]
        third = self.inlet(texts, files)["messages"]
        assert third[: len(second)] == second
        assert [len(message["content"]) for message in second if message["role"] == "user"] == [2, 2]

    def test_a_video_stays_with_its_message_where_no_message_lists_files(self):
        """As in temporary chats: the filter remembers where it came. Other chats are others."""
        made = runpy.run_path(str(EXAMPLES / "open_webui_filter.py"))["Filter"]()
        files, texts = [upload("kiln", "video/mp4")], ["Hello", "What is it?", "And then?"]
        second = self.inlet(texts[:2], files, {"kiln"}, made, "local:1")["messages"]
        third = self.inlet(texts, files, (), made, "local:1")["messages"]
        assert third[: len(second)] == second
        assert [type(message["content"]) for message in third[1::2]] == [str, list, str]
        shortened = self.inlet(texts[:1], files, (), made, "local:1")["messages"]
        assert len(shortened[1]["content"]) == 2
        for chat in ("local:2", None):
            assert len(self.inlet(texts, files, (), made, chat)["messages"][1]["content"]) == 2

    @pytest.mark.parametrize(("name", "kind", "video"), [
        ("kiln.mkv", "application/octet-stream", True), ("kiln.MKV", "", True),
        ("kiln.bin", "application/octet-stream", False), ("kiln.mkv", "text/plain", False),
    ])  # fmt: skip
    def test_a_video_of_a_kind_that_browsers_do_not_know(self, name, kind, video):
        file = upload("kiln", kind) | {"name": name}
        body = self.inlet(["What is it?"], [file], {"kiln"})
        assert isinstance(body["messages"][1]["content"], list) is video
        assert ("framenest" in body) is video

    def test_images_and_documents_stay(self):
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
        files = [
            upload("kiln", "video/mp4"),
            upload("notes", "text/plain"),
            {"type": "collection", "id": "k"},
        ]
        body = self.inlet([[{"type": "text", "text": "What is it?"}, picture]], files, {"kiln"}, k=8)
        assert [part["type"] for part in body["messages"][1]["content"]] == ["video_url", "text", "image_url"]
        assert body["files"] == files[1:]
        assert body["framenest"]["k"] == 8

    def test_a_chat_without_videos_is_left_alone(self):
        body = self.inlet(["What is it?"], [upload("notes", "text/plain")])
        assert body["messages"][1]["content"] == "What is it?"
        assert "framenest" not in body

    @pytest.mark.parametrize("name", ["secret", "gone"])
    def test_nobody_reads_the_videos_of_others(self, name):
        with pytest.raises(PermissionError, match="not one of your uploads"):
            self.inlet(["What is it?"], [upload(name, "video/mp4")], {name})


def test_the_skill_has_the_front_matter_of_skills():
    front = SKILL.read_text().split("---\n")[1]
    fields = dict(line.split(": ", 1) for line in front.splitlines())
    assert fields["name"] == SKILL.parent.name
    assert 100 < len(fields["description"]) <= 1024
    assert set(fields) == {"name", "description"}


def test_every_command_of_the_skill_runs(tmp_path, monkeypatch, capsys, tags_store):
    monkeypatch.chdir(tmp_path)
    numbered_video(tmp_path / "talk.mp4", 300)
    (tmp_path / "talk.srt").write_text("1\n00:00:08,000 --> 00:00:09,500\nThe king paid for the ships.\n")
    blocks = re.findall(r"^```\n(.*?)^```", SKILL.read_text(), re.M | re.S)
    verdicts, said = set(), ""
    for program, *arguments in map(shlex.split, blocks):
        if program == "python":
            command = [sys.executable, *arguments]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            continue
        assert program == "framenest"
        code, out, _ = command_line.run(capsys, *arguments)
        assert code == 0, arguments
        if arguments[0] == "search":
            (moment, *_) = json.loads(out)["moments"]
            assert Path(moment["video"]).name == "talk.mp4"
            assert moment["start"] <= moment["time"] <= moment["end"]
            continue
        told, k = json.loads(out), int(arguments[arguments.index("-k") + 1])
        verdicts.add(told["match"])
        assert len(told["ranks"]) == k
        images = sorted((tmp_path / arguments[arguments.index("--to") + 1]).iterdir())
        assert len(images) == k
        ranks = {int(re.fullmatch(r"f\d{7}_t\d{6}\.\d{3}s_r(\d{3})\.jpg", file.name)[1]) for file in images}
        assert ranks == set(range(1, k + 1))
    assert len(blocks) == 7
    assert "start=8.0" in said
    assert "The king paid for the ships." in said
    named = set(re.findall(r"`([a-z ]+)`", SKILL.read_text().split("| `match` |")[1].split("\n\n")[0]))
    assert verdicts - {None} <= named
