"""The real lmms-eval on a CPU, with random-weight models and a scripted server, over toy benchmarks in the
real schemas.

Run by `make test-lmms-eval`, in an environment of its own.
"""

import json
import os
import re
import runpy
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest

pytest.importorskip("lmms_eval", reason="needs lmms-eval in its own environment; run: make test-lmms-eval")

import random_internvl
import random_qwen3_vl
import toy_benchmarks

from framenest import Prefix, lmm, open_video
from media import numbered_video
from processes import PATIENCE
from scripted_server import ScriptedServer, completion
from without_gpu import declare_torchvision_operators

declare_torchvision_operators()

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

TASKS = {
    "framenest_videomme": ("videomme", "test"),
    "framenest_videomme_long_uniform": ("videomme", "test"),
    "framenest_videomme_short_native": ("videomme", "test"),
    "framenest_videomme_v2": ("videomme_v2", "test"),
    "framenest_longvideobench_val_aks": ("longvideobench", "validation"),
    "framenest_mlvu_dev_wfs_sb": ("mlvu", "test"),
}
QUESTIONS = 6 + 2 + 2 + 8 + 2 + 2
TOYS = tuple(f"toy_{name}" for name in TASKS)
LAUNCHER = str(Path(__file__).parents[1] / "without_gpu.py")
LMMS_EVAL = (LAUNCHER, "lmms_eval")
STEP = 4
"""Answers after which they are stored, where a test kills the processes."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model, data, scores, and the tasks with their rows taken from local files."""
    folder = tmp_path_factory.mktemp("lmms-eval")
    random_qwen3_vl.save(folder / "model")
    toy_benchmarks.write_home(folder / "home")
    (folder / "scores.json").write_text(json.dumps({str(i): i / 300 for i in range(300)}))
    write_toys(folder, "tasks", f"table:{folder / 'scores.json'}")
    prepared(folder, TOYS)
    return folder


def write_toys(folder, name, scorer, *options):
    """Our tasks with their rows taken from local files, in a folder of this name."""
    printed = command(folder, "-m", "framenest", "lmms-eval", "tasks", "--scorer", scorer, *options)
    tasks = Path(printed.stdout.strip())
    assert len(list(tasks.glob("*.yaml"))) == 40
    (folder / name).mkdir()
    for task, (rows, split) in TASKS.items():
        files = {split: str(folder / "home" / f"{rows}.json")}
        (folder / name / f"toy_{task}.yaml").write_text(
            f"task: toy_{task}\n"
            f"include: {tasks / task}.yaml\n"
            "dataset_path: json\n"
            f"dataset_kwargs: {json.dumps({'data_files': files})}\n"
        )


