"""What the documentation shows is true."""

import json
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from command_line import commands
from framenest.cli import app
from framenest.testing import TableScorer
from media import numbered_video
from scripted_server import ScriptedServer

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
]


def says(page: str, number: str) -> bool:
    """Whether a page has a number with its unit, and not only as the end of a larger one."""
    return re.search(rf"(?<![\d.,]){re.escape(number)}", page) is not None


def test_every_promise_of_the_security_page_names_tests_that_exist():
    page = (ROOT / "docs" / "security.md").read_text()
    promised, _, _ = page.partition("## Not promised")
    promises = re.findall(r"^- .*$", promised, re.M)
    assert len(promises) > 20
    for promise in promises:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", promise)
        assert named, promise
        for file, test in named:
            assert re.search(rf"^def {test}\(", (ROOT / file).read_text(), re.M), f"{file}::{test}"


def test_the_scorer_example_runs(clip):
    page = (ROOT / "docs" / "scorers.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.S).group(1)
    assert code.count("\n") <= 24
    names = {}
    exec(code.replace('"kiln.mp4"', repr(str(clip))), names)
    assert names["ranking"].scorer == "brightness 1"
    assert len(names["ranking"]) == 256


def test_the_page_on_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    numbered_video(tmp_path / "kiln.mp4", 300)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.S)
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
    assert names["batch"].pixels[0].shape == (8, 64, 96, 3)
    assert len(names["request"].markers) == 8
    assert "Glazing, at <4.0 seconds>." in capsys.readouterr().out


def test_the_site_has_every_page_and_every_public_name():
    import framenest

    site = ROOT / "docs" / "site"
    listed = set(re.findall(r": (docs/[\w-]+\.md)$", (site / "mkdocs.yml").read_text(), re.M))
    assert listed - {"docs/api.md"} == {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    named = set(re.findall(r"^::: framenest\.(\w+)$", (site / "api.md").read_text(), re.M))
    assert named == set(framenest.__all__) - {"PRESETS", "errors", "lmm"}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda p: p.name
)
def test_commands_and_their_options_exist(page):
    known = {
        " ".join(path): {"--help"}.union(*((*p.opts, *p.secondary_opts) for p in command.params))
        for path, command in commands(app)
    }
    text = page.read_text().replace("\\\n", " ")
    for line in re.findall(r"(?:^|[`$(])(?:\$ )?framenest ([a-z][^`#)\n]*)", text, re.M):
        words = line.split()
        name = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
        assert name in known, line
        assert {word for word in words if word.startswith("--")} <= known[name], line


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_the_numbers_of_two_cores_are_the_measured_ones():
    page = (ROOT / "docs" / "performance.md").read_text()
    results = ROOT / "benchmarks" / "results"
    pipeline = json.loads((results / "pipeline.json").read_text())
    for asked in pipeline["questions"]:
        seconds = asked["wall_seconds"], asked["seconds"]["decode"], asked["seconds"]["encode"]
        assert f"| {' | '.join(f'{value:.1f}' for value in seconds)} |" in page
    assert says(page, f"{pipeline['peak_memory_mib']:.0f} MiB")
    loads = sorted(load for run in pipeline["compared"]["load_before"].values() for load in run)
    assert says(page, f"a load average of {loads[0]:.0f} to {loads[-1]:.0f}")
    large = json.loads((results / "pipeline_1080p.json").read_text())
    assert says(page, f"{large['peak_memory_mib']:.0f} MiB for 1080p")
    assert large["peak_memory_mib"] < 1000
    assert says(page, f"{json.loads((results / 'ranking.json').read_text())['milliseconds_median']:.0f} ms")


