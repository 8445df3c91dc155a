"""The package as a whole: light to import, its rooms in order, its public names."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import framenest

SOURCE = Path(framenest.__file__).parent
ROOT = Path(__file__).parents[1]

# Data flows one way: a module imports only from rooms before its own.
ROOMS = [
    ["errors", "text", "timing"],
    ["records"],
    ["config", "frames", "processes"],
    ["protocols"],
    ["cache"],
    ["models"],
    ["video"],
    ["scorers"],
    ["session"],
    ["method"],
    ["selectors"],
    ["extract"],
    ["lmm"],
    ["evaluation"],
    ["report"],
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


def test_importing_framenest_loads_no_model_library():
    heavy = ["torch", "transformers", "openai", "onnxruntime", "ai_edge_litert", "tokenizers", "rich_click"]
    code = f"import sys, framenest; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names():
    assert len(set(framenest.__all__)) == len(framenest.__all__)
    public = {name for name, value in vars(framenest).items() if not name.startswith("_")}
    modules = {name for name in public if isinstance(getattr(framenest, name), type(framenest))}
    assert public - modules | {"errors", "lmm"} == set(framenest.__all__)


def test_errors_form_one_tree():
    errors = [v for v in vars(framenest.errors).values() if isinstance(v, type)]
    assert all(issubclass(e, framenest.FramenestError) for e in errors)
    assert len(errors) == 9


def test_docstring_examples():
    import doctest
    import importlib

    run = 0
    for path in SOURCE.rglob("*.py"):
        name = ".".join(("framenest", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        if name.endswith("__main__") or (name == "framenest.scorers.device" and not find_spec("torch")):
            continue
        result = doctest.testmod(importlib.import_module(name))
        assert result.failed == 0, name
        run += result.attempted
    assert run >= 10


def test_every_test_extra_brings_what_every_test_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def brings(extra):
        """The extras that one extra is made of, itself included."""
        inner = [name for line in extras[extra] for name in re.findall(r"framenest\[(.*)\]", line)]
        return {extra}.union(*(brings(name.strip()) for names in inner for name in names.split(",")))

    tests = [extra for extra in extras if extra == "test" or extra.startswith("test-")]
    assert len(tests) >= 8
    assert [extra for extra in tests if "pytest" not in brings(extra)] == []


def test_constraints_hold_versions_and_nothing_else():
    for path in ROOT.glob("constraints*.txt"):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert len(lines) > 100
        assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; .*)?", line)] == []
