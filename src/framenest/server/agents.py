"""Long videos as tools of agents, over the Model Context Protocol."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Annotated, Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field, ValidationError
from starlette.types import ASGIApp

import framenest
from framenest.cache.directory import DirectoryStore
from framenest.errors import FramenestError
from framenest.image_tokens import TIERS, Size, TokenBudget
from framenest.images import ImageLimits
from framenest.protocols import GUESS
from framenest.rank_request import LookFor
from framenest.report.document import document
from framenest.retrieval.search import check_query
from framenest.scorers import advice
from framenest.server.api_models import MOST_MOMENTS, Text, Time
from framenest.server.conversation import ChatFrames
from framenest.server.guard import Guard, first_problem
from framenest.server.jobs import Job
from framenest.server.library import LibraryVideo
from framenest.server.server_settings import MOST_SHOWN
from framenest.server.service import Service
from framenest.text import clock
from framenest.video.source import is_remote

USAGE = """Frames of long videos, chosen for a question. Call `what_is` to see which videos there are, or
`find` if you do not know in which of them something is seen, said or written. Call `look` with a video and
the user's question (and, if you know what it would look like, descriptions in look_for), and `more` with its
look_id while the frames do not settle the question. `frames_at` shows given times, `said` searches one
transcript."""
PIXELS_A_TOKEN = 750  # of a picture, as the makers of common models count, within a tenth
SIZED_BY_RANK = ImageLimits(max_side=768)  # the first pictures, if as many are shown as fit
MIN_PIXELS = 256**2  # of a picture, if as many are shown as fit; smaller originals stay as they are
MIN_SIDE_PIXELS = 64  # pixels of the short side, below which a picture shows nothing
MAX_TIMES = 64
INDEX_SECONDS, REPLY_SECONDS = 40.0, 50.0  # of a search, and of waiting for a job; clients give up after 60
CALL_SECONDS = 55.0  # of a whole reply
SYNONYMS = (
    ("k", "n", "passages", "budget", "frames", "num_frames", "max_frames", "count", "limit", "max_results"),
    ("question", "query", "prompt", "text"),
    ("video", "path", "file", "url", "video_path", "video_url"),
    ("times", "time", "timestamps", "timestamp", "seconds"),
    ("start", "from", "start_time"),
    ("end", "to", "until", "end_time"),
)
"""Names that agents use for the same argument; a tool has at most one of a row."""
MAX_LEFT_OUT_LINES = 20  # videos that are left out, with their reasons
JOB_POLL_SECONDS = 0.1
MAX_SESSIONS = 1024  # over HTTP; a further one is refused with status 503
SESSION_SECONDS = 1800.0  # without a request, after which one ends; few clients say that they leave

Shown = list[str | Image]  # texts and pictures in the order in which the model should read them
Video = Annotated[str, Field(description="path of a video in the folders of this server, or a URL")]
Budget = Annotated[
    int, Field(ge=64, le=1_000_000, description="tokens that all pictures of the reply may take together")
]
Frames = Annotated[int, Field(ge=1, le=MOST_SHOWN, description="how many frames")]
ImageFirst = Annotated[bool, Field(description="images before texts, if you receive only the first part")]


class VideoTools:
    """The tools, over a started service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._frames = ChatFrames(service)

    async def what_is(
        self,
        video: Annotated[
            str | None, Field(description="path of a video; without it, all videos there are")
        ] = None,
    ) -> str:
        """What a video is (length, size, streams, whether it has a transcript), or which videos there are."""
        if video is None:
            listing = await asyncio.to_thread(self._service.library.files)
            lines = [file["path"] for file in listing["files"]] or ["there are no videos"]
            if listing["outside"]:
                lines.append(f"links that lead outside and cannot be read: {', '.join(listing['outside'])}")
            return "\n".join(lines)
        known = await self._work("describe", await self._video(video))
        info = known["video"]
        return (
            f"{video}: {clock(info['duration'])} ({info['duration']:.1f} s), {info['num_frames']} frames\n"
            f"{info['width']}x{info['height']} at {info['fps']:.4g} fps, {info['codec']}\n"
            f"streams: {', '.join(known['streams'])}\n"
            f"transcript: {known['transcript'] or 'none'}"
        )

    async def find(
        self,
        query: Annotated[Text, Field(description="what is seen, said or written")],
        n: Annotated[int, Field(ge=1, le=MOST_MOMENTS, description="how many moments")] = 5,
        max_tokens: Budget = 8000,
        image_first: ImageFirst = False,
        *,
        ctx: Context[Any, Any],
    ) -> Shown:
        """The moments in all videos of the folders that match a query, best first, each with its best frame.

        Videos that are new are indexed first, for up to a minute. The reply says which are left out; call it
        again to go on with them.
        """
        check_query(query)
        service, totals = self._service, dict[Any, int]()
        until = time.monotonic() + REPLY_SECONDS
        refused = await self._index_all(ctx, totals)
        id_, job = await asyncio.to_thread(service.search, query, n)
        await self._finished(job, ctx, totals, until)
        if job.state == "failed":
            raise ToolError(job.error or "")
        search = service.search_state(id_)
        moments, left_out = search["moments"], search["left_out"]
        head = f"moments, best first: {len(moments)}; videos searched: {len(search['videos'])}"
        lines = [f"{video['name']}: {refused.get(video['name'], video['why'])}" for video in left_out]
        head += f"; left out: {len(lines)}" if lines else ""
        head += "; still searching, ask again" if job.active else ""
        head += f"; {search['summary']}" if search["summary"] else ""
        shown = list[tuple[str, bytes]]()
        for moment in moments:
            video = service.library.get(moment["video"])
            assert video.info is not None  # it is indexed
            side = short_side(video.info, len(moments), max_tokens)
            span = f"{moment['start']:.1f} to {moment['end']:.1f} s, best at {moment['time']:.1f} s"
            weak = "" if moment["confident"] else "weak, "
            line = f"{video.name}, {span}: {weak}{moment['source']}: {moment['why']}"
            shown.append((line, await service.pictures.get(video, moment["frame"], side)))
        return reply("\n".join([head, *lines[:MAX_LEFT_OUT_LINES]]), shown, image_first)

    async def _index_all(self, ctx: Context[Any, Any], totals: dict[Any, int]) -> dict[str, str]:
        """Index the videos of the folders, as far as there is time; returns why some cannot be indexed."""
        refused: dict[str, str] = {}
        until = time.monotonic() + INDEX_SECONDS
        for file in (await asyncio.to_thread(self._service.library.files))["files"]:
            if time.monotonic() >= until:
                break
            try:
                job = self._service.index(await self._video(file["path"]))
                if job is not None:
                    await self._finished(job, ctx, totals, until)
            except FramenestError as error:
                refused[file["path"]] = self._service.without_paths(str(error))
        return refused

    async def look(
        self,
        video: Video,
        question: Annotated[Text, Field(description="what the frames should answer")],
        k: Annotated[
            Frames | None, Field(description="how many frames; null: as many as fit, later ranks in small")
        ] = 8,
        look_for: Annotated[
            list[Text],
            Field(max_length=8, description="what to look for: short descriptions of what is seen"),
        ] = [],  # noqa: B006 - a schema's default; never changed
        start: Annotated[Time, Field(description="look only from this time on: seconds, or [HH:]MM:SS")] = 0,
        end: Annotated[Time | None, Field(description="look only up to this time")] = None,
        max_tokens: Budget = 8000,
        image_first: ImageFirst = False,
        *,
        ctx: Context[Any, Any],
    ) -> Shown:
        """The k frames of a long video that best answer a question, each with its time, rank and a reason.

        The reply's look_id gives more frames of the same ranking with `more`, at once. The first look at a
        video reads it through, which takes from seconds to minutes; if the reply says that it goes on, ask
        again. Later questions are fast.
        """
        until = time.monotonic() + REPLY_SECONDS
        registered = await self._video(video)
        default = self._service.default
        request = replace(
            default,
            video=registered.id,
            question=question,
            look_for=LookFor.of(look_for),
            config=default.config.with_settings({"start": start, "end": end}),
        )
        ranking, job = await asyncio.to_thread(self._service.ask, request)
        if job is not None:
            await self._finished(job, ctx, {}, until)
            if job.active:
                step = f" ({job.stage}: {job.done} of {job.total})" if job.stage else ""
                return [f"{registered.name}: still indexing{step}; it goes on, ask again"]
        return await self._show(ranking, 0, k, max_tokens, image_first)

    async def more(
        self,
        look_id: Annotated[str, Field(description="from the reply of `look` or of an earlier `more`")],
        k: Annotated[Frames, Field(description="how many frames in all, those already shown included")] = 16,
        max_tokens: Budget = 8000,
        image_first: ImageFirst = False,
    ) -> Shown:
        """Only the new frames of a larger selection for the same question; those shown before stay in it."""
        if not (named := re.fullmatch(r"(.+)-([0-9]{1,4})", look_id)):
            raise ToolError("this is no look_id; take it from the reply of `look`")
        ranking, shown = named[1], int(named[2])
        if k <= shown:
            raise ToolError(f"{shown} frames were shown already; ask for a larger k")
        return await self._show(ranking, shown, k, max_tokens, image_first)

    async def frames_at(
        self,
        video: Video,
        times: Annotated[
            list[Time], Field(min_length=1, max_length=MAX_TIMES, description="seconds, or [HH:]MM:SS")
        ],
        max_tokens: Budget = 8000,
        image_first: ImageFirst = False,
    ) -> Shown:
        """The frames on screen at given times of a video."""
        seconds = sorted(set(times))
        registered = await self._video(video)
        info = (await self._work("describe", registered))["video"]
        if seconds[0] < 0 or seconds[-1] > info["duration"]:
            raise ToolError(f"this video runs from 0 to {info['duration']:.1f} s")
        side = short_side(info, len(seconds), max_tokens)
        found = await self._work("look_at", registered, seconds, side)
        shown = [(f"{second:.1f} s (frame {frame})", picture) for frame, second, picture in found]
        return reply("", shown, image_first)

    async def said(
        self,
        video: Video,
        question: Annotated[Text, Field(description="what to find in what is said")],
        passages: Annotated[int, Field(ge=1, le=20)] = 5,
        *,
        ctx: Context[Any, Any],
    ) -> str:
        """What is said in a video with a transcript: the passages that best match a question, with times."""
        until, scoring = time.monotonic() + REPLY_SECONDS, self._service.settings.scoring
        registered = await self._video(video)
        if (scoring.listen or scoring.listen_url) and (job := self._service.index(registered)):
            await self._finished(job, ctx, {}, until)
            if job.active:  # its sound is transcribed, which may take minutes
                return f"{registered.name}: still listening; it goes on, ask again"
        lines = await self._work("said", registered, question, passages)
        if not lines:
            raise ToolError("this video has no transcript: no text track, no subtitle file beside it")
        return "\n".join(f"{start:.1f} to {end:.1f} s: {text}" for start, end, text in lines)

    async def _video(self, named: str) -> LibraryVideo:
        """The video at a path or an address; who cancels leaves the others their download."""
        if named[:5].lower() == "file:" or not is_remote(named):
            return await asyncio.to_thread(self._service.library.add_path, named)
        return await asyncio.shield(asyncio.create_task(self._frames.fetch(named, "")))

    async def _work(self, task: str, video: LibraryVideo, *arguments: Any) -> Any:
        """What the method `task` of VideoTasks returns for a video."""
        call = self._service.picture_worker.call
        return await asyncio.to_thread(call, task, str(video.check()), *arguments)

    async def _finished(self, job: Job, ctx: Context[Any, Any], totals: dict[Any, int], until: float) -> None:
        """Wait for a job, telling its progress, until a monotonic time; totals: by job and stage."""
        reported = sum(totals.values()) if totals else -1
        try:
            while job.active and time.monotonic() < until:
                stage, done, total = job.stage or "", job.done, job.total
                totals[job.id, stage] = total
                whole = sum(totals.values())  # of all stages so far
                if stage and whole - total + done > reported:  # it may not go back
                    reported = whole - total + done
                    with suppress(ValueError):  # called without a client, as in function calling
                        await ctx.report_progress(reported, whole, f"{stage}: {done} of {total}")
                await asyncio.sleep(JOB_POLL_SECONDS)
        except asyncio.CancelledError:
            self._service.jobs.leave(job)  # it goes on if others wait for it
            raise
        if job.state == "cancelled":
            raise ToolError("this was cancelled; ask again")

    async def _show(self, id_: str, after: int, k: int | None, max_tokens: int, image_first: bool) -> Shown:
        """The frames of ranks after + 1 … k, in time order, each below its time, its rank and a reason."""
        service = self._service
        ranking = await asyncio.to_thread(service.rankings.get, id_)
        video = service.video_of(id_)
        fitting = TokenBudget(max_tokens, TIERS, SIZED_BY_RANK, tokens_of)
        prefix = ranking.prefix(fitting if k is None else k)
        assert prefix.ranks is not None
        k, prefix = prefix.budget, prefix.part(prefix.ranks > after)
        side = 0 if prefix.sizes else short_side(ranking.video.to_json(), max(1, len(prefix)), max_tokens)
        sides = [min(size) for size in prefix.sizes] or [side] * len(prefix)
        wanted = zip(prefix.frames.tolist(), sides, strict=True)
        pictures = await asyncio.gather(*(service.pictures.get(video, *one) for one in wanted))
        match = ranking.stats.match
        described = document([ranking])["rankings"][0]
        span = f"{' to '.join(map(clock, described['window']))} of " if described["window"] else ""
        head = [f"{video.name}, {span}{clock(ranking.video.duration)}: {len(prefix)} frames in time order"]
        head += [f"match with the question: {match.verdict}"] if match else []
        head += [match.words] if match and match.words else []
        head += ranking.notes
        head += [GUESS] if match and match.is_guess else []
        head += [prefix.roles_text] if prefix.roles_text else []
        store = DirectoryStore(service.settings.cache_folder)
        head += await asyncio.to_thread(advice, ranking.scorer, ranking.question, match, store)
        head += [f"look_id: {id_}-{k}"] if k < len(ranking) else ["all ranked frames are shown"]
        rows = zip(prefix, prefix.roles, prefix.reasons, strict=True)
        whys = [f"{second:.1f} s, rank {rank}, {role}: {reason}" for (rank, second, _), role, reason in rows]
        return reply("; ".join(head), [*zip(whys, pictures, strict=True)], image_first)


