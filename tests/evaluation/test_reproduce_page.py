"""Every command on docs/reproduce.md: a scripted server, tiny random models, toys laid out as benchmarks.

bash reads the page's blocks in their order, with functions in the place of the programs that write down how
they were called, loops, variables and environment included. Then each call is made here, in this process.
lmms-eval is played by `PretendedLmmsEval`: our own message functions and selections, and scores in its files'
format; the real one is in test_lmms_eval_run.py. pip and vllm are only looked at.
"""

import importlib.util
import json
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import random_internvl
import toy_benchmarks

from framenest.cli import main
from framenest.evaluation.benchmarks import MAIN_TABLE, READERS
from framenest.evaluation.lmms_eval import hook, tasks
from framenest.evaluation.lmms_eval.tasks import SELECTORS, TASKS, task_name
from framenest.models import CATALOGUE
from media import numbered_video
from scripted_server import ScriptedServer

pytest.importorskip("openai", reason="needs the extra `ask`")
pytest.importorskip("matplotlib", reason="needs the extra `plots`")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `parquet`")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reproduce.md").read_text()
FRAMES = 40
VARIABLES = ("CUDA_VISIBLE_DEVICES", "OPENAI_BASE_URL", "FRAMENEST_SCORER", "FRAMENEST_FRAMES",
             "FRAMENEST_FRAMES_AS")  # fmt: skip
PROGRAMS = ("framenest", "python", "accelerate", "pip", "vllm")


def calls(folder):
    """(environment, program and arguments) of every call on the page, as bash would make it."""
    blocks = re.findall(r"^```\n(.*?)^```$", PAGE, re.M | re.S)
    noted = " ".join(f'"${{{name}:-}}"' for name in VARIABLES)
    write = f"printf '%s\\x1f' {noted} $me \"$@\" $'\\x1e' >> \"$CALLS\""
    shims = [f"{name}() {{ local me={name}; {write}; }}" for name in PROGRAMS]
    # The folder of the task files is printed, not noted down: it stands inside another call.
    shims[0] = f'framenest() {{ local me=framenest; [ "$1" = lmms-eval ] && echo TASKS && return; {write}; }}'
    script = "\n".join(["set -eu", "touch results-1.jsonl", *shims, *blocks, "wait"])
    subprocess.run(
        ["bash", "-c", script], check=True, cwd=folder, env={"CALLS": "calls", "PATH": "/usr/bin:/bin"}
    )
    found = []
    for record in (folder / "calls").read_text().split("\x1e\x1f")[:-1]:
        *environment, program, arguments = record.split("\x1f", len(VARIABLES) + 1)
        given = arguments.split("\x1f")[:-1]
        found.append((dict(zip(VARIABLES, environment, strict=True)), [program, *given]))
    (folder / "results-1.jsonl").unlink()
    return found


def videomme():
    """A question on each of three videos."""
    return [row | {"videoID": f"clip{i}"} for i, row in enumerate(toy_benchmarks.videomme()[:3])]


