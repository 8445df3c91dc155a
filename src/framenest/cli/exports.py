"""Commands that read a ranking file: show, extract, export, report."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import rich_click as click

from framenest import extraction, lmm
from framenest.cache.files import write_atomic
from framenest.cli import options as opt
from framenest.cli.options import argument, command, option
from framenest.cli.printing import TOP, confirm, note, out, print_json, print_prefix, print_ranking, say
from framenest.errors import ConfigError, StoreError
from framenest.frames import ImageSpec
from framenest.images import ImageLimits, encode_image
from framenest.method.prefix import Prefix
from framenest.method.ranking import Ranking
from framenest.report.contact_sheet import contact_sheet
from framenest.report.document import document
from framenest.report.page import embed, page
from framenest.selectors.selection import load_result
from framenest.text import size_text
from framenest.video.decoder import Decoder
from framenest.video.opening import reopen


@command()
def show(
    *,
    ranking: opt.InputFile = argument(),
    budget: int | None = option(f"Frames to show. [default: {TOP}; of a selection, all]", "-k"),
    why: bool = option("Also show what was looked at, and the scores of each rank."),
    as_json: bool = opt.AS_JSON,
    as_csv: bool = option("Print CSV with all scores; all ranks unless -k is given.", "--csv"),
    common: opt.Common,
) -> None:
    """Show a RANKING file: its first ranks, their times and why they were chosen.

    \b
    framenest show kiln.json -k 32 --why
    framenest show kiln.json --csv > kiln.csv
    """
    result = load_result(ranking)
    if isinstance(result, Ranking):
        if as_csv:
            _print_ranking_csv(result, len(result) if budget is None else len(result.prefix(budget)))
            return
        prefixes = [result.prefix(min(TOP, len(result)) if budget is None else budget)]
        print_ranking(result, prefixes, scores=why, as_json=as_json)
        return
    prefixes = list(result.prefixes.values()) if budget is None else [result.prefix(budget)]
    if as_csv:
        write = csv.writer(out.file, lineterminator="\n").writerow
        write(["budget", "rank", "frame", "seconds"])
        for prefix in prefixes:
            for rank, second, frame in prefix:
                write([prefix.budget, rank, frame, f"{second:.3f}"])
        return
    if as_json:
        print_json(replace(result, prefixes={prefix.budget: prefix for prefix in prefixes}).to_json())
        return
    confirm("selector", result.selector, "scorer", result.scorer)
    for prefix in prefixes:
        print_prefix(prefix)


def _print_ranking_csv(ranking: Ranking, count: int) -> None:
    columns: dict[str, Any] = {"evidence": ranking.evidence, **ranking.cues, **ranking.terms}
    write = csv.writer(out.file, lineterminator="\n").writerow
    write(["rank", "frame", "seconds", "from", *columns, "role", "reason"])
    for i in range(count):
        origin = "zoom" if ranking.is_zoom[i] else "probe"
        why = ranking.roles[i], ranking.reasons[i]
        values = (f"{float(column[i]):.6g}" for column in columns.values())
        write([i + 1, int(ranking.frames[i]), f"{ranking.seconds[i]:.3f}", origin, *values, *why])


@command()
def extract(
    *,
    ranking: opt.InputFile = argument(),
    budget: int | None = option("Number of frames.", "-k"),
    tokens: opt.TokenOptions,
    folder: opt.OutputFolder = option("Folder for the images.", "--to", required=True),
    kind: str = option(
        "Image format.", "--format", type=click.Choice(extraction.FRAME_FORMATS), default="jpg"
    ),
    max_side: int | None = opt.MAX_SIDE,
    sheet: opt.ImageFile | None = option("Also draw a contact sheet: all frames with ranks and times."),
    as_json: bool = opt.AS_JSON,
    video: opt.InputFile | None = opt.MOVED,
    common: opt.Common,
) -> None:
    """Write the K frames of a RANKING as images, in time order, at the original size by default.

    File names contain frame, seconds and rank. Fails if the video has changed since it was ranked.

    \b
    framenest extract kiln.json -k 8 --to frames/ --sheet kiln.png
    framenest extract kiln.json -k 8 --to frames/ --max-side 1568
    framenest extract kiln.json --tokens 8000 --to frames/
    """
    result = load_result(ranking)
    within = tokens.budget(limits=ImageLimits(max_side))
    prefix, decoder = result.prefix(within or budget), reopen(result.video, video, store=common.cache)
    files = write_frames(prefix, decoder, common, folder, sheet, kind, max_side, title=result.question)
    if as_json:
        print_json({"files": list(map(str, files)), "sheet": None if sheet is None else str(sheet)})
    _note_if_complete(prefix)


def write_frames(
    prefix: Prefix,
    decoder: Decoder,
    common: opt.Common,
    folder: Path | None,
    sheet: Path | None,
    kind: str = "jpg",
    max_side: int | None = None,
    *,
    title: str | None,
) -> list[Path]:
    """Write the frames of a prefix into a folder, and as a contact sheet, where given; returns the files."""
    files: list[Path] = []
    if folder is not None:
        others = extraction.other_frames(prefix, folder, kind)
        if others:
            raise StoreError(
                f"{folder}: already holds {len(others)} other frames, such as {others[0].name}; remove them, "
                "or give another folder"
            )
        with common.bars() as bars:
            most = None if prefix.sizes else max_side  # a budget in tokens knows it
            files = extraction.extract(
                prefix, folder, format=kind, max_side=most, video=decoder, progress=bars
            )
        confirm(f"{len(files)} frames in", str(folder))
    if sheet is not None:
        decoded = prefix.decode(decoder, ImageSpec.short_side(240))
        drawn = contact_sheet(prefix, [image for _, image in decoded], title=title)
        write_atomic(sheet, encode_image(drawn, sheet.suffix[1:].lower()))
        confirm("contact sheet in", str(sheet))
    return files


def _note_if_complete(prefix: Prefix) -> None:
    if prefix.complete:
        note(f"this short video has only {len(prefix)} candidate frames; these are all of them")


FOLDER = "vlmevalkit"


@command()
def export(
    *,
    ranking: opt.InputFile = argument(),
    budget: int | None = option("Number of frames.", "-k"),
    tokens: opt.TokenOptions,
    style: str = option(
        "For servers: openai, gpt, gemini, vllm-video. For transformers: qwen, hf-video, internvl, "
        "llava-onevision. For other tools: vlmevalkit.",
        type=click.Choice([*lmm.STYLES, FOLDER]),
        default="openai",
    ),
    output: str | None = option("Output file (- is stdout); a folder for vlmevalkit.", "-o", metavar="FILE"),
    question: str | None = option("Ask this instead of the ranking's question."),
    choices: tuple[str, ...] = opt.CHOICES,
    images: opt.ImageOptions,
    transcript: opt.TranscriptOptions,
    model: str | None = option("Model to name in the request."),
    video: opt.InputFile | None = opt.MOVED,
    common: opt.Common,
) -> None:
    """Turn the K frames of a RANKING into a request for a model, or into another tool's files.

    A request tells the model the frames' true times. For a server the file is the body to post; for
    transformers, `framenest.lmm.load(FILE)` reads it.

    \b
    framenest export kiln.json -k 16 --style vllm-video \\
      --model Qwen/Qwen3.5-9B -o request.json
    framenest export kiln.json -k 16 --style qwen -o kiln-qwen.json
    """
    if output is not None and output != "-":
        (opt.check_writable_folder if style == FOLDER else opt.check_writable)(output)
    opt.refuse_pairing(style)
    if output is None and style == FOLDER:
        raise ConfigError(f"style {style} needs an output; give -o")
    if output is None:
        note("nothing will be written; give -o FILE")
    result = load_result(ranking)
    counted = cast(lmm.StyleName, "openai" if style == FOLDER else style)
    within = tokens.budget(counted, pairing=images.pairing, limits=images.limits)
    prefix = result.prefix(within or budget)
    if style == FOLDER:
        folder = opt.check_writable_folder(Path(str(output)) / Path(result.video.path).stem)
        name = extraction.vlmevalkit_name
        decoder = reopen(result.video, video, store=common.cache)
        with common.bars() as bars:
            files = extraction.extract(prefix, folder, name=name, video=decoder, progress=bars)
        confirm(f"{len(files)} frames in", str(folder))
        return
    text = question or result.question
    if not text:
        raise ConfigError("this ranking has no question; give one with --question")
    if not choices and question is None and isinstance(result, Ranking):
        choices = result.options
    with common.bars() as bars:
        request = lmm.messages(
            prefix,
            text,
            counted,
            options=choices,
            video=reopen(result.video, video, store=common.cache),
            progress=bars,
            **vars(images),
            **transcript.settings(result.transcript if isinstance(result, Ranking) else None),
        )
    _write_request(request, output, model)


def _write_request(request: lmm.Request, output: str | None, model: str | None) -> None:
    if output == "-":
        print_json(request.dumps(model=model))
        return
    tokens = request.tokens
    _note_if_complete(request.prefix)
    say(f"{request.style}: {len(request.prefix)} frames, about {tokens.total:,} tokens")
    say(f"  images {tokens.frames:,}, times {tokens.times:,}, text {tokens.text:,}")
    say(f"  times the model reads: {' '.join(request.markers) or 'none'}")
    if output is None:
        return
    request.save(output, model=model)
    size = size_text(Path(output).stat().st_size) if Path(output).is_file() else "all"
    confirm(f"{size} written to", output)


@command()
def report(
    *,
    rankings: tuple[opt.InputFile, ...] = argument(nargs=-1, required=True, metavar="RANKING..."),
    output: opt.OutputFile | None = option("The page. [default: report.html]", "-o"),
    video: opt.InputFile | None = opt.MOVED,
    common: opt.Common,
) -> None:
    """Write a page about RANKINGS: timeline, budget slider, frames, and why each was chosen.

    The page is one HTML file that works offline and sends nothing anywhere. Several rankings or selections
    of one video are shown side by side on one time axis.

    \b
    framenest report kiln.json -o kiln.html
    framenest report mec.json aks.json uniform.json -o compared.html
    """
    results = [load_result(ranking) for ranking in rankings]
    if output is None:
        output = opt.check_writable("report.html")
    content = document(results, names=[Path(ranking).stem for ranking in rankings])
    decoder = reopen(results[0].video, video, store=common.cache)
    with common.bars() as bars:
        urls = embed(decoder, results, progress=bars)
    write_atomic(output, page(content, urls).encode("utf-8", "replace"))
    confirm(f"report with {len(urls)} frames in", f"{output} ({size_text(output.stat().st_size)})")