def test_the_gpu_numbers_are_the_measured_ones():
    page = (ROOT / "docs" / "performance.md").read_text()
    measured = json.loads((ROOT / "benchmarks" / "results" / "gpu_machine.json").read_text())["after"]
    session, index = measured["session"], measured["index"]
    loads = {name: measured[f"load_{name}"]["load"] for name in ("blip2", "siglip2", "clip")}
    shell, first = measured["first_question"], session["questions"][0]
    asked, torch = measured["server"]["further"], measured["imports"]["import torch"]
    for row in (
        f"first question from the shell, model files already verified | {shell['wall']:.1f}",
        f"the same question again, everything cached | {measured['again']['wall']:.1f}",
        f"model loaded; {first['decode']:.1f} of it waiting for decode | {first['wall']:.1f}",
        f"a further question, 20 new zoom frames | {session['further_with_20_unseen']['wall']:.2f}",
        f"a further question, 100 new zoom frames | {session['further_with_100_unseen']['wall']:.2f}",
        f"with `rank --server`, whole process | {min(asked):.2f} to {max(asked):.2f}",
        f"loading `blip2`, of which `import torch` {torch:.1f} | {loads['blip2']:.1f}",
        f"loading `siglip2`, `clip` | {loads['siglip2']:.1f}, {loads['clip']:.1f}",
        f"probes alone takes {index['decode_alone']:.1f} | {index['without_scorer']:.1f}",
        f"{index['over_the_longer']:.2f} times decoding alone | {index['with_scorer_warm']:.1f}",
        f"match of 640 candidates | {session['match_640']:.3f}",
    ):
        assert f"{row} |" in page
    assert says(page, f"does {measured['many_default']['videos_a_minute']:.0f} a minute with four workers")
    assert f"reaches {100 * measured['encode']['share_of_matrix_rate']:.0f} % of the matrix rate" in page


def test_the_decoding_numbers_are_the_measured_ones():
    results, page = ROOT / "benchmarks" / "results", (ROOT / "docs" / "decoding.md").read_text()
    decoded = json.loads((results / "decoding.json").read_text())["files"]["the footage itself"]
    for name, row in decoded.items():
        if name != "framenest, full size":
            cells = f"| {row['frames']} | {row['wall_seconds']:.1f} | {row['cpu_seconds']:.0f} |"
            assert cells in page, name
    for row in json.loads((results / "growth.json").read_text())["rows"]:
        seconds = row["uniform"]["seconds"], row["keyframes"]["seconds"]
        assert f"| {row['minutes']} min | {seconds[0]:.1f} s | {seconds[1]:.1f} s |" in page
    for shares in json.loads((results / "probing.json").read_text())["hit"].values():
        assert " | ".join(f"{share:.2f}" for share in shares.values()) in page


def test_the_corpus_numbers_are_the_measured_ones():
    results, page = ROOT / "benchmarks" / "results", (ROOT / "docs" / "corpus.md").read_text()
    memory = json.loads((results / "memory.json").read_text())
    for name, row in memory["rows"].items():
        peaks = [f"{row[scorer]['peak_mib']:.0f} MiB" for scorer in ("none", "tags")]
        assert f"| {name} | {' | '.join(peaks)} |" in page
        assert row["none"]["peak_mib"] < 1024
    assert f"takes {memory['day']['peak_mib']:.0f} MiB" in page
    corpus = json.loads((results / "corpus.json").read_text())
    names = {"uniform": "exact grid", "keyframes": "key frames"}
    for name, row in corpus["rows"].items():
        probing, engine, jobs = name.split(", ")
        said = f"{names[probing]}, {jobs}{' on Ray' if engine == 'ray' else ''}"
        assert f"| {said} | {row['hours_per_core_hour']:.0f} | {row['hours_per_second']:.3f} |" in page
    assert f"a load average of {corpus['corpus']['load']:.0f} from other work" in page
    assert says(
        page, f"{corpus['rows']['uniform, local, 2 jobs']['rerun_ms_per_video']:.0f} ms of a later run"
    )


def test_the_sizes_of_cache_entries_are_the_measured_ones():
    results, page = ROOT / "benchmarks" / "results", (ROOT / "docs" / "cache.md").read_text()
    storage = json.loads((results / "storage.json").read_text())
    for name, row in storage["kinds"]["index"]["methods"].items():
        cells = [
            f"{100 * r['share']:.0f} % | {r['write_ms']:.0f}, {r['read_ms']:.0f} ms"
            for r in (row, storage["kinds"]["timeline"]["methods"][name])
        ]
        assert f"| {name} | {' | '.join(cells)} |" in page.replace("**", "")
    assert f"**{storage['total_bytes'] / 2**20 / storage['hours']:.1f} MiB per hour of video**" in page


