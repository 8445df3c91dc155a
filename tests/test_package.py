"""The package as a whole: light to import, its rooms in order, its public names."""

import ast
import doctest
import importlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import framenest
from framenest.lmm.client import Answer, Usage
from media import numbered_video

SOURCE = Path(framenest.__file__).parent
ROOT = Path(__file__).parents[1]

# Data flows one way: a module imports only from rooms before its own.
ROOMS = [
    ["errors", "text", "progress"],
    ["records", "plugins"],
    ["config", "frames", "processes"],
    ["protocols", "images", "rank_request"],
    ["image_tokens"],
    ["cache"],
    ["package_index"],
    ["models"],
    ["video"],
    ["transcript"],
    ["scorers"],
    ["listening"],
    ["session"],
    ["method"],
    ["selectors"],
    ["extraction"],
    ["report"],
    ["retrieval"],
    ["lmm"],
    ["vllm_loader"],
    ["evaluation"],
    ["corpus"],
    ["server"],
    ["testing"],
    ["cli"],
    ["__main__"],
]


def room_of(module):
    return next(i for i, room in enumerate(ROOMS) if module in room)


def imported_rooms(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "framenest":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("framenest."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("framenest."))


def test_a_module_imports_only_from_rooms_before_it():
    for path in SOURCE.rglob("*.py"):
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        for other in imported_rooms(path):
            assert other == own or room_of(other) < room_of(own), f"{path.name} imports {other}"


def test_the_method_draws_nothing():
    """Pages, and the strip that a notebook shows, are drawn elsewhere."""
    for path in (SOURCE / "method").glob("*.py"):
        modules = {
            name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom | ast.Import)
            for name in (getattr(node, "module", None), *(alias.name for alias in node.names))
        }
        assert not {"html", "ImageDraw", "encode_image"} & modules, path.name


def test_only_the_command_of_evaluations_imports_them():
    others = [path for path in (SOURCE / "cli").glob("*.py") if path.name != "evaluate.py"]
    assert [path.name for path in others if "evaluation" in imported_rooms(path)] == []


def test_a_name_is_enough_to_find_a_class_or_a_file():
    """No two classes share a name; of files only a command's, which bears the name of what it calls."""
    trees = {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}
    classes = [node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)]
    public = [name for name in classes if not name.startswith("_")]
    assert sorted(set(public)) == sorted(public)
    files = [path.name for path in trees if path.stem != "__init__" and path.parent.name != "cli"]
    assert sorted(set(files)) == sorted(files)


def loaded_by(code, modules):
    """Those of the modules that are imported once some code has run in a process of its own."""
    code = f"import sys\n{code}\nprint([m for m in {modules} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ast.literal_eval(done.stdout)


MODEL_LIBRARIES = ["torch", "transformers", "openai", "onnxruntime", "ai_edge_litert", "tokenizers"]


def test_importing_every_public_name_loads_no_model_library():
    assert loaded_by("from framenest import *", [*MODEL_LIBRARIES, "rich_click", "numpy"]) == ["numpy"]


def test_commands_import_no_model_library():
    assert loaded_by("import framenest.cli", MODEL_LIBRARIES) == []


def test_public_names():
    assert len(set(framenest.__all__)) == len(framenest.__all__)
    assert sorted(framenest.__all__) == dir(framenest)
    stub = ast.parse((SOURCE / "__init__.pyi").read_text())
    imported = [alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(imported) == sorted(framenest.__all__)
    for name in framenest.__all__:
        home = getattr(getattr(framenest, name), "__module__", "framenest")
        assert home.startswith("framenest"), f"{name} is of {home}"


def test_errors_form_one_tree():
    errors = [v for v in vars(framenest.errors).values() if isinstance(v, type) and issubclass(v, Exception)]
    errors = [v for v in errors if not issubclass(v, Warning)]
    assert all(issubclass(e, framenest.FramenestError) for e in errors)
    assert len(errors) == 11


class Parrot:
    """Answers every request alike, in no time: `client` in docstring examples."""

    def answer(self, request, *, on_text=None):
        return Answer("A kiln.", "", "parrot", "stop", Usage(None, None, 0.0))


@pytest.fixture
def at_hand(tmp_path, monkeypatch):
    """What docstring examples may use besides their own module.

    The current folder holds `kiln.mp4`, 12 s of numbered frames at 25 fps, and `scores.csv`, which finds
    its frames 150 to 159 relevant. Names: np; json; ranking, of that video by those scores; client, which
    answers "A kiln.".
    """
    monkeypatch.chdir(tmp_path)
    numbered_video(tmp_path / "kiln.mp4", 300)
    (tmp_path / "scores.csv").write_text("frame,score\n0,0\n149,0\n150,1\n159,1\n160,0\n299,0\n")
    ranking = framenest.MEC(scorer="table:scores.csv").rank("kiln.mp4", "What happens after firing?")
    return {"np": np, "json": json, "ranking": ranking, "client": Parrot()}


def test_docstring_examples(at_hand):
    written, run, wrong = 0, 0, []
    for path in SOURCE.rglob("*.py"):
        source = path.read_text()
        assert "+SKIP" not in source, f"{path}: an example that cannot run is a literal block without >>>"
        if ">>> " in source:
            name = ".".join(("framenest", *path.relative_to(SOURCE).with_suffix("").parts))
            module = importlib.import_module(name.removesuffix(".__init__"))
            result = doctest.testmod(module, extraglobs=at_hand)
            wrong += [name] if result.failed else []
            written += source.count(">>> ")
            run += result.attempted
    assert wrong == []
    assert run == written  # doctest finds none in a property of a class from elsewhere, for instance
    assert run > 130


def test_every_test_extra_brings_what_every_test_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def brings(extra):
        """The extras that one extra is made of, itself included."""
        inner = [name for line in extras[extra] for name in re.findall(r"framenest\[(.*)\]", line)]
        return {extra}.union(*(brings(name.strip()) for names in inner for name in names.split(",")))

    tests = [extra for extra in extras if extra == "test" or extra.startswith("test-")]
    assert len(tests) >= 7
    assert [extra for extra in tests if "pytest" not in brings(extra)] == []


def test_constraints_hold_versions_and_nothing_else():
    for path in ROOT.glob("constraints*.txt"):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert len(lines) > 100
        assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; .*)?", line)] == []
