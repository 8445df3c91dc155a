"""/rankings: ask, and take as many frames as the model can see."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from framenest.lmm import STYLES
from framenest.lmm.prompt import citations
from framenest.method.look_for import LookFor
from framenest.report.document import document
from framenest.server.api_models import (
    MOST_RANKS,
    MOST_SHOWN,
    AnswerOut,
    AnswerRequest,
    CitedTime,
    PrefixOut,
    RankingOut,
    RankingRequest,
    RankingStatus,
    RankingSummary,
)
from framenest.server.routes import Here, problems, told

router = APIRouter(tags=["rankings"])
Id = Annotated[str, Path(max_length=64, description="Id of a ranking.")]
K = Annotated[int, Query(ge=1, le=MOST_RANKS, description="The frame budget.")]
STYLE_NAMES: dict[str, Any] = {"enum": list(STYLES)}
# A ranking never changes, so an answer once given stays good; browsers still ask, in case it was removed.
LASTING = {"cache-control": "private, no-cache"}


@router.post(
    "/rankings",
    responses=problems(404, 409, 411, 413, 429)
    | {202: {"model": RankingStatus, "description": "Being made."}},
)
def ask(here: Here, body: RankingRequest, response: Response) -> RankingStatus:
    """Ask a question about a video: 200 where the ranking is there, 202 with a job where it is being made.

    The same question with the same settings is the same ranking, and work under way is shared. A video that
    is not indexed yet is indexed first.
    """
    video = here.library.get(body.video)
    look_for = LookFor(tuple(body.look_for), body.look_for_join) if body.look_for else None
    id_, job = here.ask(video, body.question, body.options, body.preset, body.horizon, look_for)
    response.status_code = 200 if job is None else 202
    return RankingStatus(ranking=id_, ready=job is None, job=job if job is None else told(here, job))


@router.get("/rankings")
def rankings(here: Here, video: Annotated[str | None, Query(max_length=64)] = None) -> list[RankingSummary]:
    """What was asked, newest first; of one video with ?video=."""
    return [RankingSummary(**entry) for entry in here.rankings.all(video)]


@router.get("/rankings/{ranking}", responses=problems(404, 409))
def ranking(here: Here, ranking: Id) -> RankingOut:
    """What was ranked, how, and how long the ranking is."""
    found, asked = here.rankings.get(ranking), here.rankings.request(ranking)
    stats = found.stats.to_json()
    return RankingOut(**asked, id=ranking, scorer=found.scorer, length=len(found), stats=stats)


@router.get("/rankings/{ranking}/prefix", response_model=PrefixOut, responses=problems(404, 409))
async def prefix(
    here: Here,
    request: Request,
    ranking: Id,
    k: K,
    after: Annotated[int, Query(ge=0, description="Leave out the first so many ranks.")] = 0,
) -> Response:
    """The frames for a budget of k, in time order. Nothing runs again: any k is a prefix of the ranking.

    `?after=16&k=32` gives only the 16 frames that 32 adds to 16.
    """
    tag = f'"{ranking}-{k}-{after}"'
    headers = LASTING | {"etag": tag}
    if request.headers.get("if-none-match") == tag and here.rankings.has(ranking):
        return Response(status_code=304, headers=headers)
    body = here.rankings.cached_prefix(ranking, k, after)
    if body is None:
        body = await asyncio.to_thread(here.rankings.prefix, ranking, k, after)
    return Response(body, media_type="application/json", headers=headers)


@router.get("/rankings/{ranking}/file", responses=problems(404, 409))
def file(here: Here, ranking: Id) -> dict[str, Any]:
    """The whole ranking, as `framenest rank -o` writes it; `framenest show` reads it."""
    found = here.rankings.get(ranking).to_json()
    return found | {"video": found["video"] | {"path": here.video_of(ranking).name}}


@router.get("/rankings/{ranking}/messages", responses=problems(404, 409, 429))
def messages(
    here: Here,
    ranking: Id,
    k: Annotated[int, Query(ge=1, le=MOST_SHOWN, description="How many frames.")] = 16,
    style: Annotated[
        str, Query(max_length=32, description="For which model or server.", json_schema_extra=STYLE_NAMES)
    ] = "openai",
    max_side: Annotated[
        int, Query(ge=16, le=2160, description="Longer side of the pictures in pixels; never enlarged.")
    ] = 768,
) -> dict[str, Any]:
    """The question and its k frames as messages in the style of a model, as `framenest export` writes them.

    For servers (openai, vllm-video) this is the body of a chat completion without the model's name.
    """
    found: dict[str, Any] = json.loads(here.messages(ranking, k, style, max_side))
    if "video" in found:
        found["video"]["path"] = here.video_of(ranking).name
    return found


@router.post("/rankings/{ranking}/answer", responses=problems(404, 409, 411, 413, 429, 502))
def answer(here: Here, ranking: Id, body: AnswerRequest) -> AnswerOut:
    """Let the configured model look at k frames and answer the question."""
    said = here.answer(ranking, body.k, body.max_side, cite=body.cite)
    shown = here.rankings.get(ranking).prefix(body.k)
    frames, seconds = shown.frames.tolist(), shown.seconds.tolist()
    times = [
        CitedTime(start=start, end=end, frame=frames[places[0]], seconds=seconds[places[0]])
        for start, end, places in citations(said.text, seconds)
    ]
    return AnswerOut(
        answer=said.text, model=said.model, k=body.k, cited=times, seconds=round(said.usage.seconds, 2)
    )


@router.get("/rankings/{ranking}/report", responses=problems(404, 409))
def report(here: Here, ranking: Id) -> JSONResponse:
    """The document that the report view draws."""
    found = document([here.rankings.get(ranking)])
    named = found["video"] | {"name": here.video_of(ranking).name}
    return JSONResponse(found | {"video": named}, headers=LASTING)
