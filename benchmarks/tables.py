"""Writes the tables of the README and the docs that come from measurements, settings and estimates.

    make tables                        # python benchmarks/tables.py

A page says where: what stands between <!-- table NAME --> and <!-- end --> is replaced, a table or a number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import long_video
import quality
from machine import HERE, RESULTS, filled

from framenest.config import DiscoveryConfig, IndexConfig, RankingConfig
from framenest.lmm import STYLES, estimate

ROOT = HERE.parent
DOCS = ROOT / "docs"
Tables = dict[str, str]


def measured(name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return result


def table(columns: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    head, *body = (f"| {' | '.join(cells)} |\n" for cells in (list(columns), *rows))
    return head + "|" + "---|" * (head.count("|") - 1) + "\n" + "".join(body)


def texts(form: str, *values: float) -> list[str]:
    return [form.format(value) for value in values]


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def hit_rows(selectors: Mapping[str, Any]) -> list[list[str]]:
    """A row of hit rates for each selector, the best of each column in bold."""
    numbers = {
        name: [f"{row[k]['hit']:.2f}" for k in row if k != "all"] + [f"{row['all']['objective']:.3f}"]
        for name, row in selectors.items()
    }
    best = [max(column) for column in zip(*numbers.values(), strict=True)]
    return [
        [f"`{name}`", *(f"**{cell}**" if cell == top else cell for cell, top in zip(row, best, strict=True))]
        for name, row in numbers.items()
    ]


def readme() -> Tables:
    asked = measured("quality")["sets"]["videos, tags"]
    hits = asked["selectors"]
    shown = {"MEC, `residual`": "mec:residual", "without reading": quality.NOT_READING,
             "MEC, the paper's rule": "mec", "`min-gap`": "min-gap", "WFS-SB": "wfs-sb", "AKS": "aks",
             "uniform": "uniform"}  # fmt: skip
    costs = {"MEC": "mec", "AKS": "aks", "WFS-SB": "wfs-sb"}
    rows = measured("efficiency")["rows"]
    first, another = (question["wall_seconds"] for question in measured("pipeline")["questions"])
    ours, low, high = (100 * share for share in hits["mec:residual"]["hit"]["8"])
    even, least, most = (100 * share for share in hits["uniform"]["hit"]["8"])
    return {
        "asked": f"{asked['questions']} questions about {asked['videos']} real videos",
        "hits": f"{ours:.0f} % (95 % interval: {low:.0f} to {high:.0f} %)",
        "uniform-hits": f"{even:.0f} % ({least:.0f} to {most:.0f} %)",
        "quality": table(shown, [[percent(hits[name]["hit"]["8"][0]) for name in shown.values()]]),
        "cost": table(
            ["", "frames encoded", "seconds"],
            [
                [title, f"{rows[name]['candidates']:,.0f}", f"{rows[name]['end_to_end_seconds']:.1f}"]
                for title, name in costs.items()
            ],
        ),
        "first-question": f"{first:.1f}",
        "another-question": f"{another:.1f}",
    }


def models() -> Tables:
    tokens = []
    for style in STYLES:
        for pairing in {"vllm-video": ["auto", "pairs"], "qwen": ["auto", "pairs", "images"]}.get(
            style, ["auto"]
        ):
            counts = [
                estimate(
                    style, [600.0 * i / k for i in range(k)], [(1280, 720)] * k, "x" * 80, pairing=pairing
                ).total
                for k in (8, 32, 128)
            ]
            name = f"`{style}`" if pairing == "auto" else f"`{style}`, `{pairing}`"
            tokens.append([name, *texts("{:,}", *counts)])
    budgets, heard = ("1", "2", "3", "4", "8", "16", "32", "64"), measured("speech")
    speech = [
        [f"{kind}, {result['questions']} questions", rule.partition(",")[0],
         *(f"{result[k]['without']:.2f} → {result[k]['with']:.2f}" for k in budgets)]
        for kind in ("spoken", "seen")
        for rule, result in heard["sets"][f"{kind}, report"].items()
    ]  # fmt: skip
    misheard = [
        [f"{percent} %", rule.partition(",")[0],
         *(f"{sets[f'{kind}, report'][rule][k]['with']:.2f}" for kind in ("spoken", "seen") for k in "48")]
        for percent, sets in {"0": heard["sets"], **heard["wrong"]}.items()
        for rule in sets["spoken, report"]
    ]  # fmt: skip
    sized = [
        [name, *(f"{row['hit'][0]:.2f} ({row['frames']:.0f})" for row in rows.values())]
        for name, rows in measured("tokens")["images"].items()
    ]
    return {
        "tokens": table(["style", "K = 8", "K = 32", "K = 128"], tokens),
        "token-budget": table(["hits (frames)", "2,000", "4,000", "8,000", "16,000"], sized),
        "speech": table(["", "rule", *budgets], speech),
        "misheard": table(["words wrong", "rule", "spoken, K = 4", "8", "seen, K = 4", "8"], misheard),
    }


def many_videos() -> Tables:
    memory = [
        [name, *(f"{row[scorer]['peak_mib']:.0f} MiB" for scorer in ("none", "tags"))]
        for name, row in measured("memory")["rows"].items()
    ]
    rows = measured("corpus")["rows"]
    names = {"uniform": "exact grid", "keyframes": "key frames"}
    speed = []
    for name, row in rows.items():
        probing, place, jobs = name.split(", ")
        title = f"{names[probing]}, {jobs}" + (" on Ray" if place == "ray" else "")
        speed.append([title, f"{row['hours_per_core_hour']:.0f}", f"{row['hours_per_second']:.3f}"])
    both = [rows[f"{probing}, local, 2 jobs"] for probing in names]
    hours = [1e6 / row["hours_per_core_hour"] for row in both]
    terabytes = [row["stored_bytes_per_hour"] / 1e6 for row in both]
    million = [
        ["core-hours", *texts("{:,.0f}", *hours)],
        ["hours on 1,000 cores", *texts("{:.1f}", *(each / 1000 for each in hours))],
        ["$ at 0.04 a core-hour", *texts("{:,.0f}", *(0.04 * each for each in hours))],
        ["TB in the store", *texts("{:.1f}", *terabytes)],
        ["$ a month at 0.023 a GB", *texts("{:,.0f}", *(23 * each for each in terabytes))],
    ]
    search, methods = measured("search_quality"), {
        "mean vector of a video": "mean", "best single frame": "best frame",
        "stage one alone": "stage one", "both stages": "both stages", "both stages, ten rows": "uncut",
    }  # fmt: skip
    measures = ("recall@1", "recall@3", "recall@5", "recall@10", "ndcg@10")
    blocks = {
        f"search-{kind}": table(
            ["", *(measure.replace("ndcg", "NDCG") for measure in measures)],
            [
                [title, *(f"{search[kind][method][measure][0]:.2f}" for measure in measures)]
                for title, method in methods.items()
            ],
        )
        for kind in ("made", "real")
    }
    sure = [
        [title, *("{right} of {of}".format(**row[which]) for which in ("confident", "first is right"))]
        for title, row in (
            ("for things in no video, used to choose the rule", search["searched"]["absent, tune"]),
            ("for things in no video, others", search["searched"]["absent, report"]),
            ("for things in some video", search["searched"]["present"]),
        )
    ]
    blocks["search-sure"] = table(["queries", "a moment clearly matches", "the first such is right"], sure)
    scan = [
        [*texts("{:,}", row["frames"], row["videos"]),
         *texts("{:.3f}", row["warm_seconds"]["median"], row["warm_core_seconds"]["median"]),
         f"{row['private_mib']['peak']:.0f} MiB"]
        for row in measured("search")["scan"]
    ]  # fmt: skip
    return blocks | {
        "memory": table(["", "index alone", "with `tags`"], memory),
        "throughput": table(["", "hours of video per core-hour", "hours of video per second"], speed),
        "million": table(["", *names.values()], million),
        "scan": table(["frames", "videos", "seconds", "core seconds", "private memory"], scan),
    }


def server() -> Tables:
    added = measured("gateway")
    gateway = [
        ["without a video", f"{added['no_video']['added_ms']:.1f} ms"],
        ["same video and question", f"{added['seen_video_same_question']['added_ms']:.0f} ms"],
        ["another question", f"{added['seen_video_new_question']['added_ms'] / 1000:.1f} s"],
        ["a new video", f"{added['new_video']['added_ms'] / 1000:.1f} s"],
    ]
    result = measured("serve")
    cached, requests = result["cached_prefix"], result["asking"]["requests"]

    def row(title: str, name: str, unit: str, divisor: int = 1, of: str = "requests") -> list[str]:
        count, *times = (requests[name][key] for key in ("count", "p50_ms", "p99_ms"))
        return [title, f"{count} {of}", *(f"{time / divisor:.0f} {unit}" for time in times)]

    load = [
        ["cached prefix, 16 connections", f"{cached['requests_per_second']:.0f} requests/s",
         f"{cached['p50_ms']:.1f} ms", f"{cached['p99_ms']:.0f} ms"],
        row("50 users asking: `POST /rankings`", "ask", "ms"),
        row("from a new question to its ranking, 50 users in the queue", "question to ranking", "s", 1000,
            "rankings"),
        row("a question asked before", "ranking there already", "ms"),
    ]  # fmt: skip
    return {
        "gateway": table(["request", "extra time compared with a direct request"], gateway),
        "load": table(["", "", "p50", "p99"], load),
    }


def evaluation() -> Tables:
    sets = measured("quality")["sets"]
    names = {"uniform": "uniform", "AKS": "aks", "WFS-SB": "wfs-sb", "`min-gap`": "min-gap",
             "MEC (the paper)": "mec", "**MEC, `residual`**": "mec:residual"}  # fmt: skip
    scorers = {"noisy truth, SNR 1": "SNR 1", "noisy truth, SNR 2": "SNR 2", "`tags`": "tags"}
    short = []
    for title, name in names.items():
        hits = [sets[f"videos, {scorer}"]["selectors"][name]["hit"] for scorer in scorers.values()]
        short.append([title, *(f"{hit['8'][0]:.2f} / {hit['32'][0]:.2f}" for hit in hits)])
    tags = measured("recall_tags")["selectors"]
    blocks = {
        "short": table(["hit@8 / hit@32", *scorers], short),
        "tags": table(["hit@K", *(k for k in tags["mec"] if k != "all"), "mean"], hit_rows(tags)),
        "long-video": long_video.table(measured("long_video")),
    }
    ablations = measured("ablations_tags")
    variants = ablations["components"] | ablations["schedules"]
    blocks["ablations"] = table(
        ["hit@K, %", "low", "medium", "high", "average"],
        [
            [f"`{name}`", *texts("{:.2f}", *(100 * hit for hit in row.values()))]
            for name, row in variants.items()
        ],
    )
    return blocks | quality.tables(sets)


def performance() -> Tables:
    pipeline = measured("pipeline")
    titles = ("first question ({decoded} frames)", "another question (only its new zoom frames)")
    cpu = []
    for title, question in zip(titles, pipeline["questions"], strict=True):
        spent = question["seconds"]
        rest = spent["match"] + spent["zoom"] + spent["order"]
        times = texts("{:.1f}", question["wall_seconds"], spent["decode"], spent["encode"], rest)
        cpu.append([title.format(**question), *times])
    again = f"{pipeline['first_question_cached_wall_seconds']:.1f}"
    cpu.append(["the first question again, new process", again, "–", "–", "0.1"])
    speeds, scorers = measured("scorers-cpu"), []
    for name, patch in (("onnx", "patch16"), ("onnx-fast", "patch32")):
        for kind in ("float32", "float16", "int8"):
            row = speeds[patch][kind]
            numbers = f"{row['times_tags']:.2f}", f"{row['rank_correlation']:.4f}", f"{row['megabytes']:.0f}"
            scorers.append([f"`{name}`, {kind}", *numbers])
    parts = ("decode", "encode", "match", "rule", "frames")
    costs = [
        [f"`{name}`", f"{row['candidates']:,.0f}", str(row["runs"]),
         *texts("{:.1f}", *(row[f"{part}_seconds"] for part in (*parts, "end_to_end")))]
        for name, row in measured("efficiency")["rows"].items()
    ]  # fmt: skip
    after, gpu = measured("gpu_machine")["after"], measured("scorers-gpu")
    session, index, further = after["session"], after["index"], after["server"]["further"]
    loads = {name: after[f"load_{name}"] for name in ("blip2", "siglip2", "clip")}
    seconds = [
        [
            "first question from the shell, model files already verified",
            f"{after['first_question']['wall']:.1f}",
        ],
        ["the same question again, everything cached", f"{after['again']['wall']:.1f}"],
        [
            "first question, model loaded; 2.9 of it waiting for decode",
            f"{session['questions'][0]['wall']:.1f}",
        ],
        ["a further question, 20 new zoom frames", f"{session['further_with_20_unseen']['wall']:.2f}"],
        ["a further question, 100 new zoom frames", f"{session['further_with_100_unseen']['wall']:.2f}"],
        [
            "a further question with `rank --server`, whole process",
            f"{min(further):.2f} to {max(further):.2f}",
        ],
        ["loading `blip2`, of which `import torch` 1.5", f"{loads['blip2']['load']:.1f}"],
        ["loading `siglip2`, `clip`", f"{loads['siglip2']['load']:.1f}, {loads['clip']['load']:.1f}"],
        ["index without a scorer; decoding its 341 probes alone takes 3.5", f"{index['without_scorer']:.1f}"],
        ["index with encoding, model loaded: 1.03 times decoding alone", f"{index['with_scorer_warm']:.1f}"],
        ["match of 640 candidates", f"{session['match_640']:.3f}"],
    ]
    compared = {
        "encode_ms_a_frame": ("encode, ms per frame", "{:.2f}"),
        "share_of_matrix_rate": ("encode, share of the GPU's matrix rate", "{:.0%}"),
        "match_ms_a_frame": ("match (Q-Former), ms per frame", "{:.3f}"),
        "first_question": ("first question, s", "{:.2f}"),
        "further_question_with_unseen_zoom_frames": ("further question, 100 new zoom frames, s", "{:.2f}"),
        "further_question_all_kept": ("further question, all features cached, s", "{:.3f}"),
        "straightforward_question": ("transformers' processor and full forward, s per question", "{:.2f}"),
        "features_mib": ("features, MiB", "{:.0f}"),
    }
    return {
        "cpu": table(["", "seconds", "waiting for decode", "encode", "match, zoom, order"], cpu),
        "scorers": table(["", "times `tags`", "rank correlation", "MB"], scorers),
        "selectors": table(["", "candidates", "runs", *(f"{part} s" for part in parts), "sum s"], costs),
        "gpu": table(["", "seconds"], seconds),
        "transformers": table(
            ["640 candidates", "224 px", "364 px"],
            [
                [title, *texts(form, gpu["blip2_224"][key], gpu["blip2_364"][key])]
                for key, (title, form) in compared.items()
            ],
        ),
    }


def decoding() -> Tables:
    files = measured("decoding")["files"]
    own = {"framenest": "**Framenest**, exact",
           "framenest, key frames": "**Framenest**, `--probing keyframes`"}  # fmt: skip
    left_out = ("framenest, full size",)
    whole = sorted(
        ((name, row) for name, row in files["the footage itself"].items() if name not in left_out),
        key=lambda one: (one[0] not in own, one[1]["wall_seconds"]),
    )
    libraries = [
        [own.get(name, name), str(row["frames"]), f"{row['wall_seconds']:.1f}", f"{row['cpu_seconds']:.0f}",
         f"{row['times_faster_than_decord']:.1f}"]
        for name, row in whole
    ]  # fmt: skip
    short = []
    for title, rows in files.items():
        if title != "the footage itself":
            wall = {name: row["wall_seconds"] for name, row in rows.items() if name not in left_out}
            decord = min(seconds for name, seconds in wall.items() if "decord" in name)
            others = [name for name in wall if name not in own and "decord" not in name]
            best = min(others, key=lambda name: wall[name])
            cells = texts("{:.2f} s", *(wall[name] for name in own), decord)
            short.append([title, *cells, f"{wall[best]:.2f} s ({best})"])
    growth = [
        [f"{row['minutes']} min",
         *texts("{:.1f} s", row["uniform"]["seconds"], row["keyframes"]["seconds"],
                row["keyframes"]["largest_gap_seconds"])]
        for row in measured("growth")["rows"]
    ]  # fmt: skip
    hits = measured("probing")["hit"]
    return {
        "libraries": table(
            ["512 frames of a 31-minute 640×360 file", "frames", "wall s", "CPU s", "times decord"], libraries
        ),
        "short-files": table(
            ["128 frames of", "Framenest exact", "key frames", "decord", "best other library"], short
        ),
        "growth": table(["length of video", "exact grid", "key frames", "largest gap, key frames"], growth),
        "probing": table(
            ["", *(f"K={k}" for k in hits["uniform"])],
            [
                [title, *texts("{:.2f}", *hits[name].values())]
                for title, name in (("exact grid", "uniform"), ("key frames", "keyframes"))
            ],
        ),
    }


def scorers() -> Tables:
    result, rows = measured("match_strength_tags"), []
    for title, name in (("tuning half", "tune"), ("reporting half", "report")):
        half = result[name]
        areas = [f"{one['auc']:.2f} ({one['low']:.2f} to {one['high']:.2f})"
                 for one in (half, half["a_word_is_known"])]  # fmt: skip
        verdicts = [", ".join(map(percent, half["verdicts"][kind].values())) for kind in ("right", "wrong")]
        rows.append([title, *areas, *verdicts])
    columns = ["", "AUC, all pairs", "AUC, pairs with a known word",
               "right pairs: strong, weak, none, cannot tell", "wrong pairs"]  # fmt: skip
    right: list[list[str]] = []
    for name in ("strong", "weak", "cannot tell", "none", "evidence", "context"):
        cells = []
        for one in (result["right"][questions][name] for questions in ("qa", "own")):
            form = "{share:.0%} of {of} ({low:.0%} to {high:.0%})" if one["of"] else "never given"
            cells.append(form.format(**one))
        right.append([f"`{name}`", *cells])
    costs = [
        [name.replace("_", " "), *texts("{:.0f}", *row["ms_a_frame"].values()), f"{row['times_cheaper']:.1f}",
         percent(row["share_also_read"])]
        for name, row in measured("scorers-text")["videos"].items()
    ]  # fmt: skip
    sets, reading = measured("reading")["sets"], []
    for title in ("tags, mec:residual", "noisy truth, SNR 1, mec:residual"):
        for kind in ("all", "seen", "written", "colour", "count"):
            row = sets[title][kind]
            cells = [f"{row['before'][k]:.2f} → {row['after'][k]:.2f}" for k in ("1", "4", "8", "16", "32")]
            change = quality.difference(row["difference"]["8"])
            reading.append([title.partition(", mec")[0], f"{kind} ({row['questions']})", *cells, change])
    budgets = [f"hit@{k}" for k in (1, 4, 8, 16, 32)]
    recognised = [
        [
            name,
            *(
                f"{right} of {of} ({right / of:.0%})"
                for of, right in (one.values() for one in kinds.values())
            ),
        ]
        for name, kinds in measured("recognition")["sets"].items()
    ]
    return {
        "match-strength": table(columns, rows),
        "verdicts": table(["", "reporting half", "held-out half of our own"], right),
        "reading-cost": table(
            ["video", "ms a frame", "rapidocr's defaults", "times cheaper", "of its lines also read"], costs
        ),
        "reading": table(["scorer", "questions", *budgets, "change at 8 [95 %]"], reading),
        "recognition": table(["", "about text: recognised", "others: taken for it"], recognised),
    }


def design() -> Tables:
    kinds = measured("storage")["kinds"]
    used = {kind: kinds[kind]["methods"]["filter, zlib 1"] for kind in ("index", "timeline")}
    settings = []
    for config in (IndexConfig, DiscoveryConfig, RankingConfig):
        for entry in fields(config):
            default = "" if entry.default is None else entry.default
            shown = f"{default:g}" if isinstance(default, float) else str(default)
            settings.append([f"`{entry.name}`", shown, entry.metadata["help"]])
    return {
        "thumbnails-share": percent(used["index"]["share"]),
        "timeline-share": percent(used["timeline"]["share"]),
        "settings": table(["setting", "default", "meaning"], settings),
    }


PAGES: dict[Path, Callable[[], Tables]] = {
    ROOT / "README.md": readme,
    DOCS / "decoding.md": decoding,
    DOCS / "design.md": design,
    DOCS / "evaluation.md": evaluation,
    DOCS / "many-videos.md": many_videos,
    DOCS / "models.md": models,
    DOCS / "performance.md": performance,
    DOCS / "scorers.md": scorers,
    DOCS / "server.md": server,
}


def pages() -> dict[Path, str]:
    """Every page as it should be."""
    return {page: filled(page.read_text(), tables()) for page, tables in PAGES.items()}


def main() -> None:
    for page, text in pages().items():
        page.write_text(text)


if __name__ == "__main__":
    main()
