"""framenest ask."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import rich_click as click

from framenest.cli import options
from framenest.cli.option_groups import (
    CHOICES,
    AnsweringModel,
    Common,
    Descriptions,
    ImageOptions,
    ScorerChoice,
    TokenBudget,
    TranscriptOptions,
    VideoOptions,
    check_server,
    refuse_pairing,
)
from framenest.cli.option_types import Budgets, OutputFile, SelectorName
from framenest.cli.options import argument, option
from framenest.cli.printing import NO_MATCH, AnswerPrinter, print_asked
from framenest.cli.terminal import confirm, note, print_json
from framenest.config import RankingConfig
from framenest.errors import ConfigError
from framenest.frames import VideoInfo
from framenest.lmm.ask import LADDERS, Ladder
from framenest.lmm.ask import ask as ask_model
from framenest.lmm.ask import rewrite as write_descriptions
from framenest.lmm.client import Client
from framenest.lmm.messages import check_style
from framenest.lmm.prompt import CITE, prompt
from framenest.method.discovery import LookFor
from framenest.method.ranking import Ranking
from framenest.protocols import Decoder
from framenest.selectors import load_selector
from framenest.selectors.built_in import MecSelector
from framenest.selectors.selection import Selection
from framenest.session import Session

DEFAULT_BUDGET = 16


@options.command()
def ask(
    *,
    video: str = argument(),
    question: str = argument(),
    budget: int | None = option(f"Number of frames. [default: {DEFAULT_BUDGET}]", "-k"),
    budget_ladder: Budgets | None = option(
        "Such as 8,16,32: ask with the fewest frames, and with more if the model cannot tell."
    ),
    ladder: Ladder = option(
        "resend: send all frames of a larger budget. continue: send only the new ones as another turn.",
        type=click.Choice(LADDERS),
        default="resend",
    ),
    token_budget: TokenBudget,
    choices: tuple[str, ...] = CHOICES,
    descriptions: Descriptions,
    rewrite: bool = option(
        "First let the model write two to four descriptions of what to look for, in addition to --look-for: "
        "one short call without images."
    ),
    output: OutputFile | None = option("Also write the ranking as JSON, for show, report and extract.", "-o"),
    as_json: bool = option("Print one JSON object instead of streaming.", "--json"),
    model: AnsweringModel,
    selector: SelectorName | None = option(
        "Frame selector. [default: mec; uniform if nothing in the video clearly matches]"
    ),
    images: ImageOptions,
    transcript: TranscriptOptions,
    video_options: VideoOptions,
    scorer: ScorerChoice,
    common: Common,
) -> None:
    """Ask a multimodal model a QUESTION about VIDEO: select the frames, send them with their times.

    Works with any OpenAI-compatible server: vLLM, SGLang, llama.cpp, Ollama, hosted ones. The answer is
    streamed; the frames whose times it cites are listed below it. The API key is read from the environment
    and never written anywhere.

    \b
    framenest ask kiln.mp4 "What happens after firing?" -k 16 -o kiln.json \\
      --base-url http://localhost:8000/v1
    framenest ask kiln.mp4 "What is fired?" --options cups tiles \\
      --budget-ladder 8,16,32 --base-url …
    framenest ask kiln.mp4 "What happens after firing?" \\
      --rewrite --with-transcript --base-url …
    """
    if sum(given is not None for given in (budget, budget_ladder, token_budget.max_tokens)) > 1:
        raise ConfigError("give only one of -k, --budget-ladder and --max-tokens")
    climbs = len(budget_ladder or ()) > 1
    check_style(model.style, images.pairing, grows=ladder == "continue" and climbs)
    if not climbs:
        options.refuse("frames are sent once without --budget-ladder 8,16,32", "ladder")
    if rewrite and selector not in (None, MecSelector.name):
        raise ConfigError(f"--rewrite is for the selector mec, not for {selector}")
    refuse_pairing(model.style)
    budgets = budget_ladder or [DEFAULT_BUDGET if budget is None else budget]
    printer = AnswerPrinter()
    with model.client(may_think=False) as client:
        check_server(client)
        with common.bars() as bars:
            opened = video_options.open(video, common)
            if token_budget.max_tokens is not None:
                text = prompt(question, choices) + ("" if choices else f"\n{CITE}") + transcript.placeholder
                possible = range(1, RankingConfig().horizon + 1)
                budgets = [token_budget.frames(opened.info, model.style, images, possible, text)]
            session = scorer.session(common, bars, [selector or "mec"])
            sent = transcript.settings(session.transcript(opened) if transcript.with_transcript else None)
            given = (opened.info, question, choices, descriptions)
            look_for = _rewrite(client, *given) if rewrite else descriptions.given()
            selected = _select(selector, session, opened, question, budgets, look_for)
        if output is not None:
            selected.save(output)
        asked = ask_model(
            client,
            selected,
            question,
            budgets,
            options=choices,
            style=model.style,
            ladder=ladder,
            video=opened,
            progress=common.bars(),
            on_text=None if as_json else printer,
            on_step=printer.end,
            **images.settings,
            **sent,
        )
    if as_json:
        data = asked.to_json() | {
            "video": opened.info.path,
            "selector": "mec" if isinstance(selected, Ranking) else selected.selector,
            "scorer": selected.scorer,
            "base_url": client.base_url,
            "options": list(choices),
            **({} if look_for is None else {"look_for": look_for.to_json()}),
        }
        print_json(json.dumps(data, ensure_ascii=False) + "\n")
        return
    print_asked(asked)
    if output is not None:
        confirm("written to", str(output))


def _rewrite(
    client: Client, video: VideoInfo, question: str, choices: Sequence[str], given: Descriptions
) -> LookFor:
    """Let the model write descriptions, and add them to those of --look-for."""
    written = write_descriptions(client, video, question, choices)
    texts = (*given.look_for, *written.texts)
    note(f"looking for: {'; '.join(texts)}")
    return replace(written, texts=texts)


def _select(
    name: str | None,
    session: Session,
    video: Decoder,
    question: str,
    budgets: list[int],
    look_for: LookFor | None,
) -> Ranking | Selection:
    """Select the frames to send; MEC returns a ranking.

    If nothing clearly matches, MEC's first ranks are noise, and an overview serves the model better. A
    selector that the user names is always used.
    """
    selector = load_selector(name or MecSelector.name, session)
    if not isinstance(selector, MecSelector):
        if look_for is not None:
            raise ConfigError(f"--look-for is for the selector mec, not for {name}")
        return selector.select(video, question, budgets)
    ranking = selector.rank(video, question, look_for or ())
    if not ranking.unmatched:
        return ranking
    if name is not None:
        note(NO_MATCH)
        return ranking
    note("nothing in this video clearly matches the question; sending frames at even intervals")
    return load_selector("uniform", session).select(video, question, budgets)