def tokens_of(_: Sequence[float], sizes: Sequence[Size]) -> int:
    """What pictures of these sizes cost; small ones cost as much as MIN_PIXELS, so that none gets smaller."""
    return sum(max(MIN_PIXELS, math.prod(size)) for size in sizes) // PIXELS_A_TOKEN


def reply(head: str, shown: Sequence[tuple[str, bytes]], image_first: bool) -> Shown:
    """Each picture below its line, or the images first if asked for."""
    pairs = ((line, Image(data=jpeg, format="jpeg")) for line, jpeg in shown)
    parts: Shown = [part for part in (head, *chain.from_iterable(pairs)) if part]
    return sorted(parts, key=lambda part: isinstance(part, str)) if image_first else parts


def argument_meant(name: str, known: Sequence[str]) -> str:
    """What a tool with these arguments says about another one, such as "use 'k'" for `budget`."""
    meant = next((one for row in SYNONYMS if name in row for one in known if one in row), None)
    return f"there is no argument {name!r}; " + (f"use {meant!r}" if meant else f"use {', '.join(known)}")


def short_side(info: dict[str, Any], count: int, max_tokens: int) -> int:
    """Pixels of the short side with which `count` pictures of a video take at most `max_tokens` together.

    Raises ToolError if they would show nothing. short_side({"width": 1920, "height": 1080}, 8, 8000) is 649.
    """
    limits = ImageLimits(max_pixels=max(1, PIXELS_A_TOKEN * max_tokens // count))
    size = limits.size(info["width"], info["height"])
    if min(size) < min(MIN_SIDE_PIXELS, info["width"], info["height"]):
        least = math.ceil(count * MIN_SIDE_PIXELS**2 * max(size) / min(size) / PIXELS_A_TOKEN)
        raise ToolError(f"{count} frames need max_tokens of {least} or more, or ask for fewer frames")
    return min(size)


class _Server(MCPServer[None]):  # type: ignore[misc]  # the SDK is an extra
    service: Service

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """As the SDK's, with errors in one line, without paths; one is an argument that the tool lacks."""
        takes = {tool.name: [*tool.input_schema["properties"]] for tool in await self.list_tools()}
        for argument in arguments if name in takes else ():
            if argument not in takes[name]:
                raise ToolError(f"{name}: {argument_meant(argument, takes[name])}")
        try:
            return await asyncio.wait_for(super().call_tool(name, arguments, context), CALL_SECONDS)
        except TimeoutError as error:
            raise ToolError(f"{name}: this takes longer than a reply may; it goes on, ask again") from error
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError):
                message = first_problem(cause.errors())
            elif isinstance(cause, FramenestError) or type(cause) is ToolError:
                message = self.service.without_paths(str(cause))
            else:
                raise
            raise ToolError(f"{name}: {message}") from cause


def mcp_server(service: Service) -> MCPServer[None]:
    """The tools over a started service; for function calling too: `list_tools`, `call_tool`."""
    server = _Server(
        "framenest", title="Framenest", instructions=USAGE, version=framenest.__version__, log_level="WARNING"
    )
    server.service, tools = service, VideoTools(service)
    hints = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for tool in (tools.what_is, tools.find, tools.look, tools.more, tools.frames_at, tools.said):
        # Many agents show their model nothing but the structured output if there is one: no images.
        with_images = tool not in (tools.what_is, tools.said)
        server.add_tool(tool, annotations=hints, structured_output=not with_images)
    handlers = server._lowlevel_server._request_handlers
    for listed in [name for name in handlers if name.startswith(("resources/", "prompts/"))]:
        handlers.pop(listed)  # there are none, and the SDK cannot say so
    return server


def http_app(service: Service) -> ASGIApp:
    """Streamable HTTP at /mcp, behind the guard of `framenest serve`: token, own names, small requests."""
    app = mcp_server(service).streamable_http_app(
        host=service.settings.host, max_sessions=MAX_SESSIONS, session_idle_timeout=SESSION_SECONDS
    )
    return Guard(app, service.settings, service.metrics)
