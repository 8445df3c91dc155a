"""Answers from a transformers model in this process."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

from framenest.errors import MissingExtra, ModelError
from framenest.lmm.answer import Answer, OnText, Splitter, Usage, split_reasoning
from framenest.lmm.request import Request
from framenest.text import one_line

_STYLES = {
    "qwen3_vl": "qwen",
    "qwen3_vl_moe": "qwen",
    "qwen3_5": "qwen",
    "qwen3_5_moe": "qwen",
    "internvl": "internvl",
    "llava_onevision2": "llava-onevision",
}


class LocalModel:
    """A transformers model in this process, behind the same `answer` as a server's client.

    Args:
        model: a name or folder for transformers, or a loaded model.
        processor: of a loaded model.
        device: where a model given by name goes, as "cuda".
        dtype: as "bfloat16"; by default the checkpoint's.
        max_tokens: the most that an answer may take.
        thinking: for chat templates that switch reasoning on or off.
        trust_remote_code: needed by models that bring their own code, such as LLaVA-OneVision-2; runs
            that code.
        settings: go to `generate`.

    Raises:
        MissingExtra: torch or transformers is not installed.
        ModelError: the model cannot be loaded.

    Example::

        model = LocalModel("Qwen/Qwen3.5-4B", device="cuda")
        model.answer(messages(prefix, "What is fired?", model.style)).text
    """

    def __init__(
        self,
        model: Any,
        processor: Any = None,
        *,
        device: str | None = None,
        dtype: str = "auto",
        max_tokens: int = 1024,
        thinking: bool | None = None,
        trust_remote_code: bool = False,
        **settings: Any,
    ) -> None:
        self._transformers = _transformers()
        if isinstance(model, str):
            model, processor = self._load(model, device, dtype, trust_remote_code)
        if processor is None:
            raise ModelError("a model that is loaded needs its processor; give both")
        self.model, self.processor = model.eval(), processor
        self.thinking, self.max_tokens, self._settings = thinking, max_tokens, settings

    @property
    def style(self) -> str:
        """The style of messages that this model takes."""
        return _STYLES.get(self.model.config.model_type, "hf-video")

    @property
    def name(self) -> str:
        """Its name or folder."""
        return str(self.model.config.name_or_path or self.model.config.model_type)

    @property
    def context(self) -> int | None:
        """The model's context length in tokens, where its configuration says so."""
        text = self.model.config.get_text_config()
        return getattr(text, "max_position_embeddings", None)

    def inputs(self, request: Request) -> Any:
        """The processor's tensors for a request, on the model's device."""
        extra = {} if self.thinking is None else {"enable_thinking": self.thinking}
        text = self.processor.apply_chat_template(
            request.messages, tokenize=False, add_generation_prompt=True, **extra
        )
        made = self.processor(text=[text], **request.inputs, return_tensors="pt")
        return made.to(self.model.device, dtype=self.model.dtype)

    def answer(self, request: Request, *, on_text: OnText | None = None) -> Answer:
        """Answer a request, as `Client.answer` does.

        Raises:
            ModelError: the request does not fit into the context (`fits` says how many frames would) or
                into memory.
        """
        import torch

        began = time.perf_counter()
        inputs = self.inputs(request)
        length = inputs["input_ids"].shape[1]
        self._check_room(length, request)
        splitter = Splitter(on_text, thinking=bool(self.thinking)) if on_text else None
        try:
            with torch.inference_mode():
                made = self.model.generate(
                    **inputs,
                    max_new_tokens=self.max_tokens,
                    streamer=splitter and self._streamer(splitter),
                    **self._settings,
                )
        except torch.OutOfMemoryError as error:
            raise ModelError(
                f"{self.name}: no memory for {length} tokens of {len(request.prefix)} frames; take fewer "
                "frames, or smaller ones"
            ) from error
        written = made[0, length:].tolist()
        finish = self._finish(written)
        cut_off = bool(self.thinking) and finish == "length"
        if splitter:
            splitter.end(cut_off=cut_off)
        whole = self.processor.decode(written, skip_special_tokens=True)
        reasoning, text = split_reasoning(whole, cut_off=cut_off)
        first = splitter.first_seconds if splitter else None
        usage = Usage(length, len(written), time.perf_counter() - began, first)
        return Answer(text, reasoning, self.name, finish, usage)

    def _finish(self, written: list[int]) -> str:
        ends = self.model.generation_config.eos_token_id
        ended = bool(written) and written[-1] in (ends if isinstance(ends, list) else [ends])
        return "stop" if ended else "length"

    def _check_room(self, length: int, request: Request) -> None:
        limit, count = self.context, len(request.prefix)
        if limit is None or length + self.max_tokens <= limit:
            return
        room = limit - self.max_tokens - request.tokens.text
        fits = min(count - 1, int(room * count / max(1, length - request.tokens.text)))
        what = f"-k {fits} should fit" if fits >= 1 else "not even one fits"
        raise ModelError(
            f"{self.name}: {count} frames are {length} tokens, too long for a context of {limit} with "
            f"{self.max_tokens} for the answer; {what}",
            fits=fits if fits >= 1 else None,
        )

    def _streamer(self, splitter: Splitter) -> Any:
        tokenizer = self.processor.tokenizer
        streamer = self._transformers.TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
        # By default it prints.
        streamer.on_finalized_text = lambda piece, **_: splitter.text(piece)
        return streamer

    def _load(self, name: str, device: str | None, dtype: str, trusted: bool) -> tuple[Any, Any]:
        library = self._transformers
        try:
            processor = library.AutoProcessor.from_pretrained(name, trust_remote_code=trusted)
            model = library.AutoModelForImageTextToText.from_pretrained(
                name, dtype=dtype, trust_remote_code=trusted
            )
        except (OSError, ValueError, ImportError) as error:
            own_code = not trusted and self._brings_code(name)
            hint = "it brings its own code; to run that, give trust_remote_code=True"
            raise ModelError(f"{name}: cannot be loaded ({hint if own_code else one_line(error)})") from error
        return (model if device is None else model.to(device)), processor

    def _brings_code(self, name: str) -> bool:
        """Whether the checkpoint's configuration maps classes to code of its own."""
        try:
            config, _ = self._transformers.PretrainedConfig.get_config_dict(name)
        except (OSError, ValueError):
            return False
        return "auto_map" in config


def _transformers() -> Any:
    for package in ("torch", "transformers"):
        try:
            library = import_module(package)
        except ImportError as error:
            raise MissingExtra("local", package) from error
    return library