def prepared(folder, tasks, *options, budgets="4,8", name="tasks"):
    """What `framenest lmms-eval prepare` prints of its work."""
    done = command(
        folder, LAUNCHER, "framenest", "lmms-eval", "prepare", *tasks, "--include-path", str(folder / name),
        "--budgets", budgets, "--json", *options,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def environment(folder):
    return os.environ | {
        "HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1", "FRAMENEST_CACHE": str(folder / "cache"),
        "CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "false", "OPENAI_API_KEY": "none",
        "ACCELERATE_USE_CPU": "true",
        "PYTHONPATH": os.pathsep.join([str(Path(LAUNCHER).parent), *filter(None, [os.getenv("PYTHONPATH")])]),
    }  # fmt: skip


def command(folder, *arguments, check=True):
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment(folder),
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert not check or done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done


def evaluate(folder, frames, tasks=TOYS, name="qwen3_vl"):
    model = f"pretrained={folder / 'model'},device=cpu,device_map=cpu,max_num_frames={frames},max_pixels=4096"
    model += ",enable_thinking=False"
    return command(
        folder, *LMMS_EVAL, "--model", name, "--model_args", f"{model},min_pixels=1024",
        "--tasks", ",".join(tasks), "--include_path", str(folder / "tasks"), "--batch_size", "1",
        "--output_path", str(folder / f"out{frames}"), "--log_samples", "--gen_kwargs", "max_new_tokens=1",
    )  # fmt: skip


def scores(folder, frames):
    (file,) = (folder / f"out{frames}").rglob("*_results.json")
    return json.loads(file.read_text())["results"]


@pytest.fixture(scope="module")
def runs(place):
    """Two runs of all tasks, with four and then with eight frames."""
    first = evaluate(place, 4)
    return first, evaluate(place, 8, name="qwen3_5")  # it passes max_frames to qwen-vl-utils, not nframes


def test_prepared_selections_are_not_made_again(place):
    again = prepared(place, TOYS)
    assert (again["selected"], again["failures"]) == (0, [])
    assert again["present"] == QUESTIONS - 2  # without native
    parts = [prepared(place, TOYS, "--part", f"{i}/2")["present"] for i in (1, 2)]
    assert min(parts) > 0
    assert sum(parts) == again["present"]
    few = prepared(place, TOYS, "--limit", "1")
    assert few["present"] == 5


def test_a_video_that_lmms_eval_does_not_find_is_named_and_the_others_are_selected(place, tmp_path):
    """Its own functions end the process."""
    rows = toy_benchmarks.mlvu()
    rows[0]["video_name"] = "gone.mp4"
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    toy = (place / "tasks" / "toy_framenest_mlvu_dev_wfs_sb.yaml").read_text()
    toy = toy.replace(str(place / "home" / "mlvu.json"), str(tmp_path / "rows.json"))
    (tmp_path / "toy.yaml").write_text(toy)
    done = command(
        place, LAUNCHER, "framenest", "lmms-eval", "prepare", "toy_framenest_mlvu_dev_wfs_sb",
        "--include-path", str(tmp_path), "--budgets", "4", check=False,
    )  # fmt: skip
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "error: " in line]
    assert "gone.mp4 does not exist" in line
    assert "1 videos: 0 selections made in 0.00 hours, 1 were there, 1 videos failed" in done.stdout


def test_two_budgets(place, runs, capsys):
    first, second = runs
    for frames in (4, 8):
        made = scores(place, frames)
        assert set(made) == {f"toy_{name}" for name in TASKS}
        videomme = made["toy_framenest_videomme"]
        parts = [videomme[f"videomme_{part},none"] for part in toy_benchmarks.DURATIONS]
        assert videomme["videomme_perception_score,none"] == pytest.approx(sum(parts) / 3)
        assert 0 <= made["toy_framenest_videomme_v2"]["videomme_v2_overall_score,none"] <= 100
        assert 0 <= made["toy_framenest_longvideobench_val_aks"]["lvb_acc,none"] <= 1
        assert 0 <= made["toy_framenest_mlvu_dev_wfs_sb"]["mlvu_percetion_score,none"] <= 100
    with capsys.disabled():  # what the documentation shows
        for model, frames, done in (("qwen3_vl", 4, first), ("qwen3_5", 8, second)):
            lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
            sys.stdout.write(f"\n--model {model}, max_num_frames={frames}\n" + "\n".join(lines) + "\n")


@pytest.mark.usefixtures("runs")
def test_the_results_say_how_many_answers_they_rest_on_and_which_scorer_chose(place):
    benchmarks = Path(__file__).parents[2] / "benchmarks"
    found = runpy.run_path(str(benchmarks / "lmms_eval_results.py"))["read_result_files"](place / "out8")
    assert {run.task.removeprefix("toy_") for run in found} == set(TASKS)
    assert sum(run.answered for run in found) == QUESTIONS
    assert {run.failed for run in found} == {0}
    assert {run.budget for run in found} == {8}
    scorers = {run.selector: run.way.get("scorer") for run in found}
    table = f"table:{place / 'scores.json'}"
    assert scorers == {"mec": table, "aks": table, "wfs-sb": table, "uniform": None, "native": None}


def test_a_missing_selection_ends_the_run_with_the_command_that_makes_it(place):
    done = evaluate_unprepared(place)
    assert done.returncode != 0
    scorer = f"table:{place / 'scores.json'}"
    command = f"framenest lmms-eval prepare framenest_mlvu_dev_wfs_sb --scorer {scorer} --budgets 5"
    assert command in " ".join(done.stderr.split())
    assert "read_video" not in done.stdout + done.stderr


