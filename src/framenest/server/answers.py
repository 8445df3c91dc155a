"""Answers from the model endpoint that the server was given, a few at once."""

from __future__ import annotations

from framenest.lmm import Request
from framenest.lmm.answer import Answer
from framenest.lmm.client import Client
from framenest.server.refusals import ConcurrencyLimit, Refusal
from framenest.server.server_settings import ServerSettings

AT_ONCE = 4
TIMEOUT = 120.0


class Answers:
    """Asks the configured endpoint. Its key stays in the environment and in the client."""

    def __init__(self, settings: ServerSettings) -> None:
        url, model = settings.answer_url, settings.answer_model
        self._client = Client(url, model, timeout=TIMEOUT, retries=1) if url else None
        self._limit = ConcurrencyLimit(AT_ONCE, f"{AT_ONCE} questions are being answered already", 10)

    def check(self) -> Client:
        """The endpoint's client; refused where none is configured."""
        if self._client is None:
            raise Refusal(404, "this server has no model to answer; it was started without --answer-url")
        return self._client

    def ask(self, request: Request) -> Answer:
        """The model's answer; refused where no endpoint is configured or too many wait for it."""
        client = self.check()
        with self._limit():
            return client.answer(request)

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