def test_bash_reads_the_page(tmp_path):
    found = [call for _, call in calls(tmp_path)]
    assert {call[0] for call in found} == set(PROGRAMS)
    assert sum(call[1:3] == ["evaluate", "qa"] for call in found) == 4 + 1 + 1 + 8 + 1 + 1 + 3
    assert sum("lmms_eval" in call for call in found) == 6 + 5 * 3 + 5
    assert all("…" not in argument for call in found for argument in call)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The benchmarks' files where the page expects them, each video 40 frames long."""
    video = numbered_video(tmp_path / "video.mp4", FRAMES)
    rows = {
        "Video-MME/videomme/test-00000-of-00001.parquet": videomme(),
        "Video-MME-v2/test.parquet": toy_benchmarks.videomme_v2(),
        "LongVideoBench/lvb_val.json": [
            {"id": f"clip_{i}", "video_path": "clip.mp4", "question": f"What is at {i}?", "correct_choice": i,
             "candidates": ["Red", "Blue"], "duration_group": 15, "subtitle_path": ""} for i in range(2)
        ],
        "MLVU/json/1_plotQA.json": [
            {"video": "clip.mp4", "question": "What is red?", "candidates": ["Car", "Cup"], "answer": "Cup",
             "question_type": "plotQA", "duration": 2}
        ],
    }  # fmt: skip
    for name, data in rows.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".json":
            file.write_text(json.dumps(data))
        else:
            import pyarrow

            parquet.write_table(pyarrow.Table.from_pylist(data), file)
    names = [f"Video-MME/data/{row['videoID']}" for row in videomme()]
    names += ["Video-MME-v2/001", "Video-MME-v2/002"]
    for name in (*names, "LongVideoBench/videos/clip", "MLVU/video/1_plotQA/clip"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(video, tmp_path / f"{name}.mp4")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def snapshot(hub, repo, revision="0" * 40):
    """The folder of a repository in the hub's cache, still to be written."""
    folder = hub / f"models--{repo.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(revision)
    return folder / "snapshots" / revision


@pytest.fixture
def tiny_models(tmp_path_factory, monkeypatch):
    """Random weights in the hub's cache: BLIP-2, as the pinned revision of the real ones, and InternVL."""
    pytest.importorskip("torch", reason="needs the extra `blip2`; run: make test-models")
    pytest.importorskip("transformers", reason="needs the extra `blip2`; run: make test-models")
    import huggingface_hub

    spec = importlib.util.spec_from_file_location("tiny_models", ROOT / "tests" / "scorers" / "tiny.py")
    tiny = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    hub, repo = tmp_path_factory.mktemp("hub"), CATALOGUE["blip2"].repo
    tiny.random_blip2(snapshot(hub, repo.repo, repo.revision), image_token=True)
    random_internvl.save(snapshot(hub, "OpenGVLab/InternVL3_5-8B-HF"))
    random_internvl.save_own_format(snapshot(hub, "OpenGVLab/InternVL3_5-8B-Instruct"))
    real = huggingface_hub.snapshot_download
    local = {"cache_dir": hub, "local_files_only": True}
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **k: real(*a, **{**k, **local}))


class PretendedLmmsEval:
    """Plays `python -m lmms_eval`: asks our tasks for messages, takes K frames, answers A, writes scores."""

    def __init__(self, place, monkeypatch):
        self._place = place
        self.metrics = runpy.run_path(str(ROOT / "benchmarks" / "lmms_eval_results.py"))["METRICS"]
        data = {"videomme": "Video-MME/data", "videomme-v2": "Video-MME-v2",
                "longvideobench": "LongVideoBench/videos", "mlvu": "MLVU/video/1_plotQA"}  # fmt: skip
        self.rows = {"videomme": videomme(), "videomme-v2": toy_benchmarks.videomme_v2(),
                     "longvideobench": toy_benchmarks.longvideobench(),
                     "mlvu": toy_benchmarks.mlvu()}  # fmt: skip
        fake = ModuleType("pretended_tasks")
        for benchmark, folder in data.items():
            name = benchmark.replace("-", "_")
            setattr(fake, name, lambda doc, folder=folder: [str(self._video(doc, folder))])
        monkeypatch.setitem(sys.modules, "pretended_tasks", fake)
        monkeypatch.setattr(tasks, "hook_readers", lambda: True)
        self.known = {task_name(t, s): (t, s) for t in TASKS for s in SELECTORS}

    def _video(self, doc, folder):
        name = doc.get("videoID") or (doc["video_id"] if "v2" in folder else "clip")
        return self._place / folder / f"{name}.mp4"

    def __call__(self, arguments):
        given = dict(zip(arguments[::2], arguments[1::2], strict=True))
        assert given["--include_path"] == "TASKS"
        settings = dict(part.split("=") for part in given["--model_args"].split(","))
        names = ("max_num_frames", "num_frames", "codec_target_canvas")
        budget = int(next(settings[name] for name in names if name in settings))
        results, configs = {}, {}
        for name in given["--tasks"].split(","):
            task, selector = self.known[name]
            own = {"benchmark": task.benchmark} | ({} if selector == "mec" else {"selector": selector})
            kwargs = {"video_of": f"pretended_tasks.{task.benchmark.replace('-', '_')}", "framenest": own}
            marks = []
            for row in self.rows[task.benchmark]:
                (message,) = tasks.messages(row, kwargs)
                self._check(message["content"][0], budget, selector)
                marks.append((question := READERS[task.benchmark](row), question.answer == "A"))
            results[name] = {
                f"{metric},none": score / factor
                for column, (metric, factor) in self.metrics[task.benchmark].items()
                if (score := MAIN_TABLE[column][1](marks)) is not None
            }
            configs[name] = {"lmms_eval_specific_kwargs": {"default": kwargs}}
        folder = self._place / given["--output_path"]
        folder.mkdir(parents=True)
        config = {"model": given["--model"], "model_args": given["--model_args"]}
        made = {"results": results, "configs": configs, "config": config}
        (folder / "20261101_results.json").write_text(json.dumps(made))

    def _check(self, shown, budget, selector):
        if isinstance(shown["url"], list):
            assert len(shown["url"]) == min(budget, FRAMES)
        elif shown["url"].endswith(hook.SUFFIX):
            manifest = hook.VideoManifest.read(shown["url"])
            assert len(hook.manifest_reader().frames(manifest, budget)) == min(budget, FRAMES)
        else:
            assert selector == "native"


