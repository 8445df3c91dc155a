"""Requests for models, in the message style that each understands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from PIL import Image

from framenest.errors import ConfigError
from framenest.image_tokens import QWEN_VIDEO, TIERS, Size, TokenBudget, gemini_level, gpt_level, image_cells
from framenest.images import ImageLimits, as_base64, data_url, encode_image
from framenest.lmm import prompt
from framenest.lmm.prompt import CHARACTERS, PAIR, TOKENS, Pairing
from framenest.lmm.request import Message, Request, Tokens
from framenest.method.prefix import Prefix
from framenest.progress import ShowProgress, shown
from framenest.protocols import Store
from framenest.transcript import Transcript
from framenest.video.opening import Video, reopen

AROUND = 10.0  # seconds from a frame within which a transcript line is sent


@dataclass(frozen=True, eq=False)
class Draft:
    """The inputs from which a style builds a request."""

    prefix: Prefix
    images: list[Image.Image]  # for a processor; empty for a server
    jpegs: list[bytes]  # for a server; empty for a processor
    text: str
    pairing: Pairing
    tell_times: bool  # whether Framenest writes the times as text
    frame_pixels: int | None  # as in `ImageLimits`
    beside: Sequence[str]  # the text after each frame: transcript lines near it, or an empty string
    details: Sequence[str] = ()  # the `detail` of each image, for styles that have one

    @property
    def markers(self) -> list[str]:
        return [prompt.marker(second) for second in self.prefix.seconds.tolist()]

    @property
    def places(self) -> list[int]:
        """Places in the prefix of the frames of a video, in the order they are sent."""
        return prompt.sent_places(self.pairing, self.prefix.seconds.tolist())


StyleName = Literal[
    "openai", "gpt", "gemini", "vllm-video", "qwen", "hf-video", "internvl", "llava-onevision"
]
"""The names in `STYLES`, for type checkers."""
Parts = dict[str, Any]  # fields of a `Request`


def _openai(draft: Draft) -> Parts:
    images: list[Message] = [
        {"type": "image_url", "image_url": {"url": data_url(jpeg)}} for jpeg in draft.jpegs
    ]
    for image, detail in zip(images, draft.details, strict=False):
        image["image_url"]["detail"] = detail
    return {"messages": _interleaved(draft, images)}


def _vllm_video(draft: Draft) -> Parts:
    """num_frames must be given: without it vLLM keeps the first 32 frames and drops the rest."""
    metadata = prompt.video_metadata(draft.prefix, draft.places)
    encoded = [as_base64(jpeg) for jpeg in draft.jpegs]
    sent = [encoded[place] for place in draft.places]
    video = {"type": "video_url", "video_url": {"url": "data:video/jpeg;base64," + ",".join(sent)}}
    settings = {"num_frames": len(sent), **metadata, "do_sample_frames": False}
    extra: dict[str, Any] = {"media_io_kwargs": {"video": settings}}
    if draft.frame_pixels is not None:
        size = {"shortest_edge": QWEN_VIDEO[0], "longest_edge": draft.frame_pixels * len(sent)}
        extra["mm_processor_kwargs"] = {"size": size}
    return {
        "messages": _after_video(draft, video),
        "extra_body": extra,
        "markers": prompt.paired_markers(metadata),
    }


def _qwen(draft: Draft) -> Parts:
    if draft.pairing == "images":
        return _placeholders(draft)
    metadata = prompt.video_metadata(draft.prefix, draft.places)
    return _hf_video(draft) | {"markers": prompt.paired_markers(metadata)}


def _hf_video(draft: Draft) -> Parts:
    metadata = prompt.video_metadata(draft.prefix, draft.places)
    return {
        "messages": _after_video(draft, {"type": "video"}),
        "images": [draft.images[place] for place in draft.places],
        "processor": {"video_metadata": [metadata], "do_sample_frames": False},
        "markers": [f"{second:.1f}s" for second in draft.prefix.seconds.tolist()] if draft.tell_times else [],
    }


def _internvl(draft: Draft) -> Parts:
    """InternVL's own "Frame1: <image>" with the time added; one tile per frame, as for video."""
    content: list[Message] = []
    markers = [f"{second:.1f} seconds" for second in draft.prefix.seconds.tolist()]
    for number, (marker, line) in enumerate(zip(markers, draft.beside, strict=True), 1):
        when = f" at {marker}" if draft.tell_times else ""
        content += [{"type": "text", "text": f"Frame{number}{when}: "}, {"type": "image"}]
        content.append({"type": "text", "text": f"\n{line}\n" if line else "\n"})
    content[-1]["text"] += draft.text
    return {
        "messages": [{"role": "user", "content": content}],
        "processor": {"crop_to_patches": False},
        "markers": markers if draft.tell_times else [],
    }


