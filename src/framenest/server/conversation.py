"""Conversations about videos, as a model gets them: every turn shows the frames for its text.

Clients resend the whole conversation with every question and know nothing of the frames. Earlier turns are
rebuilt from the same rankings, byte for byte, so that the model server's prefix cache stays valid.
"""

from __future__ import annotations

import asyncio
import binascii
import hashlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec
import numpy as np
from cachetools import LRUCache
from pydantic import TypeAdapter, ValidationError

from framenest.cache.hashes import digest
from framenest.errors import FramenestError
from framenest.image_tokens import TIERS, TokenBudget
from framenest.images import ImageLimits
from framenest.lmm.client import most_images
from framenest.lmm.messages import STYLES, Draft, said_beside
from framenest.lmm.prompt import OTHERWISE
from framenest.method.prefix import Prefix
from framenest.server.api_models import TurnSettings
from framenest.server.dialects import (
    CHAT,
    RESPONSES,
    VIDEO,
    Dialect,
    VideoSource,
    any_video,
    base64_alone,
    is_data,
    put_frames,
    take_videos,
)
from framenest.server.guard import Refusal, first_problem, refusal_of
from framenest.server.library import LibraryVideo
from framenest.server.server_settings import MIB
from framenest.server.service import Service

IMAGE_LIMITS = ImageLimits(max_side=768)
MAX_QUESTION_CHARS = 4000  # of a turn's text that choose its frames
MAX_VIDEOS = 256  # in all turns; the same one may be in many
MAX_MESSAGES = 2000
MAX_REMEMBERED_AT_ONCE = 8  # turns of a request; with all of them, one client would push out the others'
MAX_SENT_BYTES = 64 * MIB  # of a request with frames
LEFT_OUT = "(The frames that were here are left out.)"
_SETTINGS = TypeAdapter(dict[str, TurnSettings])


@dataclass
class Turn:
    """What a client says between two answers, and the videos of which it shows frames."""

    answered: bool
    messages: dict[int, Any] = field(default_factory=dict)  # with frames, by place; VIDEO is where they go
    videos: list[LibraryVideo] = field(default_factory=list)  # what goes there, in order
    labels: list[str] = field(default_factory=list)  # texts before the frames
    text: str = ""  # what chooses them
    digest: str = ""  # of the conversation up to here
    key: str = ""  # the digest with the settings
    rankings: list[str] = field(default_factory=list)
    k: int = 0
    offer: bool = False  # whether it may end with OTHERWISE
    tiers: bool = False  # whether later ranks have smaller images


@dataclass
class Conversation:
    """A request and what is known of it; the second half once it was read."""

    dialect: Dialect
    fields: dict[str, Any]
    settings: TurnSettings
    taken: list[list[VideoSource]]  # the videos that were in each message
    is_plain: bool  # whether it may pass as it is
    turns: list[Turn] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  # of all videos, by id
    frames: dict[str, list[int]] = field(default_factory=dict)  # of earlier turns, which the upstream keeps
    rungs: list[int] = field(default_factory=list)  # budgets of the last turn; none if it is answered

    def images_beside(self) -> int:
        """How many images there are besides the frames to be shown: the client's, and those of `frames`."""
        own = msgspec.json.encode(self.fields, enc_hook=lambda _: None)
        return own.count(b'"type":"%b"' % self.dialect.image.encode()) + sum(map(len, self.frames.values()))


class ShownTurn(NamedTuple):
    """The last turn that shows frames, as it is sent."""

    chat: Conversation
    turn: Turn
    k: int  # frames of each video
    offers: bool  # whether it ends with OTHERWISE
    times: str  # of its new frames, in seconds; a semicolon is between two videos
    evidence: str  # how many of the k frames of each video match the question, such as "2/8"
    frames: dict[str, list[int]]  # numbers of all up to here, by video