def evaluate_unprepared(place):
    model = f"pretrained={place / 'model'},device=cpu,device_map=cpu,max_num_frames=5,min_pixels=1024"
    return command(
        place, *LMMS_EVAL, "--model", "qwen3_vl", "--model_args", model, "--tasks",
        "toy_framenest_mlvu_dev_wfs_sb", "--include_path", str(place / "tasks"), "--batch_size", "1",
        check=False,
    )  # fmt: skip


def start(place, url):
    """Two processes of the model of a server, over all tasks."""
    model = (
        f"model_version=scripted,base_url={url},is_qwen3_vl=True,nframes=4,max_pixels=4096,num_cpus={STEP}"
    )
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", *LMMS_EVAL,
         "--model", "async_openai", "--model_args", model, "--tasks", ",".join(TOYS), "--include_path",
         str(place / "tasks"), "--batch_size", "1", "--log_samples", "--use_cache", str(place / "answers"),
         "--output_path", str(place / "server")],
        env=environment(place) | {"ANSWERS_A_STEP": str(STEP)}, cwd=place, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def kill_with_children(process):
    everyone = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for one in everyone:
        one.kill()
    psutil.wait_procs(everyone[:-1], timeout=PATIENCE)
    process.communicate()


def test_after_a_kill_a_second_start_asks_nothing_again(place):
    """But for the unfinished step of each of the two processes; a third start asks nothing at all."""
    arrived, held = threading.Semaphore(0), threading.Event()

    def reply(handler, body):
        text = body["messages"][-1]["content"][-1]["text"]
        assert re.search(r"<[\d.]+ seconds>", json.dumps(body["messages"]))
        if "How many" in text and not held.is_set():  # MLVU's, one for each process
            arrived.release()
            held.wait()
        handler.send_json(200, completion("B"))

    with ScriptedServer(reply) as server:
        first = start(place, server.url)
        try:
            for _ in range(2):
                assert arrived.acquire(timeout=PATIENCE)
        finally:
            kill_with_children(first)
        answered = len(server.requests) - 2
        held.set()
        asked = []
        for _ in range(2):
            before = len(server.requests)
            output, _ = start(place, server.url).communicate(timeout=PATIENCE * 2)
            assert "2 rank(s)" in output, output[-3000:]
            asked.append(len(server.requests) - before)
    assert asked[1] == 0
    assert 2 <= asked[0] < QUESTIONS
    assert answered <= QUESTIONS - 2  # none was asked twice
    assert answered + asked[0] - QUESTIONS <= 2 * (STEP - 1)
    benchmarks = Path(__file__).parents[2] / "benchmarks"
    found = runpy.run_path(str(benchmarks / "lmms_eval_results.py"))["read_result_files"](place / "server")
    assert {run.task.removeprefix("toy_") for run in found} == set(TASKS)
    assert [run.answered for run in found].count(0) == 0
    assert sum(run.answered for run in found) == 2 * QUESTIONS  # in the results of the second and third start


def test_a_server_that_fails_ends_the_run_and_no_failure_is_stored(place):
    """lmms-eval alone would store each failed request, and score it as a wrong answer."""
    model = "model_version=scripted,base_url={},nframes=4,max_retries=1,num_cpus=2"
    arguments = (
        "--tasks", "toy_framenest_videomme_long_uniform", "--include_path", str(place / "tasks"),
        "--batch_size", "1", "--use_cache", str(place / "failed"),
    )  # fmt: skip
    with ScriptedServer((500, {"error": "out of order"})) as server:
        done = command(
            place, *LMMS_EVAL, "--model", "async_openai", "--model_args", model.format(server.url),
            *arguments, check=False,
        )  # fmt: skip
    assert done.returncode != 0
    assert "framenest: 2 of 2 requests failed: [LMMS_EVAL_REQUEST_FAILED after 1 retries]" in done.stderr
    (stored,) = (place / "failed").rglob("rank_0.audit.jsonl")
    assert stored.read_text() == ""


