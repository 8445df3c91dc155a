"""The scorer `blip`: image-text matching of the first BLIP, which AKS was released with.

As in `blip2`, what the vision transformer makes of a frame is kept, and a question costs the text encoder,
which reads it, and the matching head.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from framenest.scorers.blip2 import Blip2Scorer

WORDS = re.compile(r"[.!\"()*#:;~\s]+")
"""What stands between words, in the model's training as here."""
LONGEST = 35
"""Tokens of a text that the model reads, as in its training."""


class BlipScorer(Blip2Scorer):
    """Relevance = softmax of the two matching logits, match class, of BlipForImageTextRetrieval.

    encode → {"vision": (n, 577, 1024) float16 at 384 px, of the large model}. The text is prepared as the
    model's own library, LAVIS, does it, and AKS with it: lower case, some punctuation dropped, at most 35
    tokens, the first of which says that the text is read together with a picture. (transformers' processor
    leaves that first token as it is, and its numbers differ.)
    """

    name = extra = "blip"

    def _loader(self) -> Callable[..., Any]:
        from transformers import BlipForImageTextRetrieval

        def load(folder: Path, *, dtype: Any, device: Any) -> BlipNetwork:
            model = BlipForImageTextRetrieval.from_pretrained(folder, dtype=dtype)
            return BlipNetwork(model.eval().to(device))

        return load

    def _question(self, question: str) -> Any:
        tokens = self._tokens(WORDS.sub(" ", question.lower()).strip(), LONGEST)
        tokens[:, 0] = self._models[0].reads_pictures
        return tokens


class BlipNetwork:
    """The model of transformers, with the methods of Blip2Network."""

    def __init__(self, model: Any) -> None:
        self._model = model
        vision = model.config.vision_config
        self.tokens, self.width = (vision.image_size // vision.patch_size) ** 2 + 1, vision.hidden_size
        """Of the features of one frame."""
        self.reads_pictures = int(model.config.text_config.vocab_size) - 1
        """The token [ENC], the last of the vocabulary; hub checkpoints' tokenizers do not name it."""

    def vision(self, pixels: Any) -> Any:
        """(n, 3, H, W) normalised pictures → (n, v, d) what the vision transformer makes of them."""
        return self._model.vision_model(pixel_values=pixels).last_hidden_state

    def match(self, vision: Any, question: Any) -> Any:
        """Logits (n, 2), no match and match, of n frames' features (n, v, d) and a question (1, t)."""
        import torch

        read = self._model.text_encoder(
            input_ids=question.expand(len(vision), -1),
            attention_mask=torch.ones(
                (len(vision), question.shape[1]), dtype=torch.long, device=vision.device
            ),
            encoder_hidden_states=vision.to(self._model.vision_model.dtype),
            encoder_attention_mask=torch.ones(vision.shape[:-1], dtype=torch.long, device=vision.device),
        ).last_hidden_state
        return self._model.itm_head(read[:, 0])