def test_every_command_runs(place, tiny_models, monkeypatch, capsys):
    pretended = PretendedLmmsEval(place, monkeypatch)
    reader = hook.ManifestReader()
    for module in (tasks, hook):
        monkeypatch.setattr(module, "manifest_reader", lambda: reader)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    first, *rest = calls(place)
    with ScriptedServer("A") as server:
        for environment, call in [*rest, first]:  # the page begins with what comes last
            for name, value in environment.items():
                value = server.url if name == "OPENAI_BASE_URL" and value else value
                monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
            call = [server.url if part.startswith("http://localhost:8000") else part for part in call]
            run(call, pretended, monkeypatch)
    page = (place / "mine.md").read_text()
    tables = dict(re.findall(r"<!-- table (\w+) -->(.*?)<!-- end -->", page, re.S))
    assert len(tables) == 12
    for name, table in tables.items():
        own = [line.split("yours")[1] for line in table.splitlines() if "yours" in line]
        assert own, name
        assert table.count("| paper |") in (0, table.count("| yours |")), name
        cells = [cell.strip() for line in own for cell in line.split("|")[1:-1]]
        assert (name, cells.count("")) == (name, 15 if name == "horizons" else 0)  # a horizon serves no more
    assert (place / "tradeoff.png").read_bytes().startswith(b"\x89PNG")
    assert (place / "timeline.png").read_bytes().startswith(b"\x89PNG")
    rows = json.loads((place / "efficiency.json").read_text())["rows"]
    assert set(rows) == {"uniform", "mec", "aks", "wfs-sb"}
    assert len(list(place.glob("results-*.jsonl"))) == 3  # of eight parts those that have a video
    assert (place / "InternVL3_5-8B-Instruct-HF" / "model-2.safetensors").is_file()


def run(call, pretended, monkeypatch):
    """One command of the page."""
    program, *arguments = call
    if program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        for wanted in re.findall(r"\.\[(.*?)\]", " ".join(arguments)):
            assert set(wanted.split(",")) <= set(extras)
    elif program == "vllm":
        sizes = json.loads(arguments[arguments.index("--mm-processor-kwargs") + 1])["size"]
        assert sizes["longest_edge"] == 256 * 786_432
    elif "lmms_eval" in arguments:
        pretended(arguments[arguments.index("lmms_eval") + 1 :])
    elif program == "python":
        script, *given = arguments
        monkeypatch.setattr(sys, "argv", [script, *given])
        runpy.run_path(str(ROOT / script))["main"](given)
    else:
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 0, call