def test_the_arithmetic_for_a_million_hours_follows_from_the_measured_numbers():
    corpus = json.loads((ROOT / "benchmarks" / "results" / "corpus.json").read_text())["rows"]
    page = (ROOT / "docs" / "cluster.md").read_text()
    rows = [corpus[f"{probing}, local, 2 jobs"] for probing in ("uniform", "keyframes")]
    hours = [1e6 / row["hours_per_core_hour"] for row in rows]
    assert f"| core-hours | {hours[0]:,.0f} | {hours[1]:,.0f} |" in page
    assert f"| $ at 0.04 a core-hour | {0.04 * hours[0]:,.0f} | {0.04 * hours[1]:,.0f} |" in page
    assert f"| hours on 1,000 cores | {hours[0] / 1000:.1f} | {hours[1] / 1000:.1f} |" in page
    ray = [corpus[f"{probing}, ray, 2 jobs"] for probing in ("uniform", "keyframes")]
    more = [100 * (r["cpu_seconds"] / row["cpu_seconds"] - 1) for r, row in zip(ray, rows, strict=True)]
    assert says(page, f"{more[0]:.0f} % more processor time")
    assert says(page, f"{more[1]:.0f} % more with key frames")
    clock = [100 * (r["wall_seconds"] / row["wall_seconds"] - 1) for r, row in zip(ray, rows, strict=True)]
    assert f"by the clock {clock[0]:.0f} % and {clock[1]:.0f} % more" in page
    kept = [row["stored_bytes_per_hour"] / 1e6 for row in rows]
    assert f"| TB in the store | {kept[0]:.1f} | {kept[1]:.1f} |" in page
    assert f"| $ a month at 0.023 a GB | {23 * kept[0]:,.0f} | {23 * kept[1]:,.0f} |" in page


def test_the_evaluation_numbers_are_the_measured_ones():
    results, page = ROOT / "benchmarks" / "results", (ROOT / "docs" / "evaluation.md").read_text()
    plain = page.replace("**", "")
    for name, summary in json.loads((results / "recall_tags.json").read_text())["selectors"].items():
        hits = " | ".join(f"{summary[k]['hit']:.2f}" for k in summary if k != "all")
        assert f"| `{name}` | {hits} |" in plain
    ablations = json.loads((results / "ablations_tags.json").read_text())
    for name, row in (ablations["components"] | ablations["schedules"]).items():
        assert f"| `{name}` | " + " | ".join(f"{100 * value:.2f}" for value in row.values()) in page
    files = [results / f"recall_noisy_truth_{snr}.json" for snr in (0, 1, 2, 4)]
    noisy = [json.loads(file.read_text())["selectors"] for file in files]
    for name in noisy[0]:
        cells = " | ".join(f"{found[name][k]['hit']:.2f}" for k in ("8", "64") for found in noisy)
        assert f"| `{name}` | {cells} |" in page


def test_the_cost_of_selectors_is_the_measured_one():
    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs" / "performance.md").read_text()
    rows = json.loads((ROOT / "benchmarks" / "results" / "efficiency.json").read_text())["rows"]
    for name, row in rows.items():
        seconds = (row[f"{part}_seconds"] for part in ("preprocessing", "selection", "sum"))
        cells = " | ".join(f"{value:.1f}" for value in seconds)
        assert f"| `{name}` | {row['candidates']:,.0f} | {row['runs']} | {cells} |" in page
    for name, title in (("mec", "MEC"), ("aks", "AKS"), ("wfs-sb", "WFS-SB")):
        assert re.search(rf"\b{rows[name]['sum_seconds']:.1f} s( for one question)? with {title}\b", readme)


def test_the_quality_numbers_are_the_measured_ones():
    page = (ROOT / "docs" / "evaluation.md").read_text()
    sets = json.loads((ROOT / "benchmarks" / "results" / "quality.json").read_text())["sets"]
    on_videos = {title: found for title, found in sets.items() if title.startswith("videos")}

    def row(name, cells):
        return f"| {name} | {' | '.join(cells)} |"

    for name in sets["videos, tags"]["selectors"]:
        means = [f"{found['selectors'][name]['hit']['mean'][0]:.3f}" for found in sets.values()]
        assert row(f"`{name}`", means) in page
        for title in ("videos, SNR 1", "videos, tags", "timelines, SNR 1"):
            *hits, mean = (value[0] for value in sets[title]["selectors"][name]["hit"].values())
            assert row(f"`{name}`", [*(f"{hit:.2f}" for hit in hits), f"{mean:.3f}"]) in page
        mine = [found["selectors"][name] for found in on_videos.values()]
        shares = [f"{one['near_duplicates'][k]:.2f}" for one in mine for k in ("8", "16")]
        assert row(f"`{name}`", shares) in page
        covered = [f"{np.mean([*one['covered_of_several'].values()]):.3f}" for one in mine]
        assert row(f"`{name}`", covered) in page
    for title, found in sets.items():
        differences = [value["mean"] for value in found["differences"].values()]
        cells = [f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]" for mean, low, high in differences]
        assert row(title, cells) in page
    seeds = {found["seeds"] for found in on_videos.values()}
    assert f"noisy truth with {max(seeds)} seeds on the videos" in page


