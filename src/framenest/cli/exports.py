"""Commands that read a ranking file: show, extract, export, report"""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rich_click as click

from framenest import extraction, lmm
from framenest.cache.files import write_atomic
from framenest.cli import model_options, options
from framenest.cli.model_options import PictureOptions, SpokenLines, TokenBudget
from framenest.cli.options import CHOICES, ChoicesCommand, Common, KnownVideo, argument, option
from framenest.cli.printing import print_facts, print_prefix, print_ranks
from framenest.cli.terminal import confirm, note, out, print_json, say, say_labelled
from framenest.errors import ConfigError, StoreError
from framenest.frames import ImageSpec
from framenest.images import encode_image
from framenest.lmm.prompt import prompt
from framenest.method.prefix import Prefix
from framenest.method.ranking import Ranking
from framenest.report import contact_sheet
from framenest.report.document import document
from framenest.report.figure import draw, figure_frames
from framenest.report.page import embed, page, read_pictures
from framenest.selectors import frame_lists
from framenest.selectors.selection import Selection, load_result
from framenest.text import size_text

LONGEST = 255
"""Bytes of a file's name."""
BESIDE = len("..01234567.tmp")
"""What the name of a file takes more while it is written."""


class OutputFile(click.ParamType[Path]):
    """A file that can be written."""

    name = "FILE"

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        return check_writable(Path(value))


class OutputFolder(click.ParamType[Path]):
    """A folder that is there, or can be made, and can be written into."""

    name = "DIR"

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        return check_writable_folder(Path(value))


class PictureFile(OutputFile):
    """A picture file that can be written, of a kind that can be encoded."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        from framenest.images import FORMATS

        file = super().convert(value, param, ctx)
        if file.suffix.lower()[1:] not in FORMATS:
            raise StoreError(f"{file}: a picture is a .png, .jpg or .webp file")
        return file


class PlotFile(OutputFile):
    """A plot that can be written, of a kind that can be drawn."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        file = super().convert(value, param, ctx)
        if file.suffix.lower() not in (".png", ".svg", ".pdf"):
            raise StoreError(f"{file}: a plot is a .png, .svg or .pdf file")
        return file


def check_writable(file: Path) -> Path:
    """Refuse an output file that could not be written."""
    target = Path(os.path.realpath(file))  # a link stays a link: what it names is written
    why = _obstacle(target.parent, target)
    if why is not None:
        raise StoreError(f"{file}: {why}")
    return file


def check_writable_folder(folder: Path) -> Path:
    """Refuse a folder that could not be made or written into."""
    why = _obstacle(Path(os.path.realpath(folder)))
    if why is not None:
        raise StoreError(f"{folder}: {why}")
    return folder


def _obstacle(folder: Path, file: Path | None = None) -> str | None:
    """Why nothing can be written into a folder, which may have to be made first, or not this file."""
    beside = 0 if file is None else len(os.fsencode(file.name)) + BESIDE
    if max(beside, *(len(os.fsencode(part)) for part in folder.parts)) > LONGEST:
        return "cannot be written (the name is too long)"
    try:
        if file is not None and file.is_dir():
            return "is a directory; give a file name"
        if file is not None and file.exists():
            if not os.access(file, os.W_OK):
                return "cannot be written (no permission)"
            if not file.is_file():  # a device or a pipe: nothing is made beside it
                return None
        there = next(place for place in (folder, *folder.parents) if place.exists())
        if not there.is_dir():
            return "cannot be written (not a folder)"
        if not os.access(there, os.W_OK | os.X_OK):
            return "cannot be written (no permission)"
        with tempfile.TemporaryFile(dir=there):  # for file systems that refuse what permissions allow
            return None
    except OSError as error:
        return f"cannot be written ({error.strerror})"


def write_json_file(file: Path | None, data: Any) -> None:
    """Write data as JSON, where a file is given."""
    if file is not None:
        write_atomic(file, (json.dumps(data, indent=1) + "\n").encode())


@click.command()
@options.from_parameters
def show(
    *,
    ranking: str = argument(),
    budget: int | None = option("How many ranks to show. [default: 16, or all if fewer]", short="-k"),
    as_csv: bool = option(
        "Print CSV instead: rank, frame, seconds and what each was ranked by; all ranks unless -k is given.",
        flag="--csv",
    ),
    common: Common,
) -> None:
    """Show a RANKING file: the first ranks, their times and why they were chosen.

    \b
    framenest show kiln.json -k 32
    framenest show kiln.json --csv > kiln.csv
    """
    loaded = load_result(ranking)
    if as_csv:
        _print_csv(loaded, budget)
        return
    if isinstance(loaded, Selection):
        say_labelled("selector", loaded.selector, "scorer", loaded.scorer)
        for chosen in loaded.prefixes.values() if budget is None else [loaded.prefix(budget)]:
            print_prefix(chosen)
        return
    prefix = loaded.prefix(min(16, len(loaded)) if budget is None else budget)
    print_facts(loaded)
    print_ranks(loaded, len(prefix))
    print_prefix(prefix)


