"""The documentation is true: examples run, links and options exist, tables have the measured numbers."""

import json
import re
import runpy
import shlex
from pathlib import Path

import numpy as np
import pytest
import rich_click as click
from PIL import Image

from command_line import commands
from framenest.cli import app
from framenest.testing import TableScorer
from media import numbered_video
from scripted_server import ScriptedServer

ROOT = Path(__file__).parents[1]
DOCS, BENCHMARKS = ROOT / "docs", ROOT / "benchmarks"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted(DOCS.glob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
    ROOT / "skills" / "framenest" / "SKILL.md",
]


def test_every_promise_of_the_security_page_names_a_test_that_exists():
    page = (DOCS / "security.md").read_text()
    assert len(page) < 10_000
    promised, _, _ = page.partition("## Not promised")
    promises = re.findall(r"^- .*$", promised, re.M)
    assert len(promises) > 20
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for promise in promises:
        named = re.search(r" `(\w+)`$", promise)
        assert named, promise
        assert re.search(rf"^def test_{named[1]}\(", tests, re.M), promise


def test_the_scorer_example_runs(clip):
    page = (DOCS / "scorers.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.S).group(1)
    assert code.count("\n") <= 24
    names = {}
    exec(code.replace('"kiln.mp4"', repr(str(clip))), names)
    assert names["ranking"].scorer == "brightness 1"
    assert len(names["ranking"]) == 256


def test_the_page_on_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    numbered_video(tmp_path / "kiln.mp4", 300)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(), re.S)
    assert len(blocks) == 4
    with ScriptedServer("Glazing, at <4.0 seconds>.") as server:
        code = "".join(blocks).replace("http://localhost:8000/v1", server.url)
        for name in ("fn.MEC(", "fn.rank("):  # the best scorer that is ready would be another on each machine
            code = re.sub(re.escape(name) + r"(.*)\)", name + r"\1, scorer=SCORER)", code, count=1)
        assert code.count("SCORER") == 2
        names = {"SCORER": TableScorer({frame: frame / 300 for frame in range(300)})}
        exec(code, names)
        assert len(server.requests) >= 1
    assert len(names["images"]) == len(names["thumbnails"]) == len(names["files"]) == 8
    assert len(names["large"]) == 64
    assert names["pixels"].shape == (8, 64, 96, 3)
    assert len(names["request"].markers) == 8
    assert "Glazing, at <4.0 seconds>." in capsys.readouterr().out


def test_the_site_has_every_page_and_every_public_name():
    import framenest

    site = DOCS / "site"
    listed = set(re.findall(r": (docs/[\w-]+\.md)$", (site / "mkdocs.yml").read_text(), re.M))
    assert listed - {"docs/api.md"} == {f"docs/{page.name}" for page in DOCS.glob("*.md")}
    named = set(re.findall(r"^::: framenest\.(\w+)$", (site / "api.md").read_text(), re.M))
    assert named == set(framenest.__all__) - {"PRESETS", "errors", "lmm"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def command_of(words):
    """The command that an invocation names, and the words after it."""
    command = app
    while words and isinstance(command, click.Group) and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    return command, words


def options_of(command):
    found = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return {"--help", *found}


FOREIGN = {"--mm-processor-kwargs", "--max-num-batched-tokens", "--gpu-memory-utilization",
           "--trust-request-mm-kwargs"}  # vLLM's  # fmt: skip
FOREIGN |= {"--default-chat-template-kwargs"}
FOREIGN |= {"--gen_kwargs", "--model_args", "--num_processes", "--use_cache"}  # lmms-eval's and accelerate's
FOREIGN |= {"--only", "--estimate"}  # of benchmarks/reproduce.py


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=lambda p: p.name)
def test_commands_and_options_exist(page):
    text = page.read_text().replace("\\\n", " ")
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.S)
    lines = [line for block in blocks for line in block.splitlines()] + re.findall(r"`([^`\n]+)`", text)
    for line in lines:
        for call in re.findall(r"(?:^|[$&;(] ?)framenest ([a-z][^;&|#()]*)", line):
            try:
                words = shlex.split(call)
            except ValueError:  # prose with an apostrophe
                words = call.split()
            command, rest = command_of(words)
            assert command is not app, line
            for word in rest:
                if word.startswith("--") and word != "--":
                    assert word.partition("=")[0] in options_of(command), line
    if page.parent != DOCS:
        return
    every = FOREIGN.union(*(options_of(command) for _, command in commands(app)), options_of(app))
    named = {word.partition("=")[0] for span in re.findall(r"`(--[^`\n]+)`", text) for word in span.split()}
    assert {word for word in named if word.startswith("--")} <= every


