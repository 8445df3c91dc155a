"""Which GPU "cuda" means where several processes share a machine: one, from the weights to the pixels."""

import json
import os
import subprocess
import sys

import pytest

from framenest import ScorerConfig
from framenest.processes import gpu_memory, own_gpu

torch = pytest.importorskip("torch", reason="needs torch")

import one_rank  # noqa: E402 - after the check for torch


def started(folder, rank, *gpus, **environment):
    program = [sys.executable, one_rank.__file__, str(folder), *map(str, gpus)]
    settings = {"LOCAL_RANK": str(rank), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | environment
    return subprocess.Popen(program, env=os.environ | settings, stdout=subprocess.PIPE, text=True)


def printed(processes):
    found = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return [json.loads(text) for text in found]


@pytest.mark.parametrize(
    ("rank", "visible", "current", "expected"),
    [
        (None, 4, None, "cuda:0"),
        ("3", 4, None, "cuda:3"),  # before accelerate has called set_device
        ("3", 4, 3, "cuda:3"),  # afterwards
        ("3", 4, 0, "cuda:3"),  # afterwards, in a thread of its own
        ("3", 1, None, "cuda:0"),  # CUDA_VISIBLE_DEVICES leaves each process one
        ("5", 4, 1, "cuda:1"),  # two processes on each: as accelerate counts
        (None, 4, 2, "cuda:2"),  # a program that called torch.cuda.set_device(2)
        ("-1", 4, None, "cuda:0"),
        ("1", 0, None, "cuda:0"),
    ],
)
def test_the_gpu_of_this_process(monkeypatch, rank, visible, current, expected):
    monkeypatch.setenv("LOCAL_RANK", rank) if rank else monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: current is not None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    assert own_gpu() == expected


def test_torch_is_not_imported_to_find_out():
    code = "import sys, framenest.processes as p; print(p.own_gpu(), 'torch' in sys.modules)"
    environment = {name: value for name, value in os.environ.items() if name != "LOCAL_RANK"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["cuda:0", "False"]


def test_each_process_uses_one_gpu_for_everything(tiny_models):
    """Weights, pixels, tables, questions, free memory and waiting; the CPU stands in for the GPUs."""
    folder = tiny_models("blip2")
    _, exact = one_rank.relevance(folder, ScorerConfig(device="cpu"))
    for rank, found in enumerate(printed([started(folder, rank, 4) for rank in range(4)])):
        assert (found["devices"], found["used"]) == (f"cuda:{rank}", [f"cuda:{rank}"])
        assert found["relevance"] == exact


@pytest.mark.skipif(not gpu_memory(), reason="needs an NVIDIA GPU")
def test_two_processes_share_a_real_gpu(tiny_models):
    folder = tiny_models("blip2")
    _, exact = one_rank.relevance(folder, ScorerConfig(device="cpu"))
    for found in printed([started(folder, rank, CUDA_VISIBLE_DEVICES="0") for rank in (0, 1)]):
        assert found["devices"] == "cuda:0"
        assert found["relevance"] == pytest.approx(exact, abs=2e-3)
