"""framenest ask."""

from __future__ import annotations

import json
from typing import Literal

import rich_click as click
from rich import box
from rich.markup import escape
from rich.table import Table

from framenest import lmm
from framenest.cli import asking, options
from framenest.cli.terminal import Bars, err, note, out
from framenest.errors import ConfigError
from framenest.lmm.answer import Kind
from framenest.lmm.ask import LADDERS, Asked, Ladder, Step
from framenest.lmm.ask import ask as ask_with
from framenest.lmm.client import KEY_VARIABLE, Client
from framenest.report.sheet import clock
from framenest.selectors import load_selector
from framenest.store import DirectoryStore
from framenest.video import open_video
from framenest.workspace import Workspace

ANSWER_TOKENS = {True: 8192, False: 1024}
"""What an answer may take, with thinking and without."""


@click.command(cls=asking.WithSeveral)
@click.option_panel("Options")
@click.option_panel("The model")
@click.option_panel("The frames")
@click.argument("video")
@click.argument("question")
@click.option("-k", "--budget", type=int, default=None, help="How many frames. [default: 16]")
@click.option(
    "--budget-ladder",
    type=options.Budgets(),
    help="8,16,32: ask with the fewest, and with more only if the model cannot tell.",
)
@click.option(
    "--ladder",
    type=click.Choice(LADDERS),
    default="resend",
    show_default=True,
    help="Send each larger prefix whole, in time order, or only its new frames as another turn.",
)
@asking.choices
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of streaming.")
@click.option(
    "--base-url",
    envvar="OPENAI_BASE_URL",
    required=True,
    metavar="URL",
    help="An OpenAI-compatible server, as http://localhost:8000/v1. [default: $OPENAI_BASE_URL]",
    panel="The model",
)
@click.option("--model", metavar="NAME", help="By default the only one the server has.", panel="The model")
@click.option(
    "--style",
    type=click.Choice(lmm.FOR_SERVERS),
    default="openai",
    show_default=True,
    help="openai: an image per frame, any server. vllm-video: one video, vLLM.",
    panel="The model",
)
@click.option(
    "--thinking", type=click.Choice(["on", "off"]), help="Reasoning of models that can.", panel="The model"
)
@click.option(
    "--answer-tokens",
    type=int,
    help="The most that an answer may take. [default: 1024, thinking 8192]",
    panel="The model",
)
@click.option("--temperature", type=float, help="By default the server's.", panel="The model")
@click.option("--retries", type=int, default=4, show_default=True, help="When it is busy.", panel="The model")
@click.option("--timeout", type=float, default=600, show_default=True, help="Seconds.", panel="The model")
@click.option(
    "--key-variable",
    default=KEY_VARIABLE,
    show_default=True,
    metavar="NAME",
    help="The environment variable that holds the API key, if one is needed.",
    panel="The model",
)
@click.option("--selector", default="mec", show_default=True, metavar="NAME", panel="The frames")
@asking.pictures
@options.video
@options.scorer
@options.common
def ask(
    video: str,
    question: str,
    budget: int | None,
    budget_ladder: list[int] | None,
    ladder: Ladder,
    choices: tuple[str, ...],
    as_json: bool,
    base_url: str,
    model: str | None,
    style: str,
    thinking: Literal["on", "off"] | None,
    answer_tokens: int | None,
    temperature: float | None,
    retries: int,
    timeout: float,
    key_variable: str,
    selector: str,
    pairing: lmm.Pairing,
    limits: lmm.Limits,
    fps: float | None,
    stream: int | None,
    decoder: str,
    scorer: str,
    cache: DirectoryStore,
    quiet: bool,
) -> None:
    """Ask a multimodal model a QUESTION about VIDEO: choose the frames, send them with their times.

    The server is any that speaks OpenAI's protocol: vLLM, SGLang, llama.cpp, Ollama, hosted ones. The
    answer is streamed; the frames whose times it cites are listed below it. The API key is read from the
    environment and written nowhere.

    \b
    framenest ask kiln.mp4 "What happens after firing?" -k 16 --base-url http://localhost:8000/v1
    framenest ask kiln.mp4 "What is fired?" --options cups tiles --budget-ladder 8,16,32 --base-url …
    """
    if budget is not None and budget_ladder is not None:
        raise ConfigError("give -k or --budget-ladder, not both")
    client = Client(
        base_url,
        model,
        key_variable=key_variable,
        timeout=timeout,
        retries=retries,
        thinking=None if thinking is None else thinking == "on",
        max_tokens=answer_tokens or ANSWER_TOKENS[thinking == "on"],
        temperature=temperature,
    )
    bars, said = Bars(quiet), Said()
    space = Workspace(scorer, store=cache, progress=bars)
    budgets = budget_ladder or [budget or 16]
    with client:
        _greet(client)
        with bars:
            opened = open_video(video, fps=fps, stream=stream, decoder=decoder, store=cache)
            chosen = load_selector(selector, space).select(opened, question, budgets)
        asked = ask_with(
            client,
            chosen,
            question,
            budgets,
            options=choices,
            style=style,
            pairing=pairing,
            limits=limits,
            ladder=ladder,
            video=opened,
            on_text=None if as_json else said,
            on_step=said.end,
        )
    if as_json:
        about = {"video": opened.info.path, "selector": chosen.selector, "scorer": chosen.scorer}
        where = {"base_url": client.base_url, "options": list(choices)}
        out.file.write(json.dumps(asked.to_json() | about | where, ensure_ascii=False) + "\n")
    else:
        _report(asked)


