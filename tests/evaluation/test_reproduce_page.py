"""Every command on docs/reproduce.md, and every one that benchmarks/plan.toml runs: a scripted server, tiny
random models, toys laid out as benchmarks.

bash reads the page's blocks in their order, then what `--dry-run` prints of the plan, with functions in the
place of the programs that write down how they were called, loops and variables included. Then each call is
made here, in this process. lmms-eval is played by `PretendedLmmsEval`: our own tasks and selections, and
results in its files' format; the real one is in test_lmms_eval_run.py and test_plan_run.py. pip and vllm are
only looked at.
"""

import importlib.util
import json
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import random_internvl
import toy_benchmarks

from framenest import MEC, MECConfig
from framenest.cli import main
from framenest.evaluation.lmms_eval import hook, tasks
from framenest.models import CATALOGUE
from framenest.selectors import mec_config
from media import numbered_video
from scripted_server import ScriptedServer

pytest.importorskip("openai", reason="needs the extra `ask`")
pytest.importorskip("matplotlib", reason="needs the extra `plots`")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `parquet`")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reproduce.md").read_text()
FRAMES = 40
PROGRAMS = ("framenest", "python", "accelerate", "pip", "vllm")
PAPER = MECConfig.preset("paper")
HORIZONS = (8, 16, 32, 64, 128)
ANSWERS = {"videomme": 2700, "videomme-v2": 3200, "longvideobench": 1337, "mlvu": 2174}
REPRODUCTION = "reproduction"
"""The plan's folder."""


def plan_commands(*options):
    """What the plan would run, as `--dry-run` prints it."""
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "reproduce.py", "--run", ROOT / "benchmarks" / "plan.toml",
         "--dry-run", *options],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert all(line.startswith("$ ") for line in lines)
    return [line.removeprefix("$ ") for line in lines]


def calls(folder):
    """Program and arguments of every call, as bash would make it."""
    blocks = [*re.findall(r"^```\n(.*?)^```$", PAGE, re.M | re.S), *plan_commands()]
    write = "printf '%s\\x1f' $me \"$@\" $'\\x1e' >> \"$CALLS\""
    shims = [f"{name}() {{ local me={name}; {write}; }}" for name in PROGRAMS]
    # The folder of the task files is printed, not noted down: it stands inside another call.
    tasks = "local IFS='~'; if [ $2 = tasks ]; then echo \"$*\"; return; fi"
    shims[0] = f"framenest() {{ local me=framenest; {tasks}; {write}; }}"
    script = "\n".join(["set -eu", *shims, *blocks, "wait"])
    subprocess.run(
        ["bash", "-c", script], check=True, cwd=folder, env={"CALLS": "calls", "PATH": "/usr/bin:/bin"}
    )
    records = (folder / "calls").read_text().split("\x1e\x1f")[:-1]
    return [record.split("\x1f")[:-1] for record in records]


def videomme():
    """A question on each of three videos."""
    return [row | {"videoID": f"clip{i}"} for i, row in enumerate(toy_benchmarks.videomme()[:3])]


def test_bash_reads_the_page_and_the_plan(tmp_path):
    found = calls(tmp_path)
    assert {call[0] for call in found} == set(PROGRAMS)
    runs = [call for call in found if "lmms_eval" in call and "--limit" not in call]
    tasks = [task for call in runs for task in call[call.index("--tasks") + 1].split(",")]
    table, ablations, horizons, rest = (
        6 * 4 * 4,
        14 * 6,
        1 + 2 + 3 + 4 + 5,
        2 * (6 * 2 + 5 + 5) + 5 * 3 + 5 * 4,
    )
    assert len(tasks) == table + ablations + horizons + rest + 2 + 1  # and those of the page
    assert all({"--log_samples", "--use_cache"} < set(call) for call in runs)
    assert all("…" not in argument for call in found for argument in call)


