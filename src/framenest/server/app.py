"""The ASGI application and its routes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse
from starlette.requests import ClientDisconnect
from starlette.routing import Route

import framenest
from framenest.errors import FramenestError
from framenest.lmm import STYLES
from framenest.lmm.prompt import citations, not_shown
from framenest.report.document import document
from framenest.report.page import view_script, view_style
from framenest.server import api_models as api
from framenest.server.dialects import GATEWAY
from framenest.server.gateway import Gateway
from framenest.server.guard import COOKIE, Guard, Refusal, first_problem, refusal_response, same, session
from framenest.server.jobs import Job
from framenest.server.library import LibraryVideo
from framenest.server.rankings import entry
from framenest.server.service import Service

ABOUT = """One ranking of a video's frames per question; every frame budget is a prefix of it.

Register or upload a video, ask, wait for the job, take `/rankings/{id}/prefix?k=16`. More frames later?
`?after=16&k=32` gives the 16 that are added. Nothing runs again."""

PAGE = Path(__file__).parent / "page"
ASSETS = {file.name for file in PAGE.iterdir() if file.suffix in (".js", ".css", ".svg")}
NO_CACHE = {"cache-control": "no-cache"}
PRIVATE = {"cache-control": "private, no-cache"}  # rankings do not change, but they may be removed
FOREVER = {"cache-control": "private, max-age=31536000, immutable"}
# What browsers can play; anything else is sent as bytes.
TYPES = {".mp4": "video/mp4", ".m4v": "video/mp4", ".mov": "video/mp4", ".webm": "video/webm",
         ".mkv": "video/webm", ".ogv": "video/ogg", ".gif": "image/gif"}  # fmt: skip

routes = APIRouter()


def create_app(service: Service) -> FastAPI:
    """A started service as an ASGI application, which closes it at its end."""

    gateway = Gateway(service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await gateway.client.aclose()
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="Framenest",
        version=framenest.__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses={"default": {"model": api.ErrorBody, "description": "Refused; `detail` says why."}},
    )
    app.state.service = service
    app.include_router(routes)
    app.router.routes.append(Route(f"{GATEWAY}{{path:path}}", gateway))
    app.add_exception_handler(FramenestError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_middleware(Guard, settings=service.settings, metrics=service.metrics)
    return app


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, FramenestError)
    message = request.app.state.service.without_paths(str(error))
    return refusal_response(request.scope["path"], error, message)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return JSONResponse({"detail": first_problem(error.errors(), skip=1)}, 422)


async def _service(request: Request) -> Service:  # async: a plain one would go through a thread
    service: Service = request.app.state.service
    return service


Here = Annotated[Service, Depends(_service)]
Id = Annotated[str, PathParameter(max_length=64, description="Its id.")]


# Jobs


@routes.get("/jobs")
def jobs(
    here: Here,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    active: Annotated[bool, Query(description="Only what waits or runs.")] = False,
) -> list[Job]:
    """The latest jobs, newest first."""
    latest = here.jobs.waiting_or_running()[::-1][:limit] if active else here.jobs.recent(limit)
    return [here.jobs.view(job) for job in latest]


@routes.get("/jobs/{job}")
async def job(
    here: Here,
    job: Id,
    wait: Annotated[
        float, Query(ge=0, le=60, description="Answer when it is over, or after so many seconds.")
    ] = 0,
) -> Job:
    """Progress of a job."""
    current = here.jobs.get(job)
    if current.active and wait:
        await asyncio.wait([asyncio.wrap_future(current.over)], timeout=wait)
    return here.jobs.view(current)


@routes.delete("/jobs/{job}")
def cancel(here: Here, job: Id) -> Job:
    """Cancel a job, for everyone who waits for it. It is over at once; its process stops within seconds."""
    return here.jobs.view(here.jobs.cancel(job))


# Rankings


@routes.post("/rankings", responses={202: {"model": api.RankingStatus, "description": "Being made."}})
def ask(here: Here, body: api.RankingRequest, response: Response) -> api.RankingStatus:
    """Ask a question about a video: 200 if the ranking exists, 202 with a job while it is being made.

    The same question with the same settings is the same ranking, and work under way is shared. A video that
    is not indexed yet is indexed first.
    """
    id_, job = here.ask(body.request(here.default, body.video, body.question))
    response.status_code = 200 if job is None else 202
    return api.RankingStatus(ranking=id_, ready=job is None, job=job and here.jobs.view(job))


@routes.get("/rankings")
def rankings(
    here: Here, video: Annotated[str | None, Query(max_length=64)] = None
) -> list[api.RankingSummary]:
    """What was asked, newest first; of one video with ?video=."""
    return [api.RankingSummary(**entry) for entry in here.rankings.all(video)]


@routes.get("/rankings/{ranking}")
def ranking(here: Here, ranking: Id) -> api.RankingOut:
    """What was ranked, how, and how long the ranking is."""
    made, asked = here.rankings.get(ranking), entry(here.rankings.row(ranking))
    return api.RankingOut(**asked | {"scorer": made.scorer}, length=len(made), stats=made.stats.to_json())


@routes.get("/rankings/{ranking}/prefix", response_model=api.PrefixOut)
async def prefix(
    here: Here,
    ranking: Id,
    k: Annotated[int, Query(ge=1, le=api.MOST_RANKS, description="The frame budget.")],
    after: Annotated[int, Query(ge=0, description="Leave out the first so many ranks.")] = 0,
) -> Response:
    """The frames for a budget of k, in time order. Nothing runs again: any k is a prefix of the ranking.

    `?after=16&k=32` gives only the 16 frames that 32 adds to 16.
    """
    return JSONResponse(here.rankings.prefix(ranking, k, after), headers=PRIVATE)


@routes.get("/rankings/{ranking}/file")
def ranking_file(here: Here, ranking: Id) -> dict[str, Any]:
    """The whole ranking, as `framenest rank -o` writes it; `framenest show` reads it."""
    data = here.rankings.get(ranking).to_json()
    return data | {"video": data["video"] | {"path": here.video_of(ranking).name}}


@routes.get("/rankings/{ranking}/messages")
def messages(
    here: Here,
    ranking: Id,
    k: Annotated[int, Query(ge=1, le=api.MOST_SHOWN, description="How many frames.")] = 16,
    style: Annotated[str, Query(max_length=32, description=f"One of {', '.join(STYLES)}.")] = "openai",
    max_side: Annotated[
        int, Query(ge=16, le=2160, description="Longer side of the images in pixels; never enlarged.")
    ] = 768,
) -> dict[str, Any]:
    """The question and its k frames as messages in the style of a model, as `framenest export` writes them.

    For servers (openai, gpt, gemini, vllm-video) this is a chat completion's body without the model's name.
    """
    request: dict[str, Any] = json.loads(here.packed("messages", ranking, k, style, max_side))
    if "video" in request:
        request["video"]["path"] = here.video_of(ranking).name
    return request


@routes.post("/rankings/{ranking}/answer")
def answer(here: Here, ranking: Id, body: api.AnswerRequest) -> api.AnswerOut:
    """Let the configured model look at k frames and answer the question."""
    k, reply = here.answer(ranking, body.k, body.max_side, cite=body.cite)
    shown = here.rankings.get(ranking).prefix(k)
    frames, seconds = shown.frames.tolist(), shown.seconds.tolist()
    times = [
        api.CitedTime(start=start, end=end, frame=frames[places[0]], seconds=seconds[places[0]])
        for start, end, places in citations(reply.text, seconds)
        if places
    ]
    return api.AnswerOut(
        answer=reply.text,
        model=reply.model,
        k=k,
        cited=times,
        not_shown=not_shown(reply.text, seconds),
        seconds=round(reply.usage.seconds, 2),
    )


@routes.get("/rankings/{ranking}/report")
def report(here: Here, ranking: Id) -> JSONResponse:
    """The document that the report view draws."""
    content = document([here.rankings.get(ranking)])
    named = content["video"] | {"name": here.video_of(ranking).name}
    return JSONResponse(content | {"video": named}, headers=PRIVATE)


# Searches


@routes.post("/searches", status_code=202)
def search(here: Here, body: api.SearchRequest) -> api.SearchOut:
    """Find the moments in all indexed videos that match a query.

    `GET /searches/{id}` gives the best moments so far while the job runs, and all of them when it is done.
    """
    return api.SearchOut(**here.search_state(here.search(body.query, body.n)[0]))


@routes.get("/searches/{search}")
def search_state(here: Here, search: Id) -> api.SearchOut:
    """What a search has found."""
    return api.SearchOut(**here.search_state(search))


# The service and its page


@routes.get("/health")
def health(here: Here) -> api.Health:
    """Whether the service is up, and what it can do. Needs no token."""
    return api.Health(
        status="ok",
        version=framenest.__version__,
        scorer=here.scorer,
        preset=here.settings.preset,
        answer_model=here.settings.answer_model,
        folder=bool(here.settings.videos),
        token=here.settings.token is not None,
    )


@routes.get("/metrics", response_class=PlainTextResponse)
def metrics(here: Here) -> Response:
    """For Prometheus."""
    text = here.metrics.text(here.jobs.counts())
    return Response(text, media_type="text/plain; version=1.0.0; charset=utf-8")


@routes.post("/session", status_code=204)
def sign_in(here: Here, body: api.SignIn, request: Request, response: Response) -> None:
    """Exchange the token for a cookie that only this site can use, for browsers."""
    token = here.settings.token
    if token is None or not same(body.token, token):
        raise Refusal(403, "this is not the token" if token else "this server has no token")
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, session(token), httponly=True, samesite="strict", secure=secure)


@routes.delete("/session", status_code=204)
def sign_out(response: Response) -> None:
    """Take the cookie back."""
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")


@routes.get("/", include_in_schema=False)
def page() -> FileResponse:
    """The live page."""
    return FileResponse(PAGE / "index.html", headers=NO_CACHE)


@routes.get("/assets/{name}", include_in_schema=False)
def asset(name: str) -> Response:
    """A file of the page; what draws a ranking is the report's view."""
    if name == "view.js":
        return Response(view_script(), media_type="text/javascript", headers=NO_CACHE)
    if name == "view.css":
        return Response(view_style(), media_type="text/css", headers=NO_CACHE)
    if name not in ASSETS:
        raise Refusal(404, "no such file")
    return FileResponse(PAGE / name, headers=NO_CACHE)


