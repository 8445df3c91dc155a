"""SentenceEncoder: all-MiniLM-L6-v2, which comes with the scorer `tags`. English, on any CPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from framenest import models
from framenest.cache.directory import DirectoryStore
from framenest.scorers.onnx import onnx_session
from framenest.scorers.tokenizer_files import tokenizer_file
from framenest.scorers.truncation import tell_truncation

LONGEST = 256  # tokens of a sentence that are read


class SentenceEncoder:
    """A sentence → a unit vector (384,); sentences that mean the same lie close together.

    Args:
        store: where the model files lie (`framenest models fetch tags`).

    Raises:
        ScorerError: a model file is missing or damaged.
        MissingExtra: onnxruntime or tokenizers is not installed.
    """

    name = "all-MiniLM-L6-v2"

    def __init__(self, store: DirectoryStore) -> None:
        files = models.require("tags", store)
        self._session = onnx_session(files["all-minilm-l6-v2-int8.onnx"], "tags", yielding=True)
        self._tokenizer = tokenizer_file(files["all-minilm-l6-v2-tokenizer.json"], "tags")
        self._tokenizer.enable_truncation(LONGEST)

    def __call__(self, sentence: str) -> NDArray[np.float32]:
        read = self._tokenizer.encode(sentence)
        tell_truncation("tags", len(read.ids) + sum(len(rest.ids) for rest in read.overflowing), LONGEST)
        vector: NDArray[np.float32] = self.many([sentence])[0]
        return vector

    def many(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        """(n, 384); sentences of the same length are run together, so that none needs padding."""
        tokens = [self._tokenizer.encode(sentence).ids for sentence in sentences]
        vectors = np.zeros((len(tokens), 384), dtype=np.float32)
        for length in sorted({len(ids) for ids in tokens}):
            rows = [row for row, ids in enumerate(tokens) if len(ids) == length]
            ids = np.array([tokens[row] for row in rows], dtype=np.int64)
            inputs = {
                "input_ids": ids,
                "attention_mask": np.ones_like(ids),
                "token_type_ids": np.zeros_like(ids),
            }
            means = self._session.run(None, inputs)[0].mean(axis=1)
            vectors[rows] = means / np.linalg.norm(means, axis=1, keepdims=True)
        return vectors
