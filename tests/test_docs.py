"""The documentation is true: examples run, links and options exist, tables have the measured numbers."""

import json
import re
import runpy
import shlex
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import rich_click as click

from command_line import commands
from framenest.cli import app
from framenest.config import DiscoveryConfig, IndexConfig, RankingConfig
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


def measured(name):
    return json.loads((BENCHMARKS / "results" / f"{name}.json").read_text())


def tables(page, heading):
    """The tables below a heading, each a list of rows without the row of headings; cells without emphasis."""
    text = (DOCS / f"{page}.md").read_text().replace("**", "")
    section = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.M | re.S)
    assert section, f"{page}.md has no heading {heading!r}"
    found = re.findall(r"(?:^\|.*\|\n)+", section[1], re.M)
    rows = [[re.split(r" *\| *", line.strip("| ")) for line in table.splitlines()] for table in found]
    return [table[2:] for table in rows]


def columns(table, *numbers):
    return [[row[n] for n in numbers] for row in table]


def texts(form, *values):
    return [form.format(value) for value in values]


def test_every_promise_of_the_security_page_names_tests_that_exist():
    page = (DOCS / "security.md").read_text()
    promised, _, _ = page.partition("## Not promised")
    promises = re.findall(r"^- .*$", promised, re.M)
    assert len(promises) > 20
    for promise in promises:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", promise)
        assert named, promise
        for file, test in named:
            assert re.search(rf"^def {test}\(", (ROOT / file).read_text(), re.M), f"{file}::{test}"


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
FOREIGN |= {"--gen_kwargs", "--model_args"}  # lmms-eval's


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


def test_the_costs_on_two_cores():
    times, speeds = tables("performance", "On two CPU cores")
    pipeline = measured("pipeline")
    for row, asked in zip(times, pipeline["questions"], strict=False):
        seconds = asked["wall_seconds"], asked["seconds"]["decode"], asked["seconds"]["encode"]
        assert row[1:4] == texts("{:.1f}", *seconds)
    assert times[2][1] == f"{pipeline['first_question_cached_wall_seconds']:.1f}"
    found = measured("scorers-cpu")
    scorers = [
        found[patch][kind] for patch in ("patch16", "patch32") for kind in ("float32", "float16", "int8")
    ]
    for row, speed in zip(speeds, scorers, strict=True):
        numbers = speed["times_tags"], speed["rank_correlation"], speed["megabytes"]
        assert row[1:] == [
            form.format(number) for form, number in zip(("{:.2f}", "{:.4f}", "{:.0f}"), numbers, strict=True)
        ]
    assert measured("pipeline_1080p")["peak_memory_mib"] < 1000


def test_the_costs_on_a_gpu():
    after = measured("gpu_machine")["after"]
    session, index, asked = after["session"], after["index"], after["server"]["further"]
    loads = {name: after[f"load_{name}"]["load"] for name in ("blip2", "siglip2", "clip")}
    (table,) = tables("performance", "On a GPU")
    assert [row[1] for row in table] == [
        f"{after['first_question']['wall']:.1f}",
        f"{after['again']['wall']:.1f}",
        f"{session['questions'][0]['wall']:.1f}",
        f"{session['further_with_20_unseen']['wall']:.2f}",
        f"{session['further_with_100_unseen']['wall']:.2f}",
        f"{min(asked):.2f} to {max(asked):.2f}",
        f"{loads['blip2']:.1f}",
        f"{loads['siglip2']:.1f}, {loads['clip']:.1f}",
        f"{index['without_scorer']:.1f}",
        f"{index['with_scorer_warm']:.1f}",
        f"{session['match_640']:.3f}",
    ]
    (table,) = tables("performance", "Compared with transformers")
    gpu = measured("scorers-gpu")
    forms = {
        "encode_ms_a_frame": "{:.2f}",
        "share_of_matrix_rate": "{:.0%}",
        "match_ms_a_frame": "{:.3f}",
        "first_question": "{:.2f}",
        "further_question_with_unseen_zoom_frames": "{:.2f}",
        "further_question_all_kept": "{:.3f}",
        "straightforward_question": "{:.2f}",
        "features_mib": "{:.0f}",
    }
    for row, (key, form) in zip(table, forms.items(), strict=True):
        assert row[1:] == texts(form, gpu["blip2_224"][key], gpu["blip2_364"][key])


def test_the_costs_of_selectors():
    (table,) = tables("performance", "Compared with other selectors")
    for cells, (name, row) in zip(table, measured("efficiency")["rows"].items(), strict=True):
        parts = ("decode", "encode", "match", "rule", "frames", "end_to_end")
        counts = [f"{row['candidates']:,.0f}", str(row["runs"])]
        assert cells == [f"`{name}`", *counts, *texts("{:.1f}", *(row[f"{part}_seconds"] for part in parts))]
    first, another = texts(
        "{:.1f} s", *(asked["wall_seconds"] for asked in measured("pipeline")["questions"])
    )
    rows = measured("efficiency")["rows"]
    mec, aks = texts("{:,.0f}", rows["mec"]["candidates"], rows["aks"]["candidates"])
    cost = (
        f"{first} for the first question and {another} for another one. MEC encodes {mec} frames, AKS {aks}"
    )
    assert cost in (ROOT / "README.md").read_text()