# Videos


@routes.get("/files")
def files(here: Here) -> api.FolderFiles:
    """Files in the server's folder that can be registered by path, and links that lead outside it."""
    return api.FolderFiles(**here.library.files())


@routes.get("/videos")
def videos(here: Here) -> list[api.VideoOut]:
    """Registered videos, newest first."""
    return [_view(here, video) for video in here.library.all()]


@routes.post("/videos", status_code=201)
def register(here: Here, body: api.VideoPath | api.VideoAddress) -> api.RegisteredVideo:
    """Register a video by path or address, and index it in the background.

    The same file registered again is the same video. Questions may be asked at once; they wait for the index.
    """
    if isinstance(body, api.VideoAddress):
        here.jobs.check_room()
        return _registered(here, here.library.fetch(body.url))
    return _registered(here, here.library.add_path(body.path))


@routes.post(
    "/videos/upload",
    status_code=201,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload(
    here: Here, request: Request, name: Annotated[str, Query(max_length=255, examples=["kiln.mp4"])]
) -> api.RegisteredVideo:
    """Upload a video as the body of the request; it is kept only if its beginning decodes as video.

    `curl --data-binary @kiln.mp4 "http://127.0.0.1:8600/videos/upload?name=kiln.mp4"`
    """
    here.jobs.check_room()
    try:
        video = await here.library.upload(request.stream(), name)
    except ClientDisconnect as error:
        raise Refusal(422, "the upload broke off") from error
    return await asyncio.to_thread(_registered, here, video)


def _registered(here: Service, video: LibraryVideo) -> api.RegisteredVideo:
    job = here.index(video)
    return api.RegisteredVideo(video=_view(here, video), job=job and here.jobs.view(job))


def _view(here: Service, video: LibraryVideo) -> api.VideoOut:
    """What clients may know of a video: not where it is."""
    state, error = here.state(video)
    return api.VideoOut(**(video.info or {}) | vars(video) | {"state": state, "error": error})


@routes.get("/videos/{video}")
def video(here: Here, video: Id) -> api.VideoOut:
    """One video, with its facts once it is indexed."""
    return _view(here, here.library.get(video))


@routes.post("/videos/{video}/index")
def index(here: Here, video: Id) -> api.RegisteredVideo:
    """Index a video again, if that failed or was cancelled. A question does so as well."""
    registered = here.library.get(video)
    registered.check()
    return _registered(here, registered)


@routes.delete("/videos/{video}", status_code=204)
def remove(here: Here, video: Id) -> None:
    """Forget a video and its rankings; what is being made of it is cancelled.

    A file in the server's folder stays; an uploaded one is deleted.
    """
    here.remove(here.library.get(video))


@routes.get("/videos/{video}/file", response_class=FileResponse)
def video_file(here: Here, video: Id) -> FileResponse:
    """The video itself; takes range requests, so players can seek in it."""
    path = here.library.get(video).check()
    return FileResponse(path, media_type=TYPES.get(path.suffix.lower(), "application/octet-stream"))


@routes.get(
    "/videos/{video}/frames/{frame}",
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {}}, "description": "The frame."}},
)
async def frame(
    here: Here,
    video: Id,
    frame: Annotated[int, PathParameter(ge=0, description="Frame number.")],
    size: Annotated[
        int | None,
        Query(ge=16, le=2160, description="Short side in pixels; never enlarged. Default: original."),
    ] = None,
) -> Response:
    """One frame as JPEG, exact to the frame."""
    registered = here.library.get(video)
    if (info := registered.info) is None:
        raise Refusal(409, f"{registered.name}: not indexed yet")
    if frame >= info["num_frames"]:
        raise Refusal(404, f"this video has frames 0 to {info['num_frames'] - 1}")
    registered.check()
    original = min(info["width"], info["height"])
    picture = await here.pictures.get(registered, frame, min(size or original, original))
    return Response(picture, media_type="image/jpeg", headers=FOREVER)
