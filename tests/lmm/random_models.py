"""Tiny models with random weights, made on the fly. They answer nonsense, through the real code."""

from __future__ import annotations

import json
from pathlib import Path

CHAT = """{% for message in messages %}<|{{ message['role'] }}|>
{%- if message['content'] is string %}{{ message['content'] }}{% else %}
{%- for part in message['content'] %}
{%- if part['type'] == 'text' %}{{ part['text'] }}
{%- elif part['type'] == 'video' %}VIDEO_HERE
{%- else %}IMAGE_HERE{% endif %}
{%- endfor %}{% endif %}
{%- endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""


def chat_template(image: str, video: str = "") -> str:
    return CHAT.replace("IMAGE_HERE", image).replace("VIDEO_HERE", video)


def byte_tokenizer(special: list[str], named: dict[str, str] | None = None):
    """One token a byte, after the special ones; ids 0, 1, 2 are padding, beginning and end."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<s>", "</s>", *special]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {word: i for i, word in enumerate(words + alphabet)}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
        extra_special_tokens=named or special,
    )  # fmt: skip


def printable_only(tokenizer) -> dict:
    """Generation settings under which a random model writes printable characters."""
    import string

    kept = {tokenizer.eos_token_id} | {
        tokenizer.convert_tokens_to_ids(c) for c in string.ascii_letters + string.digits + ".,!?"
    }
    suppressed = [i for i in range(len(tokenizer)) if i not in kept]
    return {"do_sample": False, "suppress_tokens": suppressed, "pad_token_id": 0, "eos_token_id": 2}


def save_llava(folder: Path) -> None:
    """A LLaVA of 76 thousand parameters: 16 tokens an image, context 8,192."""
    import torch
    from transformers import (
        CLIPImageProcessorPil,
        CLIPVisionConfig,
        GenerationConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )

    tokenizer = byte_tokenizer(["<image>", "<|user|>", "<|assistant|>", "<|system|>"])
    size = {"height": 56, "width": 56}
    processor = LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size=size, crop_size=size, do_center_crop=True),
        tokenizer=tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=chat_template("<image>"),
    )
    widths = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**widths, image_size=56, patch_size=14),
        text_config=LlamaConfig(
            **widths, num_key_value_heads=2, vocab_size=len(tokenizer), max_position_embeddings=8192,
            pad_token_id=0, bos_token_id=1, eos_token_id=2,
        ),
        image_token_index=3,
        image_seq_length=16,
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlavaForConditionalGeneration(config).eval()
    model.generation_config = GenerationConfig(**printable_only(tokenizer))
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def save_in_hub_layout(home: Path, name: str) -> None:
    """Where the hub's cache would have put a model called local/NAME, so that a server lists it."""
    revision = "0" * 40
    root = home / "hub" / f"models--local--{name}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(revision)
    folder = root / "snapshots" / revision
    folder.mkdir(parents=True)
    save_llava(folder)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "llava"