def test_only_some_tables(tmp_path):
    commands = plan_commands("--only", "thinking,timeline")
    assert sum("enable_thinking=True" in command for command in commands) == 2 + 5  # two probes
    assert sum("timeline" in command for command in commands) == 2
    assert not any("enable_thinking=False" in command for command in commands)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The benchmarks' videos, each of 40 frames, and Video-MME's file for efficiency.py."""
    import pyarrow

    video = numbered_video(tmp_path / "video.mp4", FRAMES)
    file = tmp_path / "Video-MME/videomme/test-00000-of-00001.parquet"
    file.parent.mkdir(parents=True)
    parquet.write_table(pyarrow.Table.from_pylist(videomme()), file)
    names = [f"Video-MME/data/{row['videoID']}" for row in videomme()]
    for name in (*names, "videomme-v2/001", "videomme-v2/002", "longvideobench/clip", "mlvu/clip"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(video, tmp_path / f"{name}.mp4")
    (tmp_path / REPRODUCTION).mkdir()
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


@pytest.fixture
def rules(monkeypatch):
    """The rule of every ranking that is made: (config, whether a transcript was looked for)."""
    used, rank = [], MEC.rank

    def noted(mec, *given, **more):
        used.append((mec.config, mec.session.scoring.subtitles not in (None, "none")))
        return rank(mec, *given, **more)

    monkeypatch.setattr(MEC, "rank", noted)
    return used


class PretendedLmmsEval:
    """Plays `python -m lmms_eval`: reads our task files, takes K frames, writes results."""

    def __init__(self, place, monkeypatch, capsys):
        self._place, self._capsys = place, capsys
        self.metrics = runpy.run_path(str(ROOT / "benchmarks" / "lmms_eval_results.py"))["METRICS"]
        self.rows = {"videomme": videomme(), "videomme-v2": toy_benchmarks.videomme_v2(),
                     "longvideobench": toy_benchmarks.longvideobench(),
                     "mlvu": toy_benchmarks.mlvu()}  # fmt: skip
        fake = ModuleType("pretended_tasks")
        for benchmark in self.rows:
            name = benchmark.replace("-", "_")
            setattr(fake, name, lambda doc, benchmark=benchmark: [str(self._video(doc, benchmark))])
        monkeypatch.setitem(sys.modules, "pretended_tasks", fake)
        monkeypatch.setattr(tasks, "hook_readers", lambda: True)
        (place / "site" / "lmms_eval").mkdir(parents=True)
        (place / "site" / "lmms_eval" / "__init__.py").write_text("")
        monkeypatch.syspath_prepend(place / "site")
        monkeypatch.setattr(tasks, "version", lambda _: "0.7.3")
        self.folder = cache(self._folder)
        self.expected = set()
        loader = ModuleType("lmms_eval.tasks")
        loader.TaskManager = self._task_manager
        loader.get_task_dict = self._load
        monkeypatch.setitem(sys.modules, "lmms_eval.tasks", loader)
        log = SimpleNamespace(logger=SimpleNamespace(disable=lambda _: None))
        monkeypatch.setitem(sys.modules, "loguru", log)

    @staticmethod
    def _task_manager(include_path):
        files = {file.stem: file for file in Path(include_path).glob("*.yaml")}
        return SimpleNamespace(all_tasks=[*files], files=files)

    def _load(self, names, manager, kind):
        """As lmms-eval's own tasks, as far as `prepare` looks at them."""
        assert kind == "chat"
        return {name: self._task(manager.files[name]) for name in names}

    def _task(self, file):
        own = json.loads(re.search(r"^    framenest: (.*)$", file.read_text(), re.M)[1])
        benchmark = own["benchmark"]
        kwargs = {"video_of": f"pretended_tasks.{benchmark.replace('-', '_')}", "framenest": own}
        part = next((part for part in tasks.DURATIONS if f"videomme_{part}" in file.stem), None)
        rows = [row for row in self.rows[benchmark] if part in (None, row.get("duration"))]
        return SimpleNamespace(lmms_eval_specific_kwargs=kwargs, eval_docs_no_media=rows)

    def _folder(self, command):
        """The folder that a call of `framenest lmms-eval tasks` prints, with ~ between its words."""
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main(command.split("~"))
        assert stopped.value.code == 0, command
        return Path(self._capsys.readouterr().out.strip())

    def _video(self, doc, benchmark):
        folder = "Video-MME/data" if benchmark == "videomme" else benchmark
        name = {"videomme": doc.get("videoID"), "videomme-v2": doc.get("video_id")}.get(benchmark, "clip")
        return self._place / folder / f"{name}.mp4"

    def __call__(self, arguments):
        arguments.remove("--log_samples")
        given = dict(zip(arguments[::2], arguments[1::2], strict=True))
        settings = dict(part.split("=", 1) for part in given["--model_args"].split(","))
        names = ("max_num_frames", "num_frames", "nframes", "codec_target_canvas")
        budget = int(next(settings[name] for name in names if name in settings))
        for name in given["--tasks"].split(","):
            task = self._task(self.folder(given["--include_path"]) / f"{name}.yaml")
            self._answer(given, name, task, budget)

    def _answer(self, given, name, task, budget):
        kwargs = task.lmms_eval_specific_kwargs
        benchmark, selector = kwargs["framenest"]["benchmark"], kwargs["framenest"]["selector"]
        if selector.partition(":")[0] == "mec":
            self.expected.add(mec_config(selector.partition(":")[2]))
        for row in task.eval_docs_no_media:
            (message,) = tasks.messages(row, kwargs)
            self._check(message["content"][0], budget, selector)
        folder = self._place / given["--output_path"]
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.iterdir()))
        config = {"model": given["--model"], "model_args": given["--model_args"]}
        scores = {f"{metric},none": 50 / factor for metric, factor in self.metrics[benchmark].values()}
        configs = {name: {"lmms_eval_specific_kwargs": {"default": kwargs}}}
        made = {"results": {name: scores}, "configs": configs, "config": config}
        (folder / f"{number}_results.json").write_text(json.dumps(made))
        lines = (f'{{"doc_id": {i}, "filtered_resps": "A"}}\n' for i in range(ANSWERS[benchmark]))
        (folder / f"{number}_samples_{name}.jsonl").write_text("".join(lines))

    def _check(self, shown, budget, selector):
        if isinstance(shown["url"], list):
            assert len(shown["url"]) == min(budget, FRAMES)
        elif shown["url"].endswith(hook.SUFFIX):
            manifest = hook.VideoManifest.read(shown["url"])
            assert len(hook.selected_frames(manifest, budget)) == min(budget, FRAMES)
        else:
            assert selector == "native"


