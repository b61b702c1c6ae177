"""Receivers for tests: HTTP servers on the loopback address; one of webhooks, which answers as it is told."""

from __future__ import annotations

import json
import queue
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tracker.consumers.periods.signing import verify

TAKEN = 204


@dataclass
class Receiver:
    """What has come. answers: how the next messages are answered, then with TAKEN; an answer is a status,
    (status, headers), or a function that is given the handler."""

    secret: str
    answers: list[Any] = field(default_factory=list)
    url: str = ""
    ids: list[str] = field(default_factory=list)
    events: queue.Queue[dict[str, Any]] = field(default_factory=queue.Queue)
    """Of those messages that were taken."""

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"]))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.ids.append(verify(self.secret, headers, body, time.time()))
        answer = self.answers.pop(0) if self.answers else TAKEN
        if callable(answer):
            answer(handler)
            return
        status, more = answer if isinstance(answer, tuple) else (answer, {})
        if 200 <= status < 300:
            self.events.put(json.loads(body))
        handler.send_response(status)
        for name, value in more.items():
            handler.send_header(name, value)
        handler.end_headers()


@contextmanager
def taking_posts(
    take: Callable[[BaseHTTPRequestHandler], None], tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """An HTTP server that gives each POST to a function, which answers it; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            take(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def receiving(
    secret: str, *answers: int | tuple[int, dict[str, str]] | Callable[..., None],
    tls: ssl.SSLContext | None = None,
) -> Iterator[Receiver]:  # fmt: skip
    receiver = Receiver(secret, list(answers))
    with taking_posts(receiver.handle, tls) as address:
        receiver.url = f"{address}/hours?key=hidden"
        yield receiver
