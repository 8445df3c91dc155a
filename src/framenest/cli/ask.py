"""framenest ask."""

from __future__ import annotations

import json

import rich_click as click

from framenest.cli import model_options, options
from framenest.cli.answer_printer import AnswerPrinter, print_asked
from framenest.cli.model_options import AnsweringModel, PictureOptions, TokenBudget
from framenest.cli.options import Common, ScorerChoice, VideoOptions
from framenest.cli.parameter_types import Budgets, Selector
from framenest.cli.terminal import out
from framenest.config import RankingConfig
from framenest.errors import ConfigError
from framenest.lmm.ladder import LADDERS, Ladder
from framenest.lmm.ladder import ask as ask_with
from framenest.lmm.prompt import CITE, prompt
from framenest.lmm.styles import check_style
from framenest.selectors import load_selector

MOST = RankingConfig().horizon


@click.command(cls=model_options.ChoicesCommand)
@click.option_panel("Options")
@click.option_panel(model_options.MODEL_PANEL)
@click.option_panel(options.SCORER_PANEL)
@click.argument("video")
@click.argument("question")
@click.option("-k", "--budget", type=int, default=None, help="How many frames. [default: 16]")
@click.option(
    "--budget-ladder",
    type=Budgets(),
    help="8,16,32: ask with the fewest, and with more only if the model cannot tell.",
)
@click.option(
    "--ladder",
    type=click.Choice(LADDERS),
    default="resend",
    help="Send each larger prefix whole, in time order, or only its new frames as another turn.",
)
@model_options.token_budget
@model_options.choices
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of streaming.")
@options.group(AnsweringModel, "model", model_options.MODEL_PANEL)
@click.option("--selector", type=Selector(), default="mec", help="Who chooses the frames.")
@model_options.pictures
@options.video
@options.scorer
@options.common
def ask(
    video: str,
    question: str,
    budget: int | None,
    budget_ladder: list[int] | None,
    ladder: Ladder,
    token_budget: TokenBudget,
    choices: tuple[str, ...],
    as_json: bool,
    model: AnsweringModel,
    selector: str,
    pictures: PictureOptions,
    video_options: VideoOptions,
    scorer: ScorerChoice,
    common: Common,
) -> None:
    """Ask a multimodal model a QUESTION about VIDEO: choose the frames, send them with their times.

    The server is any that speaks OpenAI's protocol: vLLM, SGLang, llama.cpp, Ollama, hosted ones. The
    answer is streamed; the frames whose times it cites are listed below it. The API key is read from the
    environment and written nowhere.

    \b
    framenest ask kiln.mp4 "What happens after firing?" -k 16 --base-url http://localhost:8000/v1
    framenest ask kiln.mp4 "What is fired?" --options cups tiles --budget-ladder 8,16,32 --base-url …
    """
    if sum(given is not None for given in (budget, budget_ladder, token_budget.max_tokens)) > 1:
        raise ConfigError("give one of -k, --budget-ladder and --max-tokens, not several")
    check_style(model.style, pictures.pairing, grows=ladder == "continue" and len(budget_ladder or ()) > 1)
    budgets = budget_ladder or [16 if budget is None else budget]
    printer = AnswerPrinter()
    with model.client(may_think=False) as client:
        model_options.greet(client)
        with common.bars() as bars:
            opened = video_options.open(video, common)
            if token_budget.max_tokens is not None:
                text = "\n".join([prompt(question, choices), *([] if choices else [CITE])])
                every = range(1, MOST + 1)
                budgets = [token_budget.frames(opened.info, model.style, pictures, every, text)]
            chosen = load_selector(selector, scorer.session(common, bars)).select(opened, question, budgets)
        asked = ask_with(
            client,
            chosen,
            question,
            budgets,
            options=choices,
            style=model.style,
            ladder=ladder,
            video=opened,
            on_text=None if as_json else printer,
            on_step=printer.end,
            **pictures.settings,
        )
    if as_json:
        about = {"video": opened.info.path, "selector": chosen.selector, "scorer": chosen.scorer}
        where = {"base_url": client.base_url, "options": list(choices)}
        out.file.write(json.dumps(asked.to_json() | about | where, ensure_ascii=False) + "\n")
    else:
        print_asked(asked)
