"""/files, /videos: the videos that may be asked about."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import FileResponse
from starlette.requests import ClientDisconnect

from framenest.server.api_models import FolderFile, RegisteredVideo, VideoAddress, VideoOut, VideoPath
from framenest.server.library import LibraryVideo
from framenest.server.refusals import Refusal
from framenest.server.routes import Here, problems, told
from framenest.server.service import Service

router = APIRouter(tags=["videos"])
FOREVER = {"cache-control": "private, max-age=31536000, immutable"}
# What browsers can play; anything else is handed out as bytes.
TYPES = {".mp4": "video/mp4", ".m4v": "video/mp4", ".mov": "video/mp4", ".webm": "video/webm",
         ".mkv": "video/webm", ".ogv": "video/ogg", ".gif": "image/gif"}  # fmt: skip

Id = Annotated[str, Path(max_length=64, description="Id of a video.")]
BYTES = {"type": "string", "format": "binary"}


@router.get("/files")
def files(here: Here) -> list[FolderFile]:
    """Files in the server's folder that can be registered by path."""
    return [FolderFile(**file) for file in here.library.files()]


@router.get("/videos")
def videos(here: Here) -> list[VideoOut]:
    """Registered videos, newest first."""
    asked = here.rankings.asked()
    return [_seen(here, video, asked) for video in here.library.all()]


@router.post("/videos", status_code=201, responses=problems(404, 409, 411, 413, 429))
def register(here: Here, body: VideoPath | VideoAddress) -> RegisteredVideo:
    """Register a video by path or address, and index it in the background.

    The same file registered again is the same video. Questions may be asked at once; they wait for the index.
    """
    if isinstance(body, VideoAddress):
        here.jobs.check_room()
        return _registered(here, here.uploads.fetch(body.url))
    return _registered(here, here.library.add_path(body.path))


@router.post(
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


@router.get("/videos/{video}", responses=problems(404))
def video(here: Here, video: Id) -> VideoOut:
    """One video, with its facts once it is indexed."""
    return _seen(here, here.library.get(video), here.rankings.asked())


@router.post("/videos/{video}/index", responses=problems(404, 409, 411, 413, 429))
def index(here: Here, video: Id) -> RegisteredVideo:
    """Index a video again, where that failed or was cancelled. A question does so as well."""
    found = here.library.get(video)
    found.check()
    return _registered(here, found)


@router.delete("/videos/{video}", status_code=204, responses=problems(404))
def remove(here: Here, video: Id) -> None:
    """Forget a video and its rankings; what is being made of it is cancelled.

    A file in the server's folder stays; an uploaded one is deleted.
    """
    here.remove(here.library.get(video))


@router.get(
    "/videos/{video}/file",
    response_class=FileResponse,
    responses=problems(400, 404, 409)
    | {
        200: {"content": {"video/*": {"schema": BYTES}}, "description": "The file."},
        206: {"content": {"video/*": {"schema": BYTES}}, "description": "The ranges asked for."},
        416: {"description": "No such range."},
    },
)
def file(here: Here, video: Id) -> FileResponse:
    """The video itself; takes range requests, so players can seek in it."""
    path = here.library.get(video).check()
    return FileResponse(path, media_type=TYPES.get(path.suffix.lower(), "application/octet-stream"))


@router.get(
    "/videos/{video}/frames/{frame}",
    response_class=Response,
    responses=problems(404, 409, 429)
    | {200: {"content": {"image/jpeg": {"schema": BYTES}}, "description": "The frame as JPEG."}},
)
async def frame(
    here: Here,
    video: Id,
    frame: Annotated[int, Path(ge=0, description="Frame number.")],
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
