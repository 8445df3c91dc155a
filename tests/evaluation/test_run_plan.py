"""benchmarks/run_plan.py with scripts in the place of framenest, lmms-eval and a server.

test_plan_run.py has the real ones.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from processes import PATIENCE
from scripted_server import ScriptedServer

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LMMS_EVAL = """
import json, sys
from pathlib import Path
sys.path.insert(0, {benchmarks!r})
from lmms_eval_results import QUESTIONS
sys.argv.remove("--log_samples")
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
with open("asked.txt", "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
if Path("broken").exists():
    print("framenest: no selection by mec; run: framenest lmms-eval prepare")
    print("\\n".join(f"  line {{n}} of torchrun" for n in range(40)), "\\nChildFailedError: rank 0")
    sys.exit(1)
print("framenest: 20 of 20 answers are new, 10.0 s of the model")
folder = Path(given["--output_path"])
folder.mkdir(parents=True, exist_ok=True)
number = len(list(folder.iterdir()))
made = {{"results": {{}}, "configs": {{}}, "config": {{"model": "x", "model_args": given["--model_args"]}}}}
for task in given["--tasks"].split(","):
    selector = "uniform" if "uniform" in task else "mec"
    settings = {{"benchmark": "mlvu", "selector": selector, "scorer": "tags"}}
    made["results"][task] = {{"mlvu_percetion_score,none": 50.0}}
    made["configs"][task] = {{"lmms_eval_specific_kwargs": {{"default": {{"framenest": settings}}}}}}
    lines = (json.dumps({{"doc_id": n, "filtered_resps": "A"}}) + "\\n" for n in range(2174))
    (folder / f"{{number}}_samples_{{task}}.jsonl").write_text("".join(lines))
(folder / f"{{number}}_results.json").write_text(json.dumps(made))
"""
FRAMENEST = """#!/bin/sh
echo "$*" >> framenest.txt
case "$*" in
*--json*) echo '{{"seconds": 2.0}}';;
*tasks*) echo tasks;;
esac
"""
SERVER = """
import os, sys
from pathlib import Path
from http.server import HTTPServer, SimpleHTTPRequestHandler
Path("server.pid").write_text(str(os.getpid()))
HTTPServer(("127.0.0.1", {port}), SimpleHTTPRequestHandler).serve_forever()
"""
WAITING = """
import os, subprocess, sys, time
from pathlib import Path
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, sys.argv[0], "child"])
else:
    Path("child.pid").write_text(str(os.getpid()))
time.sleep(3600)
"""
PLAN = """
folder = "made"
gpus = 1
scorer = "tags"
launch = "{python} lmms_eval.py"

[models.tiny]
name = "x"
arguments = "pretrained=tiny"
budget = "nframes"

[servers.own]
command = "{python} server.py"
ready = "http://127.0.0.1:{port}/"

[[steps]]
table = "main"
model = "tiny"
benchmarks = ["mlvu_dev"]
selectors = ["mec", "uniform"]
budgets = [8, 16, 32]