def test_internvl_answers_about_the_frames_in_the_message(place, tmp_path):
    """In the paper's checkpoint's own format, converted as docs/reproduce.md says."""
    random_internvl.save(tmp_path / "like")
    random_internvl.processor().save_pretrained(tmp_path / "like")
    random_internvl.save_own_format(tmp_path / "own")
    convert = Path(__file__).parents[2] / "benchmarks" / "convert_internvl.py"
    command(
        place,
        LAUNCHER,
        str(convert),
        str(tmp_path / "own"),
        "--like",
        str(tmp_path / "like"),
        "-o",
        "internvl",
    )
    write_toys(place, "frames", f"table:{place / 'scores.json'}", "--frames-as", "frames", "-k", "4")
    prepared(place, ["toy_framenest_videomme"], name="frames")
    done = command(
        place, *LMMS_EVAL, "--model", "internvl_hf",
        "--model_args", "pretrained=internvl,device=cpu,device_map=cpu,num_frames=4",
        "--tasks", "toy_framenest_videomme", "--include_path", str(place / "frames"), "--batch_size", "1",
        "--output_path", str(tmp_path / "out"), "--gen_kwargs", "max_new_tokens=1",
    )  # fmt: skip
    assert "in generating" not in done.stdout + done.stderr  # its errors do not end the run
    (file,) = (tmp_path / "out").rglob("*_results.json")
    assert "toy_framenest_videomme" in json.loads(file.read_text())["results"]


def test_all_tasks_are_known_by_name(place):
    code = (
        "from lmms_eval.tasks import TaskManager; import sys;"
        "print([t for t in TaskManager(include_path=sys.argv[1]).all_tasks if t.startswith('framenest_')])"
    )
    folder = command(place, "-m", "framenest", "lmms-eval", "tasks", "--scorer", "tags").stdout.strip()
    names = [file.stem for file in Path(folder).glob("*.yaml")]
    known = command(
        place, "-c", f"import without_gpu as w; w.declare_torchvision_operators(); {code}", folder
    ).stdout
    assert len(names) == 40
    assert all(f"'{name}'" in known for name in names)


@pytest.mark.parametrize("rate", ["constant", "variable"])
@pytest.mark.parametrize("frames", [[7], [3, 59], [0, 10, 40], [0, 1, 2, 30, 58, 59]], ids=len)
def test_qwen3_vl_writes_the_true_times(tmp_path, rate, frames):
    """The real processor, as lmms-eval calls it: pictures and metadata from the reader in qwen-vl-utils."""
    from qwen_vl_utils import process_vision_info

    from framenest.evaluation.lmms_eval import hook
    from framenest.evaluation.lmms_eval.hook import VideoManifest

    ticks = np.cumsum([0, *(20 + 7 * i for i in range(59))]).tolist()
    video = numbered_video(tmp_path / "v.mkv", 60, ticks=ticks if rate == "variable" else None)
    (tmp_path / "scores.json").write_text(json.dumps({str(n): float(n in frames) for n in range(60)}))
    hook.register()
    manifest = VideoManifest(str(video), "Which?", "top", "x")
    decoder = open_video(video)
    numbers = np.array(frames)
    prefix = Prefix(decoder.info, len(frames), numbers, decoder.seconds[numbers], None)
    chosen = {
        "type": "video", "video": str(manifest.write()), "nframes": len(frames), "min_pixels": 1024,
        "max_pixels": 4096,
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hook, "selected_frames", lambda *_: prefix)
        _, videos, kwargs = process_vision_info(
            [{"role": "user", "content": [chosen]}],
            return_video_kwargs=True, image_patch_size=16, return_video_metadata=True,
        )  # fmt: skip
    pixels, metadata = zip(*videos, strict=True)
    processor = random_qwen3_vl.processor()
    inputs = processor(
        text=["<|vision_start|><|video_pad|><|vision_end|>"], videos=list(pixels),
        video_metadata=list(metadata), **kwargs, do_resize=False, return_tensors="pt",
    )  # fmt: skip
    written = re.findall(r"<[\d.]+ seconds>", processor.tokenizer.decode(inputs["input_ids"][0]))
    sent = lmm.messages(prefix, "Which?", "qwen", video=decoder, pairing=manifest.pairing)
    assert written == sent.markers
    true = prefix.seconds.tolist()
    true += true[-1:] * (len(true) % 2)
    for marker, pair in zip(written, np.array(true).reshape(-1, 2), strict=True):
        assert float(marker[1:].split()[0]) == pytest.approx(pair.mean(), abs=0.0506)
