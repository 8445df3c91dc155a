"""framenest export."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import rich_click as click

from framenest import extract as extraction
from framenest import lmm
from framenest.cache.archive import write_atomic
from framenest.cli import asking, options
from framenest.cli.files import check_writable, check_writable_folder
from framenest.cli.terminal import Bars, note, out
from framenest.errors import ConfigError
from framenest.lmm.prompt import prompt
from framenest.method.prefix import Prefix
from framenest.method.ranking import Ranking
from framenest.protocols import Store
from framenest.selectors import frame_lists
from framenest.selectors.selection import Selection, load_result
from framenest.text import size_text

LISTS = ("aks", "wfs-sb")
FOLDER = "vlmevalkit"


@click.command(cls=asking.WithSeveral)
@click.argument("rankings", nargs=-1, required=True, metavar="RANKING...")
@click.option("-k", "--budget", type=int, help="How many frames.")
@click.option(
    "--style",
    type=click.Choice([*lmm.STYLES, *LISTS, FOLDER]),
    default="openai",
    show_default=True,
    help="For servers: openai, vllm-video. For transformers: qwen, hf-video, internvl, llava-onevision. "
    "For other tools: aks, wfs-sb, vlmevalkit.",
)
@click.option("-o", "--output", metavar="FILE", help="Where it goes (- is stdout); a folder for vlmevalkit.")
@click.option("--question", help="Ask this instead of the ranking's question.")
@asking.choices
@asking.pictures
@asking.max_tokens
@click.option("--model", metavar="NAME", help="Write this model into the request.")
@click.option(
    "--rows", metavar="FILE", help="aks, wfs-sb: the dataset's rows, as many as rankings, to add frames to."
)
@click.option("--video", metavar="PATH", help="Where the video is now, if it has moved.")
@options.common
def export(
    rankings: tuple[str, ...],
    budget: int | None,
    style: str,
    output: str | None,
    question: str | None,
    choices: tuple[str, ...],
    pairing: lmm.Pairing,
    limits: lmm.ImageLimits,
    tell_times: bool | None,
    tokens_per_frame: int | None,
    max_tokens: int | None,
    model: str | None,
    rows: str | None,
    video: str | None,
    cache: Store,
    quiet: bool,
) -> None:
    """Turn the K frames of a RANKING into a request for a model, or into another tool's files.

    A request tells the model the frames' true times. For a server the file is the body to post; for
    transformers, `framenest.lmm.load(FILE)` reads it. aks and wfs-sb take several rankings, in the
    dataset's order.

    \b
    framenest export kiln.json -k 16 --style vllm-video --model Qwen/Qwen3.5-9B -o request.json
    framenest export kiln.json --style qwen --max-tokens 16000 -o kiln-qwen.json
    framenest export rankings/*.json -k 32 --style wfs-sb --rows videomme.json -o wfs_32.json
    """
    loaded = [load_result(path) for path in rankings]
    if style in LISTS:
        _write_list(style, [_prefix(r, budget) for r in loaded], loaded, rows, _needed(output))
        return
    if len(loaded) > 1:
        raise ConfigError(f"style {style} takes one ranking, not {len(loaded)}")
    result, bars = loaded[0], Bars(quiet)
    if style == FOLDER:
        decoder = extraction.reopen(result.video, path=video, store=cache)
        folder = Path(_needed(output)) / Path(result.video.path).stem
        check_writable_folder(folder)
        with bars:
            files = extraction.extract(
                decoder, _prefix(result, budget), folder, name=extraction.vlmevalkit_name, progress=bars
            )
        out.print(f"{len(files)} frames in {folder}", soft_wrap=True, markup=False)
        return
    if output not in (None, "-"):
        check_writable(Path(_needed(output)))
    asked = question or result.question
    if not asked:
        raise ConfigError("this ranking has no question; give one with --question")
    if not choices and question is None and isinstance(result, Ranking):
        choices = result.options
    if max_tokens is not None:
        if budget is not None:
            raise ConfigError("give -k or --max-tokens, not both")
        served = list(result.prefixes) if isinstance(result, Selection) else range(1, len(result) + 1)
        room = asking.Room(result.video, style, limits, pairing, tokens_per_frame, max_tokens)
        budget = room.budget(served, prompt(asked, choices))
    with bars:
        request = lmm.messages(
            _prefix(result, budget),
            asked,
            style,
            options=choices,
            pairing=pairing,
            limits=limits,
            tell_times=tell_times,
            video=video,
            store=cache,
            progress=bars,
        )
    if output == "-":
        out.file.write(request.dumps(model=model))
        return
    _print(request, output, model)


def _print(request: lmm.Request, output: str | None, model: str | None) -> None:
    tokens = request.tokens
    if request.prefix.complete:
        note(f"this short video has only {len(request.prefix)} candidate frames; all of them are here")
    out.print(f"{request.style}: {len(request.prefix)} frames, about {tokens.total:,} tokens", markup=False)
    out.print(f"  pictures {tokens.frames:,}, times {tokens.times:,}, text {tokens.text:,}", markup=False)
    out.print(f"  times the model reads: {' '.join(request.markers) or 'none'}", markup=False, soft_wrap=True)
    if output is None:
        note("nothing was written; give -o FILE")
        return
    request.save(output, model=model)
    size = size_text(Path(output).stat().st_size) if Path(output).is_file() else "all"
    out.print(f"{size} written to {output}", markup=False, soft_wrap=True)


def _prefix(result: Ranking | Selection, budget: int | None) -> Prefix:
    if budget is None:
        raise ConfigError("say how many frames: -k K, or --max-tokens")
    return result.prefix(budget)


def _write_list(
    style: str,
    prefixes: Sequence[Prefix],
    loaded: Sequence[Ranking | Selection],
    rows_file: str | None,
    output: str,
) -> None:
    rows = None if rows_file is None else frame_lists.read_rows(rows_file)
    questions = [result.question for result in loaded]
    made = (
        frame_lists.aks(prefixes, rows) if style == "aks" else frame_lists.wfs_sb(prefixes, questions, rows)
    )
    text = json.dumps(made, ensure_ascii=False) + "\n"
    if output == "-":
        out.file.write(text)
        return
    write_atomic(Path(output), text.encode(errors="surrogatepass"))
    out.print(f"{len(made)} rows written to {output}", markup=False, soft_wrap=True)


def _needed(output: str | None) -> str:
    if output is None:
        raise ConfigError("say where it goes: -o")
    return output
