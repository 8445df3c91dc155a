"""The paper's efficiency table: candidates, preprocessing, selection, per question, for six budgets.

    python benchmarks/efficiency.py VIDEO

Preprocessing is what does not depend on the question and is kept (decoding and encoding candidates);
selection is what each question costs after that, for all six budgets together: MEC ranks once, the
others run six times. Inference of the model that reads the frames is not measured here. One decoder
serves all; where decord is installed, a row shows AKS with decord reading its candidates one by one, as
the released code does.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import write
from rich.console import Console
from rich.table import Table

from framenest import MEC, Session
from framenest.cache.directory import DirectoryStore, cache_dir
from framenest.selectors import load_selector
from framenest.selectors.scored_candidates import whole_seconds

BUDGETS = [8, 16, 32, 64, 128, 256]
QUESTIONS = ("Where is a red laptop on a table?", "When does somebody walk across the lawn?")


def measure(name: str, video: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        models = DirectoryStore(cache_dir()).root / "models"
        (Path(folder) / "models").symlink_to(models, target_is_directory=True)
        space = Session("tags", store=folder)
        space.scorer  # noqa: B018 - loaded before the clock starts
        selector = load_selector(name, space)
        began = time.perf_counter()
        if name == "mec":
            MEC(session=space).index(video)
            preprocessing = time.perf_counter() - began
        else:
            selector.select(video, QUESTIONS[0], BUDGETS)
            spent = space.timing.seconds
            preprocessing = sum(spent.get(stage, 0.0) for stage in ("timeline", "decode", "encode"))
        selections = []
        for question in QUESTIONS:
            began = time.perf_counter()
            made = selector.select(video, question, BUDGETS)
            selections.append(time.perf_counter() - began)
    return {
        "candidates": made.stats["candidates"],
        "runs": made.stats["runs"],
        "preprocessing_seconds": preprocessing,
        "selection_seconds": sum(selections) / len(selections),
        "lmm_seconds": None,
        "sum_seconds": preprocessing + sum(selections) / len(selections),
    }


def decord_seconds(video: str) -> float | None:
    """Reading AKS's candidates with decord, one by one."""
    try:
        import decord
    except ImportError:
        return None
    began = time.perf_counter()
    reader = decord.VideoReader(video, num_threads=0)
    for number in whole_seconds(len(reader), reader.get_avg_fps()).tolist():
        reader[number].asnumpy()
    return time.perf_counter() - began


def main(video: str) -> None:
    rows = {name: measure(name, video) for name in ("mec", "aks", "wfs-sb")}
    slow = decord_seconds(video)
    if slow is not None:
        with tempfile.TemporaryDirectory() as folder:
            space = Session(None, store=folder)
            decoder = space.open(video)
            began = time.perf_counter()
            space.features(decoder, None, 32).see(
                whole_seconds(decoder.info.num_frames, decoder.info.fps), "aks"
            )
            ours = time.perf_counter() - began
        row = dict(rows["aks"])
        row["preprocessing_seconds"] += slow - ours
        row["sum_seconds"] += slow - ours
        rows["aks, decord"] = row
    table = Table(title=f"{Path(video).name}, six budgets, scorer tags", title_justify="left")
    for heading in ("", "candidates", "runs", "preprocessing s", "selection s", "LMM s", "sum s"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, row in rows.items():
        numbers = (row["preprocessing_seconds"], row["selection_seconds"])
        table.add_row(
            name, f"{row['candidates']:,}", str(row["runs"]), *(f"{n:.1f}" for n in numbers), "",
            f"{row['sum_seconds']:.1f}",
        )  # fmt: skip
    Console(width=110).print(table)
    print(write("efficiency", {"video": Path(video).name, "budgets": BUDGETS, "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1])
