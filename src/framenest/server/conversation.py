"""Conversations about videos, as a model gets them: every turn shows the frames for its text.

Clients resend the whole conversation with every question and know nothing of the frames. Earlier turns are
rebuilt from the same rankings, byte for byte, so that the model server's prefix cache stays valid.
"""

from __future__ import annotations

import asyncio
import binascii
import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec
import numpy as np
from pydantic import TypeAdapter, ValidationError

from framenest.cache.hashes import digest
from framenest.images import ImageLimits
from framenest.lmm.messages import STYLES, Draft, said_beside
from framenest.lmm.prompt import OTHERWISE
from framenest.method.prefix import Prefix
from framenest.server.api_models import TurnSettings
from framenest.server.body import Body
from framenest.server.guard import Refusal, first_problem
from framenest.server.library import LibraryVideo
from framenest.server.server_settings import MIB
from framenest.server.service import Service

IMAGE_LIMITS = ImageLimits(max_side=768)
MAX_QUESTION_CHARS = 4000  # of a turn's text that choose its frames
MAX_VIDEOS = 256  # in all turns; the same one may be in many
MAX_MESSAGES = 10_000
_SETTINGS = TypeAdapter(dict[str, TurnSettings])


class VideoSource(NamedTuple):
    """Where the video of a message is: an address, or a data URL."""

    address: str
    name: str


@dataclass(frozen=True)
class Message:
    """A message and its place in a request.

    fields: as they came; without the content if that has videos. parts: of a user's content, with a
    LibraryVideo where frames go. text: what chooses them. digest: of the conversation up to here.
    """

    place: int
    fields: Any
    parts: Sequence[Any]
    text: str
    digest: str

    @property
    def videos(self) -> list[LibraryVideo]:
        """The videos in it, in order; one may be there twice."""
        return [part for part in self.parts if isinstance(part, LibraryVideo)]


class ShownTurn(NamedTuple):
    """A user's message with its frames.

    key: under which it is remembered. content: for the model. rankings, k: what it shows. offers: whether it
    ends with OTHERWISE. times: of its new frames, in seconds; a semicolon is between two videos. evidence:
    how many of the k frames of each video match the question, such as "2/8". frames: numbers of all frames
    up to here, by video.
    """

    key: str
    content: list[Any]
    rankings: list[str]
    k: int
    offers: bool
    times: str
    evidence: str
    frames: dict[str, set[int]]