class ChatFrames:
    """What conversations share: arriving videos, images of frames, and how turns were answered."""

    def __init__(self, service: Service) -> None:
        self.service, self.settings, self.journal = service, service.settings, service.journal
        self._arriving = WeakValueDictionary[str, asyncio.Lock]()
        self._incoming, self._packing = asyncio.Semaphore(3), asyncio.Semaphore(3)  # others wait
        self._most_images = LRUCache[str, int](64)  # by model

    async def read(self, chat: Conversation) -> None:
        """Fetch the videos of a conversation and rank them for its turns."""
        fields, settings, name = chat.fields, chat.settings, chat.dialect.messages
        known = self.journal.recall(f"response:{fields.get('previous_response_id')}")
        chat.names, chat.frames = known or ({}, {})
        if isinstance(fields.get(name), str) and chat.names:
            fields[name] = [{"role": "user", "content": fields[name]}]
        if isinstance(fields.get(name), list):
            chat.turns = await self.turns(chat, fields[name])
        asked, rungs = digest(settings.model_dump()), sorted(set(settings.k or self.settings.budget))
        tokens = self._tokens(settings)
        settings_before = settings.model_copy(update={"question": None, "options": [], "look_for": []})
        for turn in chat.turns:
            await asyncio.sleep(0)  # there may be thousands
            turn.key, turn.k = f"{turn.digest}:{asked}", rungs[-1]
            known = self.recall(turn, asked) if turn.answered else None
            if known is not None:
                turn.key, (turn.k, turn.offer, turn.rankings, turn.tiers) = known
            if not self.service.rankings.are_of(turn.rankings, [video.id for video in turn.videos]):
                turn.rankings = await self.rankings(turn, settings_before if turn.answered else settings)
            if tokens is not None and known is None:
                await asyncio.to_thread(self._fit, turn, tokens)
                rungs = [turn.k]
            chat.rungs = [] if turn.answered else rungs[0 if chat.dialect is CHAT else -1 :]

    def _tokens(self, settings: TurnSettings) -> TokenBudget | None:
        """The budget in tokens of a request, or else the server's, unless the request gives one in frames."""
        if settings.tokens:
            return TokenBudget(settings.tokens, TIERS if settings.tiers else None, IMAGE_LIMITS)
        server = None if settings.k else self.settings.tokens
        return server and replace(server, limits=IMAGE_LIMITS)

    def _fit(self, turn: Turn, tokens: TokenBudget) -> None:
        """Give a turn as many frames of each of its videos as fit."""
        turn.tiers = tokens.tiers is not None
        turn.k = min(len(self.service.rankings.get(id_).prefix(tokens)) for id_ in turn.rankings)

    async def turns(self, chat: Conversation, messages: list[Any]) -> list[Turn]:
        """The turns that show frames: of their own videos or, if they have only a text, of all so far."""
        dialect, names, taken = chat.dialect, chat.names, chat.taken
        hashed, turns, question = hashlib.blake2b(digest_size=16), list[Turn](), ""
        hashed.update(msgspec.json.encode(chat.fields.get("previous_response_id")))
        roles = [dialect.role(message) for message in messages]
        starts = [n for n in range(1, len(roles)) if roles[n] == "assistant" != roles[n - 1]]
        for start, end in pairwise([0, *starts, len(roles)]):
            turn = Turn(end < len(roles) or roles[-1] == "assistant")
            texts = dict[int, str]()
            for n in range(start, end):
                named = list[tuple[str, str, str]]()
                while taken and taken[n]:
                    source = taken[n].pop(0)
                    video = await self.video(source)
                    turn.videos.append(video)
                    turn.messages[n] = messages[n]
                    named.append((video.id, source.name, source.place))
                    names.setdefault(video.id, source.name)
                hashed.update(msgspec.json.encode([messages[n], named], enc_hook=lambda _: None))
                await asyncio.sleep(0)  # there may be thousands
                if roles[n] == "user" and (text := _text(messages[n])):
                    texts[n] = text
            question = "\n".join(texts.values())[:MAX_QUESTION_CHARS] or question
            if texts and names and not turn.videos:
                turn.videos = [self.service.library.get(id_) for id_ in names]
                turn.messages = {max(texts): _begun_with_videos(messages[max(texts)], len(names), dialect)}
            if turn.videos:
                numbers = {id_: f"Video {n}: {name}" for n, (id_, name) in enumerate(names.items(), 1)}
                turn.labels = [numbers[video.id].removesuffix(" ") for video in turn.videos if len(names) > 1]
                turn.text, turn.digest = question, f"shown:{hashed.hexdigest()}"
                turns.append(turn)
        return turns

    async def video(self, source: VideoSource) -> LibraryVideo:
        """The video at an address, or in a data URL; fetched or decoded if it is new."""
        try:
            return await self._video(source.address, source.name)
        except FramenestError as error:
            raise refusal_of(error, f"{source.place}: {error}") from error

    async def _video(self, address: str, name: str) -> LibraryVideo:
        library = self.service.library
        if re.fullmatch(r"[0-9a-f]{16}", id_ := address.removeprefix("framenest://")):
            return library.get(id_)
        if address[:5].lower() == "file:":
            return await asyncio.to_thread(library.add_path, address)
        if not is_data(address) and "://" not in address:
            known = "file:///folder/kiln.mp4, https://host/kiln.mp4 or the data in base64"
            raise Refusal(422, f"{address[:100]!r} is no address of a video; give {known}")
        return await self.fetch(address, name)

    async def fetch(self, address: str, name: str) -> LibraryVideo:
        """The video at a URL, or in a data URL; fetched or decoded unless the library has it."""
        library = self.service.library
        key = f"address:{await asyncio.to_thread(_hash, address)}"
        async with self._arriving.setdefault(key, asyncio.Lock()):
            try:
                video = library.get(self.journal.recall(key) or "")
                video.check()
            except Refusal:  # it is new, or was removed or changed
                self.service.jobs.check_room()
                async with self._incoming:
                    if is_data(address):
                        video = await library.upload(_decoded(address), name)
                    else:
                        video = await asyncio.to_thread(library.fetch, address)
            self.journal.remember(key, video.id)
            return video

    async def rankings(self, turn: Turn, settings: TurnSettings) -> list[str]:
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

    def recall(self, turn: Turn, asked: str) -> tuple[str, Any] | None:
        """How a turn was answered, (k, offers, rankings, tiers), and its key.

        asked: hash of settings. Of two clients with the same turn, each gets back what its settings chose;
        for other settings, what was answered first holds.
        """
        keys = (f"{turn.digest}:{asked}", self.journal.recall(turn.digest))
        return next(((key, known) for key in keys if key and (known := self.journal.recall(key))), None)

    def remember(self, shown: ShownTurn, response: str | None = None) -> None:
        """Keep how a turn was answered, unless that is known, and what the response follows."""
        answer = [shown.turn.k, shown.offers, shown.turn.rankings, shown.turn.tiers]
        values: dict[str, Any] = {shown.turn.key: answer, shown.turn.digest: shown.turn.key}
        if response:
            values[f"response:{response}"] = [shown.chat.names, shown.frames]
        for name, value in values.items():
            self.journal.remember(name, self.journal.recall(name) or value)

    async def request(self, chat: Conversation, k: int) -> tuple[bytes, ShownTurn | None]:
        """The request with frames, k of each video for a turn without answer, and the last turn with some."""
        if chat.rungs:
            chat.turns[-1].k, chat.turns[-1].offer = k, k != chat.rungs[-1]
        if not chat.turns:
            return msgspec.json.encode(chat.fields), None
        limit = most = self.settings.max_images
        if known := self.most_images(chat):
            limit = min(limit, known)
            most = max(1, min(most, known - await asyncio.to_thread(chat.images_beside)))
        while True:
            budgets = await asyncio.to_thread(self._budgets, chat, most)
            if budgets[-1]:
                content, shown = await self._with_frames(chat, budgets)
                if len(content) <= MAX_SENT_BYTES:
                    return content, shown
            if not budgets[-1] or not most:
                limits = f"{limit} images and {MAX_SENT_BYTES / MIB:g} MiB"
                videos = len(chat.turns[-1].videos)
                raise Refusal(413, f"a request has at most {limits}; this turn, of {videos} videos, has more")
            most = most * MAX_SENT_BYTES // len(content)

    def most_images(self, chat: Conversation) -> int | None:
        """How many images the model's server takes in a request, once it has said so."""
        return self._most_images.get(digest(chat.fields.get("model")))

    def learn(self, shown: ShownTurn, error: bytes) -> bool:
        """Whether the model's server says that it takes fewer images, and there is room for a frame."""
        chat, beside = shown.chat, shown.chat.images_beside()
        new = sum(len(numbers) - len(chat.frames.get(id_, ())) for id_, numbers in shown.frames.items())
        most = most_images(" ".join(error.decode(errors="replace").split()), beside + new)
        if most is None or most <= beside:
            return False
        self._most_images[digest(chat.fields.get("model"))] = most
        return True

    def _budgets(self, chat: Conversation, most: int) -> list[int]:
        """How many frames each turn shows of each of its videos, at most `most` in all."""
        turns = list[tuple[int, list[tuple[str, list[int]]]]]()
        for turn in chat.turns:
            ranks = [self.service.rankings.get(id_).frames.tolist() for id_ in turn.rankings]
            turns.append((turn.k, [*zip((video.id for video in turn.videos), ranks, strict=True)]))
        return thinned(turns, most, chat.frames)

    async def _with_frames(self, chat: Conversation, budgets: list[int]) -> tuple[bytes, ShownTurn]:
        frames, messages = dict(chat.frames), [*chat.fields[chat.dialect.messages]]
        for left, turn, k in zip(range(len(budgets), 0, -1), chat.turns, budgets, strict=True):
            contents, shown = await self.show(chat, turn, k, frames)
            for place, message in turn.messages.items():
                messages[place] = put_frames(message, contents)
            if turn.answered and left <= MAX_REMEMBERED_AT_ONCE:
                self.remember(shown)
            if shown.offers:
                messages[place]["content"].append({"type": "text", "text": OTHERWISE})
        return msgspec.json.encode(chat.fields | {chat.dialect.messages: messages}), shown

    async def show(
        self, chat: Conversation, turn: Turn, k: int, frames: dict[str, list[int]]
    ) -> tuple[Iterator[list[Any]], ShownTurn]:
        """What goes in place of each video of a turn: of its first k frames, those that `frames` gets now."""
        contents, times, evidence, complete = list[list[Any]](), list[str](), list[str](), True
        for video, ranking, label in zip_longest(turn.videos, turn.rankings, turn.labels):
            prefix = (await asyncio.to_thread(self.service.rankings.get, ranking)).prefix(max(k, 1))
            if turn.tiers and prefix.ranks is not None:
                shape = prefix.video.width, prefix.video.height
                by_rank = TokenBudget(1, limits=IMAGE_LIMITS).sizes(prefix.budget, *shape)
                prefix = replace(prefix, sizes=tuple(by_rank[rank - 1] for rank in prefix.ranks))
            before = frames.get(video.id, [])
            new = prefix.part(~np.isin(prefix.frames, before) & (k > 0))
            parts = await self._images(ranking, new) if k else [{"type": "text", "text": LEFT_OUT}]
            parts = [{"type": "text", "text": label}, *parts] if label else parts
            contents.append([chat.dialect.part(part) for part in parts])
            evidence.append(f"{prefix.roles.count('evidence')}/{len(prefix)}")
            times.append(",".join(f"{second:.2f}" for second in new.seconds))
            frames[video.id] = [*before, *new.frames.tolist()]
            complete = complete and prefix.complete
        offers = turn.offer and k == turn.k and not complete
        return iter(contents), ShownTurn(chat, turn, k, offers, ";".join(times), ";".join(evidence), frames)

    async def _images(self, ranking: str, new: Prefix) -> list[Any]:
        """Frames as parts of a message, each after its time."""
        if not len(new):
            return []
        video, pictures = self.service.video_of(ranking), self.service.pictures
        sizes = new.sizes or [IMAGE_LIMITS.size(new.video.width, new.video.height)] * len(new)
        wanted = zip(new.frames.tolist(), map(min, sizes), strict=True)
        async with self._packing:
            jpegs = await asyncio.gather(*(pictures.get(video, *one) for one in wanted))
        spoken = self.service.rankings.get(ranking).transcript if self.settings.with_transcript else None
        beside = said_beside(new.seconds.tolist(), spoken, self.settings.transcript_tokens)
        request = STYLES["openai"].build(Draft(new, [], jpegs, "", "images", True, None, beside))
        return [part for part in request["messages"][0]["content"] if part.get("text") != ""]