[[steps]]
table = "timeline"
server = "own"
command = "{python} waiting.py"
"""


@pytest.fixture
def place(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "bin").mkdir()
    files = {"lmms_eval.py": LMMS_EVAL, "server.py": SERVER, "plan.toml": PLAN, "bin/framenest": FRAMENEST}
    for name, text in files.items():
        (tmp_path / name).write_text(
            text.format(benchmarks=str(BENCHMARKS), port=port, python=sys.executable)
        )
    (tmp_path / "bin" / "framenest").chmod(0o755)
    (tmp_path / "waiting.py").write_text(WAITING)
    yield tmp_path
    for one in psutil.process_iter(["cwd"]):  # what a test that fails leaves running
        if one.info["cwd"] == str(tmp_path):
            one.kill()


def start(place, *options):
    return subprocess.Popen(
        [sys.executable, str(BENCHMARKS / "reproduce.py"), "--run", "plan.toml", *options],
        cwd=place, env=os.environ | {"PATH": f"{place / 'bin'}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509 - nohup ignores it
    )  # fmt: skip


def reproduce(place, *options):
    """(exit code, stdout, stderr)"""
    process = start(place, *options)
    printed, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, printed, errors


def lines(place, name):
    return (place / name).read_text().splitlines()


def wait_until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def has_ended(process):
    with suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_server_and_all_that_the_command_started(place, number):
    process = start(place, "--only", "timeline")
    files = [place / "server.pid", place / "child.pid"]
    wait_until(
        lambda: all(file.exists() and file.read_text() for file in files) or process.poll() is not None
    )
    started = [psutil.Process(int(file.read_text())) for file in files]
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert errors.endswith("ended by a signal\n")
    wait_until(lambda: all(has_ended(one) for one in started))


def test_a_server_of_somebody_else_is_refused(place):
    with ScriptedServer("A") as server:
        plan = (place / "plan.toml").read_text()
        ready = next(line for line in plan.splitlines() if line.startswith("ready"))
        (place / "plan.toml").write_text(plan.replace(ready, f'ready = "{server.url}/models"'))
        code, _, errors = reproduce(place, "--only", "timeline")
    assert code == 1
    assert f"another server answers at {server.url}/models; end it, or change the plan's port" in errors
    assert not (place / "server.pid").exists()


def test_a_second_start_prepares_again_and_asks_for_no_probe_again(place):
    """The selections may be gone, or in another cache; preparing what is there takes no time."""
    assert reproduce(place, "--only", "main", "--estimate")[0] == 0
    (place / "broken").touch()
    code, _, errors = reproduce(place, "--only", "main")
    assert code == 1
    first, *_ = errors.splitlines()
    assert first == "framenest: no selection by mec; run: framenest lmms-eval prepare"
    assert "ChildFailedError: rank 0" in errors
    assert errors.endswith("all of it is in made/logs/005.txt. `--run` again goes on from here.\n")
    (place / "broken").unlink()
    code, printed, errors = reproduce(place, "--only", "main")
    assert code == 0, errors
    prepared = [line for line in lines(place, "framenest.txt") if "prepare" in line]
    assert [("--limit" in line) for line in prepared] == [True, False, False]
    probes = [line for line in lines(place, "asked.txt") if "--limit" in line]
    assert len(probes) == 2  # of the smallest and the largest budget
    assert "## Your runs" in printed  # with --only, too
    assert "| tiny | framenest_mlvu_dev_uniform | 32 | 2,174 | 2,174 | 0 | tags |" in printed

    (place / "plan.toml").write_text(
        (place / "plan.toml").read_text().replace("[8, 16, 32]", "[8, 16, 24, 32]")
    )
    assert reproduce(place, "--only", "main")[0] == 0
    probes = [line for line in lines(place, "asked.txt") if "--limit" in line]
    assert len(probes) == 2


def test_several_processes_prepare_after_one_alone_has_loaded_the_tasks(place):
    """Each would download a benchmark that is not there."""
    (place / "plan.toml").write_text((place / "plan.toml").read_text().replace("gpus = 1", "gpus = 3"))
    code, _, errors = reproduce(place, "--only", "main")
    assert code == 0, errors
    prepared = [line for line in lines(place, "framenest.txt") if "prepare" in line and "--json" not in line]
    assert prepared[0].endswith("--limit 1")
    assert sorted(line.split()[-2:] for line in prepared[1:]) == [["--part", f"{n}/3"] for n in (1, 2, 3)]


def test_results_of_two_ways_are_refused_before_anything_runs(place):
    assert reproduce(place, "--only", "main")[0] == 0
    (first, *_) = (place / "made" / "results").glob("*_results.json")
    first.write_text(first.read_text().replace('"tags"', '"blip2"'))
    asked = lines(place, "asked.txt")
    (place / "made" / "journal.jsonl").unlink()
    code, _, errors = reproduce(place, "--only", "main")
    assert code == 1
    assert errors.startswith("error: tiny: scorer is ")
    assert errors.count("\n") == 1
    assert lines(place, "asked.txt") == asked


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('["mlvu_dev"]', '["mlvu"]', "step 1 has the benchmarks 'mlvu'; choose from videomme, "),
        ('model = "tiny"', 'model = "big"', "step 1 has the model 'big'; choose from tiny"),
        ('server = "own"', 'server = "other"', "step 2 has the server 'other'; choose from own"),
        ("budgets = [8, 16, 32]", "", "step 1 has no 'budgets'"),
        ('name = "x"', "", "tiny has no 'name'"),
        ("gpus = 1", "", "has no 'gpus'"),
        ("gpus = 1", "gpu = 1", "unknown key 'gpu'"),
        ("gpus = 1", "gpus =", "cannot be read (Invalid value"),
        ('["mec", "uniform"]', '["mec:horizn=8"]', "there is no setting 'horizn'"),
        ('["mec", "uniform"]', '["best"]', "there is no selector 'best'"),
    ],
)
def test_a_wrong_plan_is_one_line(place, old, new, said):
    plan = (place / "plan.toml").read_text()
    assert old in plan
    (place / "plan.toml").write_text(plan.replace(old, new))
    code, printed, errors = reproduce(place, "--dry-run")
    assert (code, printed) == (1, "")
    assert errors.startswith("error: ")
    assert said in errors
    assert errors.count("\n") == 1


def test_a_plan_that_is_not_there(place):
    (place / "plan.toml").unlink()
    assert (
        reproduce(place)[2]
        == "error: plan.toml: cannot be read ([Errno 2] No such file or directory: 'plan.toml')\n"
    )
