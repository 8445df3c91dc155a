"""Pydantic models of requests and answers: the schemas of the OpenAPI document."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal, Self, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    create_model,
    model_validator,
)

from framenest.config import FOR_CLIENTS, METHOD_CONFIGS, PRESETS, MECConfig
from framenest.rank_request import MAX_DESCRIPTIONS, LookFor, RankRequest
from framenest.server.jobs import Job
from framenest.server.server_settings import MOST_SHOWN
from framenest.text import seconds_of

MOST_RANKS = 1024
MOST_MOMENTS = 100
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4000)]
Shown = Annotated[int, Field(ge=1, le=MOST_SHOWN)]


def _time(time: Any) -> float:
    try:
        return seconds_of(str(time))
    except ValueError:
        raise ValueError("give seconds or [HH:]MM:SS") from None


Time = Annotated[float, BeforeValidator(_time, json_schema_input_type=float | str)]
"""A time in a video: seconds, or a string such as "1:23.5"."""


class RequestBody(BaseModel):
    """A JSON body without unknown fields."""

    model_config = ConfigDict(extra="forbid")


class VideoPath(RequestBody):
    """A video in the server's folder."""

    path: str = Field(max_length=1024, examples=["lectures/kiln.mp4"])


class VideoAddress(RequestBody):
    """A video on a host that the server was told to allow."""

    url: str = Field(max_length=2048, examples=["https://media.example.org/kiln.mp4"])


_TIME_TYPES = {"start": Time, "end": Time | None}
_HINTS = {name: hint for config in METHOD_CONFIGS for name, hint in get_type_hints(config).items()}
_FIELDS: dict[str, Any] = {
    name: (_TIME_TYPES.get(name, _HINTS[name]), Field(one.default, description=one.metadata["help"]))
    for name, one in FOR_CLIENTS.items()
}
MethodSettings: Any = create_model("MethodSettings", **_FIELDS)
"""The settings of the method that clients may set, as config.py declares them."""


class HowToRank(RequestBody, MethodSettings):  # type: ignore[misc]  # made of config.py
    """What a client may say about a ranking beside the video and the question."""

    options: list[Text] = Field(
        [], max_length=26, description="Answers to choose from, for messages and models."
    )
    look_for: list[Text] = Field(
        [],
        max_length=MAX_DESCRIPTIONS,
        description="What to look for beside the question, described as it would be seen.",
        examples=[["a glowing kiln", "cups cooling on a shelf"]],
    )
    preset: str | None = Field(
        None,
        json_schema_extra={"enum": [*PRESETS, None]},
        description="By default the server's; /health names it.",
    )

    def request(self, default: RankRequest, video: str, question: str | None) -> RankRequest:
        """The request for a ranking of a registered video. default: holds where the client says nothing."""
        preset = self.preset or default.preset
        settings = self.model_dump(include={*FOR_CLIENTS, "horizon"})
        return replace(
            default,
            video=video,
            question=question,
            options=tuple(self.options),
            look_for=LookFor.of(self.look_for),
            preset=preset,
            config=MECConfig.preset(preset).with_settings(settings),
        )


class RankingRequest(HowToRank):
    """A question about a video. Without a question (null) the ranking follows looks and time alone."""

    video: str = Field(max_length=64, description="Id of a registered video.")
    question: Text | None = Field(examples=["What does the potter do after firing?"])
    horizon: int = Field(256, ge=1, le=MOST_RANKS, description="How many ranks.")

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.question is None and self.look_for:
            raise ValueError("descriptions are looked for beside a question; give a question, too")
        return self


class TurnSettings(HowToRank):
    """The field `framenest` of a chat completion: how the gateway chooses the frames of its last turn."""

    k: Annotated[list[Shown], BeforeValidator(lambda k: k if isinstance(k, list) else [k])] | None = None
    tokens: int | None = Field(None, ge=1)
    tiers: bool = True
    question: Text | None = None

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        if self.k and self.tokens:
            raise ValueError("give k or tokens, not both")
        if self.tokens is None and "tiers" in self.model_fields_set:
            raise ValueError("only tokens have tiers")
        return self


class SearchRequest(RequestBody):
    """What to find in all videos."""

    query: Text = Field(examples=["a dog catches a frisbee"])
    n: int = Field(10, ge=1, le=MOST_MOMENTS, description="How many moments at most.")


class AnswerRequest(RequestBody):
    """How a model should answer."""

    k: int = Field(16, ge=1, le=MOST_SHOWN, description="How many frames the model is shown.")
    max_side: int = Field(768, ge=16, le=2160, description="Longer side of the pictures; never enlarged.")
    cite: bool = Field(False, description="Ask for the times of the frames that show what it says.")


class SignIn(RequestBody):
    """The token, to be exchanged for a cookie."""

    token: str = Field(max_length=1024)