def thinned(
    turns: Sequence[tuple[int, Sequence[tuple[str, Sequence[int]]]]],
    limit: int,
    shown: Mapping[str, Sequence[int]],
) -> list[int]:
    """Budgets with which turns show at most `limit` images together: each a prefix of what it had.

    Room is made by halving the budgets of the oldest turns, a quarter of the limit at a time, so that earlier
    turns stay as they are for some turns more. The last turn shrinks only if all others are empty.

    turns: the budget of each, and its videos with their frames by rank. shown: frames shown before, by video.
    """
    before = {(video, frame) for video, frames in shown.items() for frame in frames}
    images, budgets, oldest = Counter[tuple[str, int]](), list[int](), 0  # how many turns show each image

    def show(turn: int, budget: int) -> None:
        low, high = sorted((budgets[turn], budget))
        count = 1 if budget == high else -1
        for video, ranked in turns[turn][1]:
            for image in {(video, frame) for frame in ranked[low:high]} - before:
                images[image] += count
                if not images[image]:
                    del images[image]
        budgets[turn] = budget

    for turn, (k, videos) in enumerate(turns):
        budgets.append(0)
        show(turn, k)
        if len(images) > limit:
            new = {(video, frame) for video, ranked in videos for frame in ranked[:k]} - before
            room = limit * 3 // 4 if len(new) <= limit * 3 // 4 else limit
            while len(images) > room and oldest < turn:
                if budgets[oldest]:
                    show(oldest, budgets[oldest] // 2)
                else:
                    oldest += 1
            while len(images) > limit and budgets[turn]:
                show(turn, budgets[turn] - 1)
    return budgets


def parse_request(content: bytes, dialect: Dialect) -> Conversation:
    """Take the videos and the field `framenest` out of a request."""
    try:
        fields: dict[str, Any] = msgspec.json.decode(content, type=dict)
        has_settings = "framenest" in fields
        settings = _SETTINGS.validate_python({"framenest": fields.pop("framenest", {})})["framenest"]
        said = messages = fields.get(dialect.messages)
        taken = list[list[VideoSource]]()
        if isinstance(messages, list):
            if len(messages) > MAX_MESSAGES:
                raise Refusal(413, f"a conversation has at most {MAX_MESSAGES} messages")
            taken = [[] for _ in messages]
            places = [f"{dialect.messages}[{n}]" for n in range(len(messages))]
            fields[dialect.messages] = kept = [*map(take_videos, messages, places, taken)]
            if VIDEO in kept:
                raise Refusal(400, f"{places[kept.index(VIDEO)]}: a video belongs in a message's content")
            said = [None if dialect.role(message) == "assistant" else message for message in kept]
        others = {name: fields[name] for name in fields.keys() - {"metadata", "tools"}}
        shape = '{"type": "video_url", "video_url": {"url": …}} in the content of a message'
        refuse_videos(others | {dialect.messages: said}, f"give a video as {shape}")
    except ValidationError as error:
        raise Refusal(400, first_problem(error.errors())) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, f"the request is not a JSON object ({error})") from error
    if sum(map(len, taken)) > MAX_VIDEOS:
        raise Refusal(400, f"a conversation has at most {MAX_VIDEOS} videos")
    follows = dialect is RESPONSES and fields.get("previous_response_id") is not None
    return Conversation(dialect, fields, settings, taken, not (any(taken) or has_settings or follows))


