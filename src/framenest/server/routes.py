"""The HTTP routes."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse
from starlette.requests import ClientDisconnect

import framenest
from framenest.lmm import STYLES
from framenest.lmm.prompt import citations
from framenest.method.discovery import LookFor
from framenest.report.document import document
from framenest.report.page import view_script, view_style
from framenest.server.api_models import (
    MOST_RANKS,
    MOST_SHOWN,
    AnswerOut,
    AnswerRequest,
    CitedTime,
    ErrorBody,
    FolderFile,
    Health,
    JobOut,
    PrefixOut,
    RankingOut,
    RankingRequest,
    RankingStatus,
    RankingSummary,
    RegisteredVideo,
    SignIn,
    VideoAddress,
    VideoOut,
    VideoPath,
)
from framenest.server.guard import COOKIE, session
from framenest.server.jobs import Job
from framenest.server.library import LibraryVideo
from framenest.server.refusals import Refusal
from framenest.server.service import Service


async def _service(request: Request) -> Service:  # async: a plain one would go through a thread
    service: Service = request.app.state.service
    return service


Here = Annotated[Service, Depends(_service)]

_MEANINGS = {
    400: "The request cannot be read.",
    401: "A token is needed.",
    403: "Not allowed.",
    404: "There is no such thing.",
    409: "Not in the state for this.",
    411: "A length is needed.",
    413: "Too large.",
    422: "Not a request this understands, or it names something that cannot be used.",
    429: "Too many requests at once; Retry-After says when to try again.",
    502: "The model endpoint did not answer.",
    507: "The server's disk cannot take it.",
}


def told(here: Service, job: Job) -> JobOut:
    """A job as clients see it."""
    seen = JobOut.model_validate(job)
    return seen.model_copy(update={"waits_for": here.jobs.waits_for(job)})


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Refusals of a route, for the OpenAPI document."""
    return {code: {"model": ErrorBody, "description": _MEANINGS[code]} for code in codes}


JobId = Annotated[str, PathParameter(max_length=64, description="Id of a job.")]


jobs_routes = APIRouter(tags=["jobs"])


@jobs_routes.get("/jobs")
def jobs(
    here: Here,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    active: Annotated[bool, Query(description="Only what waits or runs.")] = False,
) -> list[JobOut]:
    """The latest jobs, newest first."""
    found = here.jobs.waiting_or_running()[::-1][:limit] if active else here.jobs.recent(limit)
    return [told(here, job) for job in found]


@jobs_routes.get("/jobs/{job}", responses=problems(404))
async def job(
    here: Here,
    job: JobId,
    wait: Annotated[
        float, Query(ge=0, le=60, description="Answer when it is over, or after so many seconds.")
    ] = 0,
) -> JobOut:
    """Progress of a job."""
    found = here.jobs.get(job)
    if found.active and wait:
        await asyncio.wait([asyncio.wrap_future(found.over)], timeout=wait)
    return told(here, found)


@jobs_routes.delete("/jobs/{job}", responses=problems(404, 409))
def cancel(here: Here, job: JobId) -> JobOut:
    """Cancel a job, for everyone who waits for it. It is over at once; its process stops within seconds."""
    return told(here, here.jobs.cancel(job))


RankingId = Annotated[str, PathParameter(max_length=64, description="Id of a ranking.")]
K = Annotated[int, Query(ge=1, le=MOST_RANKS, description="The frame budget.")]
STYLE_NAMES: dict[str, Any] = {"enum": list(STYLES)}
# A ranking never changes, so an answer once given stays good; browsers still ask, in case it was removed.
LASTING = {"cache-control": "private, no-cache"}


rankings_routes = APIRouter(tags=["rankings"])


