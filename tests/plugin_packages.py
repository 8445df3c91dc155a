"""Packages with entry points, on the path as pip would leave them."""

from __future__ import annotations

import tomllib
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def entry_points_of(pyproject):
    """{group: {name: value}} as a pyproject.toml declares them."""
    return tomllib.loads(pyproject.read_text())["project"]["entry-points"]


def write_metadata(site, name, version, entry_points):
    """What pip leaves of a package with these entry points, {group: {name: value}}."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, points in entry_points.items():
        lines += [f"[{group}]", *(f"{point} = {value}" for point, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def install_example(monkeypatch, site, name):
    """An example package, importable, with the metadata that its pyproject.toml stands for."""
    project = tomllib.loads((EXAMPLES / name / "pyproject.toml").read_text())["project"]
    write_metadata(site, project["name"], project["version"], project["entry-points"])
    monkeypatch.syspath_prepend(EXAMPLES / name)
    monkeypatch.syspath_prepend(site)
