"""What the documentation shows is true."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
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


def test_the_token_estimates_are_the_computed_ones():
    from framenest.lmm import STYLES, estimate

    page = (ROOT / "docs" / "messages.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)`(?:, `(\w+)`)? \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", page, re.M)
    assert {style for style, *_ in rows} == set(STYLES)
    for style, pairing, *cells in rows:
        for count, cell in zip((8, 32, 128), cells, strict=True):
            seconds = [60.0 * i / count for i in range(count)]
            tokens = estimate(style, seconds, (1280, 720), "x" * 80, pairing=pairing or "pairs")
            assert f"{tokens.total:,}" == cell, (style, count)


def test_the_pairing_table_is_what_the_markers_are():
    from framenest import Prefix, VideoInfo
    from framenest.lmm.times import copies, marker, paired_markers, video_metadata

    info = VideoInfo("kiln.mp4", "", 9501, 380.04, 25.0, 640, 360, "h264")
    numbers = np.array([250, 2250, 2300, 7510, 9500])
    prefix = Prefix(info, 5, numbers, numbers / 25, None)
    page = (ROOT / "docs" / "messages.md").read_text()
    for pairing in ("pairs", "duplicate", "images"):
        written = paired_markers(video_metadata(prefix, copies(pairing, 5)))
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
    assert f"{cached['processor_ms_per_request']:.2f} ms of the server's processor time" in page
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
    for name in ("after_warming_mib", "at_the_end_mib", "most_mib"):
        assert f"{memory[name]:.0f} MiB at the " in page
    assert (asking["users"], asking["videos"], asking["seconds"]) == (50, 5, 600)


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


def test_the_scorer_numbers_are_the_measured_ones():
    page, readme = (ROOT / "docs" / "scorers.md").read_text(), (ROOT / "README.md").read_text()
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
    assert f"takes {small['first_question']:.2f} s after decoding" in readme
    assert f"a further one {small['further_question_all_kept']:.2f} s" in readme