def _placeholders(draft: Draft) -> Parts:
    return {"messages": _interleaved(draft, [{"type": "image"} for _ in draft.images])}


def _interleaved(draft: Draft, images: list[Message]) -> list[Message]:
    """For each frame its time as text, the image, and transcript lines."""
    content: list[Message] = []
    for marker, image, line in zip(draft.markers, images, draft.beside, strict=True):
        if draft.tell_times:
            content.append({"type": "text", "text": marker})
        content += [image, *([{"type": "text", "text": line}] if line else [])]
    return [{"role": "user", "content": [*content, {"type": "text", "text": draft.text}]}]


def _after_video(draft: Draft, video: Message) -> list[Message]:
    """One video, then all text: times, transcript lines, the question."""
    shown, times = "frame shown was", ", ".join(f"{second:.1f}s" for second in draft.prefix.seconds)
    if len(draft.prefix) > 1:
        shown = f"{len(draft.prefix)} frames shown were"
    told = f"The video lasts {draft.prefix.video.duration:.1f} seconds. The {shown} taken at {times}.\n"
    lines = [f"{when} {text}\n" for when, text in zip(draft.markers, draft.beside, strict=True) if text]
    text = (told if draft.tell_times else "") + "".join(lines) + draft.text
    return [{"role": "user", "content": [video, {"type": "text", "text": text}]}]


@dataclass(frozen=True)
class Style:
    """How frames are sent to one kind of model. A new one needs a record in STYLES and its name in StyleName.

    Attributes:
        build: makes the request's fields.
        sends: "images", one "video", or "either", depending on the pairing.
        for_server: whether an OpenAI-compatible server takes it; otherwise a transformers processor does.
        fuses: whether the model fuses two frames of a video under one time, which its processor writes.
        frame_tokens: (width, height) to the tokens of one image. A fused video follows Qwen's rule instead.
        level: (width, height) to the `detail` that is sent with an image, and its tokens; None without.
        time_tokens: tokens around a frame's time, beside its digits.
    """

    build: Callable[[Draft], Parts]
    sends: Literal["images", "video", "either"] = "images"
    for_server: bool = False
    fuses: bool = False
    frame_tokens: Callable[[int, int], int] = image_cells
    level: Callable[[int, int], tuple[str, int]] | None = None
    time_tokens: int = 6

    def pairing(self, pairing: Pairing) -> Pairing:
        """The pairing in force: if the model fuses nothing, "auto" sends every frame once."""
        return "pairs" if pairing == "auto" and not self.fuses else pairing


STYLES: dict[str, Style] = {
    "openai": Style(_openai, for_server=True),
    "gpt": Style(_openai, for_server=True, level=gpt_level),
    "gemini": Style(_openai, for_server=True, level=gemini_level),  # litellm makes it `media_resolution`
    "vllm-video": Style(_vllm_video, "video", for_server=True, fuses=True),
    "qwen": Style(_qwen, "either", fuses=True),  # Qwen3-VL, Qwen3.5
    # LLaVA-OneVision and LLaVA-Video: 27 × 27 patches, pooled to 14 × 14.
    "hf-video": Style(_hf_video, "video", frame_tokens=lambda *_: 196, time_tokens=2),
    "internvl": Style(_internvl, frame_tokens=lambda *_: 256),
    # LLaVA-OneVision-2, with times as in its training.
    "llava-onevision": Style(_placeholders, frame_tokens=partial(image_cells, cell=28)),
}
FOR_SERVERS = tuple(name for name, style in STYLES.items() if style.for_server)