def _print_csv(result: Ranking | Selection, budget: int | None) -> None:
    write = csv.writer(out.file, lineterminator="\n").writerow
    if isinstance(result, Selection):
        write(["budget", "rank", "frame", "seconds"])
        for chosen in result.prefixes.values() if budget is None else [result.prefix(budget)]:
            for rank, second, frame in chosen:
                write([chosen.budget, rank, frame, f"{second:.3f}"])
        return
    columns: dict[str, Any] = {"evidence": result.evidence, **result.cues, **result.terms}
    write(["rank", "frame", "seconds", "from", *columns])
    for i in range(len(result) if budget is None else len(result.prefix(budget))):
        where = [i + 1, int(result.frames[i]), f"{result.seconds[i]:.3f}"]
        values = (f"{float(column[i]):.6g}" for column in columns.values())
        write([*where, "zoom" if result.is_zoom[i] else "probe", *values])


@click.command()
@options.from_parameters
def extract(
    *,
    ranking: str = argument(),
    budget: int = option("How many frames.", short="-k", required=True),
    folder: Path = option("Where the images go.", flag="--to", type=OutputFolder(), required=True),
    kind: str = option(
        "Format of the image files.", flag="--format", type=click.Choice(extraction.FORMATS), default="jpg"
    ),
    sheet: Path | None = option(
        "Also draw all frames with ranks and times on one picture.", type=PictureFile()
    ),
    force: bool = option("Write into the folder also where it holds frames of another budget or ranking."),
    known: KnownVideo,
    common: Common,
) -> None:
    """Write the K frames of a RANKING as images: original size, in time order.

    File names carry frame, seconds and rank. Refuses when the video has changed since it was ranked.

    \b
    framenest extract kiln.json -k 8 --to frames/ --sheet kiln.png
    """
    loaded = load_result(ranking)
    prefix = loaded.prefix(budget)
    others = extraction.other_frames(prefix, folder, kind)
    if others and not force:
        raise StoreError(
            f"{folder}: holds {len(others)} other frames already, as {others[0].name}; give another folder, "
            "or --force to write beside them"
        )
    decoder = known.reopen(loaded.video, common)
    with common.bars() as bars:
        files = extraction.extract(prefix, folder, format=kind, video=decoder, progress=bars)
    if prefix.complete:
        note(f"this short video has only {len(prefix)} candidate frames; all of them are here")
    confirm(f"{len(files)} frames in", str(folder))
    if sheet is not None:
        batches = prefix.batches(decoder, ImageSpec.short_side(240))
        pictures = [picture for batch in batches for picture in batch.pixels[0]]
        drawn = contact_sheet(prefix, pictures, title=loaded.question)
        write_atomic(sheet, encode_image(drawn, sheet.suffix[1:].lower()))
        confirm("contact sheet in", str(sheet))


LISTS = ("aks", "wfs-sb")
FOLDER = "vlmevalkit"


@click.command(cls=ChoicesCommand)
@options.from_parameters
def export(
    *,
    rankings: tuple[str, ...] = argument(nargs=-1, required=True, metavar="RANKING..."),
    budget: int | None = option("How many frames.", short="-k"),
    style: str = option(
        "For servers: openai, vllm-video. For transformers: qwen, hf-video, internvl, llava-onevision. "
        "For other tools: aks, wfs-sb, vlmevalkit.",
        type=click.Choice([*lmm.STYLES, *LISTS, FOLDER]),
        default="openai",
    ),
    output: str | None = option(
        "Where it goes (- is stdout); a folder for vlmevalkit.", short="-o", metavar="FILE"
    ),
    question: str | None = option("Ask this instead of the ranking's question."),
    choices: tuple[str, ...] = CHOICES,
    pictures: PictureOptions,
    spoken: SpokenLines,
    token_budget: TokenBudget,
    model: str | None = option("Write this model into the request.", metavar="NAME"),
    rows: str | None = option(
        "aks, wfs-sb: the dataset's rows, as many as rankings, to add frames to.", metavar="FILE"
    ),
    known: KnownVideo,
    common: Common,
) -> None:
    """Turn the K frames of a RANKING into a request for a model, or into another tool's files.

    A request tells the model the frames' true times. For a server the file is the body to post; for
    transformers, `framenest.lmm.load(FILE)` reads it. aks and wfs-sb take several rankings, in the
    dataset's order.

    \b
    framenest export kiln.json -k 16 --style vllm-video \\
      --model Qwen/Qwen3.5-9B -o request.json
    framenest export kiln.json --style qwen --max-tokens 16000 -o kiln-qwen.json
    framenest export rankings/*.json -k 32 --style wfs-sb \\
      --rows videomme.json -o wfs_32.json
    """
    if output is not None and output != "-":
        (check_writable_folder if style == FOLDER else check_writable)(Path(output))
    model_options.refuse_pairing(style)
    loaded = [load_result(path) for path in rankings]
    if style in LISTS:
        _write_list(style, loaded, budget, rows, _needed(output))
        return
    if len(loaded) > 1:
        raise ConfigError(f"style {style} takes one ranking, not {len(loaded)}")
    result = loaded[0]
    if style == FOLDER:
        _write_folder(result, budget, _needed(output), known, common)
        return
    asked = question or result.question
    if not asked:
        raise ConfigError("this ranking has no question; give one with --question")
    if not choices and question is None and isinstance(result, Ranking):
        choices = result.options
    if token_budget.max_tokens is not None:
        if budget is not None:
            raise ConfigError("give -k or --max-tokens, not both")
        served = list(result.prefixes) if isinstance(result, Selection) else range(1, len(result) + 1)
        times = {k: result.prefix(k).seconds.tolist() for k in served}
        text = prompt(asked, choices) + spoken.room
        budget = token_budget.frames(result.video, style, pictures, served, text, times.__getitem__)
    with common.bars() as bars:
        request = lmm.messages(
            _prefix(result, budget),
            asked,
            style,
            options=choices,
            video=known.reopen(result.video, common),
            progress=bars,
            **pictures.settings,
            **spoken.settings(result.transcript if isinstance(result, Ranking) else None),
        )
    _write_request(request, output, model)


