"""framenest ask."""

from __future__ import annotations

import json
from typing import Literal

import rich_click as click

from framenest import lmm
from framenest.cli import asking, options
from framenest.cli.answer_output import Said, print_asked
from framenest.cli.terminal import Bars, note, out
from framenest.config import RankingConfig, ScorerConfig
from framenest.errors import ConfigError
from framenest.lmm.client import KEY_VARIABLE, Client
from framenest.lmm.ladder import LADDERS, Ladder
from framenest.lmm.ladder import ask as ask_with
from framenest.lmm.prompt import CITE, prompt
from framenest.lmm.styles import check_style
from framenest.protocols import Store
from framenest.selectors import load_selector
from framenest.session import Session
from framenest.video import open_video

MOST = RankingConfig().horizon
ANSWER_TOKENS = {True: 8192, False: 1024}
"""What an answer may take, with thinking and without."""


@click.command(cls=asking.WithSeveral)
@click.option_panel("Options")
@click.option_panel("The model")
@click.option_panel(options.SCORER_PANEL)
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
@asking.max_tokens
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
@click.option("--selector", default="mec", show_default=True, metavar="NAME", help="Who chooses the frames.")
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
    max_tokens: int | None,
    tokens_per_frame: int | None,
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
    limits: lmm.ImageLimits,
    tell_times: bool | None,
    fps: float | None,
    stream: int | None,
    decoder: str,
    scorer: str,
    scoring: ScorerConfig,
    cache: Store,
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
    if sum(given is not None for given in (budget, budget_ladder, max_tokens)) > 1:
        raise ConfigError("give one of -k, --budget-ladder and --max-tokens, not several")
    check_style(style, pairing, grows=ladder == "continue" and len(budget_ladder or ()) > 1)
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
    space = Session(scorer, store=cache, progress=bars, scoring=scoring)
    budgets = budget_ladder or [16 if budget is None else budget]
    with client:
        greet(client)
        with bars:
            opened = open_video(video, fps=fps, stream=stream, decoder=decoder, store=cache)
            if max_tokens is not None:
                room = asking.Room(opened.info, style, limits, pairing, tokens_per_frame, max_tokens)
                text = "\n".join([prompt(question, choices), *([] if choices else [CITE])])
                budgets = [room.budget(range(1, MOST + 1), text)]
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
            tell_times=tell_times,
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
        print_asked(asked)


def greet(client: Client) -> None:
    """Know before the video is read that the server is there, and whether it has the model."""
    listed = client.models()
    if listed and client.model not in listed:
        note(f"{client.base_url} lists {', '.join(listed)}; trying {client.model} all the same")
