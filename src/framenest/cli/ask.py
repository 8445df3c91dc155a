"""framenest ask."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import rich_click as click

from framenest.cli import model_options, options
from framenest.cli.exports import OutputFile
from framenest.cli.model_options import AnsweringModel, PictureOptions, SpokenLines, TokenBudget
from framenest.cli.options import (
    CHOICES,
    Budgets,
    ChoicesCommand,
    Common,
    SelectorName,
    VideoOptions,
    argument,
    option,
)
from framenest.cli.printing import NO_MATCH, AnswerPrinter, print_asked
from framenest.cli.scorer_options import Descriptions, ScorerChoice
from framenest.cli.terminal import confirm, note, print_json
from framenest.config import RankingConfig
from framenest.errors import ConfigError
from framenest.lmm.ask import LADDERS, Ladder
from framenest.lmm.ask import ask as ask_with
from framenest.lmm.ask import rewrite as rewritten
from framenest.lmm.messages import check_style
from framenest.lmm.prompt import CITE, prompt
from framenest.method.discovery import LookFor
from framenest.method.ranking import Ranking
from framenest.protocols import Decoder
from framenest.selectors import load_selector
from framenest.selectors.by_name import MecSelector
from framenest.selectors.selection import Selection
from framenest.session import Session

MOST = RankingConfig().horizon


@click.command(cls=ChoicesCommand)
@click.option_panel("Options")
@click.option_panel(model_options.MODEL_PANEL)
@click.option_panel(options.SCORER_PANEL)
@options.from_parameters
def ask(
    *,
    video: str = argument(),
    question: str = argument(),
    budget: int | None = option("How many frames. [default: 16]", short="-k"),
    budget_ladder: list[int] | None = option(
        "8,16,32: ask with the fewest, and with more only if the model cannot tell.", type=Budgets()
    ),
    ladder: Ladder = option(
        "Send each larger prefix whole, in time order, or only its new frames as another turn.",
        type=click.Choice(LADDERS),
        default="resend",
    ),
    token_budget: TokenBudget,
    choices: tuple[str, ...] = CHOICES,
    descriptions: Descriptions,
    rewrite: bool = option(
        "First have the model write two to four descriptions of what to look for: one short call without "
        "pictures. They come beside those of --look-for."
    ),
    output: Path | None = option(
        "Also write the ranking here as JSON, for show, report and extract.", short="-o", type=OutputFile()
    ),
    as_json: bool = option("Print one JSON object instead of streaming.", flag="--json"),
    model: AnsweringModel,
    selector: str | None = option(
        "What chooses the frames. [default: mec; uniform where nothing in the video clearly matches]",
        type=SelectorName(),
    ),
    pictures: PictureOptions,
    spoken: SpokenLines,
    video_options: VideoOptions,
    scorer: ScorerChoice,
    common: Common,
) -> None:
    """Ask a multimodal model a QUESTION about VIDEO: choose the frames, send them with their times.

    The server is any that speaks OpenAI's protocol: vLLM, SGLang, llama.cpp, Ollama, hosted ones. The
    answer is streamed; the frames whose times it cites are listed below it. The API key is read from the
    environment and written nowhere.

    \b
    framenest ask kiln.mp4 "What happens after firing?" -k 16 -o kiln.json \\
      --base-url http://localhost:8000/v1
    framenest ask kiln.mp4 "What is fired?" --options cups tiles \\
      --budget-ladder 8,16,32 --base-url …
    framenest ask kiln.mp4 "What happens after firing?" \\
      --rewrite --with-transcript --base-url …
    """
    if sum(given is not None for given in (budget, budget_ladder, token_budget.max_tokens)) > 1:
        raise ConfigError("give one of -k, --budget-ladder and --max-tokens, not several")
    check_style(model.style, pictures.pairing, grows=ladder == "continue" and len(budget_ladder or ()) > 1)
    if len(budget_ladder or ()) < 2:
        options.refuse("frames are sent once without --budget-ladder 8,16,32", "ladder")
    model_options.refuse_pairing(model.style)
    budgets = budget_ladder or [16 if budget is None else budget]
    printer = AnswerPrinter()
    with model.client(may_think=False) as client:
        model_options.greet(client)
        with common.bars() as bars:
            opened = video_options.open(video, common)
            if token_budget.max_tokens is not None:
                text = "\n".join([prompt(question, choices), *([] if choices else [CITE])]) + spoken.room
                every = range(1, MOST + 1)
                budgets = [token_budget.frames(opened.info, model.style, pictures, every, text)]
            session = scorer.session(common, bars, [selector or "mec"])
            said = spoken.settings(session.transcript(opened) if spoken.with_transcript else None)
            look_for = descriptions.given()
            if rewrite and selector not in (None, MecSelector.name):
                raise ConfigError(f"--rewrite is for the selector mec, not for {selector}")
            if rewrite:
                written = rewritten(client, opened.info, question, choices)
                texts = (*descriptions.look_for, *written.texts)
                look_for = replace(written, texts=texts)
                note(f"looking for: {'; '.join(texts)}")
            chosen = _choose(selector, session, opened, question, budgets, look_for)
        if output is not None:
            chosen.save(output)
        asked = ask_with(
            client,
            chosen,
            question,
            budgets,
            options=choices,
            style=model.style,
            ladder=ladder,
            video=opened,
            progress=common.bars(),
            on_text=None if as_json else printer,
            on_step=printer.end,
            **pictures.settings,
            **said,
        )
    if as_json:
        who = "mec" if isinstance(chosen, Ranking) else chosen.selector
        about = {"video": opened.info.path, "selector": who, "scorer": chosen.scorer}
        where: dict[str, object] = {"base_url": client.base_url, "options": list(choices)}
        where |= {} if look_for is None else {"look_for": look_for.to_json()}
        print_json(json.dumps(asked.to_json() | about | where, ensure_ascii=False) + "\n")
    else:
        print_asked(asked)
        if output is not None:
            confirm("written to", str(output))


def _choose(
    name: str | None,
    session: Session,
    video: Decoder,
    question: str,
    budgets: list[int],
    look_for: LookFor | None,
) -> Ranking | Selection:
    """The frames to send; MEC's are a ranking.

    Where nothing clearly matches, MEC's first ranks are the best of noise, and a model is better served
    with an overview; who names a selector gets that one.
    """
    selector = load_selector(name or MecSelector.name, session)
    if not isinstance(selector, MecSelector):
        if look_for is not None:
            raise ConfigError(f"--look-for is for the selector mec, not for {name}")
        return selector.select(video, question, budgets)
    ranking = selector.rank(video, question, look_for or ())
    if not ranking.pool.unmatched:
        return ranking
    if name is not None:
        note(NO_MATCH)
        return ranking
    note("nothing in this video clearly matches the question; frames are spread evenly")
    return load_selector("uniform", session).select(video, question, budgets)
