"""The real lmms-eval on a CPU, with a random-weight Qwen3-VL over toy benchmarks in the real schemas.

Run by `make test-lmms-eval`, in an environment of its own.
"""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lmms_eval", reason="needs lmms-eval in its own environment; run: make test-lmms-eval")

import random_internvl
import random_qwen3_vl
import toy_benchmarks

from framenest import Prefix, lmm, open_video
from media import numbered_video

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
QUESTIONS = 6 + 2 + 8 + 2 + 2
RANKED = 6 + 8
"""Questions whose selector ranks: MEC's."""
AGAIN = 2 + 2 + 2
"""Questions whose selector chooses anew for another budget."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model, data, scores, and the tasks with their rows taken from local files."""
    folder = tmp_path_factory.mktemp("lmms-eval")
    random_qwen3_vl.save(folder / "model")
    toy_benchmarks.write_home(folder / "home")
    (folder / "scores.json").write_text(json.dumps({str(i): i / 300 for i in range(300)}))
    write_toys(folder, "tasks", f"table:{folder / 'scores.json'}")
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


def command(folder, *arguments, check=True):
    settings = {
        "HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1", "FRAMENEST_CACHE": str(folder / "cache"),
        "CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "false",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert not check or done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done


def evaluate(folder, frames, tasks=tuple(f"toy_{name}" for name in TASKS), name="qwen3_vl"):
    model = f"pretrained={folder / 'model'},device=cpu,device_map=cpu,max_num_frames={frames},max_pixels=4096"
    model += ",enable_thinking=False"
    return command(
        folder, "-m", "lmms_eval", "--model", name, "--model_args", f"{model},min_pixels=1024",
        "--tasks", ",".join(tasks), "--include_path", str(folder / "tasks"), "--batch_size", "1",
        "--output_path", str(folder / f"out{frames}"), "--log_samples", "--gen_kwargs", "max_new_tokens=1",
    )  # fmt: skip


def scores(folder, frames):
    (file,) = (folder / f"out{frames}").rglob("*_results.json")
    return json.loads(file.read_text())["results"]


def counted(done):
    """(newly selected, from kept selections) as the plug-in reports at the end."""
    found = re.search(r"framenest: frames for (\d+) requests: (\d+) newly selected, (\d+) from", done.stderr)
    return tuple(int(number) for number in found.groups())


@pytest.fixture(scope="module")
def runs(place):
    """Two runs of all tasks, with four and then with eight frames."""
    first = evaluate(place, 4)
    return first, evaluate(place, 8, name="qwen3_5")  # it passes max_frames to qwen-vl-utils, not nframes


def test_two_budgets_one_selection(place, runs, capsys):
    first, second = runs
    assert counted(first) == (QUESTIONS, QUESTIONS, 0)
    assert counted(second) == (QUESTIONS, AGAIN, RANKED)
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
            lines += [line for line in done.stderr.splitlines() if line.startswith("framenest: frames")]
            sys.stdout.write(f"\n--model {model}, max_num_frames={frames}\n" + "\n".join(lines) + "\n")


@pytest.mark.usefixtures("runs")
def test_the_results_say_how_many_answers_they_rest_on_and_which_scorer_chose(place):
    benchmarks = Path(__file__).parents[2] / "benchmarks"
    found = runpy.run_path(str(benchmarks / "lmms_eval_results.py"))["read_result_files"](place / "out8")
    assert {run.task.removeprefix("toy_") for run in found} == set(TASKS)
    assert sum(run.answered for run in found) == QUESTIONS + 2  # and two that the model's own reader answers
    assert {run.failed for run in found} == {0}
    assert {run.budget for run in found} == {8}
    scorers = {run.selector: run.way.get("scorer") for run in found}
    table = f"table:{place / 'scores.json'}"
    assert scorers == {"mec": table, "aks": table, "wfs-sb": table, "uniform": None, "native": None}


def test_a_failed_selection_ends_the_run(place):
    done = evaluate_failing(place)
    assert done.returncode != 0
    assert "framenest: there is no scorer 'none-such'" in done.stderr
    assert "read_video" not in done.stdout + done.stderr


def evaluate_failing(place):
    write_toys(place, "failing", "none-such")
    model = f"pretrained={place / 'model'},device=cpu,device_map=cpu,max_num_frames=4,min_pixels=1024"
    return command(
        place, "-m", "lmms_eval", "--model", "qwen3_vl", "--model_args", model, "--tasks",
        "toy_framenest_mlvu_dev_wfs_sb", "--include_path", str(place / "failing"), "--batch_size", "1",
        check=False,
    )  # fmt: skip


def test_internvl_answers_about_the_frames_in_the_message(place, tmp_path):
    """In the paper's checkpoint's own format, converted as docs/reproduce.md says."""
    random_internvl.save(tmp_path / "like")
    random_internvl.processor().save_pretrained(tmp_path / "like")
    random_internvl.save_own_format(tmp_path / "own")
    convert = Path(__file__).parents[2] / "benchmarks" / "convert_internvl.py"
    command(place, str(convert), str(tmp_path / "own"), "--like", str(tmp_path / "like"), "-o", "internvl")
    write_toys(place, "frames", f"table:{place / 'scores.json'}", "--frames-as", "frames", "-k", "4")
    done = command(
        place, "-m", "lmms_eval", "--model", "internvl_hf",
        "--model_args", "pretrained=internvl,device=cpu,device_map=cpu,num_frames=4",
        "--tasks", "toy_framenest_videomme", "--include_path", str(place / "frames"), "--batch_size", "1",
        "--output_path", str(tmp_path / "out"), "--gen_kwargs", "max_new_tokens=1",
    )  # fmt: skip
    assert counted(done)[0] == 6
    assert "in generating" not in done.stdout + done.stderr  # its errors do not end the run
    (file,) = (tmp_path / "out").rglob("*_results.json")
    assert "toy_framenest_videomme" in json.loads(file.read_text())["results"]


def test_all_tasks_are_known_by_name(place):
    code = (
        "from lmms_eval.tasks import TaskManager; import sys;"
        "print([t for t in TaskManager(include_path=sys.argv[1]).all_tasks if t.startswith('framenest_')])"
    )
    folder = command(place, "-m", "framenest", "lmms-eval", "tasks", "--scorer", "tags").stdout.strip()
    names = command(place, "-m", "framenest", "lmms-eval", "tasks", "--list").stdout.split()
    known = command(place, "-c", code, folder).stdout
    assert len(names) == 40
    assert all(f"'{name}'" in known for name in names)


@pytest.mark.parametrize("rate", ["constant", "variable"])
@pytest.mark.parametrize("frames", [[7], [3, 59], [0, 10, 40], [0, 1, 2, 30, 58, 59]], ids=len)
def test_qwen3_vl_writes_the_true_times(tmp_path, rate, frames):
    """The real processor, as lmms-eval calls it: pictures and metadata from the reader in qwen-vl-utils."""
    from qwen_vl_utils import process_vision_info

    from framenest.evaluation.lmms_eval import hook
    from framenest.evaluation.lmms_eval.hook import ManifestReader, VideoManifest

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
        patch.setattr(ManifestReader, "frames", lambda *_: prefix)
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
