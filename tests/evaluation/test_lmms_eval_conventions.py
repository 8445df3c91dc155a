"""lmms-eval 0.7.3's own prompts.

lmms_eval_golden.json holds what its own functions and task files gave. It is compared with them where
lmms-eval is installed (`make test-lmms-eval`), and with ours everywhere.
"""

import json
from importlib import import_module
from pathlib import Path

import pytest
import toy_benchmarks

from framenest.evaluation.benchmarks import READERS
from framenest.evaluation.lmms_eval import tasks
from framenest.lmm.prompt import DIRECTLY

GOLDEN = json.loads(Path(__file__).with_name("lmms_eval_golden.json").read_text())
TASKS = {
    "videomme": ("videomme", "videomme.yaml", "videomme"),
    "videomme-v2": ("videomme_v2", "_default_template_yaml", "videomme_v2"),
    "longvideobench": ("longvideobench", "longvideobench_val_v.yaml", "longvideobench"),
    "mlvu": ("mlvu", "mlvu_dev.yaml", "mlvu"),
}
"""The module, the task file, and what its functions' names begin with."""


def row_of(dataset):
    return getattr(toy_benchmarks, dataset.replace("-", "_"))()[0]


@pytest.mark.parametrize("dataset", list(READERS))
def test_prompts(dataset):
    settings = {"benchmark": dataset, "selector": "uniform"}
    row = row_of(dataset)
    assert tasks.text(row, {"framenest": settings | {"prompt": "lmms-eval"}}) == GOLDEN[dataset]
    assert tasks.text(row, {"framenest": settings}) == f"{READERS[dataset](row).asked}\n{DIRECTLY}"


@pytest.mark.parametrize("dataset", list(READERS))
@pytest.mark.filterwarnings("ignore")
def test_the_golden_file_is_lmms_evals(dataset):
    pytest.importorskip(
        "lmms_eval", reason="needs lmms-eval in its own environment; run: make test-lmms-eval"
    )
    import yaml

    package, file, prefix = TASKS[dataset]
    module = import_module(f"lmms_eval.tasks.{package}.utils")
    lines = Path(module.__file__).with_name(file).read_text().splitlines()
    task = yaml.safe_load("\n".join(line for line in lines if "!function" not in line))
    doc_to_text = getattr(module, f"{prefix}_doc_to_text")
    assert doc_to_text(row_of(dataset), task["lmms_eval_specific_kwargs"]["default"]) == GOLDEN[dataset]
