"""Tokenizers as checkpoints keep them: tokenizer.json, and which token they pad with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from framenest.errors import MissingExtra, ScorerError


@contextmanager
def loading(path: Path, scorer: str) -> Iterator[None]:
    """The runtimes' own exceptions share no public base; each means that the file is not right."""
    try:
        yield
    except Exception as error:
        raise ScorerError(
            f"{path}: this model file cannot be loaded; run: framenest models fetch {scorer} ({error})"
        ) from error


def tokenizer_file(path: Path, extra: str) -> Any:
    """A tokenizer.json, without padding or truncation of its own."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtra(extra, "tokenizers") from error
    if not path.is_file():
        raise ScorerError(f"{path}: is missing")
    with loading(path, extra):
        tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def padding_token(folder: Path, tokenizer: Any) -> int | None:
    """The id that the tokenizer in a folder pads with; None where it names none.

    The model's config often has another, and SigLIP attends to padding.
    """
    token = read_json(folder / "tokenizer_config.json", {}).get("pad_token")
    name = token.get("content") if isinstance(token, dict) else token
    known = tokenizer.token_to_id(name) if name else None
    return None if known is None else int(known)


def read_json(path: Path, otherwise: dict[str, Any] | None = None) -> dict[str, Any]:
    """The object in a JSON file; `otherwise`, where it is given, where there is no file."""
    if otherwise is not None and not path.is_file():
        return otherwise
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ScorerError(f"{path}: cannot be read ({error})") from error
    return data
