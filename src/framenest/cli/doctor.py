"""framenest doctor: check that everything works here, and say how to fix what does not."""

from __future__ import annotations

import importlib.util
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
from rich.markup import escape

import framenest
from framenest.cache.directory import DirectoryStore
from framenest.cli import options
from framenest.cli.models import model_state
from framenest.cli.option_groups import AS_JSON, Common
from framenest.cli.options import check_writable_folder
from framenest.cli.terminal import facts_grid, print_json, print_table
from framenest.errors import FramenestError, ScorerError, install_hint
from framenest.method.mec import MEC
from framenest.models import CATALOGUE
from framenest.processes import gpu_memory, has_gpu
from framenest.scorers import choose, load_scorer
from framenest.text import one_line, size_text

EXTRAS = {
    "ask": "openai", "server": "fastapi", "mcp": "mcp", "remote": "fsspec", "parquet": "pyarrow",
    "ray": "ray", "plots": "matplotlib", "lmms-eval": "lmms_eval",
}  # fmt: skip
"""A module that each extra without a scorer installs."""
OK, MISSING, FAILED = "ok", "–", "failed"


@options.command()
def doctor(*, as_json: bool = AS_JSON, common: Common) -> int:
    """Check this installation: Python, extras, scorers, GPU, cache; rank a test clip.

    Prints a line for each, with a fix for each problem. – marks what is missing but optional. Exit code 1 if
    something failed.
    """
    findings = list(_findings(common))
    if as_json:
        print_json([{"what": what, "state": state, "found": found} for what, state, found in findings])
    else:
        rows = facts_grid()
        rows.add_column(overflow="fold")
        colours = {OK: "green", MISSING: "dim", FAILED: "red"}
        for what, state, found in findings:
            rows.add_row(what, f"[{colours[state]}]{state}[/]", escape(found))
        print_table(rows)
    return int(any(state == FAILED for _, state, _ in findings))


def _findings(common: Common) -> Iterator[tuple[str, str, str]]:
    """What was checked, its state, and what was found or what to do."""
    yield "Framenest", OK, f"{framenest.__version__}, Python {platform.python_version()}"
    for extra, module in EXTRAS.items():
        here = importlib.util.find_spec(module) is not None
        yield f"extra {extra}", OK if here else MISSING, "installed" if here else install_hint(extra)
    for name, entry in CATALOGUE.items():
        state = model_state(entry, common.local)
        remedy = f"run: framenest models fetch {name}" if entry.installed() else install_hint(entry.extra)
        worst = FAILED if state.startswith("damaged") else MISSING
        ready = state == "ready"
        yield f"scorer {name}", OK if ready else worst, state if ready else f"{state}; {remedy}"
    gpu = f"{size_text(gpu_memory())} of memory" if gpu_memory() else "none; scorers run on the CPU"
    if gpu_memory() and not has_gpu():
        gpu += ", but torch cannot use it; install a CUDA build of torch that fits the driver"
    yield "GPU", OK if has_gpu() else MISSING, gpu
    try:
        check_writable_folder(common.local.root)
        held = size_text(sum(total for _, total in common.cache.size().values()))
        yield "cache", OK, f"{common.cache.location}, {held}; `framenest cache gc` makes room"
    except FramenestError as error:
        yield "cache", FAILED, f"{error}; give another with --cache DIR or $FRAMENEST_CACHE"
    try:
        scorer, why = choose(common.local)
        yield "--scorer auto", OK, why
    except ScorerError as error:
        scorer = None
        yield "--scorer auto", FAILED, str(error)
    try:
        yield "self-test", OK, _ranked_clip(scorer, common)
    except Exception as error:  # whatever is broken is what to report
        yield "self-test", FAILED, f"{one_line(error)}; please report it with this output"


def _ranked_clip(scorer: str | None, common: Common) -> str:
    """Make a clip of 48 frames, rank it in an empty cache, and say how that went."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="framenest-doctor-") as folder, common.bars() as bars:
        clip = Path(folder) / "clip.mp4"
        with av.open(str(clip), "w") as container:
            stream = container.add_stream("mpeg4", rate=8)
            stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
            for i in range(48):
                picture = np.full((96, 128, 3), 5 * i, np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode(None))
        ready = None if scorer is None else load_scorer(scorer, common.local)
        mec = MEC(scorer=ready, store=DirectoryStore(Path(folder) / "cache"), progress=bars)
        ranks = len(mec.rank(str(clip), None if ready is None else "a bright picture"))
    by = "without a question" if scorer is None else f"with {scorer}"
    return f"made a clip of 6 s and ranked {ranks} frames of it {by}, in {time.perf_counter() - began:.1f} s"