def test_the_token_estimates_are_the_computed_ones():
    from framenest.lmm import STYLES, estimate

    page = (ROOT / "docs" / "messages.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)`(?:, `(\w+)`)? \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", page, re.M)
    assert {style for style, *_ in rows} == set(STYLES)
    for style, pairing, *cells in rows:
        for count, cell in zip((8, 32, 128), cells, strict=True):
            seconds = [600.0 * i / count for i in range(count)]
            tokens = estimate(style, seconds, (1280, 720), "x" * 80, pairing=pairing or "auto")
            assert f"{tokens.total:,}" == cell, (style, count)


def test_the_pairing_table_is_what_the_markers_are():
    from framenest import Prefix, VideoInfo
    from framenest.lmm.times import PAIRINGS, marker, paired_markers, sent_places, video_metadata

    info = VideoInfo("kiln.mp4", "", 9501, 380.04, 25.0, 640, 360, "h264")
    numbers = np.array([250, 2250, 2300, 7510, 9500])
    prefix = Prefix(info, 5, numbers, numbers / 25, None)
    page = (ROOT / "docs" / "messages.md").read_text()
    for pairing in PAIRINGS:
        written = paired_markers(video_metadata(prefix, sent_places(pairing, prefix.seconds.tolist())))
        if pairing == "images":
            written = [marker(second) for second in prefix.seconds]
        times = ", ".join(m[1:].split()[0] for m in written)
        assert re.search(rf"^\| `{pairing}`, [^|]+ \| {re.escape(times)} \|", page, re.M), times


def test_the_numbers_of_the_service_are_the_measured_ones():
    page = (ROOT / "docs" / "server.md").read_text()
    result = json.loads((ROOT / "benchmarks" / "results" / "serve.json").read_text())
    cached, asking = result["cached_prefix"], result["asking"]
    before, after = result["load_average_before"][0], result["load_average_after"][0]
    assert f"load average {before} before, {after} after" in page
    rate, p50, p99 = (cached[name] for name in ("requests_per_second", "p50_ms", "p99_ms"))
    assert f"| {rate:.0f} requests/s | {p50:.1f} ms | {p99:.0f} ms |" in page
    assert says(page, f"{cached['processor_ms_per_request']:.2f} ms of the server's processor time")
    assert f"a new ranking {asking['processor_seconds_per_ranking']:.1f} s of all" in page
    requests = asking["requests"]
    for name in ("ask", "ranking there already"):
        row = requests[name]
        assert f"| {row['count']} requests | {row['p50_ms']:.0f} ms | {row['p99_ms']:.0f} ms |" in page
    made = requests["question to ranking"]
    assert (
        f"| {made['count']} rankings | {made['p50_ms'] / 1000:.0f} s | {made['p99_ms'] / 1000:.0f} s |"
        in page
    )
    assert all(row["failures"] == 0 for row in requests.values())
    memory = asking["memory"]
    assert says(page, f"{memory['first_minute_mib']:.0f} MiB in the first minute")
    assert says(page, f"{memory['last_minute_mib']:.0f} MiB in the last")
    assert says(page, f"{memory['most_mib']:.0f} MiB at the most")
    assert memory["last_minute_mib"] < 1.02 * memory["first_minute_mib"]
    assert (asking["users"], asking["videos"], memory["watched_seconds"]) == (50, 5, 600)


def test_the_glossary_names_exist_in_the_code():
    source = "".join(path.read_text() for path in (ROOT / "src" / "framenest").rglob("*.py"))
    _, symbols = (ROOT / "docs" / "glossary.md").read_text().split("## The paper's symbols")
    places = re.findall(r"^\|[^|]*\|[^|]*\|([^|]*)\|", symbols, re.M)
    named = {name for place in places for name in re.findall(r"`(?:\w+\.)*(\w+)`", place)}
    assert len(named) > 20
    for name in named - {"method", "selectors"}:
        assert re.search(rf"^ *(def|class) {name}\b", source, re.M), name


