"""Messages for models, in the style each server understands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from framenest.errors import ConfigError
from framenest.images import ImageLimits, as_base64, data_url, encode_image
from framenest.lmm import times
from framenest.lmm.prompt import TOKENS, prompt, spoken_lines
from framenest.lmm.request import Message, Request, cannot_grow
from framenest.lmm.times import Pairing
from framenest.lmm.tokens import PairingCost, estimate, qwen_limits
from framenest.method.prefix import OpenOrPath, Prefix
from framenest.progress import ShowProgress, shown
from framenest.protocols import Store
from framenest.transcript import Transcript
from framenest.video.opening import reopen


@dataclass(frozen=True, eq=False)
class Draft:
    """What a style is made from."""

    prefix: Prefix
    pictures: list[Image.Image]
    packed: list[bytes]
    """JPEG files, for a server."""
    text: str
    pairing: Pairing
    """As the style takes it."""
    told: bool
    """Whether Framenest itself writes the times."""
    frame_pixels: int | None = None
    """As in `ImageLimits`."""
    said: Sequence[str] = ()
    """What is said around each frame; empty where that is not sent."""

    @property
    def beside(self) -> list[str]:
        """A text after each frame, empty where nothing is said."""
        return [f'Said: "{text}"' if text else "" for text in self.said or [""] * len(self.prefix)]

    @property
    def markers(self) -> list[str]:
        return [times.marker(second) for second in self.prefix.seconds.tolist()]

    @property
    def places(self) -> list[int]:
        """Of the frames, in the order in which a video shows them."""
        return times.sent_places(self.pairing, self.prefix.seconds.tolist())


Parts = dict[str, Any]


def openai(draft: Draft) -> Parts:
    """Time as text, then the image, for each frame: every OpenAI-compatible server takes it."""
    images: list[Message] = [
        {"type": "image_url", "image_url": {"url": data_url(packed)}} for packed in draft.packed
    ]
    return {"messages": _interleaved(draft, images)}


def vllm_video(draft: Draft) -> Parts:
    """All frames as one video in a data URL; the server's processor writes the times.

    num_frames must be given: without it vLLM keeps the first 32 frames and drops the rest.
    """
    metadata = times.video_metadata(draft.prefix, draft.places)
    written = [as_base64(packed) for packed in draft.packed]
    sent = [written[place] for place in draft.places]
    video = {"type": "video_url", "video_url": {"url": "data:video/jpeg;base64," + ",".join(sent)}}
    settings = {"num_frames": len(sent), **metadata, "do_sample_frames": False}
    extra: dict[str, Any] = {"media_io_kwargs": {"video": settings}}
    if draft.frame_pixels is not None:
        least, most = qwen_limits(len(sent), draft.frame_pixels)
        extra["mm_processor_kwargs"] = {"size": {"shortest_edge": least, "longest_edge": most}}
    return {
        "messages": _spoken(draft, video),
        "extra_body": extra,
        "markers": times.paired_markers(metadata),
    }


def qwen(draft: Draft) -> Parts:
    """Qwen3-VL and Qwen3.5 through transformers."""
    if draft.pairing == "images":
        return {"messages": _interleaved(draft, [{"type": "image"} for _ in draft.pictures])}
    return hf_video(draft) | {
        "markers": times.paired_markers(times.video_metadata(draft.prefix, draft.places))
    }


def hf_video(draft: Draft) -> Parts:
    """Any transformers processor that takes videos."""
    metadata = times.video_metadata(draft.prefix, draft.places)
    return {
        "messages": _spoken(draft, {"type": "video"}),
        "pictures": [draft.pictures[place] for place in draft.places],
        "processor": {"video_metadata": [metadata], "do_sample_frames": False},
        "markers": [f"{second:.1f}s" for second in draft.prefix.seconds.tolist()] if draft.told else [],
    }


def internvl(draft: Draft) -> Parts:
    """InternVL's own "Frame1: <image>", with the time added; one tile per frame, as for video."""
    content: list[Message] = []
    for place, (second, said) in enumerate(zip(draft.prefix.seconds.tolist(), draft.beside, strict=True), 1):
        when = f" at {second:.1f} seconds" if draft.told else ""
        content += [{"type": "text", "text": f"Frame{place}{when}: "}, {"type": "image"}]
        content.append({"type": "text", "text": f"\n{said}\n" if said else "\n"})
    content[-1]["text"] += draft.text
    markers = [f"{second:.1f} seconds" for second in draft.prefix.seconds.tolist()]
    return {
        "messages": [{"role": "user", "content": content}],
        "processor": {"crop_to_patches": False},
        "markers": markers if draft.told else [],
    }


def llava_onevision(draft: Draft) -> Parts:
    """LLaVA-OneVision-2: time and image for each frame, as it was trained."""
    return {"messages": _interleaved(draft, [{"type": "image"} for _ in draft.pictures])}


STYLES: dict[str, Callable[[Draft], Parts]] = {
    "openai": openai,
    "vllm-video": vllm_video,
    "qwen": qwen,
    "hf-video": hf_video,
    "internvl": internvl,
    "llava-onevision": llava_onevision,
}
FOR_SERVERS = ("openai", "vllm-video")


