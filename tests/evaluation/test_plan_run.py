"""`benchmarks/reproduce.py --run` with the real lmms-eval: a plan of toy benchmarks, a scripted server that
the plan starts, and a random-weight Qwen3-VL on a CPU.

Run by `make test-lmms-eval`, in an environment of its own.
"""

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lmms_eval", reason="needs lmms-eval in its own environment; run: make test-lmms-eval")

import random_qwen3_vl
import toy_benchmarks

from without_gpu import declare_torchvision_operators

declare_torchvision_operators()
pytestmark = pytest.mark.filterwarnings("ignore")

TESTS = Path(__file__).parents[1]
LAUNCHER = f"{sys.executable} {TESTS / 'without_gpu.py'}"
TOYS = {"videomme": "videomme", "videomme_long": "videomme", "mlvu_dev": "mlvu"}
"""lmms-eval's data sets by task."""
SERVER = """
import json, sys, threading
sys.path.insert(0, {tests!r})
from scripted_server import ScriptedServer, completion

def reply(handler, body):
    with open("asked.txt", "a") as file:
        file.write(json.dumps(body["messages"])[-200:] + "\\n")
    handler.send_json(200, completion("B"))

with ScriptedServer(reply, port={port}):
    threading.Event().wait()
"""
PLAN = """
folder = "made"
gpus = 1
scorer = "table:scores.json"
launch = "{launcher} lmms_eval"
options = "--batch_size 1"
include_path = "tasks"
prefix = "toy_"

[models.server]
name = "async_openai"
arguments = "model_version=Qwen3.5-9B,base_url=http://127.0.0.1:{port}/v1,is_qwen3_vl=True,max_pixels=4096,num_cpus=2"
budget = "nframes"
server = "scripted"
launch = "{launcher} lmms_eval"

[models.tiny]
name = "qwen3_vl"
arguments = "pretrained=model,device=cpu,device_map=cpu,max_pixels=4096,min_pixels=1024"
budget = "max_num_frames"
options = "--gen_kwargs max_new_tokens=1"

[servers.scripted]
command = "{python} server.py"
ready = "http://127.0.0.1:{port}/v1/models"

[[steps]]
table = "main"
model = "server"
benchmarks = ["videomme", "mlvu_dev"]
selectors = ["mec", "uniform"]
budgets = [8, 16]

[[steps]]
table = "budgets"
model = "server"
benchmarks = ["videomme"]
selectors = ["mec"]
budgets = [8, 12]

[[steps]]
table = "scales"
model = "tiny"
benchmarks = ["videomme"]
selectors = ["mec"]
budgets = [8]

[[steps]]
table = "timeline"
command = "echo drawn >> made/drawn.txt"
"""


@pytest.fixture
def place(tmp_path):
    """The plan, and all that its commands need."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        free_port = free.getsockname()[1]
    random_qwen3_vl.save(tmp_path / "model")
    toy_benchmarks.write_home(tmp_path / "home")
    (tmp_path / "scores.json").write_text(json.dumps({str(i): i / 300 for i in range(300)}))
    (tmp_path / "server.py").write_text(SERVER.format(tests=str(TESTS), port=free_port))
    python = shlex.quote(sys.executable)
    (tmp_path / "plan.toml").write_text(PLAN.format(launcher=LAUNCHER, port=free_port, python=python))
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "framenest"
    shim.write_text(f'#!/bin/sh\nexec {LAUNCHER} framenest "$@"\n')
    shim.chmod(0o755)
    scorer = f"table:{tmp_path / 'scores.json'}"
    done = run(tmp_path, str(shim), "lmms-eval", "tasks", "--scorer", scorer)
    ours = Path(done.stdout.strip())
    (tmp_path / "tasks").mkdir()
    for task, rows in TOYS.items():
        for name in (task, f"{task}_uniform"):
            files = {"test": str(tmp_path / "home" / f"{rows}.json")}
            (tmp_path / "tasks" / f"{name}.yaml").write_text(
                f"task: toy_framenest_{name}\ninclude: {ours / f'framenest_{name}'}.yaml\n"
                f"dataset_path: json\ndataset_kwargs: {json.dumps({'data_files': files})}\n"
            )
    return tmp_path


def run(folder, *command, check=True):
    settings = {
        "HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1", "FRAMENEST_CACHE": str(folder / "cache"),
        "CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "false", "OPENAI_API_KEY": "none",
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
    }  # fmt: skip
    done = subprocess.run(
        command, env=os.environ | settings, capture_output=True, text=True, cwd=folder, check=False
    )
    logs = [file.read_text()[-3000:] for file in (folder / "made" / "logs").glob("*")]
    assert not check or done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:] + "\n".join(logs)
    return done


def reproduce(folder, *options, check=True):
    script = TESTS.parent / "benchmarks" / "reproduce.py"
    return run(folder, sys.executable, str(script), "--run", "plan.toml", *options, check=check)


def asked(folder):
    return len((folder / "asked.txt").read_text().splitlines())


def test_a_plan_goes_on_after_a_failure_and_ends_with_the_tables(place):
    dry = reproduce(place, "--dry-run").stdout
    assert dry.count("lmms_eval --model") == 3 + 2 + 1 + 1  # three probes; K = 12 alone of the eleven budgets
    assert not (place / "made").exists()

    first = reproduce(place, "--estimate").stdout
    answers = [line.split("|")[1:3] for line in first.splitlines() if line.startswith("| ")][1:]
    assert [(name.strip(), count.strip()) for name, count in answers] == [
        ("main", "19,496"), ("budgets", "2,700"), ("scales", "2,700"),
    ]  # fmt: skip
    probes = asked(place)
    assert probes == 2 * 2  # two long videos' questions at the smallest and the largest budget

    (place / "model").rename(place / "elsewhere")
    failed = reproduce(place, check=False)
    assert failed.returncode != 0
    assert "The command failed; all of it is in made/logs/" in failed.stderr
    everything = probes + 2 * 2 * (6 + 2) + 6
    assert asked(place) == everything

    (place / "elsewhere").rename(place / "model")
    done = reproduce(place).stdout
    assert asked(place) == everything  # nothing again
    assert (place / "made" / "drawn.txt").read_text() == "drawn\n"
    page = (place / "made" / "tables.md").read_text()
    assert page in done
    rows = [line for line in page.splitlines() if "toy_framenest" in line]
    assert len(rows) == 2 * 2 * 2 + 1 + 1
    assert all("| 6 | 2,700 | 0 |" in row or "| 2 | 2,174 | 0 |" in row for row in rows)
    assert "(6 of 2,700)" in page

    again = reproduce(place).stdout
    assert "$ " not in again
    assert page in again


def test_a_plan_that_names_an_unknown_table_or_key(place):
    assert "no step for the table 'mian'" in reproduce(place, "--only", "mian", check=False).stderr
    (place / "plan.toml").write_text("gpu = 8\n" + (place / "plan.toml").read_text())
    assert "unknown key 'gpu'" in reproduce(place, check=False).stderr
