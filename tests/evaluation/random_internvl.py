"""An InternVL3.5 with random weights, in transformers' format and in InternVL's own."""

from __future__ import annotations

import json
from pathlib import Path

from random_qwen3_vl import byte_tokenizer

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% elif part.type == 'image' %}<IMG_CONTEXT>\n"
    "{% else %}<video>\n{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SIZE, TOKENS = 56, 4
"""Pixels of a frame's sides, and its tokens."""


def tokenizer():
    return byte_tokenizer(
        SPECIAL,
        start_image_token="<img>",
        end_image_token="</img>",
        context_image_token="<IMG_CONTEXT>",
        video_token="<video>",
    )


def processor():
    """InternVL's own processor, with that tokenizer; it needs torchvision."""
    from transformers import GotOcr2ImageProcessor, InternVLProcessor, InternVLVideoProcessor

    size = {"height": SIZE, "width": SIZE}
    return InternVLProcessor(
        GotOcr2ImageProcessor(size=size),
        tokenizer(),
        InternVLVideoProcessor(size=size),
        image_seq_length=TOKENS,
        chat_template=TEMPLATE,
    )


def model(seed=0):
    """Two layers of vision, two of Qwen3; no two weights are equal."""
    import torch
    from transformers import InternVLConfig, InternVLForConditionalGeneration

    torch.manual_seed(seed)
    side = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    qwen3 = {"model_type": "qwen3", "vocab_size": len(tokenizer()), "num_key_value_heads": 2, "head_dim": 8}
    config = InternVLConfig(
        text_config={**side, **qwen3, "max_position_embeddings": 65536, "tie_word_embeddings": False},
        vision_config={**side, "image_size": SIZE, "patch_size": 14, "attention_bias": True},
        image_token_id=SPECIAL.index("<IMG_CONTEXT>"),
        image_seq_length=TOKENS,
        tie_word_embeddings=False,
    )
    made = InternVLForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return made


def save(folder: Path, seed=0):
    """The model and its tokenizer in transformers' format."""
    model(seed).save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def save_own_format(folder: Path, seed=1, files=2):
    """Another training stage of it as InternVL saves its models, in several files."""
    from safetensors.torch import save_file

    made = model(seed)
    weights = own_names({name: weight.detach() for name, weight in made.state_dict().items()})
    folder.mkdir(parents=True)
    for number in range(files):
        part = dict(list(weights.items())[number::files])
        save_file({n: w.clone() for n, w in part.items()}, folder / f"model-{number + 1}.safetensors")
    text, vision = made.config.text_config, made.config.vision_config
    config = {
        "model_type": "internvl_chat",
        "llm_config": {"num_attention_heads": text.num_attention_heads, "rms_norm_eps": text.rms_norm_eps},
        "vision_config": {"num_attention_heads": vision.num_attention_heads, "hidden_act": vision.hidden_act},
    }
    (folder / "config.json").write_text(json.dumps(config))
    added = {str(number): {"content": token} for number, token in enumerate(SPECIAL)}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    return made


def own_names(weights):
    """Weights of transformers' InternVL under the names that InternVL's own code gives them."""
    import torch

    patches = "model.vision_tower.embeddings.patch_embeddings.projection."
    whole = {
        "lm_head.weight": "language_model.lm_head.weight",
        "model.vision_tower.embeddings.cls_token": "vision_model.embeddings.class_embedding",
        "model.vision_tower.embeddings.position_embeddings": "vision_model.embeddings.position_embedding",
    }
    begins = {
        patches: "vision_model.embeddings.patch_embedding.",
        "model.language_model.": "language_model.model.",
        "model.multi_modal_projector.layer_norm.": "mlp1.0.",
        "model.multi_modal_projector.linear_1.": "mlp1.1.",
        "model.multi_modal_projector.linear_2.": "mlp1.3.",
    }
    layer = {
        "attention.projection_layer": "attn.proj", "layernorm_before": "norm1", "layernorm_after": "norm2",
        "lambda_1": "ls1", "lambda_2": "ls2", "mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2",
    }  # fmt: skip
    made = {}
    for name, weight in weights.items():
        begin = next((b for b in begins if name.startswith(b)), None)
        if name in whole:
            made[whole[name]] = weight
        elif begin is not None:
            made[begins[begin] + name.removeprefix(begin)] = weight
        else:
            number, _, rest = name.removeprefix("model.vision_tower.encoder.layer.").partition(".")
            own = f"vision_model.encoder.layers.{number}."
            if rest.startswith("attention.q_proj."):
                parts = [weights[name.replace(".q_proj.", f".{letter}_proj.")] for letter in "qkv"]
                made[f"{own}attn.qkv.{rest.rpartition('.')[2]}"] = torch.cat(parts)
            elif not rest.startswith(("attention.k_proj.", "attention.v_proj.")):
                begin = next(part for part in layer if rest.startswith(part))
                made[own + layer[begin] + rest.removeprefix(begin)] = weight
    return made