class ChatFrames:
    """What conversations share: arriving videos, images of frames, and how turns were answered."""

    def __init__(self, service: Service) -> None:
        self.service, self.settings, self.journal = service, service.settings, service.journal
        self._arriving = WeakValueDictionary[str, asyncio.Lock]()
        self._incoming, self._packing = asyncio.Semaphore(3), asyncio.Semaphore(3)  # others wait

    async def requests(
        self, fields: dict[str, Any], settings: TurnSettings
    ) -> AsyncGenerator[tuple[bytes, ShownTurn | None, bool], None]:
        """The request with frames in place of videos, again with more if the model cannot tell.

        With the last turn that shows frames, and whether the model may ask for more. Turns that were answered
        show the same frames as before.
        """
        messages = list[Message]()
        if isinstance(fields.get("messages"), list):
            messages = await self.parse(fields["messages"])
            fields["messages"] = [message.fields for message in messages]  # without the data of videos
        turns, latest = turns_with_videos(messages), None
        if turns and not any(_role(message.fields) == "assistant" for message in messages[turns[-1].place :]):
            latest = turns.pop()
        rungs, frames, shown = sorted(set(settings.k or self.settings.budget)), dict[str, set[int]](), None
        settings_before = settings.model_copy(update={"question": None, "options": [], "look_for": []})
        asked = digest(settings.model_dump())
        for turn in turns:
            await asyncio.sleep(0)  # there may be thousands
            key, (k, offer, rankings) = self.recall(turn, asked) or (
                f"{turn.digest}:{asked}",
                (rungs[-1], False, []),
            )
            if not self.service.rankings.are_of(rankings, [video.id for video in turn.videos]):
                rankings = await self.rankings(turn, settings_before)
            shown = await self.show(key, turn, rankings, k, offer, frames)
            self.remember(shown)
            frames = shown.frames
            fields["messages"][turn.place] = turn.fields | {"content": shown.content}
        if latest is None:
            yield msgspec.json.encode(fields), shown, False
            return
        rankings = await self.rankings(latest, settings)
        for k in rungs:
            shown = await self.show(f"{latest.digest}:{asked}", latest, rankings, k, k != rungs[-1], frames)
            fields["messages"][latest.place] = latest.fields | {"content": shown.content}
            yield msgspec.json.encode(fields), shown, shown.offers

    async def parse(self, messages: Sequence[Any]) -> list[Message]:
        """The messages of a request, with their videos fetched."""
        if len(messages) > MAX_MESSAGES:
            raise Refusal(413, f"a conversation has at most {MAX_MESSAGES} messages")
        contents = [_content(message) for message in messages]
        if sum(isinstance(part, VideoSource) for content in contents for part in content) > MAX_VIDEOS:
            raise Refusal(400, f"a conversation has at most {MAX_VIDEOS} videos")
        hashed, parsed = hashlib.blake2b(digest_size=16), list[Message]()
        for message, content in zip(messages, contents, strict=True):
            parts = [await self.video(part) if isinstance(part, VideoSource) else part for part in content]
            fields = message | {"content": None} if parts != content else message
            tagged = [
                ["video", part.id] if isinstance(part, LibraryVideo) else ["part", part] for part in parts
            ]
            await asyncio.to_thread(hashed.update, msgspec.json.encode([fields, tagged]))
            texts = [part.get("text") for part in parts if isinstance(part, dict)]
            text = "\n".join(text for text in texts if isinstance(text, str)).strip()
            parsed.append(
                Message(len(parsed), fields, parts, text[:MAX_QUESTION_CHARS], f"turn:{hashed.hexdigest()}")
            )
        return parsed

    async def video(self, source: VideoSource) -> LibraryVideo:
        """The video at an address, or in a data URL; fetched or decoded if it is new."""
        library, (address, name) = self.service.library, source
        if ":" not in (id_ := address.removeprefix("framenest://")):
            return library.get(id_)
        if address.startswith("file://"):
            return await asyncio.to_thread(library.add_path, address)
        key = f"address:{await asyncio.to_thread(_hash, address)}"
        async with self._arriving.setdefault(key, asyncio.Lock()):
            try:
                video = library.get(self.journal.recall(key) or "")
                video.check()
            except Refusal:  # it is new, or was removed or changed
                self.service.jobs.check_room()
                async with self._incoming:
                    if address.startswith("data:"):
                        video = await library.upload(_decoded(address), name)
                    else:
                        video = await asyncio.to_thread(library.fetch, address)
            self.journal.remember(key, video.id)
            return video

    async def rankings(self, turn: Message, settings: TurnSettings) -> list[str]:
        """The ids of a turn's finished rankings; a job that nobody waits for any longer is cancelled."""
        ids = []
        for video in turn.videos:
            question = settings.question or turn.text or None
            id_, job = self.service.ask(settings.request(self.service.default, video.id, question))
            if job is not None:
                try:
                    await asyncio.wait([asyncio.wrap_future(job.over)])
                finally:
                    self.service.jobs.leave(job)
            ids.append(id_)
        return ids

    def recall(self, turn: Message, asked: str) -> tuple[str, Any] | None:
        """How a turn was answered, (k, offers, rankings), and its key.

        asked: hash of settings. Of two clients with the same turn, each gets back what its settings chose;
        for other settings, what was answered first holds.
        """
        keys = (f"{turn.digest}:{asked}", self.journal.recall(turn.digest))
        return next(((key, known) for key in keys if key and (known := self.journal.recall(key))), None)

    def remember(self, turn: ShownTurn) -> None:
        """Keep how a turn was answered, unless that is known."""
        first, _, _ = turn.key.rpartition(":")
        for key, value in (turn.key, [turn.k, turn.offers, turn.rankings]), (first, turn.key):
            self.journal.remember(key, self.journal.recall(key) or value)

    async def show(
        self,
        key: str,
        turn: Message,
        rankings: list[str],
        k: int,
        offer: bool,
        earlier: Mapping[str, set[int]],
    ) -> ShownTurn:
        """Put those of the first k frames of its rankings into a turn that are not among the earlier ones.

        offer: say how the model can ask for more, if there are more.
        """
        shown = dict(earlier)
        ids, times, evidence, complete = iter(rankings), list[str](), list[str](), True
        content = list[Any]()
        for part in turn.parts:
            if not isinstance(part, LibraryVideo):
                content.append(part)
                continue
            prefix = self.service.rankings.get(ranking := next(ids)).prefix(k)
            before = shown.get(part.id, set())
            new = prefix.part(~np.isin(prefix.frames, list(before)))
            content += await self._images(ranking, new)
            evidence.append(f"{prefix.roles.count('evidence')}/{len(prefix)}")
            times.append(",".join(f"{second:.2f}" for second in new.seconds))
            shown[part.id] = before.union(prefix.frames.tolist())
            complete = complete and prefix.complete
        offers = offer and not complete
        content += [{"type": "text", "text": OTHERWISE}] * offers
        return ShownTurn(key, content, rankings, k, offers, ";".join(times), ";".join(evidence), shown)

    async def _images(self, ranking: str, new: Prefix) -> list[Any]:
        """Frames as parts of a message, each after its time."""
        if not len(new):
            return []
        video, pictures = self.service.video_of(ranking), self.service.pictures
        side = min(IMAGE_LIMITS.size(new.video.width, new.video.height))
        async with self._packing:
            jpegs = await asyncio.gather(*(pictures.get(video, n, side) for n in new.frames.tolist()))
        spoken = self.service.rankings.get(ranking).transcript if self.settings.with_transcript else None
        beside = said_beside(new.seconds.tolist(), spoken, self.settings.transcript_tokens)
        request = STYLES["openai"].build(Draft(new, [], jpegs, "", "images", True, None, beside))
        return [part for part in request["messages"][0]["content"] if part.get("text") != ""]


