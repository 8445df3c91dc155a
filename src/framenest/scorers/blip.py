"""The scorer `blip`: image-text matching of the first BLIP, which AKS was released with.

As in `blip2`, what the vision transformer makes of a frame is kept, and a question costs the text encoder,
which reads it, and the matching head.
"""

from __future__ import annotations

import re
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
    model_class = "BlipForImageTextRetrieval"

    def _question(self, question: str) -> Any:
        tokens = self._tokens(WORDS.sub(" ", question.lower()).strip(), LONGEST)
        tokens[:, 0] = self._reads_pictures()
        return tokens

    def _reads_pictures(self) -> int:
        """The token [ENC], the last of the vocabulary; hub checkpoints' tokenizers do not name it."""
        return int(self._models[0].config.text_config.vocab_size) - 1

    def _speed_up(self, model: Any) -> None:
        """Nothing: all of the model is of the precision asked for."""

    @staticmethod
    def _matching(model: Any, vision: Any, tokens: Any) -> Any:
        import torch

        read = model.text_encoder(
            input_ids=tokens.expand(len(vision), -1),
            attention_mask=torch.ones((len(vision), tokens.shape[1]), dtype=torch.long, device=vision.device),
            encoder_hidden_states=vision.to(model.vision_model.dtype),
            encoder_attention_mask=torch.ones(vision.shape[:-1], dtype=torch.long, device=vision.device),
        ).last_hidden_state
        return model.itm_head(read[:, 0])
