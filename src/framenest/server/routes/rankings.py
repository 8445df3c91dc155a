"""/rankings: ask, and take as many frames as the model can see."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from framenest.server.prefixes import prefix_json
from framenest.server.routes import Here, problems
from framenest.server.shapes import MOST_RANKS, Ask, Asked, JobOut, PrefixOut, RankingEntry, RankingOut

router = APIRouter(tags=["rankings"])
Id = Annotated[str, Path(max_length=64, description="Id of a ranking.")]
K = Annotated[int, Query(ge=1, le=MOST_RANKS, description="The frame budget.")]
# A ranking never changes, so an answer once given stays good; browsers still ask, in case it was removed.
LASTING = {"cache-control": "private, no-cache"}


@router.post(
    "/rankings",
    responses=problems(404, 409, 411, 413, 429) | {202: {"model": Asked, "description": "Being made."}},
)
def ask(here: Here, body: Ask, response: Response) -> Asked:
    """Ask a question about a video: 200 where the ranking is there, 202 with a job where it is being made.

    The same question with the same settings is the same ranking, and work under way is shared. A video that
    is not indexed yet is indexed first.
    """
    video = here.library.get(body.video)
    id_, job = here.ask(video, body.question, body.preset, body.horizon)
    response.status_code = 200 if job is None else 202
    return Asked(ranking=id_, ready=job is None, job=JobOut.of(job) if job else None)


@router.get("/rankings", responses=problems())
def rankings(here: Here, video: Annotated[str | None, Query(max_length=64)] = None) -> list[RankingEntry]:
    """What was asked, newest first; of one video with ?video=."""
    return [RankingEntry(**entry) for entry in here.rankings(video)]


@router.get("/rankings/{ranking}", responses=problems(404, 409))
def ranking(here: Here, ranking: Id) -> RankingOut:
    """What was ranked, how, and how long the ranking is."""
    found, asked = here.ranking(ranking), here.request_of(ranking)
    return RankingOut(
        id=ranking,
        video=asked["video"],
        question=found.question,
        scorer=found.scorer,
        preset=asked["preset"],
        length=len(found),
        stats=found.stats,
    )


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
    if request.headers.get("if-none-match") == tag and here.has_ranking(ranking):
        return Response(status_code=304, headers=headers)
    body = prefix_json(here, ranking, k, after)
    return Response(body, media_type="application/json", headers=headers)


@router.get("/rankings/{ranking}/file", responses=problems(404, 409))
def file(here: Here, ranking: Id) -> dict[str, Any]:
    """The whole ranking, as `framenest rank -o` writes it; `framenest show` reads it."""
    found = here.ranking(ranking).to_json()
    name = here.library.get(here.request_of(ranking)["video"]).name
    return found | {"video": found["video"] | {"path": name}}


@router.get("/rankings/{ranking}/report", responses=problems(404, 409))
def report(here: Here, ranking: Id) -> JSONResponse:
    """The document that the report view draws."""
    from framenest.report.document import document

    found = document([here.ranking(ranking)])
    name = here.library.get(here.request_of(ranking)["video"]).name
    return JSONResponse(found | {"video": found["video"] | {"name": name}}, headers=LASTING)
