"""Tiny models with random weights, saved to disk as the real checkpoints are and loaded the same way."""

from __future__ import annotations

import contextlib
import io
import shutil
import warnings

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE, WordLevel
from tokenizers.processors import TemplateProcessing

SIZE = 28


def byte_tokenizer(*special: str, end: str | None = None, begin: str | None = None):
    """A byte-level tokenizer without merges: any text, a few hundred ids."""
    vocabulary = {name: i for i, name in enumerate(special)}
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocabulary[letter] = len(vocabulary)
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    parts = [*([begin] if begin else []), "$A", *([end] if end else [])]
    if begin or end:
        tokenizer.post_processor = TemplateProcessing(
            single=" ".join(parts), special_tokens=[(n, vocabulary[n]) for n in (begin, end) if n]
        )
    return tokenizer


def _word_tokenizer():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "what", "is", "the", "dog", "doing", "?", "red"]
    backend = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def _blip_pictures():
    return transformers.models.blip.image_processing_pil_blip.BlipImageProcessorPil(
        size={"height": SIZE, "width": SIZE}
    )


def _save_random(folder, model, processor):
    """Weights far enough from zero that pictures and words make a difference."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    _save(folder, model, processor)


def random_blip2(folder, *, image_token: bool, seed: int = 0):
    """BLIP-2 ITM of a few thousand parameters. image_token: as newer configs have it, or as older."""
    torch.manual_seed(seed)
    processor = transformers.Blip2Processor(
        _blip_pictures(), _word_tokenizer(), num_query_tokens=8 if image_token else None
    )
    config = transformers.Blip2Config(
        vision_config={
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
            "image_size": SIZE, "patch_size": 14, "initializer_range": 0.5,
        },
        qformer_config={
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
            "encoder_hidden_size": 32, "cross_attention_frequency": 2, "vocab_size": 16,
            "max_position_embeddings": 24, "use_qformer_text_input": True, "initializer_range": 0.5,
        },
        num_query_tokens=8,
        image_text_hidden_size=16,
        image_token_index=12 if image_token else None,
    )  # fmt: skip
    model = transformers.Blip2ForImageTextRetrieval(config).eval()
    _save_random(folder, model, processor)
    return processor, model


def random_siglip(folder, *, seed: int = 0):
    torch.manual_seed(seed)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer("<pad>", "<eos>", end="<eos>"), pad_token="<pad>", eos_token="<eos>"
    )
    side = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.SiglipConfig(
        text_config={**side, "vocab_size": 300, "max_position_embeddings": 64, "pad_token_id": 0,
                     "eos_token_id": 1, "bos_token_id": 1},
        vision_config={**side, "image_size": SIZE, "patch_size": 14},
    )  # fmt: skip
    model = transformers.SiglipModel(config).eval()
    with torch.no_grad():
        model.logit_scale.fill_(2.0)
        model.logit_bias.fill_(-3.0)
    images = transformers.models.siglip.image_processing_pil_siglip.SiglipImageProcessorPil(
        size={"height": SIZE, "width": SIZE}
    )
    _save(folder, model, images, tokenizer)
    return images, tokenizer, model


def random_clip(folder, *, seed: int = 0):
    torch.manual_seed(seed)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer("<pad>", "<bos>", "<unk>", "<eos>", begin="<bos>", end="<eos>"),
        pad_token="<pad>", bos_token="<bos>", eos_token="<eos>",
    )  # fmt: skip
    side = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config={**side, "vocab_size": 300, "max_position_embeddings": 77, "pad_token_id": 0,
                     "bos_token_id": 1, "eos_token_id": 3},
        vision_config={**side, "image_size": SIZE, "patch_size": 14},
        projection_dim=16,
    )  # fmt: skip
    model = transformers.CLIPModel(config).eval()
    images = transformers.models.clip.image_processing_pil_clip.CLIPImageProcessorPil(
        size={"shortest_edge": 32}, crop_size={"height": SIZE, "width": SIZE}
    )
    _save(folder, model, images, tokenizer)
    return images, tokenizer, model


def random_reranker(folder, *, seed: int = 0):
    """A CrossEncoder over a tiny LLaVA: the class and path of the real reranker, whose own processor needs
    torchvision."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    torch.manual_seed(seed)
    special = ["<pad>", "<s>", "</s>", "<image>"]
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer(*special), pad_token="<pad>", bos_token="<s>", eos_token="</s>",
        extra_special_tokens={"image_token": "<image>"},
    )  # fmt: skip
    images = transformers.models.clip.image_processing_pil_clip.CLIPImageProcessorPil(
        size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE}
    )
    template = (
        "{% for message in messages %}{% if message['content'] is string %}{{ message['content'] }}{% else %}"
        "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>{% else %}"
        "{{ part['text'] }}{% endif %}{% endfor %}{% endif %}\n{% endfor %}"
    )
    processor = transformers.LlavaProcessor(
        images, tokenizer, patch_size=14, vision_feature_select_strategy="default",
        num_additional_image_tokens=1, chat_template=template,
    )  # fmt: skip
    side = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**side, image_size=SIZE, patch_size=14),
        text_config=transformers.LlamaConfig(
            **side, vocab_size=300, max_position_embeddings=4096, num_key_value_heads=2, pad_token_id=0
        ),
        image_token_index=3,
        image_seq_length=4,
    )
    model = transformers.LlavaForConditionalGeneration(config).eval()
    base = folder.with_name(folder.name + "-base")
    _save(base, model, processor)
    with contextlib.redirect_stderr(io.StringIO()):
        text = Transformer(str(base), transformer_task="any-to-any")
        made = CrossEncoder(modules=[text, LogitScore(true_token_id=100, false_token_id=101)])
        made.save_pretrained(str(folder))
    return made


def export_onnx(folder, to):
    """A dual encoder in a folder as ONNX: two models, and the files that lie beside them on the hub."""
    pytest.importorskip("onnxscript", reason="writing ONNX needs onnxscript")
    model = transformers.AutoModel.from_pretrained(folder).eval()
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*.safetensors"))
    side, length = model.config.vision_config.image_size, model.config.text_config.max_position_embeddings
    pixels, tokens = torch.zeros(2, 3, side, side), torch.ones(2, length, dtype=torch.long)
    _export_side(model.get_image_features, "pixel_values", pixels, to / "vision_model.onnx")
    _export_side(model.get_text_features, "input_ids", tokens, to / "text_model.onnx")


def _export_side(features, takes, example, path):
    class Side(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = features.__self__

        def forward(self, given):
            return features(**{takes: given}).pooler_output

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the exporter uses parts of torch that are deprecated
        torch.onnx.export(
            Side().eval(), (example,), str(path), input_names=[takes],
            output_names=["pooler_output"], dynamo=True, external_data=False, verbose=False,
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
        )  # fmt: skip


def _save(folder, *parts):
    for part in parts:
        part.save_pretrained(folder)


def noise(count: int, height: int = SIZE, width: int = SIZE, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), dtype=np.uint8)