def test_every_command_runs(place, tiny_models, rules, monkeypatch, capsys):
    pretended = PretendedLmmsEval(place, monkeypatch, capsys)
    hook._selections.cache_clear()
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    with ScriptedServer("A") as server:
        for call in calls(place):
            call = [server.url if part.startswith("http://localhost:8000") else part for part in call]
            before = len(rules)
            run(call, pretended, monkeypatch)
            if not {"lmms_eval", "lmms-eval"} & set(call):  # the paper's rule, without transcript
                assert set(rules[before:]) <= {(PAPER, False)}, call
                assert (len(rules) > before) == (call[:2] == ["framenest", "rank"] or "--videomme" in call)
    variants = {mec_config(name) for name in ablations()} | {mec_config(f"horizon={m}") for m in HORIZONS}
    assert set(rules) == {(config, False) for config in variants | {PAPER}}
    assert pretended.expected == variants | {PAPER}

    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    reproduce = runpy.run_path(str(ROOT / "benchmarks" / "reproduce.py"))
    made = f"{REPRODUCTION}/efficiency.json"
    reproduce["main"](
        [f"{REPRODUCTION}/results", "--efficiency", made, "--figure", "tradeoff.png", "-o", "tables.md"]
    )
    page = (place / "tables.md").read_text()
    tables = dict(part.split("\n\n", 1) for part in page.removeprefix("## ").split("\n\n## "))
    assert len(tables) == 13
    assert not re.search(r"\([\d,]+ of ", page)  # no score over fewer answers
    assert "50.00 ± 0.96 (2,700)" in page
    for name, table in tables.items():
        if name == "Your runs":
            continue
        own = [line.split("yours")[1] for line in table.splitlines() if "yours" in line]
        assert own, name
        assert table.count("| paper |") in (0, table.count("| yours |")), name
        cells = [cell.strip() for line in own for cell in line.split("|")[1:-1]]
        empty = 15 if name.startswith("Horizons") else 0  # a horizon serves no more
        assert (name, cells.count("")) == (name, empty)
    assert (place / "tradeoff.png").read_bytes().startswith(b"\x89PNG")
    assert (place / REPRODUCTION / "timeline.png").read_bytes().startswith(b"\x89PNG")
    rows = json.loads((place / REPRODUCTION / "efficiency.json").read_text())["rows"]
    assert set(rows) == {"uniform", "mec", "aks", "wfs-sb"}
    assert (place / "InternVL3_5-8B-Instruct-HF" / "model-2.safetensors").is_file()


def ablations():
    """The presets of the paper's ablations and schedules."""
    paper = json.loads((ROOT / "benchmarks" / "paper.json").read_text())
    names = {*paper["components"], *paper["schedules"]} - {"uniform", "mec"}
    return {name.removeprefix("mec:") for name in names}


def run(call, pretended, monkeypatch):
    """One command of the page."""
    program, *arguments = call
    if program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        for wanted in re.findall(r"\.\[(.*?)\]", " ".join(arguments)):
            assert set(wanted.split(",")) <= set(extras)
    elif program == "vllm":
        if "--mm-processor-kwargs" in arguments:
            sizes = json.loads(arguments[arguments.index("--mm-processor-kwargs") + 1])["size"]
            assert sizes["longest_edge"] == 256 * 786_432
    elif "--run" in arguments:
        plan_commands(*arguments[arguments.index("--run") + 2 :])  # which is what `calls` reads
    elif "lmms_eval" in arguments:
        pretended(arguments[arguments.index("lmms_eval") + 1 :])
    elif arguments[0] == "-c":
        assert arguments == ["-c", "import fla"]  # the fast kernels' package
    elif program == "python":
        script, *given = arguments
        monkeypatch.setattr(sys, "argv", [script, *given])
        runpy.run_path(str(ROOT / script))["main"](given)
    else:
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 0, call
