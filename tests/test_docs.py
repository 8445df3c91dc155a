"""What the documentation shows is true."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def test_the_scorer_example_runs(clip):
    page = (ROOT / "docs" / "scorers.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.S).group(1)
    assert code.count("\n") <= 24
    names = {}
    exec(code.replace('"kiln.mp4"', repr(str(clip))), names)
    assert names["ranking"].scorer == "brightness 1"
    assert len(names["ranking"]) == 256


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_the_readme_numbers_are_the_measured_ones():
    readme = (ROOT / "README.md").read_text()
    results = ROOT / "benchmarks" / "results"
    pipeline = json.loads((results / "pipeline.json").read_text())
    first, second = pipeline["questions"]
    for number in (first["wall_seconds"], second["wall_seconds"], first["seconds"]["decode"]):
        assert f"{number:.1f}" in readme
    assert f"{pipeline['peak_memory_mib']:.0f} MiB" in readme
    large = json.loads((results / "pipeline_1080p.json").read_text())
    assert f"{large['peak_memory_mib']:.0f} MiB for 1080p" in readme
    assert large["peak_memory_mib"] < 1000
    assert f"{json.loads((results / 'ranking.json').read_text())['milliseconds_median']:.0f} ms" in readme


def test_the_decoding_numbers_are_the_measured_ones():
    results = ROOT / "benchmarks" / "results"
    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs" / "decoding.md").read_text()
    for name, row in json.loads((results / "decoding.json").read_text())["files"][
        "the footage itself"
    ].items():
        if name == "framenest, full size":
            continue
        cells = f"| {row['frames']} | {row['wall_seconds']:.1f} | {row['cpu_seconds']:.0f} |"
        assert cells in readme, name
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
    assert f"{corpus['rows']['uniform, local, 2 jobs']['rerun_ms_per_video']:.0f} ms of a later run" in page
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
    assert f"{more[0]:.0f} % more processor time" in page
    assert f"{more[1]:.0f} % more with key frames" in page
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
    for name, row in json.loads((results / "efficiency.json").read_text())["rows"].items():
        cells = f"{row['preprocessing_seconds']:.1f} | {row['selection_seconds']:.1f}"
        assert f"| `{name}` | {row['candidates']:,} | {row['runs']} | {cells} |" in page
    for snr in (0, 1, 2, 4):
        for summary in json.loads((results / f"recall_noisy_truth_{snr}.json").read_text())[
            "selectors"
        ].values():
            assert f" {summary['8']['hit']:.2f} " in page


def test_the_glossary_names_exist_in_the_code():
    import framenest.appearance
    import framenest.discovery
    import framenest.observability
    import framenest.probes
    import framenest.ranking

    modules = {
        name: getattr(framenest, name)
        for name in ["appearance", "discovery", "observability", "probes", "ranking"]
    }
    named = re.findall(
        r"`(appearance|discovery|observability|probes|ranking)\.(\w+)`",
        (ROOT / "docs/glossary.md").read_text(),
    )
    named = [(module, name) for module, name in named if (module, name) != ("ranking", "frames")]
    assert len(named) > 15
    for module, name in named:
        assert hasattr(modules[module], name), f"{module}.{name}"
