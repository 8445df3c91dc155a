"""framenest ask."""

from __future__ import annotations

from dataclasses import replace

from framenest.cli import options as opt
from framenest.cli.options import argument, command, option
from framenest.cli.printing import AnswerPrinter, confirm, note, print_json, print_reply
from framenest.config import DEFAULT_PRESET, MECConfig, VideoConfig
from framenest.errors import ConfigError, ModelError
from framenest.lmm.ask import ask as ask_model
from framenest.lmm.messages import check_style
from framenest.method.mec import rank_request
from framenest.method.ranking import Ranking
from framenest.protocols import GUESS, NO_MATCH
from framenest.rank_request import LookFor, RankRequest
from framenest.scorers import advice
from framenest.selectors import load_selector
from framenest.selectors.built_in import MecSelector
from framenest.selectors.selection import Selection
from framenest.session import Session
from framenest.video.decoder import Decoder


@command(usual="budgets choices look_for output as_json base_url model selector with_transcript name quiet")
def ask(
    *,
    video: opt.InputFile = argument(),
    question: str = argument(),
    budgets: opt.Budgets = option(
        "Number of frames. 8,16,32 is a ladder: ask with the fewest, and with more if the model cannot tell.",
        "--budget",
        "-k",
        default="16",
    ),
    tokens: opt.TokenOptions,
    choices: tuple[str, ...] = opt.CHOICES,
    look_for: tuple[str, ...] = opt.LOOK_FOR,
    output: opt.OutputFile | None = option(
        "Also write the ranking as JSON, for show, report and extract.", "-o"
    ),
    as_json: bool = option("Print one JSON object instead of streaming.", "--json"),
    model: opt.AnsweringModel,
    selector: opt.SelectorName | None = option(
        "Frame selector. [default: mec; uniform if nothing in the video clearly matches]"
    ),
    images: opt.ImageOptions,
    transcript: opt.TranscriptOptions,
    opening: VideoConfig,
    scorer: opt.ScorerChoice,
    common: opt.Common,
) -> None:
    """Ask a multimodal model a QUESTION about VIDEO: select the frames, send them with their times.

    For OpenAI-compatible servers: vLLM, SGLang, llama.cpp, Ollama, hosted ones. The answer is streamed; the
    frames whose times it cites are listed below it. The API key is read from the environment and never
    written anywhere.

    \b
    framenest ask kiln.mp4 "What happens after firing?" -k 16 -o kiln.json \\
      --base-url http://localhost:8000/v1
    framenest ask kiln.mp4 "What is fired?" --option cups --option tiles \\
      -k 8,16,32 --base-url …
    framenest ask kiln.mp4 "What happens after firing?" \\
      --with-transcript --base-url …
    framenest ask kiln.mp4 "What is fired?" --tokens 8000 --base-url …
    """
    check_style(model.style, images.pairing)
    opt.refuse_pairing(model.style)
    within = tokens.budget(model.style, pairing=images.pairing, limits=images.limits)
    printer = AnswerPrinter()
    with model.client() as client:
        opt.check_server(client)
        with common.bars() as bars:
            opened = common.open(video, opening)
            session = scorer.session(common, bars, [selector or "mec"])
            sent = transcript.settings(session.transcript(opened) if transcript.with_transcript else None)
            described = LookFor.of(look_for)
            request = RankRequest(
                video=video,
                question=question,
                options=choices,
                look_for=described,
                preset=DEFAULT_PRESET,
                config=MECConfig.preset(DEFAULT_PRESET),
                opening=opening,
            )
            selected = _select(selector, request, session, opened, [] if within else budgets)
        for text in selected.notes:
            note(text)
        if isinstance(selected, Ranking):
            if selected.stats.match is not None and selected.stats.match.is_guess:
                note(GUESS)
            for line in advice(selected.scorer, question, selected.stats.match, common.local):
                note(line)
        if output is not None:
            selected.save(output)
        try:
            reply = ask_model(
                client,
                selected,
                question,
                within or budgets,
                options=choices,
                style=model.style,
                video=opened,
                progress=common.bars(),
                on_text=None if as_json else printer,
                on_step=printer.end,
                **vars(images),
                **sent,
            )
        except ModelError as error:
            raise ModelError(f"{error} (-k {error.fits})" if error.fits else str(error)) from error
    if (most := client.most_images) is not None:
        note(f"{client.base_url} takes at most {most} images; it got the best {len(reply.prefix)} frames")
    if as_json:
        data = reply.to_json() | {
            "video": opened.info.path,
            "selector": "mec" if isinstance(selected, Ranking) else selected.selector,
            "scorer": selected.scorer,
            "base_url": client.base_url,
            "options": list(choices),
            "notes": selected.notes,
            **({} if described is None else {"look_for": described.to_json()}),
        }
        print_json(data)
        return
    print_reply(reply)
    if output is not None:
        confirm("written to", str(output))


def _select(
    name: str | None, request: RankRequest, session: Session, opened: Decoder, budgets: list[int]
) -> Ranking | Selection:
    """Select the frames to send; MEC returns a ranking.

    If nothing clearly matches, MEC's first ranks are noise, and an overview serves the model better. A
    selector that the user names is always used, and MEC without budgets, since the others do not rank.
    """
    selector = load_selector(name or MecSelector.name, session, request.config)
    if not isinstance(selector, MecSelector):
        if request.look_for is not None:
            raise ConfigError(f"--look-for is for the selector mec, not for {name}")
        if not budgets:
            raise ConfigError(f"--tokens is for the selector mec, not for {name}; give -k")
        return selector.select(opened, request.question, budgets)
    ranking = rank_request(replace(request, config=selector.settings), session, opened)
    if not ranking.unmatched:
        return ranking
    if name is not None or not budgets:
        note(NO_MATCH)
        return ranking
    note("nothing in this video clearly matches the question; sending frames at even intervals")
    uniform = load_selector("uniform", session).select(opened, request.question, budgets)
    return replace(uniform, stats=uniform.stats | {"notes": ranking.notes})
