"""The shapes of requests and answers: what the OpenAPI document says."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from framenest.config import PRESETS
from framenest.server.jobs import Job
from framenest.server.library import Video

MOST_RANKS = 1024
MOST_SHOWN = 256  # frames that go to a model in one request
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4000)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ByPath(Strict):
    """A video in the server's folder."""

    path: str = Field(max_length=1024, examples=["lectures/kiln.mp4"])


class ByAddress(Strict):
    """A video on a host that the server was told to allow."""

    url: str = Field(max_length=2048, examples=["https://media.example.org/kiln.mp4"])


class Ask(Strict):
    """A question about a video. Without a question (null) the ranking follows looks and time alone."""

    video: str = Field(max_length=64, description="Id of a registered video.")
    question: Text | None = Field(examples=["What does the potter do after firing?"])
    options: list[Text] = Field(
        [], max_length=26, description="Answers to choose from, for messages and models."
    )
    preset: str = Field("paper", json_schema_extra={"enum": list(PRESETS)})
    horizon: int = Field(256, ge=1, le=MOST_RANKS, description="How many ranks.")


class AnswerRequest(Strict):
    k: int = Field(16, ge=1, le=MOST_SHOWN, description="How many frames the model is shown.")


class SignIn(Strict):
    token: str = Field(max_length=1024)


class JobOut(BaseModel):
    id: str
    kind: Literal["index", "rank"]
    target: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    stage: str | None = Field(description="What it is doing: probes, zoom, …")
    done: int
    total: int = Field(description="Of the stage; 0 before it is known.")
    error: str | None
    created: float = Field(description="Seconds since 1970, as all times here.")
    started: float | None
    finished: float | None

    @classmethod
    def of(cls, job: Job) -> JobOut:
        return cls(**{name: getattr(job, name) for name in cls.model_fields})


class VideoOut(BaseModel):
    id: str
    name: str
    origin: Literal["folder", "upload", "url"]
    created: float
    indexed: bool
    duration: float | None = Field(None, description="Seconds; this and what follows once it is indexed.")
    num_frames: int | None = None
    fps: float | None = None
    width: int | None = None
    height: int | None = None
    codec: str | None = None
    notes: list[str] = []

    @classmethod
    def of(cls, video: Video) -> VideoOut:
        names = ("duration", "num_frames", "fps", "width", "height", "codec", "notes")
        facts: dict[str, Any] = {name: video.info[name] for name in names} if video.info else {}
        return cls(
            id=video.id,
            name=video.name,
            origin=video.origin,  # type: ignore[arg-type]  # one of the three by construction
            created=video.created,
            indexed=video.info is not None,
            **facts,
        )


class Registered(BaseModel):
    video: VideoOut
    job: JobOut | None = Field(description="The job that indexes it; null when that is done.")


class RankingRequested(BaseModel):
    ranking: str
    ready: bool
    job: JobOut | None = Field(description="The job that makes the ranking; null when it is there.")


class File(BaseModel):
    path: str
    bytes: int


class RankingEntry(BaseModel):
    id: str
    video: str
    question: str | None
    options: list[str]
    preset: str
    horizon: int
    ready: bool
    created: float


class RankingOut(BaseModel):
    id: str
    video: str
    question: str | None
    options: list[str]
    scorer: str
    preset: str
    length: int = Field(description="How many ranks there are: the largest k.")
    stats: dict[str, Any]


class FrameOut(BaseModel):
    frame: int
    seconds: float
    rank: int
    image: str = Field(description="Where its picture is; add ?size= for the short side in pixels.")


class PrefixOut(BaseModel):
    ranking: str
    k: int
    after: int
    complete: bool = Field(description="True where the video has fewer than k candidates and all are here.")
    frames: list[FrameOut] = Field(description="In time order.")


class AnswerOut(BaseModel):
    answer: str
    model: str
    k: int


class Health(BaseModel):
    status: Literal["ok"]
    version: str
    scorer: str
    answers: bool = Field(description="Whether a model endpoint for answers is configured.")
    uploads: int = Field(description="The largest upload in bytes.")
    folder: bool = Field(description="Whether the server offers a folder of videos.")
    queued: int
    running: int


class Problem(BaseModel):
    detail: str