def check_style(style: str, pairing: Pairing, *, grows: bool = False) -> None:
    """Raise ConfigError for what cannot be sent. grows: whether a later turn adds frames."""
    if style not in STYLES:
        raise ConfigError(f"there is no style {style!r}; choose from {', '.join(STYLES)}")
    videos_only = style in ("vllm-video", "hf-video")
    if pairing == "images" and videos_only:
        raise ConfigError("pairing 'images' sends no video; take style openai for a server, or style qwen")
    if grows and (videos_only or (style == "qwen" and pairing != "images")):
        raise cannot_grow(style)


def messages(
    prefix: Prefix,
    question: str,
    style: str = "openai",
    *,
    options: Sequence[str] = (),
    instructions: Sequence[str] = (),
    pairing: Pairing = "auto",
    limits: ImageLimits | None = None,
    tell_times: bool | None = None,
    transcript: Transcript | None = None,
    transcript_tokens: int = TOKENS,
    video: OpenOrPath | None = None,
    store: Store | None = None,
    progress: ShowProgress = True,
) -> Request:
    """The frames of a prefix and a question as one request for a model.

    Args:
        prefix: the frames.
        question: what to ask.
        style: "openai", "vllm-video", "qwen", "hf-video", "internvl" or "llava-onevision".
        options: answers to choose from, asked for by letter.
        instructions: lines after the question.
        pairing: for models that fuse two frames under one time (Qwen3-VL, Qwen3.5): "auto" lets them fuse
            frames within two seconds and sends any other twice, "pairs" lets them fuse all, as the paper
            does, "duplicate" sends each twice, "images" sends no video.
        limits: picture size and JPEG quality; by default the original size.
        tell_times: whether times are written as text; by default where the model's processor does not
            write them itself.
        transcript: what is said in the video, as `Ranking.transcript` has it, to be sent beside the frames:
            each line once, by the frame nearest to it.
        transcript_tokens: how many tokens all lines together may take, by estimate.
        video: the open video, where it is now if it has moved, or the array that it was.
        store: the cache; by default the user's.
        progress: bars when decoding takes over a second; False for none, or a function that is called as
            progress(stage, done, total).

    Returns:
        What to send to a server, or to hand to a processor.

    Raises:
        ConfigError: a style that cannot send this, or an empty question.
        VideoError: the video is gone, or a frame does not decode any more.
        IndexMismatch: the video has changed since it was ranked.

    >>> request = messages(ranking.prefix(16), "What happens after firing?")
    >>> len(request.markers), list(request.create)
    (16, ['messages'])
    """
    check_style(style, pairing)
    prefix.must_hold_frames()
    limits = limits or ImageLimits()
    if limits.frame_pixels is not None and style != "vllm-video":
        raise ConfigError("frame pixels are told to vLLM's processor; take style vllm-video, or max pixels")
    told = style not in times.FUSES or pairing == "images" if tell_times is None else tell_times
    decoder = reopen(prefix.video, video, store=store)
    text = "\n".join([prompt(question, options), *instructions])
    said = spoken_lines(transcript, prefix.seconds.tolist(), transcript_tokens) if transcript else []
    server = style in FOR_SERVERS
    as_taken = times.pairing_of(style, pairing)
    with shown(progress) as tell:
        batches = prefix.batches(decoder, limits.spec(decoder.info.width, decoder.info.height), tell)
        read = (Image.fromarray(pixels) for batch in batches for pixels in batch.pixels[0])
        packed = [encode_image(picture, quality=limits.quality) for picture in read] if server else []
        pictures = [] if server else list(read)
        draft = Draft(prefix, pictures, packed, text, as_taken, told, limits.frame_pixels, said)
    parts: Parts = {"extra_body": {}, "pictures": draft.pictures, "processor": {}}
    parts |= {"markers": draft.markers if told else []} | STYLES[style](draft)
    size = limits.size(decoder.info.width, decoder.info.height)
    seconds = prefix.seconds.tolist()
    text = "\n".join([text, *filter(None, draft.beside)])  # what the estimates count
    return Request(
        style=style,
        prefix=prefix,
        tokens=estimate(style, seconds, size, text, pairing=pairing, frame_pixels=limits.frame_pixels),
        pairing=PairingCost.of(style, seconds, size, text, pairing, limits.frame_pixels),
        quality=limits.quality,
        **parts,
    )


def _interleaved(draft: Draft, images: list[Message]) -> list[Message]:
    content: list[Message] = []
    for written, image, said in zip(draft.markers, images, draft.beside, strict=True):
        if draft.told:
            content.append({"type": "text", "text": written})
        content += [image, *([{"type": "text", "text": said}] if said else [])]
    return [{"role": "user", "content": [*content, {"type": "text", "text": draft.text}]}]


def _spoken(draft: Draft, video: Message) -> list[Message]:
    said = times.spoken(draft.prefix.seconds.tolist(), draft.prefix.video.duration) + "\n"
    heard = [f"{when} {text}\n" for when, text in zip(draft.markers, draft.beside, strict=True) if text]
    text = (said if draft.told else "") + "".join(heard) + draft.text
    return [{"role": "user", "content": [video, {"type": "text", "text": text}]}]
