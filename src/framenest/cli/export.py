"""framenest export."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import rich_click as click

from framenest import extraction, lmm
from framenest.cache.atomic_file import write_atomic
from framenest.cli import model_options, options
from framenest.cli.choices_option import CHOICES, ChoicesCommand
from framenest.cli.common_options import Common
from framenest.cli.model_options import PictureOptions, SpokenLines, TokenBudget
from framenest.cli.options import argument, option
from framenest.cli.output_files import check_writable, check_writable_folder
from framenest.cli.terminal import confirm, note, say, write_json
from framenest.cli.video_options import KnownVideo
from framenest.errors import ConfigError
from framenest.lmm.prompt import prompt
from framenest.method.prefix import Prefix
from framenest.method.ranking import Ranking
from framenest.selectors import frame_lists
from framenest.selectors.selection import Selection, load_result
from framenest.text import size_text

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
        write_json(request.dumps(model=model))
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
        write_json(text)
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
