"""Entry points: Framenest's own through the same door as everybody's."""

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

import pytest

from framenest import ConfigError, Session, plugins
from framenest.models import CATALOGUE
from framenest.plugins import load_plugin
from plugin_packages import PROJECT, entry_points_of

DECLARED = entry_points_of(PROJECT)


@pytest.mark.parametrize(
    ("group", "does"),
    [
        ("framenest.decoders", ["open", "read"]),
        ("framenest.scorers", ["load", "match"]),
        ("framenest.selectors", ["select"]),
    ],
)
def test_every_declared_class_is_there_and_installed(group, does):
    for name, value in DECLARED[group].items():
        module, _, kind = value.partition(":")
        found = getattr(import_module(module), kind)
        made = found(Session(scorer=None)) if group == "framenest.selectors" else found
        assert made.name == name
        assert all(callable(getattr(made, method)) for method in does)
    installed = {point.name: point.value for point in entry_points(group=group)}
    assert DECLARED[group].items() <= installed.items(), "pyproject.toml changed: install the package again"


def test_every_catalogued_scorer_is_declared():
    assert set(CATALOGUE) - {"asr"} < set(DECLARED["framenest.scorers"])


def test_two_packages_with_one_name_are_refused(monkeypatch):
    twice = [EntryPoint("best", f"{package}:Best", "some.group") for package in ("mine", "yours")]
    monkeypatch.setattr(plugins, "entry_points", lambda **_: twice)
    with pytest.raises(ConfigError, match=r"both register some\.group 'best'"):
        plugins.plugins("some.group")


def test_a_plug_in_that_cannot_be_imported_is_named():
    with pytest.raises(ConfigError, match="'best' of an unknown package cannot be loaded: No module named"):
        load_plugin(EntryPoint("best", "framenest_none_such:Best", "some.group"))