def test_the_tables_are_those_that_make_tables_writes(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    pages = runpy.run_path(str(BENCHMARKS / "tables.py"))["pages"]()
    assert pages == {page: page.read_text() for page in pages}
    assert not [page for page in PAGES if page not in pages and "<!-- table " in page.read_text()]


def test_the_measurements_bear_out_what_the_pages_say():
    def measured(name):
        return json.loads((BENCHMARKS / "results" / f"{name}.json").read_text())

    assert all(row["none"]["peak_mib"] < 1024 for row in measured("memory")["rows"].values())
    assert measured("pipeline_1080p")["peak_memory_mib"] < 1000
    assert measured("gateway")["no_video"]["added_ms"] < 5
    requests = measured("serve")["asking"]["requests"]
    assert all(row["failures"] == 0 for row in requests.values())


def test_the_pairing_table_is_what_the_markers_are():
    from framenest import Prefix, VideoInfo
    from framenest.lmm.prompt import PAIRINGS, marker, paired_markers, sent_places, video_metadata

    info = VideoInfo("kiln.mp4", "", 9501, 380.04, 25.0, 640, 360, "h264")
    numbers = np.array([250, 2250, 2300, 7510, 9500])
    prefix = Prefix(info, 5, numbers, numbers / 25, None)
    page = (DOCS / "models.md").read_text()
    for pairing in PAIRINGS:
        written = paired_markers(video_metadata(prefix, sent_places(pairing, prefix.seconds.tolist())))
        if pairing == "images":
            written = [marker(second) for second in prefix.seconds]
        times = ", ".join(m[1:].split()[0] for m in written)
        assert re.search(rf"^\| `{pairing}`, [^|]+ \| {re.escape(times)} \|", page, re.M), times


def test_the_glossary_names_exist_in_the_code():
    source = "".join(path.read_text() for path in (ROOT / "src" / "framenest").rglob("*.py"))
    _, symbols = (DOCS / "design.md").read_text().split("## The paper's symbols")
    places = re.findall(r"^\|[^|]*\|[^|]*\|([^|]*)\|", symbols, re.M)
    named = {name for place in places for name in re.findall(r"`(?:\w+\.)*(\w+)`", place)}
    assert len(named) > 20
    for name in named - {"method", "selectors"}:
        assert re.search(rf"^ *(def|class) {name}\b", source, re.M), name


def test_the_papers_numbers_are_those_of_the_paper():
    """Averages that the paper states, from the tables as they were copied."""
    paper = json.loads((BENCHMARKS / "paper.json").read_text())
    columns = (3, 5, 6, 7)  # Video-MME Overall, Video-MME-v2 micro, LongVideoBench, MLVU
    gains = [rows["mec"][c] - rows["uniform"][c] for rows in paper["main"].values() for c in columns]
    assert round(sum(gains) / len(gains), 2) == 3.77
    for size, means in {"4B": (63.39, 65.69), "9B": (67.23, 69.94), "35B-A3B": (70.14, 72.67)}.items():
        found = [sum(paper["scales"][size][name]) / 6 for name in ("uniform", "mec")]
        assert found == pytest.approx(means, abs=0.0051)
    for name, row in (paper["components"] | paper["schedules"]).items():
        # The paper's own average of this row is not the mean of its three parts.
        off = 0.07 if name == "mec:front-loaded" else 0.011
        assert abs(sum(row[:3]) / 3 - row[3]) < off, name
    overall = [rows["mec"][3] for rows in paper["main"].values()]
    assert overall == paper["horizons"]["256"] == paper["scales"]["9B"]["mec"]


def test_the_design_page_names_every_room():
    rooms = (DOCS / "design.md").read_text().split("```")[1]
    for path in (ROOT / "src" / "framenest").iterdir():
        if path.suffix == ".py" or (path / "__init__.py").exists():
            name = path.stem if path.suffix else f"{path.name}/"
            assert name.startswith("__") or re.search(rf"^{name}(?!\w)", rooms, re.M), name


def test_the_picture_of_the_report_has_the_words_of_the_page():
    words = runpy.run_path(str(DOCS / "images" / "report.py"))["words"]()
    with Image.open(DOCS / "images" / "report.png") as picture:
        assert picture.text["words"] == words, "the page has changed; run: make screenshot"
