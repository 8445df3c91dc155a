"""Answers from the model endpoint that the server was told of; a few at a time."""

from __future__ import annotations

import threading

from framenest.lmm import Request
from framenest.lmm.answer import Answer
from framenest.lmm.client import Client
from framenest.server.refusals import Busy, Unknown
from framenest.server.settings import Settings

AT_ONCE = 4
TIMEOUT = 120.0


class Answers:
    """Asks the configured endpoint. Its key stays in the environment and in the client."""

    def __init__(self, settings: Settings) -> None:
        self._client = (
            Client(settings.answer_url, settings.answer_model, timeout=TIMEOUT, retries=1)
            if settings.answer_url
            else None
        )
        self._places = threading.BoundedSemaphore(AT_ONCE)

    def check(self) -> Client:
        """The endpoint's client; refused where none is configured."""
        if self._client is None:
            raise Unknown("this server has no model to answer; it was started without --answer-url")
        return self._client

    def ask(self, request: Request) -> Answer:
        """The model's answer; refused where no endpoint is configured or too many wait for it."""
        client = self.check()
        if not self._places.acquire(blocking=False):
            raise Busy(f"{AT_ONCE} questions are being answered already; try again later", 10)
        try:
            return client.answer(request)
        finally:
            self._places.release()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
