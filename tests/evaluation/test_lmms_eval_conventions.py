"""The prompt of each benchmark: the question with its options as lmms-eval writes them, and the paper's
instruction."""

from importlib import import_module

import pytest
import toy_benchmarks

from framenest.evaluation.lmms_eval import tasks
from framenest.evaluation.lmms_eval.tasks import READERS
from framenest.lmm.prompt import DIRECTLY
from without_gpu import declare_torchvision_operators


def row_of(dataset):
    return getattr(toy_benchmarks, dataset.replace("-", "_"))()[0]


@pytest.mark.parametrize("dataset", list(READERS))
def test_the_papers_instruction_follows_the_question(dataset):
    asked = tasks.text(row_of(dataset), {"framenest": {"benchmark": dataset, "selector": "uniform"}})
    assert asked == f"{READERS[dataset](row_of(dataset)).asked}\n{DIRECTLY}"


@pytest.mark.parametrize("dataset", list(READERS))
@pytest.mark.filterwarnings("ignore")
def test_lmms_evals_own_prompt_has_the_same_question_and_options(dataset):
    pytest.importorskip(
        "lmms_eval", reason="needs lmms-eval in its own environment; run: make test-lmms-eval"
    )
    declare_torchvision_operators()
    name = dataset.replace("-", "_")
    doc_to_text = getattr(import_module(f"lmms_eval.tasks.{name}.utils"), f"{name}_doc_to_text")
    theirs = doc_to_text(row_of(dataset), {"pre_prompt": "", "post_prompt": ""})
    assert READERS[dataset](row_of(dataset)).asked in theirs