def _greet(client: Client) -> None:
    """Know before the video is read that the server is there, and whether it has the model."""
    listed = client.models()
    if listed and client.model not in listed:
        note(f"{client.base_url} lists {', '.join(listed)}; trying {client.model} all the same")


class Said:
    """Prints the answer as it arrives: to stdout, its reasoning dimmed to stderr."""

    def __init__(self) -> None:
        self._open: Kind | None = None

    def __call__(self, kind: Kind, piece: str) -> None:
        console = out if kind == "answer" else err
        if self._open not in (None, kind):
            err.print()
        self._open = kind
        console.print(
            piece, end="", markup=False, soft_wrap=True, style="dim" if kind == "reasoning" else None
        )
        console.file.flush()

    def end(self, _: Step) -> None:
        if self._open is not None:
            out.print()
        self._open = None


def _report(asked: Asked) -> None:
    prefix = asked.prefix
    if asked.answer.finish_reason == "length":
        note("the answer was cut off; give it more room with --answer-tokens")
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", justify="right")
    facts.add_column(overflow="fold")
    facts.add_row("", "")
    times = [clock(second) for second in prefix.seconds.tolist()]
    for place in asked.cited:
        rank = "" if prefix.ranks is None else f", rank {int(prefix.ranks[place])}"
        facts.add_row("cited", f"{times[place]} (frame {int(prefix.frames[place])}{rank})")
    facts.add_row("shown", " ".join(times))
    facts.add_row("model", escape(asked.answer.model))
    out.print(facts)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("K", "frames sent", "tokens in", "tokens out", "first word", "all", "retries"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("said", no_wrap=True)
    for step in asked.steps:
        usage = step.answer.usage
        table.add_row(
            str(step.budget),
            str(step.sent),
            f"{usage.prompt_tokens:,}" if usage.prompt_tokens else f"≈ {step.estimated_tokens:,}",
            f"{usage.completion_tokens:,}" if usage.completion_tokens else "?",
            "–" if usage.first_seconds is None else f"{usage.first_seconds:.1f} s",
            f"{usage.seconds:.1f} s",
            str(usage.retries),
            "cannot tell" if step.cannot_tell else "an answer",
        )
    out.print(table)