def _write_request(request: lmm.Request, output: str | None, model: str | None) -> None:
    if output == "-":
        print_json(request.dumps(model=model))
        return
    tokens = request.tokens
    if request.prefix.complete:
        note(f"this short video has only {len(request.prefix)} candidate frames; all of them are here")
    say(f"{request.style}: {len(request.prefix)} frames, about {tokens.total:,} tokens")
    say(f"  pictures {tokens.frames:,}, times {tokens.times:,}, text {tokens.text:,}")
    if request.pairing is not None:
        say(f"  {request.pairing}")
    say(f"  times the model reads: {' '.join(request.markers) or 'none'}")
    if output is None:
        note("nothing was written; give -o FILE")
        return
    request.save(output, model=model)
    size = size_text(Path(output).stat().st_size) if Path(output).is_file() else "all"
    confirm(f"{size} written to", output)


def _write_folder(
    result: Ranking | Selection, budget: int | None, output: str, known: KnownVideo, common: Common
) -> None:
    folder = check_writable_folder(Path(output) / Path(result.video.path).stem)
    decoder = known.reopen(result.video, common)
    with common.bars() as bars:
        files = extraction.extract(
            _prefix(result, budget), folder, name=extraction.vlmevalkit_name, video=decoder, progress=bars
        )
    confirm(f"{len(files)} frames in", str(folder))


def _write_list(
    style: str, loaded: Sequence[Ranking | Selection], budget: int | None, rows_file: str | None, output: str
) -> None:
    prefixes = [_prefix(result, budget) for result in loaded]
    rows = None if rows_file is None else frame_lists.read_rows(rows_file)
    questions = [result.question for result in loaded]
    made = (
        frame_lists.aks(prefixes, rows) if style == "aks" else frame_lists.wfs_sb(prefixes, questions, rows)
    )
    text = json.dumps(made, ensure_ascii=False) + "\n"
    if output == "-":
        print_json(text)
        return
    write_atomic(Path(output), text.encode(errors="surrogatepass"))
    confirm(f"{len(made)} rows written to", output)


def _prefix(result: Ranking | Selection, budget: int | None) -> Prefix:
    if budget is None:
        raise ConfigError("say how many frames: -k K, or --max-tokens")
    return result.prefix(budget)


def _needed(output: str | None) -> str:
    if output is None:
        raise ConfigError("say where it goes: -o")
    return output


@click.command()
@options.from_parameters
def report(
    *,
    rankings: tuple[str, ...] = argument(nargs=-1, required=True, metavar="RANKING..."),
    output: Path | None = option("The page. [default: report.html]", short="-o", type=OutputFile()),
    figure: Path | None = option(
        "Draw the paper's figure instead, for budgets 8, 16 and 32: a .png, .svg or .pdf file.",
        type=PlotFile(),
    ),
    known: KnownVideo,
    common: Common,
) -> None:
    """Write a page to look at RANKINGS: timeline, budget slider, frames, and why each was chosen.

    One HTML file that needs nothing else and sends nothing anywhere. Several rankings or selections of
    one video stand side by side on one time axis.

    \b
    framenest report kiln.json -o kiln.html
    framenest report mec.json aks.json uniform.json -o compared.html
    framenest report kiln.json --figure kiln.svg
    """
    results = [load_result(ranking) for ranking in rankings]
    if output is None and figure is None:
        output = check_writable(Path("report.html"))
    made = document(results, names=[Path(ranking).stem for ranking in rankings])
    decoder = known.reopen(results[0].video, common)
    if figure is not None:
        frames = figure_frames(results)
        with common.bars() as bars:
            _, images = read_pictures(decoder, frames, set(frames), bars)
        _write(figure, draw(results, images, figure.suffix[1:].lower()), "figure")
    if output is not None:
        with common.bars() as bars:
            urls = embed(decoder, results, progress=bars)
        _write(output, page(made, urls).encode("utf-8", "replace"), f"report with {len(urls)} frames")


def _write(file: Path, data: bytes, what: str) -> None:
    write_atomic(file, data)
    confirm(f"{what} in", f"{file} ({size_text(len(data))})")