def check_style(style: str, pairing: Pairing) -> Style:
    """Look up a style. Raises ConfigError if it cannot send this pairing."""
    if style not in STYLES:
        raise ConfigError(f"there is no style {style!r}; choose from {', '.join(STYLES)}")
    record = STYLES[style]
    if pairing == "images" and record.sends == "video":
        raise ConfigError("pairing 'images' sends no video; use style openai for a server, or style qwen")
    return record


def said_beside(seconds: Sequence[float], transcript: Transcript | None, tokens: int = TOKENS) -> list[str]:
    """The text after each frame: every transcript line once, beside the nearest frame, or "".

    Lines more than ten seconds from every frame are left out. tokens: an upper bound for all lines together,
    by estimate; lines far from a frame are dropped first.

    >>> from framenest.transcript import Line
    >>> kiln = Transcript("kiln.srt", (Line(7.0, 9.0, "Now we fire it."), Line(60.0, 62.0, "It cools.")))
    >>> said_beside([2.0, 8.0, 30.0], kiln)
    ['', 'Said: "Now we fire it."', '']
    """
    near: list[tuple[float, int, str, int]] = []  # seconds away, line number, text, place of its frame
    for number, (start, end, text, _) in enumerate(transcript.lines if transcript else ()):
        away, _, place = min(
            (max(start - second, second - end, 0.0), abs(second - (start + end) / 2), place)
            for place, second in enumerate(seconds)
        )
        near += [(away, number, text, place)] if away <= AROUND else []
    beside: list[list[tuple[int, str]]] = [[] for _ in seconds]
    for _, number, text, place in sorted(near):
        tokens -= math.ceil(len(text) / CHARACTERS) + 1
        if tokens < 0:
            break
        beside[place].append((number, text))
    said = [" ".join(text for _, text in sorted(lines)) for lines in beside]
    return [f'Said: "{text}"' if text else "" for text in said]


def messages(
    prefix: Prefix,
    question: str,
    style: StyleName = "openai",
    *,
    options: Sequence[str] = (),
    instructions: Sequence[str] = (),
    pairing: Pairing = "auto",
    limits: ImageLimits | None = None,
    tell_times: bool | None = None,
    transcript: Transcript | None = None,
    transcript_tokens: int = TOKENS,
    video: Video | None = None,
    store: Store | None = None,
    progress: ShowProgress = True,
) -> Request:
    """Make one request from the frames of a prefix and a question.

    Args:
        prefix: the frames.
        question: what to ask.
        style: "openai", "gpt", "gemini", "vllm-video", "qwen", "hf-video", "internvl" or "llava-onevision".
        options: the options of a multiple-choice question; the model answers with a letter.
        instructions: lines after the question.
        pairing: for models that fuse two frames under one time (Qwen3-VL, Qwen3.5): "auto" fuses frames
            within two seconds and sends any other twice, "pairs" fuses all, as the paper does, "duplicate"
            sends each frame twice, "images" sends images instead of a video.
        limits: image size and JPEG quality; by default the original size. A prefix for a budget in tokens
            has its own sizes.
        tell_times: whether to write the times as text; by default, only if the model's processor does not
            write them.
        transcript: the transcript, as in `Ranking.transcript`; each line is sent beside the nearest frame.
        transcript_tokens: an upper bound for all transcript lines together, by estimate.
        video: the open video, its path if it has moved, or the array that was ranked.
        store: the cache; by default the user's.
        progress: True shows a progress bar if decoding takes over a second, False shows none; a function is
            called as progress(stage, done, total).

    Returns:
        What to send to a server, or to pass to a processor.

    Raises:
        ConfigError: the style cannot send this, or the question is empty.
        VideoError: the video no longer exists, or a frame no longer decodes.
        IndexMismatch: the video has changed since it was ranked.

    >>> request = messages(ranking.prefix(16), "What happens after firing?")
    >>> len(request.markers), list(request.create)
    (16, ['messages'])
    """
    record = check_style(style, pairing)
    prefix.must_hold_frames()
    limits = limits or ImageLimits()
    if limits.frame_pixels is not None and not (record.for_server and record.fuses):
        raise ConfigError("frame_pixels needs style vllm-video; use max_pixels for other styles")
    if tell_times is None:
        tell_times = not record.fuses or pairing == "images"
    seconds = prefix.seconds.tolist()
    text = "\n".join([prompt.full_question(question, options), *instructions])
    beside = said_beside(seconds, transcript, transcript_tokens)
    decoder = reopen(prefix.video, video, store=store)
    with shown(progress) as tell:
        spec = None if prefix.sizes else limits.spec(decoder.info.width, decoder.info.height)
        read = (Image.fromarray(pixels) for _, pixels in prefix.decode(decoder, spec, tell))
        jpegs = [encode_image(image, quality=limits.quality) for image in read] if record.for_server else []
        images = [] if record.for_server else list(read)
    sizes = prefix.sizes or [limits.size(decoder.info.width, decoder.info.height)] * len(prefix)
    details = [record.level(*size)[0] for size in sizes] if record.level else ()
    paired = record.pairing(pairing)
    draft = Draft(prefix, images, jpegs, text, paired, tell_times, limits.frame_pixels, beside, details)
    parts: Parts = {"images": images, "markers": draft.markers if tell_times else []} | record.build(draft)
    counted = "\n".join([text, *filter(None, beside)])
    return Request(
        style=style,
        prefix=prefix,
        tokens=estimate(style, seconds, sizes, counted, pairing=pairing, frame_pixels=limits.frame_pixels),
        quality=limits.quality,
        **parts,
    )


