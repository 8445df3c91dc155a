"""Ask Qwen3.5 (or Qwen3-VL) about a video, through transformers.

    pip install '.[tags]' torch torchvision transformers && framenest models fetch tags
    python examples/qwen_transformers.py kiln.mp4 "What happens after firing?" --device cuda

The first line printed shows the times that the model reads: those of the frames.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

import framenest as fn


def answer(model: Any, processor: Any, request: fn.lmm.Request, max_new_tokens: int = 256) -> str:
    """The model's answer to a request of style qwen."""
    text = processor.apply_chat_template(request.messages, tokenize=False, add_generation_prompt=True)
    inputs = processor(text=[text], **request.inputs, return_tensors="pt")
    inputs = inputs.to(model.device, dtype=model.dtype)
    length = inputs["input_ids"].shape[1]
    read = processor.tokenizer.decode(inputs["input_ids"][0])
    print(f"{length} tokens; the model reads {' '.join(re.findall(r'<[0-9.]+ seconds>', read))}")
    with torch.inference_mode():
        made = model.generate(**inputs, max_new_tokens=max_new_tokens)
    return processor.decode(made[0, length:], skip_special_tokens=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("video")
    parser.add_argument("question")
    parser.add_argument("-k", type=int, default=16, help="how many frames")
    parser.add_argument("--model", default="Qwen/Qwen3.5-4B")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairing", choices=fn.lmm.PAIRINGS, default="auto")
    parser.add_argument("--scorer", default="auto")
    given = parser.parse_args(arguments)

    ranking = fn.MEC(scorer=given.scorer, preset="residual").rank(given.video, given.question)
    request = fn.lmm.messages(ranking.prefix(given.k), given.question, "qwen", pairing=given.pairing)

    processor = AutoProcessor.from_pretrained(given.model)
    model = AutoModelForImageTextToText.from_pretrained(given.model, dtype="auto").to(given.device)
    print(answer(model.eval(), processor, request))


if __name__ == "__main__":
    main()