def refuse_videos(value: Any, instead: str) -> None:
    """Refuse a video where no frames are chosen."""
    if (source := any_video(value, "")) is not None:
        raise Refusal(400, f"{source.place or 'the request'}: no frames are chosen here; {instead}")


def _text(message: Any) -> str:
    """What a message says, without what is inside its parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content.strip()
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str)).strip()


def _begun_with_videos(message: Any, count: int, dialect: Dialect) -> Any:
    """A message with places for videos before its first text; the results of tools must stay first."""
    content = message["content"]
    content = [{"type": dialect.text, "text": content}] if isinstance(content, str) else content
    place = next(n for n, part in enumerate(content) if isinstance(part, dict) and part.get("text"))
    return message | {"content": [*content[:place], *[VIDEO] * count, *content[place:]]}


def _hash(address: str) -> str:
    hashed = hashlib.blake2b(digest_size=16)
    for place in range(0, len(address), MIB):  # a piece at a time, which lets others go on
        hashed.update(address[place : place + MIB].encode())
    return hashed.hexdigest()


async def _decoded(address: str) -> AsyncIterator[bytes]:
    """The data of a data URL, or base64 alone, piece by piece."""
    left = b""
    try:
        for place in range(address.find(",", 0, 2048) + 1, len(address), MIB):
            piece = left + base64_alone(address[place : place + MIB])
            whole = len(piece) // 4 * 4
            yield binascii.a2b_base64(piece[:whole], strict_mode=True)
            left = piece[whole:]
        yield binascii.a2b_base64(left + b"=" * (-len(left) % 4), strict_mode=True)
    except ValueError as error:
        raise Refusal(422, f"the data of a video is not base64 ({error})") from error
