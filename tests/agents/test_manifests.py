"""Where agents, registries and Docker look for Framenest: what these files name is there."""

import json
import re
import tomllib
from pathlib import Path

import rich_click as click

import framenest
from framenest.cli import app

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def extras_in(text):
    """The extras of a requirement such as framenest[tags,mcp]."""
    return set(re.search(r"\[([a-z,]+)\]", text)[1].split(","))


def test_the_plug_in_for_skills_names_skills():
    manifest = json.loads((ROOT / ".claude-plugin" / "marketplace.json").read_text())
    assert manifest["metadata"]["version"] == framenest.__version__
    (plugin,) = manifest["plugins"]
    assert (ROOT / plugin["source"]).is_dir()
    skills = [ROOT / folder for folder in plugin["skills"]]
    assert skills == sorted(file.parent for file in (ROOT / "skills").glob("*/SKILL.md"))


def test_the_entry_of_the_registry_starts_the_server_for_agents():
    entry = json.loads((ROOT / "server.json").read_text())
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert len(entry["description"]) <= 100
    (package,) = entry["packages"]
    assert entry["version"] == package["version"] == framenest.__version__
    (source,) = package["runtimeArguments"]
    assert source["value"].startswith(f"{package['identifier']}[")
    assert source["value"].endswith(f"]=={package['version']}")
    assert extras_in(source["value"]) <= {*EXTRAS}
    command, folder = package["packageArguments"]
    parameters = app.commands[command["value"]].params
    (named,) = [one for one in parameters if isinstance(one, click.Argument)]
    assert (named.required, named.nargs) == (folder["isRequired"], -1)


def test_the_docker_file_copies_what_is_there_and_calls_a_command():
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert copied
    assert all((ROOT / name).exists() for name in copied)
    assert extras_in(next(line for line in lines if "pip install" in line)) <= {*EXTRAS}
    program, command, *options = json.loads(lines[-1].removeprefix("ENTRYPOINT "))
    assert program == "framenest"
    assert set(options[::2]) <= {name for one in app.commands[command].params for name in one.opts}