@rankings_routes.post(
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
    look_for = LookFor(tuple(body.look_for)) if body.look_for else None
    id_, job = here.ask(video, body.question, body.options, body.preset, body.horizon, look_for)
    response.status_code = 200 if job is None else 202
    return RankingStatus(ranking=id_, ready=job is None, job=job if job is None else told(here, job))


@rankings_routes.get("/rankings")
def rankings(here: Here, video: Annotated[str | None, Query(max_length=64)] = None) -> list[RankingSummary]:
    """What was asked, newest first; of one video with ?video=."""
    return [RankingSummary(**entry) for entry in here.rankings.all(video)]


@rankings_routes.get("/rankings/{ranking}", responses=problems(404, 409))
def ranking(here: Here, ranking: RankingId) -> RankingOut:
    """What was ranked, how, and how long the ranking is."""
    found, asked = here.rankings.get(ranking), here.rankings.request(ranking)
    stats = found.stats.to_json()
    return RankingOut(**asked, id=ranking, scorer=found.scorer, length=len(found), stats=stats)


@rankings_routes.get("/rankings/{ranking}/prefix", response_model=PrefixOut, responses=problems(404, 409))
async def prefix(
    here: Here,
    request: Request,
    ranking: RankingId,
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


@rankings_routes.get("/rankings/{ranking}/file", responses=problems(404, 409))
def ranking_file(here: Here, ranking: RankingId) -> dict[str, Any]:
    """The whole ranking, as `framenest rank -o` writes it; `framenest show` reads it."""
    found = here.rankings.get(ranking).to_json()
    return found | {"video": found["video"] | {"path": here.video_of(ranking).name}}


@rankings_routes.get("/rankings/{ranking}/messages", responses=problems(404, 409, 429))
def messages(
    here: Here,
    ranking: RankingId,
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


@rankings_routes.post("/rankings/{ranking}/answer", responses=problems(404, 409, 411, 413, 429, 502))
def answer(here: Here, ranking: RankingId, body: AnswerRequest) -> AnswerOut:
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


@rankings_routes.get("/rankings/{ranking}/report", responses=problems(404, 409))
def report(here: Here, ranking: RankingId) -> JSONResponse:
    """The document that the report view draws."""
    found = document([here.rankings.get(ranking)])
    named = found["video"] | {"name": here.video_of(ranking).name}
    return JSONResponse(found | {"video": named}, headers=LASTING)


PAGE = Path(__file__).parent / "page"
ASSETS = {file.name for file in PAGE.iterdir() if file.suffix in (".js", ".css", ".svg")}
NO_CACHE = {"cache-control": "no-cache"}


service_routes = APIRouter(tags=["service"])


@service_routes.get("/health")
def health(here: Here) -> Health:
    """Whether the service is up, and what it can do. Needs no token."""
    settings = here.settings
    return Health(
        status="ok",
        version=framenest.__version__,
        scorer=here.scorer,
        answers=settings.answer_url is not None,
        uploads=settings.max_upload,
        folder=bool(settings.videos),
        token=settings.token is not None,
        **here.jobs.counts(),
    )


@service_routes.get("/metrics", response_class=PlainTextResponse)
def metrics(here: Here) -> Response:
    """For Prometheus."""
    text = here.metrics.text(here.jobs.counts())
    return Response(text, media_type="text/plain; version=1.0.0; charset=utf-8")


@service_routes.post("/session", status_code=204, responses=problems(411, 413))
def sign_in(here: Here, body: SignIn, request: Request, response: Response) -> None:
    """Exchange the token for a cookie that only this site can use, for browsers."""
    token = here.settings.token
    if token is None or not hmac.compare_digest(body.token.encode(), token.encode()):
        raise Refusal(403, "this is not the token" if token else "this server has no token")
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, session(token), httponly=True, samesite="strict", secure=secure)


@service_routes.delete("/session", status_code=204)
def sign_out(response: Response) -> None:
    """Take the cookie back."""
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")


@service_routes.get("/", include_in_schema=False)
def page() -> FileResponse:
    """The live page."""
    return FileResponse(PAGE / "index.html", headers=NO_CACHE)


@service_routes.get("/assets/{name}", include_in_schema=False)
def asset(name: str) -> Response:
    """A file of the page; what draws a ranking is the report's view."""
    if name == "view.js":
        return Response(view_script(), media_type="text/javascript", headers=NO_CACHE)
    if name == "view.css":
        return Response(view_style(), media_type="text/css", headers=NO_CACHE)
    if name not in ASSETS:
        raise Refusal(404, "no such file")
    return FileResponse(PAGE / name, headers=NO_CACHE)


@service_routes.get("/docs", include_in_schema=False)
def docs(request: Request) -> HTMLResponse:
    """The API, to read."""
    return HTMLResponse(docs_page(request.app.openapi()))


FOREVER = {"cache-control": "private, max-age=31536000, immutable"}
# What browsers can play; anything else is handed out as bytes.
TYPES = {".mp4": "video/mp4", ".m4v": "video/mp4", ".mov": "video/mp4", ".webm": "video/webm",
         ".mkv": "video/webm", ".ogv": "video/ogg", ".gif": "image/gif"}  # fmt: skip

VideoId = Annotated[str, PathParameter(max_length=64, description="Id of a video.")]
BYTES = {"type": "string", "format": "binary"}


videos_routes = APIRouter(tags=["videos"])


@videos_routes.get("/files")
def files(here: Here) -> list[FolderFile]:
    """Files in the server's folder that can be registered by path."""
    return [FolderFile(**file) for file in here.library.files()]


@videos_routes.get("/videos")
def videos(here: Here) -> list[VideoOut]:
    """Registered videos, newest first."""
    asked = here.rankings.asked()
    return [_seen(here, video, asked) for video in here.library.all()]


@videos_routes.post("/videos", status_code=201, responses=problems(404, 409, 411, 413, 429))
def register(here: Here, body: VideoPath | VideoAddress) -> RegisteredVideo:
    """Register a video by path or address, and index it in the background.

    The same file registered again is the same video. Questions may be asked at once; they wait for the index.
    """
    if isinstance(body, VideoAddress):
        here.jobs.check_room()
        return _registered(here, here.uploads.fetch(body.url))
    return _registered(here, here.library.add_path(body.path))


@videos_routes.post(
    "/videos/upload",
    status_code=201,
    responses=problems(413, 429),
    openapi_extra={
        "requestBody": {"required": True, "content": {"application/octet-stream": {"schema": BYTES}}}
    },
)
async def upload(
    here: Here, request: Request, name: Annotated[str, Query(max_length=255, examples=["kiln.mp4"])]
) -> RegisteredVideo:
    """Upload a video as the body of the request; it is kept only if its beginning decodes as video.

    `curl --data-binary @kiln.mp4 "http://127.0.0.1:8600/videos/upload?name=kiln.mp4"`
    """
    here.jobs.check_room()
    try:
        video = await here.uploads.upload(request.stream(), name)
    except ClientDisconnect as error:
        raise Refusal(422, "the upload broke off") from error
    return await asyncio.to_thread(_registered, here, video)


def _registered(here: Service, video: LibraryVideo) -> RegisteredVideo:
    job = here.index(video)
    return RegisteredVideo(
        video=_seen(here, video, here.rankings.asked()), job=job if job is None else told(here, job)
    )


def _seen(here: Service, video: LibraryVideo, asked: Mapping[str, int]) -> VideoOut:
    state, error = here.state(video)
    return VideoOut.of(video, state=state, error=error, questions=asked.get(video.id, 0))


@videos_routes.get("/videos/{video}", responses=problems(404))
def video(here: Here, video: VideoId) -> VideoOut:
    """One video, with its facts once it is indexed."""
    return _seen(here, here.library.get(video), here.rankings.asked())


@videos_routes.post("/videos/{video}/index", responses=problems(404, 409, 411, 413, 429))
def index(here: Here, video: VideoId) -> RegisteredVideo:
    """Index a video again, where that failed or was cancelled. A question does so as well."""
    found = here.library.get(video)
    found.check()
    return _registered(here, found)


@videos_routes.delete("/videos/{video}", status_code=204, responses=problems(404))
def remove(here: Here, video: VideoId) -> None:
    """Forget a video and its rankings; what is being made of it is cancelled.

    A file in the server's folder stays; an uploaded one is deleted.
    """
    here.remove(here.library.get(video))


@videos_routes.get(
    "/videos/{video}/file",
    response_class=FileResponse,
    responses=problems(400, 404, 409)
    | {
        200: {"content": {"video/*": {"schema": BYTES}}, "description": "The file."},
        206: {"content": {"video/*": {"schema": BYTES}}, "description": "The ranges asked for."},
        416: {"description": "No such range."},
    },
)
def video_file(here: Here, video: VideoId) -> FileResponse:
    """The video itself; takes range requests, so players can seek in it."""
    path = here.library.get(video).check()
    return FileResponse(path, media_type=TYPES.get(path.suffix.lower(), "application/octet-stream"))


@videos_routes.get(
    "/videos/{video}/frames/{frame}",
    response_class=Response,
    responses=problems(404, 409, 429)
    | {200: {"content": {"image/jpeg": {"schema": BYTES}}, "description": "The frame as JPEG."}},
)
async def frame(
    here: Here,
    video: VideoId,
    frame: Annotated[int, PathParameter(ge=0, description="Frame number.")],
    size: Annotated[
        int | None,
        Query(ge=16, le=2160, description="Short side in pixels; never enlarged. Default: original."),
    ] = None,
) -> Response:
    """One frame as JPEG, exact to the frame."""
    found = here.library.get(video)
    short = found.image_size(frame, size)
    found.check()
    picture = await here.pictures.get(found, frame, short)
    return Response(picture, media_type="image/jpeg", headers=FOREVER)


_HEAD = """<!doctype html><html lang=en><meta charset=utf-8>
<meta name=viewport content='width=device-width, initial-scale=1'>
<link rel=icon href=/assets/icon.svg type='image/svg+xml'><link rel=stylesheet href=/assets/docs.css>
<title>{title} API</title><main><h1>{title} API <small>{version}</small></h1>
<p>The same for machines: <a href=/openapi.json>/openapi.json</a>.</p>
<p>Where the server has a token, send <code>Authorization: Bearer TOKEN</code>.</p>"""


def docs_page(schema: dict[str, Any]) -> str:
    """HTML of an OpenAPI document."""
    parts = [_HEAD.format(**schema["info"]), _text(schema["info"])]
    for path, methods in schema["paths"].items():
        parts += [_operation(path, method, operation) for method, operation in methods.items()]
    parts.append("<h2>Models</h2>")
    for name, model in schema["components"]["schemas"].items():
        required = model.get("required", ())
        rows = [
            _row(field, "" if field in required else "optional", what, what)
            for field, what in model.get("properties", {}).items()
        ]
        parts.append(f"<section id='{name}'><h3>{name}</h3>{_text(model)}{_table(rows)}</section>")
    return "\n".join(parts) + "</main></html>"


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [
        f"<section><h2><span class='method {method}'>{method.upper()}</span> <code>{escape(path)}</code></h2>"
    ]
    parts.append(_text(operation))
    for kind, what in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Body: {kind} {_type(what['schema'])}</p>")
    parts.append(_table([_row(p["name"], p["in"], p["schema"], p) for p in operation.get("parameters", ())]))
    parts.append("<details><summary>Answers</summary><ul>")
    for code, answer in operation["responses"].items():
        types = [_type(what.get("schema", {})) for what in answer.get("content", {}).values()]
        parts.append(f"<li><code>{code}</code> {escape(answer['description'])} {' '.join(types)}")
    return "".join(parts) + "</ul></details></section>"


def _row(name: str, kind: str, schema: dict[str, Any], about: dict[str, Any]) -> str:
    text = escape(about.get("description", ""))
    return f"<tr><td><code>{escape(name)}</code> <small>{kind}</small><td>{_type(schema)}<td>{text}"


def _table(rows: list[str]) -> str:
    return f"<table>{''.join(rows)}</table>" if rows else ""


def _type(schema: dict[str, Any]) -> str:
    """A short name of a schema, with links to models."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    limits = [f"{sign} {schema[key]}" for key, sign in (("minimum", "≥"), ("maximum", "≤")) if key in schema]
    return escape(" ".join([str(schema.get("const", schema.get("type", "any"))), *limits]))


def _text(about: dict[str, Any]) -> str:
    """The description in paragraphs, with code between backticks."""
    pieces = escape(about.get("description", "")).split("`")
    marked = "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(pieces))
    return "".join(f"<p>{paragraph}</p>" for paragraph in marked.split("\n\n") if paragraph)
