"""Conversations about videos, as a model gets them: every turn shows the frames for its text.

Clients resend the whole conversation with every question and know nothing of the frames. Earlier turns are
rebuilt from the same rankings, byte for byte, so that the model server's prefix cache stays valid.
"""

from __future__ import annotations

import asyncio
import binascii
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import unquote
from weakref import WeakValueDictionary

import msgspec
import numpy as np
from pydantic import TypeAdapter, ValidationError

from framenest.images import ImageLimits
from framenest.lmm.messages import STYLES, Draft, said_beside
from framenest.lmm.prompt import OTHERWISE
from framenest.method.prefix import Prefix
from framenest.server.api_models import TurnSettings
from framenest.server.library import LibraryVideo
from framenest.server.refusals import Refusal, first_problem
from framenest.server.server_settings import MIB
from framenest.server.service import Service

LIMITS = ImageLimits(max_side=768)
LONGEST = 4000  # characters of a turn's text that choose its frames
MOST_VIDEOS = 256  # in all turns; the same one may be in many
_GIVEN = TypeAdapter(dict[str, TurnSettings])


class Turn(NamedTuple):
    """A user's message. parts: its content, with a LibraryVideo where frames go."""

    message: dict[str, Any]
    digest: str  # of the conversation up to here
    parts: list[Any]
    text: str


class ChatFrames:
    """What conversations share: arriving videos, images of frames, and how turns were answered."""

    def __init__(self, service: Service) -> None:
        self.service, self.settings, self.journal = service, service.settings, service.journal
        self._arriving = WeakValueDictionary[str, asyncio.Lock]()
        self._incoming, self._packing = asyncio.Semaphore(3), asyncio.Semaphore(3)  # others wait

    async def video(self, address: str, name: str) -> LibraryVideo:
        """The video at an address, or in a data URL; fetched or decoded if it is new."""
        library = self.service.library
        if ":" not in (id_ := address.removeprefix("framenest://")):
            return library.get(id_)
        if file := re.match(r"file://[^/]*([^?#]*)", address):  # urlsplit refuses some hosts
            return await asyncio.to_thread(library.add_path, unquote(file[1]))
        source = (await asyncio.to_thread(hashlib.blake2b, address.encode(), digest_size=16)).hexdigest()
        async with self._arriving.setdefault(source, asyncio.Lock()):
            found, id_ = None, self.journal.recall(source) or ""
            with suppress(Refusal):  # it is new, or was removed or changed
                found = library.get(id_) if library.get(id_).check() else None
            if found is None:
                self.service.jobs.check_room()
                async with self._incoming:
                    if address.startswith("data:"):
                        found = await library.upload(_decoded(address), name)
                    else:
                        found = await asyncio.to_thread(library.fetch, address)
            self.journal.remember(source, found.id)
            return found

    async def rankings(self, turn: Turn, asked: TurnSettings) -> list[str]:
        """The ids of a turn's finished rankings; a job that nobody waits for any longer is cancelled."""
        found = []
        for video in [part for part in turn.parts if isinstance(part, LibraryVideo)]:
            question = asked.question or turn.text or None
            id_, job = self.service.ask(asked.request(self.service.default, video.id, question))
            if job is not None:
                try:
                    await asyncio.wait([asyncio.wrap_future(job.over)])
                finally:
                    self.service.jobs.leave(job)
            found.append(id_)
        return found

    async def parts(self, ranking: str, new: Prefix, style: str) -> tuple[list[Any], dict[str, Any]]:
        """Frames as parts of a message, and what the style wants beside the messages."""
        if not len(new):
            return [], {}
        video, pictures = self.service.video_of(ranking), self.service.pictures
        side = min(LIMITS.size(new.video.width, new.video.height))
        async with self._packing:
            jpegs = await asyncio.gather(*(pictures.get(video, n, side) for n in new.frames.tolist()))
        spoken = self.service.rankings.get(ranking).transcript if self.settings.with_transcript else None
        beside = said_beside(new.seconds.tolist(), spoken, self.settings.transcript_tokens)
        kind = STYLES[style]
        made = kind.build(Draft(new, [], jpegs, "", kind.pairing("auto"), not kind.fuses, None, beside))
        shown = [part for part in made["messages"][0]["content"] if part.get("text") != ""]
        return shown, made.get("extra_body", {})


