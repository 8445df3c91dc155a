"""Convert a checkpoint from InternVL's own format to transformers', which lmms-eval's `internvl_hf` reads.

python benchmarks/convert_internvl.py CHECKPOINT --like CHECKPOINT-HF -o FOLDER    # docs/reproduce.md

Weights get transformers' names; their values do not change. Config, tokenizer and processor are copied from
--like, another training stage of the same model in transformers' format; its weights are not downloaded.
(transformers' own script is not in its wheel and ends with InternVL3.)
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoTokenizer, InternVLForConditionalGeneration

NAMES = {
    "language_model.lm_head.": "lm_head.",
    "language_model.model.": "model.language_model.",
    "mlp1.0.": "model.multi_modal_projector.layer_norm.",
    "mlp1.1.": "model.multi_modal_projector.linear_1.",
    "mlp1.3.": "model.multi_modal_projector.linear_2.",
    "vision_model.": "model.vision_tower.",
    ".class_embedding": ".cls_token",
    ".position_embedding": ".position_embeddings",
    ".patch_embedding.": ".patch_embeddings.projection.",
    ".encoder.layers.": ".encoder.layer.",
    ".attn.proj.": ".attention.projection_layer.",
    ".attn.": ".attention.",
    ".norm1.": ".layernorm_before.",
    ".norm2.": ".layernorm_after.",
    ".ls1": ".lambda_1",
    ".ls2": ".lambda_2",
}
"""Parts of names, replaced in this order."""
SETTINGS = ("num_attention_heads", "num_key_value_heads", "hidden_act", "rms_norm_eps", "layer_norm_eps",
            "rope_theta")  # fmt: skip
"""What the shapes of the weights do not tell."""
TOKENS = ("<img>", "</img>", "<IMG_CONTEXT>", "<|im_start|>", "<|im_end|>")


def renamed(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """One of InternVL's weights under transformers' name; queries, keys and values become three."""
    for theirs, ours in NAMES.items():
        name = name.replace(theirs, ours)
    if ".attention.qkv." not in name:
        yield name, tensor
        return
    for letter, part in zip("qkv", tensor.chunk(3), strict=True):
        yield name.replace(".qkv.", f".{letter}_proj."), part.clone()  # safetensors refuses views


def convert(source: Path, like: Path, output: Path) -> None:
    """Write the weights of `source`, file by file, and everything else of `like`."""
    check_settings(source, like)
    with torch.device("meta"):
        model = InternVLForConditionalGeneration(AutoConfig.from_pretrained(like))
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    output.mkdir(parents=True, exist_ok=True)
    places: dict[str, str] = {}
    for file in sorted(source.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            old = ((name, opened.get_tensor(name)) for name in opened.keys())  # noqa: SIM118 - it is no mapping
            made = {name: tensor for pair in old for name, tensor in renamed(*pair)}
        for name, tensor in made.items():
            if wanted.get(name) != tuple(tensor.shape):
                raise SystemExit(f"{name}: {tuple(tensor.shape)} in {source}, {wanted.get(name)} in {like}")
        save_file(made, output / file.name, metadata={"format": "pt"})
        places |= dict.fromkeys(made, file.name)
        print(f"{file.name}: {len(made)} weights")
    if missing := sorted(wanted.keys() - places.keys()):
        raise SystemExit(f"{source} lacks {len(missing)} weights, such as {missing[0]}")
    index = {"metadata": {}, "weight_map": places}
    (output / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    for file in like.iterdir():
        if file.is_file() and "safetensors" not in file.name:
            shutil.copy(file, output)


def check_settings(source: Path, like: Path) -> None:
    """Refuse a `like` with other settings or other numbers for the special tokens."""
    theirs, ours = (json.loads((folder / "config.json").read_text()) for folder in (source, like))
    for part, same in (("llm_config", "text_config"), ("vision_config", "vision_config")):
        for name in SETTINGS:
            pair = theirs[part].get(name), ours[same].get(name)
            if None not in pair and pair[0] != pair[1]:
                raise SystemExit(f"{part}.{name} is {pair[0]} in {source}, but {pair[1]} in {like}")
    added = json.loads((source / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    numbers = {token["content"]: int(number) for number, token in added.items()}
    tokenizer = AutoTokenizer.from_pretrained(like)
    for token in TOKENS:
        if (number := tokenizer.convert_tokens_to_ids(token)) != numbers.get(token):
            raise SystemExit(f"{token} is token {numbers.get(token)} in {source}, but {number} in {like}")


def fetched(repo: str, **patterns: Any) -> Path:
    """A folder, or a repository of the hub."""
    return Path(repo) if Path(repo).is_dir() else Path(huggingface_hub.snapshot_download(repo, **patterns))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", help="the checkpoint to convert: a repository of the hub or a folder")
    parser.add_argument("--like", required=True, help="one of the same model in transformers' format")
    parser.add_argument("-o", "--output", type=Path, required=True, help="a folder")
    given = parser.parse_args(arguments)
    like = fetched(given.like, ignore_patterns=["*.safetensors*"])
    convert(fetched(given.source, allow_patterns=["*.safetensors", "*.json"]), like, given.output)


if __name__ == "__main__":
    main()
