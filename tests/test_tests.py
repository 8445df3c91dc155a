"""The tests themselves: each can fail."""

import ast
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.rglob("test_*.py"))
SHORT = 3
"""A text of so few characters is found in nearly any output."""


def name_of(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def can_fail(function: ast.AST) -> bool:
    """Whether a test asserts, expects an error or a warning, or calls assert… or check…."""
    nodes = list(ast.walk(function))
    called = [name_of(node).lstrip("_") for node in nodes if isinstance(node, ast.Call)]
    return any(isinstance(node, ast.Assert) for node in nodes) or any(
        name in ("raises", "warns", "call_and_validate") or name.startswith(("assert", "check"))
        for name in called
    )


def is_hollow(condition: ast.AST) -> bool:
    """Whether a condition holds whatever happens, or nearly so."""
    if isinstance(condition, ast.Constant | ast.Tuple):
        return True
    if isinstance(condition, ast.BoolOp):
        return any(is_hollow(value) for value in condition.values)
    if not isinstance(condition, ast.Compare):
        return False
    left, (operator, *_), (right, *_) = condition.left, condition.ops, condition.comparators
    calls = any(isinstance(node, ast.Call) for node in ast.walk(left))  # twice, which is worth comparing
    same = ast.dump(left) == ast.dump(right) and not calls
    length = isinstance(left, ast.Call) and name_of(left) == "len"
    never_short = length and isinstance(operator, ast.GtE) and ast.unparse(right) == "0"
    text = left.value if isinstance(left, ast.Constant) else None
    anywhere = isinstance(operator, ast.In) and isinstance(text, str | bytes) and len(text) < SHORT
    return same or never_short or anywhere


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_test_can_fail(file):
    tree = ast.parse(file.read_text())
    tests = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    assert [test.name for test in tests if not can_fail(test)] == []
    conditions = [node.test for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    assert [ast.unparse(condition) for condition in conditions if is_hollow(condition)] == []


@pytest.mark.parametrize(
    "hollow", ["x or True", "len(x) >= 0", "a.b == a.b", "'8' in out", "(x == y, 'why')"]
)
def test_hollow_assertions_are_told_from_real_ones(hollow):
    assert is_hollow(ast.parse(hollow, mode="eval").body)
    for real in ("f(1) == f(1)", "len(x) >= 1", "'K=8  0:01' in out", "x or y", "a == b"):
        assert not is_hollow(ast.parse(real, mode="eval").body), real
