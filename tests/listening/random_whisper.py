"""A Whisper of random weights, converted as the real ones are; its English-only kind has no languages."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

WORDS = 50257  # in the real vocabulary
SPECIAL = ("endoftext", "startoftranscript", "en", "translate", "transcribe", "startoflm", "startofprev",
           "nospeech", "notimestamps")  # fmt: skip
TIMES = 1501


def random_whisper(folder: Path, seed: int = 0) -> Path:
    """Write the model in CTranslate2's format; returns its folder."""
    from ctranslate2.converters import TransformersConverter

    torch.manual_seed(seed)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*letters, *(f"Ġword{number}" for number in range(WORDS - len(letters)))]
    tokenizer = Tokenizer(BPE(vocab={word: number for number, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([f"<|{name}|>" for name in SPECIAL])
    end, begin = "<|endoftext|>", "<|startoftranscript|>"
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=end, bos_token=begin, unk_token=end, pad_token=end
    )
    ids = {"pad_token_id": WORDS, "eos_token_id": WORDS, "bos_token_id": WORDS + 1}
    ids["decoder_start_token_id"] = WORDS + 1
    config = transformers.WhisperConfig(
        vocab_size=tokenizer.get_vocab_size() + TIMES, num_mel_bins=80, d_model=16, encoder_layers=1,
        decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16,
        decoder_ffn_dim=16, suppress_tokens=[], begin_suppress_tokens=[], **ids,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    source, target = folder / "transformers", folder / "whisper-random"
    with contextlib.redirect_stderr(io.StringIO()):  # bars
        model.save_pretrained(source)
        fast.save_pretrained(source)
        TransformersConverter(str(source), copy_files=["tokenizer.json"]).convert(str(target))
    return target
