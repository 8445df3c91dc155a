"""A Qwen3-VL with random weights, some 100,000 of them, and its real processor: it answers nonsense."""

from __future__ import annotations

from pathlib import Path

SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
    "<|video_pad|>",
)  # fmt: skip
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% elif part.type == 'image' %}<|vision_start|><|image_pad|>"
    "<|vision_end|>{% else %}<|vision_start|><|video_pad|><|vision_end|>{% endif %}{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer(special, **named):
    """Bytes, without merges, after the special tokens, of which the processor wants some `named`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    raw = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(list(special))
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>", extra_special_tokens=named
    )


def tokenizer():
    return byte_tokenizer(
        SPECIAL,
        image_token="<|image_pad|>",
        video_token="<|video_pad|>",
        vision_start_token="<|vision_start|>",
        vision_end_token="<|vision_end|>",
    )


def processor():
    """Qwen3-VL's own processor, with that tokenizer."""
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(patch_size=16),
        tokenizer=tokenizer(),
        video_processor=Qwen3VLVideoProcessor(),
        chat_template=TEMPLATE,
    )


def save(folder: Path) -> Path:
    """Write the model and its processor, as a checkpoint that from_pretrained loads."""
    import torch
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    torch.manual_seed(0)
    size = len(tokenizer())
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": size, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16,
            "max_position_embeddings": 65536,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2],
                                "mrope_interleaved": True},
        },
        vision_config={
            "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 32,
            "patch_size": 16, "temporal_patch_size": 2, "spatial_merge_size": 2,
            "num_position_embeddings": 256, "deepstack_visual_indexes": [0],
        },
        image_token_id=SPECIAL.index("<|image_pad|>"),
        video_token_id=SPECIAL.index("<|video_pad|>"),
        vision_start_token_id=SPECIAL.index("<|vision_start|>"),
        vision_end_token_id=SPECIAL.index("<|vision_end|>"),
    )  # fmt: skip
    model = Qwen3VLForConditionalGeneration(config)
    # Letters, so that answers can be scored; still random ones.
    letters = {tokenizer().convert_tokens_to_ids(letter) for letter in "ABCD"}
    model.generation_config.suppress_tokens = [i for i in range(size) if i not in letters]
    model.generation_config.do_sample = False
    model.save_pretrained(folder)
    processor().save_pretrained(folder)
    return folder
