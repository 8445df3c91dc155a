"""A server that says what it was told to say, in OpenAI's protocol. No model: for errors on demand."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ScriptedServer:
    """Replies in order, the last one for ever: a text, (status, body), or a function of the handler.

    `requests` keeps what was asked: (path, headers, body).
    """

    def __init__(self, *replies, models=("scripted",), model_fields=None, port=0) -> None:
        self.replies, self.requests = list(replies), []
        self.page = models if callable(models) else None
        named = [] if self.page else models
        self.models = [{"id": name, "object": "model", **(model_fields or {})} for name in named]
        handler = type("Bound", (Handler,), {"script": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def next_reply(self):
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def turns(self, number=-1):
        """The messages of one request."""
        return self.requests[number][2]["messages"]


class Handler(BaseHTTPRequestHandler):
    """One connection to the server that is its `script`."""

    script: ScriptedServer

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.script.page:
            self.script.page(self)
        else:
            self.send_json(200, {"object": "list", "data": self.script.models})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if "json" in self.headers["Content-Type"]:  # a form stays bytes
            body = json.loads(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.script.requests.append((self.path, headers, body))
        reply = self.script.next_reply()
        if callable(reply):
            reply(self, body)
        elif isinstance(reply, tuple):
            self.send_json(*reply)
        elif isinstance(body, dict) and body.get("stream"):
            self.stream(reply)
        else:
            self.send_json(200, completion(reply))

    def send_json(self, status, data):
        packed = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(packed)))
        self.send_header("retry-after-ms", "1")
        self.end_headers()
        self.wfile.write(packed)

    def stream(self, text, *, finish="stop", field="content", die=False):
        """Word by word, as server-sent events; `die` drops the line instead of ending it."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for word in text.split(" ") if isinstance(text, str) else []:
            self.event({field: word + " "})
        for piece in text if not isinstance(text, str) else []:
            self.event(piece)
        if not die:
            self.event({}, finish=finish)
            if finish:
                usage = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
                self.raw({"choices": [], "usage": usage})
                self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def event(self, delta, finish=None):
        self.raw({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def raw(self, chunk):
        chunk = {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "scripted",
        } | chunk
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.flush()


def completion(text, **message):
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": text, **message},
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107},
    }
