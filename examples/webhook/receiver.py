"""A receiver of hours, in a process of its own, to be killed.

    python -m examples.webhook.receiver PORT SECRET_FILE TAKEN_FILE

It checks the signature, passes over what it has taken already (by its id), writes anything else to the file
of what it has taken, and answers 204. A line on its standard input says what becomes of the next message:
`busy` is answered with 503, and after `die` the process ends when it has taken it, without an answer.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from examples.children import tell
from lowmark.errors import InvalidError
from lowmark.periods import signing


class Taken:
    """The file of what was taken: one JSON object a line, whole lines only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        self.ids = {json.loads(line)["id"] for line in lines}

    def take(self, message_id: str, body: bytes) -> None:
        if message_id in self.ids:
            return
        with open(self._path, "a") as file:
            file.write(json.dumps({"id": message_id, "body": json.loads(body)}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.ids.add(message_id)


def main(port: str, secret_file: str, taken_file: str) -> None:
    secret, taken = Path(secret_file).read_text(), Taken(Path(taken_file))
    moods: list[str] = []
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            with one_at_a_time:
                self.send_response(self._status(headers, body))
            self.end_headers()

        def _status(self, headers: dict[str, str], body: bytes) -> int:
            mood = moods.pop(0) if moods else ""
            if mood == "busy":
                return 503
            try:
                taken.take(signing.verify(secret, headers, body, time.time()), body)
            except InvalidError:
                return 401
            if mood == "die":
                os._exit(1)
            return 204

    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tell("listens")
    for line in sys.stdin:
        moods.append(line.strip())
        tell("done")
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