def parse_request(body: Body) -> tuple[dict[str, Any], TurnSettings]:
    """The fields of a chat completion, and the settings in its field `framenest`."""
    try:
        fields: dict[str, Any] = msgspec.json.decode(body.content, type=dict)
        body.content = b""  # its size still counts: the fields take as much
        settings = _SETTINGS.validate_python({"framenest": fields.pop("framenest", {})})
    except ValidationError as error:
        raise Refusal(400, first_problem(error.errors())) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, f"the request is not a JSON object ({error})") from error
    return fields, settings["framenest"]


def turns_with_videos(messages: Sequence[Message]) -> list[Message]:
    """The messages that show frames: of their own videos or, if they have only a text, of all before them."""
    videos, turns = dict[str, LibraryVideo](), list[Message]()
    for message in messages:
        videos |= {video.id: video for video in message.videos}
        if message.videos:
            turns.append(message)
        elif videos and message.text:
            earlier: list[Any] = []
            for n, video in enumerate(videos.values(), 1):
                earlier += [{"type": "text", "text": f"Video {n}:"}, video][len(videos) == 1 :]
            turns.append(replace(message, parts=[*earlier, *message.parts]))
    return turns


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


def _content(message: Any) -> list[Any]:
    """The parts of a user's message, with a VideoSource in place of each video; none of another message."""
    content = message.get("content") if _role(message) == "user" else None
    content = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [_video_source(part) or part for part in content] if isinstance(content, list) else []


def _video_source(part: Any) -> VideoSource | None:
    """None if a part has no video, or frames that were chosen."""
    kind = part.get("type") if isinstance(part, dict) else None
    value = part.get(kind) if kind in ("video_url", "video", "file") else None
    fields = value if isinstance(value, dict) else {"url": value}
    address = fields.get("file_data" if kind == "file" else "url")
    wanted = "(?!data:video/jpeg)data:video/" if kind == "file" else "(?!data:video/jpeg)"
    if isinstance(address, str) and re.match(wanted, address):
        return VideoSource(address, str(fields.get("filename") or ""))
    return None


def _hash(address: str) -> str:
    hashed = hashlib.blake2b(digest_size=16)
    for place in range(0, len(address), MIB):  # a piece at a time, which lets others go on
        hashed.update(address[place : place + MIB].encode())
    return hashed.hexdigest()


async def _decoded(address: str) -> AsyncIterator[bytes]:
    """The data of a data URL, piece by piece."""
    try:
        for place in range(address.find(";base64,") + 8, len(address), MIB):
            yield binascii.a2b_base64(address[place : place + MIB], strict_mode=True)
    except ValueError as error:
        raise Refusal(422, f"the data of a video is not base64 ({error})") from error
