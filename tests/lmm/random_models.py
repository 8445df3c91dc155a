"""Tiny models with random weights, made on the fly. They answer nonsense, through the real code."""

from __future__ import annotations

import functools
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


def without_torchvision(base, standing_in):
    """A processor class whose video processor, which needs torchvision, is replaced by a stand-in."""

    class Processor(base):
        def check_argument_for_proper_class(self, argument_name, argument):
            if argument_name != "video_processor":
                super().check_argument_for_proper_class(argument_name, argument)

    Processor.__init__ = base.__init__
    return lambda **parts: Processor(video_processor=standing_in, **parts)


class PairingStandIn:
    """Does what Qwen3VLVideoProcessor does to frames that are chosen already: resize, and fuse pairs."""

    merge_size, temporal_patch_size = 2, 2

    def __init__(self, image_processor) -> None:
        self._images = image_processor

    def __call__(self, videos, *, video_metadata, do_sample_frames, **_):
        import numpy as np
        import torch
        from transformers import BatchFeature
        from transformers.video_utils import VideoMetadata

        assert do_sample_frames is False
        (frames,), (metadata,) = videos, video_metadata
        assert len(frames) == len(metadata["frames_indices"]) >= 2
        frames = [*frames, *frames[-1:] * (len(frames) % 2)]
        packed = self._images(images=list(frames), return_tensors="np")
        _, down, across = packed["image_grid_thw"][0]
        patches = packed["pixel_values"].reshape(len(frames), down * across, 3, 2, -1)
        fused = np.stack([patches[::2, :, :, 0], patches[1::2, :, :, 1]], axis=3)
        return BatchFeature(
            {
                "pixel_values_videos": torch.tensor(fused.reshape(len(frames) // 2 * down * across, -1)),
                "video_grid_thw": torch.tensor([[len(frames) // 2, down, across]]),
                "video_metadata": [VideoMetadata(**metadata)],
            }
        )


def qwen3_5(*, torchvision: bool = False):
    """(model, processor) of a Qwen3.5 with random weights; both kinds of its layers.

    torchvision: with the video processor of transformers, which needs it, instead of the stand-in.
    """
    import torch
    from transformers import (
        GenerationConfig,
        Qwen2VLImageProcessorPil,
        Qwen3_5Config,
        Qwen3_5ForConditionalGeneration,
        Qwen3VLProcessor,
    )

    special = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "<|user|>"]
    tokenizer = byte_tokenizer([*special, "<|assistant|>"])
    images = Qwen2VLImageProcessorPil(
        patch_size=16, merge_size=2, temporal_patch_size=2,
        size={"shortest_edge": 4096, "longest_edge": 16_777_216},
    )  # fmt: skip
    make = without_torchvision(Qwen3VLProcessor, PairingStandIn(images))
    if torchvision:
        from transformers import Qwen3VLVideoProcessor

        size = {"shortest_edge": 4096, "longest_edge": 25_165_824}
        videos = Qwen3VLVideoProcessor(size=size)  # cap_pixels_per_frame unset, as users have it
        make = functools.partial(Qwen3VLProcessor, video_processor=videos)
    start, end = "<|vision_start|>", "<|vision_end|>"
    # The processor itself puts a video's markers and vision tokens where the video's token is.
    template = chat_template(f"{start}<|image_pad|>{end}", "<|video_pad|>")
    processor = make(image_processor=images, tokenizer=tokenizer, chat_template=template)
    ids = {
        "image_token_id": tokenizer.convert_tokens_to_ids("<|image_pad|>"),
        "video_token_id": tokenizer.convert_tokens_to_ids("<|video_pad|>"),
        "vision_start_token_id": tokenizer.convert_tokens_to_ids(start),
        "vision_end_token_id": tokenizer.convert_tokens_to_ids(end),
    }
    config = Qwen3_5Config(
        text_config={
            "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 1, "head_dim": 16, "vocab_size": len(tokenizer),
            "layer_types": ["linear_attention", "full_attention"], "linear_key_head_dim": 8,
            "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 2,
            "max_position_embeddings": 8192, "pad_token_id": 0, "eos_token_id": 2,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                "mrope_section": [2, 1, 1], "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 32,
            "num_position_embeddings": 64, "patch_size": 16,
        },
        **ids,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Qwen3_5ForConditionalGeneration(config).eval()
    model.generation_config = GenerationConfig(**printable_only(tokenizer))
    return model, processor


def internvl():
    """(model, processor) of an InternVL with random weights: 4 tokens a tile of 56 × 56."""
    import torch
    from transformers import (
        GenerationConfig,
        GotOcr2ImageProcessorPil,
        InternVLConfig,
        InternVLForConditionalGeneration,
        InternVLProcessor,
    )

    special = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    tokenizer = byte_tokenizer([*special.values(), "<|user|>", "<|assistant|>"], special)
    images = GotOcr2ImageProcessorPil(size={"height": 56, "width": 56})
    make = without_torchvision(InternVLProcessor, None)
    processor = make(
        image_processor=images, tokenizer=tokenizer, image_seq_length=4,
        chat_template=chat_template("<IMG_CONTEXT>", "<video>"),
    )  # fmt: skip
    config = InternVLConfig(
        vision_config={
            "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
            "image_size": [56, 56], "patch_size": [14, 14],
        },
        text_config={
            "model_type": "qwen2", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": len(tokenizer),
            "max_position_embeddings": 512, "pad_token_id": 0, "eos_token_id": 2,
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=4,
    )  # fmt: skip
    torch.manual_seed(0)
    model = InternVLForConditionalGeneration(config).eval()
    model.generation_config = GenerationConfig(**printable_only(tokenizer))
    return model, processor
