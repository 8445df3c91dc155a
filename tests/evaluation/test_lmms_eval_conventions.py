"""Prompts, token limits and letters as lmms-eval 0.7.3 has them.

lmms_eval_golden.json holds what its own functions and task files gave. It is compared with them where
lmms-eval is installed (`make test-lmms-eval`), and with ours everywhere.
"""

import json
import random
from importlib import import_module
from pathlib import Path

import pytest
import toy_benchmarks

from framenest.evaluation.benchmarks import READERS
from framenest.evaluation.lmms_eval import conventions

GOLDEN = json.loads(Path(__file__).with_name("lmms_eval_golden.json").read_text())
DATASETS = list(READERS)
TASKS = {
    "videomme": ("videomme", "videomme.yaml", "videomme"),
    "videomme-v2": ("videomme_v2", "_default_template_yaml", "videomme_v2"),
    "longvideobench": ("longvideobench", "longvideobench_val_v.yaml", "longvideobench"),
    "mlvu": ("mlvu", "mlvu_dev.yaml", "mlvu"),
}
"""The module, the task file, and what its functions' names begin with."""
PIECES = (
    *"ABCDEFGHI", *"abd", *".:,()*!?'", "\n", " ", " ", "**", "The answer is", "answer: ", "Best option:",
    "the best option is", "I pick", "Final Answer:", "option would be", "答案是", "None", "Bees", "number 3",
    "Number 1", "or", "because", "Two",
)  # fmt: skip


def row_of(dataset):
    return getattr(toy_benchmarks, dataset.replace("-", "_"))()[0]


@pytest.mark.parametrize("dataset", DATASETS)
class TestOurs:
    def test_prompt_and_token_limit(self, dataset):
        question = READERS[dataset](row_of(dataset))
        golden = GOLDEN[dataset]
        assert conventions.prompt(question, dataset, "lmms-eval") == golden["prompt"]
        assert conventions.prompt(question, dataset, "paper") == question.prompt
        assert conventions.ANSWER_TOKENS[dataset] == golden["tokens"]

    def test_letters(self, dataset):
        question = READERS[dataset](row_of(dataset))
        for text, letter in GOLDEN[dataset]["letters"].items():
            read = conventions.letter(text, question, dataset)
            if letter is None and dataset == "longvideobench":  # drawn, the same each time
                assert read == conventions.letter("?", question, dataset)
                assert read in tuple("ABCD")
            else:
                assert read == letter, text


def test_other_questions_draw_other_letters():
    rows = [row_of("longvideobench") | {"id": f"clip_{i}"} for i in range(40)]
    drawn = {conventions.letter("", READERS["longvideobench"](row), "longvideobench") for row in rows}
    assert drawn == set("ABCD")


@pytest.fixture(params=DATASETS)
def theirs(request, monkeypatch):
    """(benchmark, lmms-eval's module for it, its task file as a mapping)."""
    pytest.importorskip(
        "lmms_eval", reason="needs lmms-eval in its own environment; run: make test-lmms-eval"
    )
    import yaml

    package, file, _ = TASKS[request.param]
    module = import_module(f"lmms_eval.tasks.{package}.utils")
    lines = Path(module.__file__).with_name(file).read_text().splitlines()
    if hasattr(module, "random"):
        monkeypatch.setattr(module.random, "choice", lambda _: None)
    return request.param, module, yaml.safe_load("\n".join(line for line in lines if "!function" not in line))


def letter_of_lmms_eval(dataset, module, text):
    made = getattr(module, f"{TASKS[dataset][2]}_process_results")(row_of(dataset), [text])
    found = next(iter(made.values()))
    letter = found.get("pred_answer", found.get("parsed_pred"))
    return None if letter in ("", "Z") else letter


@pytest.mark.filterwarnings("ignore")
def test_the_golden_file_is_lmms_evals(theirs):
    dataset, module, task = theirs
    doc_to_text = getattr(module, f"{TASKS[dataset][2]}_doc_to_text")
    made = {
        "prompt": doc_to_text(row_of(dataset), task["lmms_eval_specific_kwargs"]["default"]),
        "tokens": task["generation_kwargs"]["max_new_tokens"],
        "letters": {text: letter_of_lmms_eval(dataset, module, text) for text in GOLDEN[dataset]["letters"]},
    }
    assert made == GOLDEN[dataset]


@pytest.mark.filterwarnings("ignore")
def test_random_answers_are_read_alike(theirs, monkeypatch):
    dataset, module, _ = theirs
    monkeypatch.setattr(random.Random, "choice", lambda *_: None)
    question, draw = READERS[dataset](row_of(dataset)), random.Random(27)
    for _ in range(5000):
        text = "".join(draw.choices(PIECES, k=draw.randint(1, 9)))
        assert conventions.letter(text, question, dataset) == letter_of_lmms_eval(dataset, module, text), text


def test_the_phrases_are_lmms_evals():
    own = pytest.importorskip("lmms_eval.tasks._task_utils.mcq_extract", reason="run: make test-lmms-eval")
    assert sorted(conventions._PHRASES) == sorted(own._ANSWER_PHRASES)