def test_the_papers_numbers_are_those_of_the_paper():
    """Averages that the paper states, from the tables as they were copied."""
    paper = json.loads((ROOT / "benchmarks" / "paper.json").read_text())
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


def test_the_reproduction_page_has_those_numbers_and_empty_cells(tmp_path):
    module = runpy.run_path(str(ROOT / "benchmarks" / "reproduce.py"))
    page = (ROOT / "docs" / "reproduce.md").read_text()
    assert page == module["filled"](page, module["tables"](module["Own"]()))
    for block in re.findall(r"<!-- table \w+ -->(.*?)<!-- end -->", page, re.S):
        own = [line for line in block.splitlines() if "yours" in line]
        assert all(re.fullmatch(r"(?:\| [\w -]+(?:, \w+)?, yours|[| ]*yours)[| ]*", line) for line in own)


def test_the_scorer_numbers_are_the_measured_ones():
    page = (ROOT / "docs" / "performance.md").read_text()
    measured = json.loads((ROOT / "benchmarks" / "results" / "scorers-gpu.json").read_text())
    small, large = measured["blip2_224"], measured["blip2_364"]
    for key, form in {
        "encode_ms_a_frame": "{:.2f}",
        "share_of_matrix_rate": "{:.0%}",
        "match_ms_a_frame": "{:.3f}",
        "first_question": "{:.2f}",
        "further_question_with_unseen_zoom_frames": "{:.2f}",
        "further_question_all_kept": "{:.3f}",
        "straightforward_question": "{:.2f}",
    }.items():
        assert f"| {form.format(small[key])} | {form.format(large[key])} |" in page, key
    assert max(m["probability_moved_by_half_precision"] for m in (small, large)) < 0.0001
    for row in json.loads((ROOT / "benchmarks" / "results" / "scorers-cpu.json").read_text()).values():
        if "encode_frames_a_second" in row:
            cells = f"| {row['encode_frames_a_second']:.1f} | {row['match_frames_a_second']:.0f} |"
            assert cells in page


def test_the_quality_tables_of_the_evaluation_page_are_those_measured(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    page = (ROOT / "docs" / "evaluation.md").read_text()
    sets = json.loads((ROOT / "benchmarks" / "results" / "quality.json").read_text())["sets"]
    for table in runpy.run_path(str(ROOT / "benchmarks" / "quality.py"))["tables"](sets):
        assert table in page


def test_the_table_of_the_two_hour_video_is_the_measured_one(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    result = json.loads((ROOT / "benchmarks" / "results" / "long_video.json").read_text())
    table = runpy.run_path(str(ROOT / "benchmarks" / "long_video.py"))["table"](result)
    assert table in (ROOT / "docs" / "evaluation.md").read_text()


def test_the_quality_numbers_in_short_are_those_measured():
    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs" / "evaluation.md").read_text()
    sets = json.loads((ROOT / "benchmarks" / "results" / "quality.json").read_text())["sets"]
    shown = {"uniform": "uniform", "AKS": "aks", "WFS-SB": "wfs-sb", "MEC (the paper)": "mec",
             "**MEC, `residual`**": "mec:residual"}  # fmt: skip
    for title, selector in shown.items():
        names = ("videos, SNR 1", "videos, SNR 2", "videos, tags")
        cells = [sets[name]["selectors"][selector]["hit"] for name in names]
        numbers = " | ".join(f"{cell['8'][0]:.2f} / {cell['32'][0]:.2f}" for cell in cells)
        assert f"| {title} | {numbers} |" in page
        assert says(readme, f"{100 * cells[2]['8'][0]:.0f} %")
    one = sets["videos, SNR 1"]
    for text in (readme, page):
        assert f"{one['questions']} questions about {one['videos']} real videos" in text


def test_the_design_page_names_every_room():
    rooms = (ROOT / "docs" / "design.md").read_text().split("```")[1]
    for path in (ROOT / "src" / "framenest").iterdir():
        if path.suffix == ".py" or (path / "__init__.py").exists():
            name = path.stem if path.suffix else f"{path.name}/"
            assert name.startswith("__") or re.search(rf"^{name}(?!\w)", rooms, re.M), name