def estimate(
    style: str,
    seconds: Sequence[float],
    sizes: Sequence[Size],
    text: str,
    *,
    pairing: Pairing = "auto",
    frame_pixels: int | None = None,
) -> Tokens:
    """Estimate the tokens of a request.

    Args:
        style: one of STYLES.
        seconds: the frames' times.
        sizes: (width, height) of each image as it is sent.
        text: the prompt.
        pairing: as for `messages`.
        frame_pixels: as in `ImageLimits`.

    >>> estimate("internvl", [1.0, 2.0], [(640, 360)] * 2, "What is it?").frames
    512
    """
    record, count = check_style(style, pairing), len(seconds)
    words = math.ceil(len(text) / CHARACTERS) + 16
    digits = sum(len(f"{value:.1f}") for value in seconds)
    if record.sends == "images" or pairing == "images":
        costs = [record.level(*one)[1] if record.level else record.frame_tokens(*one) for one in sizes]
        return Tokens(sum(costs), digits + record.time_tokens * count, words)
    if len(set(sizes)) > 1:
        raise ConfigError(f"style {style!r} sends a video, whose frames have one size; see token_budget")
    sent = len(prompt.sent_places(record.pairing(pairing), seconds))
    if record.fuses:
        groups = math.ceil(sent / PAIR)
        limits = QWEN_VIDEO if frame_pixels is None else (QWEN_VIDEO[0], frame_pixels * sent)
        cost = image_cells(*sizes[0], limits=limits, count=sent)
        return Tokens(groups * cost, digits * groups // count + 5 * groups, words)
    return Tokens(sent * record.frame_tokens(*sizes[0]), digits + record.time_tokens * count, words)


def token_budget(
    tokens: int,
    style: StyleName = "openai",
    *,
    tiers: tuple[int, int] | None = TIERS,
    pairing: Pairing = "auto",
    limits: ImageLimits | None = None,
) -> TokenBudget:
    """A `TokenBudget` for the model of a style; other arguments as for `messages`. A video has no tiers.

    >>> len(ranking.prefix(token_budget(600, "gpt")))
    7
    """
    record, limits = check_style(style, pairing), limits or ImageLimits()

    def cost(seconds: Sequence[float], sizes: Sequence[Size]) -> int:
        return estimate(style, seconds, sizes, "", pairing=pairing, frame_pixels=limits.frame_pixels).frames

    sized = record.sends == "images" or pairing == "images"
    return TokenBudget(tokens, tiers if sized else None, limits, cost)