class Conversation:
    """One request.

    rungs: budgets to try for the turn to be answered. rankings, k: what the last turn shows. times: of its
    frames, in seconds; a semicolon is between two videos.
    """

    def __init__(self, frames: ChatFrames, body: bytes) -> None:
        try:
            self._body: dict[str, Any] = msgspec.json.decode(body, type=dict)
            self._asked = _GIVEN.validate_python({"framenest": self._body.pop("framenest", {})})["framenest"]
        except ValidationError as error:
            raise Refusal(400, first_problem(error.errors())) from error
        except (msgspec.DecodeError, RecursionError) as error:
            raise Refusal(400, f"the request is not a JSON object ({error})") from error
        self._frames, self._as_video = frames, frames.settings.style == "vllm-video"
        self._shown: dict[str, set[int]] = {}  # numbers of frames by video, in the turns before the latest
        self._videos = 0
        self._turn: Turn | None = None  # the latest, still to be made
        self.rungs = sorted(set(self._asked.k or frames.settings.budget))
        self.rankings, self.k, self.times = list[str](), 0, ""

    async def read(self) -> None:
        """Fetch all videos, and rebuild the turns that were answered before."""
        hashed, videos = hashlib.blake2b(digest_size=16), dict[str, LibraryVideo]()
        for message in self._body["messages"] if isinstance(self._body.get("messages"), list) else []:
            role = message.get("role") if isinstance(message, dict) else None
            content = message.get("content") if role == "user" else []
            content = [{"type": "text", "text": content}] if isinstance(content, str) else content
            parts = [await self._part(part) for part in content] if isinstance(content, list) else []
            ids = [part.id if isinstance(part, LibraryVideo) else part for part in parts]
            hashed.update(msgspec.json.encode(ids or message))
            texts = [part.get("text") for part in parts if isinstance(part, dict)]
            text = "\n".join(text for text in texts if isinstance(text, str)).strip()[:LONGEST]
            own = {part.id: part for part in parts if isinstance(part, LibraryVideo)}
            videos |= own
            if own or (videos and text):
                await self._settle()
                earlier: list[Any] = []
                for n, video in enumerate(videos.values(), 1):
                    earlier += [{"type": "text", "text": f"Video {n}:"}, video][len(videos) == 1 :]
                self._turn = Turn(message, hashed.hexdigest(), parts if own else [*earlier, *parts], text)
                message["content"] = None  # it may hold a whole video
            elif role == "assistant":
                await self._settle()
        if self._as_video and len(videos) > 1:
            raise Refusal(400, "--style vllm-video sends one video; this conversation has more")

    async def _part(self, part: Any) -> Any:
        """The video of a part of a message; the part itself if it has none, or frames that were chosen."""
        kind = part.get("type") if isinstance(part, dict) else None
        given = part.get(kind) if kind in ("video_url", "video", "file") else None
        fields = given if isinstance(given, dict) else {"url": given}
        address = fields.get("file_data" if kind == "file" else "url")
        wanted = "(?!data:video/jpeg)data:video/" if kind == "file" else "(?!data:video/jpeg)"
        if isinstance(address, str) and re.match(wanted, address):
            self._videos += 1
            if self._videos > MOST_VIDEOS:
                raise Refusal(400, f"a conversation has at most {MOST_VIDEOS} videos")
            return await self._frames.video(address, str(fields.get("filename") or ""))
        return part

    async def at(self, k: int) -> tuple[bytes, bool]:
        """The request with k frames in the turn to be answered, and whether that ends with OTHERWISE."""
        if (turn := self._turn) is None:
            return msgspec.json.encode(self._body), False
        self.rankings = await self._frames.rankings(turn, self._asked)
        offer = await self._show(turn, k, k != self.rungs[-1])
        return msgspec.json.encode(self._body), offer

    async def _settle(self) -> None:
        """Rebuild the latest turn as it was answered, or with this request's settings if that is unknown."""
        if (turn := self._turn) is not None:
            k, offer, self.rankings = self._frames.journal.recall(turn.digest) or (self.rungs[-1], False, [])
            if not self.rankings or not all(map(self._frames.service.rankings.has, self.rankings)):
                asked = self._asked.model_copy(update={"question": None, "options": [], "look_for": []})
                self.rankings = await self._frames.rankings(turn, asked)
            await self._show(turn, k, offer)
            self._shown, self._turn = self._showing, None

    async def _show(self, turn: Turn, k: int, offer: bool) -> bool:
        """Put the first k frames of its rankings into a turn; whether it ends with OTHERWISE."""
        rankings, shown, times, content = iter(self.rankings), dict(self._shown), list[str](), list[Any]()
        complete = True
        for part in turn.parts:
            if not isinstance(part, LibraryVideo):
                content.append(part)
                continue
            prefix = self._frames.service.rankings.get(id_ := next(rankings)).prefix(k)
            before = shown.get(part.id, set())
            new = prefix.part(~np.isin(prefix.frames, list(before)))
            # The fields for a video describe a single one, so later turns show images.
            style = "vllm-video" if self._as_video and not shown else "openai"
            frames, extra = await self._frames.parts(id_, new, style)
            content += frames
            self._body |= extra
            times.append(",".join(f"{second:.2f}" for second in new.seconds))
            shown[part.id] = before.union(prefix.frames.tolist())
            complete = complete and prefix.complete
        offer = offer and not complete
        turn.message["content"] = content + [{"type": "text", "text": OTHERWISE}] * offer
        self.k, self.times, self._showing = k, ";".join(times), shown
        self._frames.journal.remember(turn.digest, [k, offer, self.rankings])
        return offer


async def _decoded(address: str) -> AsyncIterator[bytes]:
    """The data of a data URL, piece by piece."""
    try:
        for place in range(address.find(";base64,") + 8, len(address), MIB):
            yield binascii.a2b_base64(address[place : place + MIB], strict_mode=True)
    except ValueError as error:
        raise Refusal(422, f"the data of a video is not base64 ({error})") from error