class VideoOut(BaseModel):
    """A registered video."""

    id: str
    name: str
    origin: Literal["folder", "upload", "url"]
    created: float
    state: Literal["new", "queued", "indexing", "ready", "failed", "gone"] = Field(
        description="ready: it is indexed. new: it is not, and no job is at it; a question indexes it. "
        "gone: the file has changed or no longer exists."
    )
    error: str | None = Field(None, description="Why indexing failed.")
    questions: int = Field(description="How many rankings were asked for.")
    duration: float | None = Field(None, description="Seconds; this and what follows once it is indexed.")
    num_frames: int | None = None
    fps: float | None = None
    width: int | None = None
    height: int | None = None
    codec: str | None = None
    notes: list[str] = []


class RegisteredVideo(BaseModel):
    """A video, and the job that indexes it."""

    video: VideoOut
    job: Job | None = Field(description="The job that indexes it; null when that is done.")


class RankingStatus(BaseModel):
    """A ranking that was asked for."""

    ranking: str
    ready: bool
    job: Job | None = Field(description="The job that makes the ranking; null when it is there.")


class MomentOut(BaseModel):
    """A part of a video that matches a query."""

    video: str
    name: str = Field(description="Of the video.")
    start: float = Field(description="Seconds, as `end` and `time`.")
    end: float
    time: float = Field(description="Of the best frame.")
    frame: int = Field(description="Its number.")
    score: float = Field(description="Comparable across videos, but not across scorers.")
    why: str = Field(description="What was seen, said or written.")
    source: str = Field(description="Whether it was seen, said or written.")
    confident: bool = Field(description="Whether it clearly matches; the others are the nearest there is.")
    image: str = Field(description="Where its picture is; add ?size= for the short side in pixels.")


class LeftOut(BaseModel):
    """A video that is not searched."""

    name: str
    video: str | None = Field(None, description="Its id, if it is registered.")
    why: str


class SearchOut(BaseModel):
    """A search and what it has found so far."""

    id: str
    query: str
    n: int
    created: float
    searched: int = Field(description="How many videos are searched: those that are indexed.")
    left_out: list[LeftOut]
    verdict: Literal["strong", "weak", "none", "cannot tell"] | None = Field(
        None, description="How surely anything matches, so far; null until a video was looked into."
    )
    knows: list[str] = Field([], description="Words of the query that the scorer knows, if it says so.")
    does_not_know: list[str] = Field([], description="Words of the query that it does not know.")
    summary: str = Field(
        "", description="The same for people: whether anything clearly matches. May be empty."
    )
    moments: list[MomentOut] = Field(description="Best first. While the job runs, the best so far.")
    job: Job | None = Field(description="The job that searches; null if it is long over.")


class FolderFile(BaseModel):
    """A file that can be registered."""

    path: str
    bytes: int


class FolderFiles(BaseModel):
    """What is in the server's folder."""

    files: list[FolderFile] = Field(description="What can be registered.")
    outside: list[str] = Field(description="Links that lead outside the folder, which cannot.")


class RankingSummary(MethodSettings):  # type: ignore[misc]  # as HowToRank
    """A ranking that was asked for."""

    id: str
    video: str
    question: str | None
    options: list[str]
    look_for: list[str]
    preset: str
    horizon: int
    ready: bool
    created: float


class RankingOut(RankingSummary):
    """A ranking that is made."""

    scorer: str
    length: int = Field(description="How many ranks there are: the largest k.")
    stats: dict[str, Any]


class FrameOut(BaseModel):
    """One chosen frame."""

    frame: int
    seconds: float
    rank: int
    image: str = Field(description="Where its picture is; add ?size= for the short side in pixels.")


class PrefixOut(BaseModel):
    """The frames for a budget."""

    ranking: str
    k: int
    after: int
    complete: bool = Field(description="True if the video has fewer than k candidates and all are here.")
    frames: list[FrameOut] = Field(description="In time order.")


class CitedTime(BaseModel):
    """A time that an answer gives, and the frame that it stands for."""

    start: int = Field(description="Where it begins in the answer, in Unicode characters.")
    end: int
    frame: int
    seconds: float


class AnswerOut(BaseModel):
    """A model's answer."""

    answer: str
    model: str
    k: int = Field(description="How many frames it was shown; fewer if the model's server takes fewer.")
    cited: list[CitedTime] = Field(description="Times of frames in the answer, in its order.")
    not_shown: list[str] = Field(description="Times that it cites, of which no frame was shown.")
    seconds: float = Field(description="What it took.")


class Health(BaseModel):
    """What the service is and can do."""

    status: Literal["ok"]
    version: str
    scorer: str
    preset: str = Field(description="The preset of questions that name none.")
    answer_model: str | None = Field(description="The model that answers (--answer-model); null without one.")
    folder: bool = Field(description="Whether the server offers a folder of videos.")
    token: bool = Field(description="Whether requests need a token.")


class ErrorBody(BaseModel):
    """Why a request was refused."""

    detail: str