def test_the_decoding_tables():
    ours, _, growth = tables("decoding", "Measured")
    decoded = measured("decoding")["files"]["the footage itself"]
    rows = [row for name, row in decoded.items() if name != "framenest, full size"]
    cells = [[str(row["frames"]), f"{row['wall_seconds']:.1f}", f"{row['cpu_seconds']:.0f}"] for row in rows]
    assert sorted(columns(ours, 1, 2, 3)) == sorted(cells)
    for cells, row in zip(growth, measured("growth")["rows"], strict=True):
        seconds = texts("{:.1f} s", row["uniform"]["seconds"], row["keyframes"]["seconds"])
        assert cells[:3] == [f"{row['minutes']} min", *seconds]
    (probing,) = tables("decoding", "Probes on key frames")
    for cells, shares in zip(probing, measured("probing")["hit"].values(), strict=True):
        assert cells[1:] == texts("{:.2f}", *shares.values())


def test_the_tables_of_many_videos():
    memory, speed = tables("corpus", "Memory and throughput of a worker")
    for cells, (name, row) in zip(memory, measured("memory")["rows"].items(), strict=True):
        assert cells == [name, *(f"{row[scorer]['peak_mib']:.0f} MiB" for scorer in ("none", "tags"))]
        assert row["none"]["peak_mib"] < 1024
    rows = measured("corpus")["rows"]
    for cells, row in zip(speed, rows.values(), strict=True):
        assert cells[1:] == [f"{row['hours_per_core_hour']:.0f}", f"{row['hours_per_second']:.3f}"]
    (million,) = tables("cluster", "A million hours")
    both = [rows[f"{probing}, local, 2 jobs"] for probing in ("uniform", "keyframes")]
    hours = [1e6 / row["hours_per_core_hour"] for row in both]
    terabytes = [row["stored_bytes_per_hour"] / 1e6 for row in both]
    assert [cells[1:] for cells in million] == [
        texts("{:,.0f}", *hours),
        texts("{:.1f}", *(each / 1000 for each in hours)),
        texts("{:,.0f}", *(0.04 * each for each in hours)),
        texts("{:.1f}", *terabytes),
        texts("{:,.0f}", *(23 * each for each in terabytes)),
    ]


def test_the_table_of_compression():
    ((_, *table),) = tables("cache", "Files")
    kinds = measured("storage")["kinds"]
    for cells, name in zip(table, kinds["index"]["methods"], strict=True):
        both = [kinds[kind]["methods"][name] for kind in ("index", "timeline")]
        sizes, times = ([f"{100 * r['share']:.0f} %" for r in both],
                        [f"{r['write_ms']:.0f}, {r['read_ms']:.0f} ms" for r in both])  # fmt: skip
        assert cells == [name, sizes[0], times[0], sizes[1], times[1]]


def test_the_table_of_the_server():
    (table,) = tables("server", "Under load")
    result = measured("serve")
    cached, requests = result["cached_prefix"], result["asking"]["requests"]
    rate, p50, p99 = (cached[name] for name in ("requests_per_second", "p50_ms", "p99_ms"))
    assert table[0][1:] == [f"{rate:.0f} requests/s", f"{p50:.1f} ms", f"{p99:.0f} ms"]
    for cells, name in zip((table[1], table[3]), ("ask", "ranking there already"), strict=True):
        row = requests[name]
        assert cells[1:] == [f"{row['count']} requests", *texts("{:.0f} ms", row["p50_ms"], row["p99_ms"])]
    made = requests["question to ranking"]
    seconds = texts("{:.0f} s", made["p50_ms"] / 1000, made["p99_ms"] / 1000)
    assert table[2][1:] == [f"{made['count']} rankings", *seconds]
    assert all(row["failures"] == 0 for row in requests.values())


def test_the_table_of_the_gateway():
    (table,) = tables("server", "Any OpenAI-compatible model sees videos")
    result = measured("gateway")
    names = ("no_video", "seen_video_same_question", "seen_video_new_question", "new_video")
    added = [result[name]["added_ms"] for name in names]
    seconds = texts("{:.1f} s", added[2] / 1000, added[3] / 1000)
    assert [row[1] for row in table] == [f"{added[0]:.1f} ms", f"{added[1]:.0f} ms", *seconds]
    assert added[0] < 5


def test_the_recall_tables():
    (table,) = tables("evaluation", "With the scorer `tags`")
    for cells, (name, summary) in zip(table, measured("recall_tags")["selectors"].items(), strict=True):
        hits = [summary[k]["hit"] for k in summary if k != "all"]
        assert cells[: len(hits) + 1] == [f"`{name}`", *texts("{:.2f}", *hits)]
    (table,) = tables("evaluation", "With noisy truth")
    noisy = [measured(f"recall_noisy_truth_{snr}")["selectors"] for snr in (0, 1, 2, 4)]
    for cells, name in zip(table, noisy[0], strict=True):
        hits = [found[name][k]["hit"] for k in ("8", "64") for found in noisy]
        assert cells == [f"`{name}`", *texts("{:.2f}", *hits)]
    ablations = measured("ablations_tags")
    for table, part in zip(
        tables("evaluation", "The paper's ablations"), ("components", "schedules"), strict=False
    ):
        for cells, (name, row) in zip(table, ablations[part].items(), strict=True):
            assert cells == [f"`{name}`", *texts("{:.2f}", *(100 * value for value in row.values()))]


def test_the_quality_tables(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    page, sets = (DOCS / "evaluation.md").read_text(), measured("quality")["sets"]
    for table in runpy.run_path(str(BENCHMARKS / "quality.py"))["tables"](sets):
        assert table in page
    assert runpy.run_path(str(BENCHMARKS / "long_video.py"))["table"](measured("long_video")) in page
    (short,) = tables("evaluation", "In short")
    for cells, name in zip(
        short, ("uniform", "aks", "wfs-sb", "min-gap", "mec", "mec:residual"), strict=True
    ):
        hits = [sets[f"videos, {scorer}"]["selectors"][name]["hit"] for scorer in ("SNR 1", "SNR 2", "tags")]
        assert cells[1:] == [f"{hit['8'][0]:.2f} / {hit['32'][0]:.2f}" for hit in hits]


def test_the_token_estimates_are_the_computed_ones():
    from framenest.lmm import STYLES, estimate

    page = (DOCS / "messages.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)`(?:, `(\w+)`)? \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", page, re.M)
    assert {style for style, *_ in rows} == set(STYLES)
    for style, pairing, *cells in rows:
        for count, cell in zip((8, 32, 128), cells, strict=True):
            seconds = [600.0 * i / count for i in range(count)]
            tokens = estimate(style, seconds, (1280, 720), "x" * 80, pairing=pairing or "auto")
            assert f"{tokens.total:,}" == cell, (style, count)


def test_the_pairing_table_is_what_the_markers_are():
    from framenest import Prefix, VideoInfo
    from framenest.lmm.prompt import PAIRINGS, marker, paired_markers, sent_places, video_metadata

    info = VideoInfo("kiln.mp4", "", 9501, 380.04, 25.0, 640, 360, "h264")
    numbers = np.array([250, 2250, 2300, 7510, 9500])
    prefix = Prefix(info, 5, numbers, numbers / 25, None)
    page = (DOCS / "messages.md").read_text()
    for pairing in PAIRINGS:
        written = paired_markers(video_metadata(prefix, sent_places(pairing, prefix.seconds.tolist())))
        if pairing == "images":
            written = [marker(second) for second in prefix.seconds]
        times = ", ".join(m[1:].split()[0] for m in written)
        assert re.search(rf"^\| `{pairing}`, [^|]+ \| {re.escape(times)} \|", page, re.M), times


def test_the_glossary_names_exist_in_the_code():
    source = "".join(path.read_text() for path in (ROOT / "src" / "framenest").rglob("*.py"))
    _, symbols = (DOCS / "glossary.md").read_text().split("## The paper's symbols")
    places = re.findall(r"^\|[^|]*\|[^|]*\|([^|]*)\|", symbols, re.M)
    named = {name for place in places for name in re.findall(r"`(?:\w+\.)*(\w+)`", place)}
    assert len(named) > 20
    for name in named - {"method", "selectors"}:
        assert re.search(rf"^ *(def|class) {name}\b", source, re.M), name


def test_the_glossary_lists_every_setting_with_its_default():
    ((*rows,),) = tables("glossary", "The settings")
    listed = [entry for config in (IndexConfig, DiscoveryConfig, RankingConfig) for entry in fields(config)]
    for row, entry in zip(rows, listed, strict=True):
        default = "" if entry.default is None else entry.default
        shown = f"{default:g}" if isinstance(default, float) else str(default)
        assert row == [f"`{entry.name}`", shown, entry.metadata["help"]]


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


def test_the_reproduction_page_has_those_numbers_and_empty_cells(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    module = runpy.run_path(str(BENCHMARKS / "reproduce.py"))
    page = (DOCS / "reproduce.md").read_text()
    assert page == module["filled"](page, module["tables"](module["Own"]()))
    for block in re.findall(r"<!-- table \w+ -->(.*?)<!-- end -->", page, re.S):
        own = [line for line in block.splitlines() if "yours" in line]
        assert all(re.fullmatch(r"(?:\| [\w -]+(?:, \w+)?, yours|[| ]*yours)[| ]*", line) for line in own)


def test_the_design_page_names_every_room():
    rooms = (DOCS / "design.md").read_text().split("```")[1]
    for path in (ROOT / "src" / "framenest").iterdir():
        if path.suffix == ".py" or (path / "__init__.py").exists():
            name = path.stem if path.suffix else f"{path.name}/"
            assert name.startswith("__") or re.search(rf"^{name}(?!\w)", rooms, re.M), name
