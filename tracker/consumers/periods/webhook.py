"""A webhook: each period is posted to a URL when it is complete, signed, until the receiver has it.

    with Periods(target, "orders", "load", "1h", "/data/hook.json") as periods:
        periods.run(Webhook("https://reports.example/hours", "/etc/lowmark/hook.secret"))

The receiver has a period when it has answered with a status of 2xx: only then is it done, and the next one
comes. So whoever is killed, at whichever moment, loses none and changes no order; a receiver that was killed
right after it has taken one, or whose answer was lost, gets it again under the same id. What waits is not
kept anywhere: it follows from min time.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from tracker import __version__
from tracker.client.connection import Backoff
from tracker.client.credentials import is_loopback
from tracker.consumers.periods.cut import Period, moment_text
from tracker.consumers.periods.signing import read_secrets, signed
from tracker.errors import Code, InvalidError, StateError, UnavailableError
from tracker.redacting import shown_url

EVENT = "period.complete"
MAX_ANSWER_BYTES = 65_536
"""Of an answer, so much is read and passed over; a longer one ends the connection."""
MAX_RETRY_AFTER_S = 3_600.0
"""A receiver that asks for a longer pause gets this one."""

_CONNECT_SHARE = 1 / 3
"""Of an attempt's time for one address of a receiver that has several: one that does not answer leaves time for another."""
_RETRIED = (408, 425, 429)  # and all from 500 on: the receiver may take it later

log = logging.getLogger("lowmark.webhook")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited for a receiver, in seconds.

    attempt_s: for one attempt as a whole; give_up_s: for all attempts at one period. Between two of them
    first_pause_s, then twice as long each time up to longest_pause_s, less up to a half by chance.
    """

    attempt_s: float = 10.0
    give_up_s: float = 86_400.0
    first_pause_s: float = 1.0
    longest_pause_s: float = 300.0


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    retry_after: str


class Webhook:
    """One receiver. It cannot be asked what it has, and gets a message again under its id, by which it knows it."""

    def __init__(
        self,
        url: str,
        secret_file: str | os.PathLike[str],
        *,
        ca: str = "",
        patience: Patience | None = None,
        plain: bool = False,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """url: https, or http to this machine (elsewhere only with `plain`); it is called straight, by no
        proxy, and redirects are not followed. secret_file: read again for each attempt; while it cannot be, as where it is
        just being replaced, what it held before counts. ca: a PEM file to
        check the receiver's certificate by; the system's own if empty. Raises ValueError for a URL that
        cannot be used, InvalidError, OSError."""
        parts = urlsplit(url)
        try:
            host, port = parts.hostname or "", parts.port
        except ValueError:
            host, port = "", None
        self.name = shown_url(url)
        readable = url.isascii() and url.isprintable() and " " not in url
        if parts.scheme not in ("https", "http") or not host or not readable:
            raise ValueError(f"{self.name!r} is no URL of a webhook: https://reports.example/hours")
        if "@" in parts.netloc:
            raise ValueError(
                f"{self.name}: a URL with a password is refused, since it would be shown; the receiver "
                "knows the sender by its signature"
            )
        if parts.scheme == "http" and not plain and not is_loopback(f"{host}:0"):
            raise ValueError(
                f"{self.name}: plain http leaves this machine; use https, or allow it (--set plain=true)"
            )
        self._host, self._port, self._secure = host, port, parts.scheme == "https"
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._tls = ssl.create_default_context(cafile=ca or None) if self._secure else None
        self._secret_file = secret_file
        self._patience = patience or Patience()
        self._sleep = sleep
        self._secrets = read_secrets(secret_file)  # what cannot be used is refused at once

    def is_done(self, period: Period) -> bool:
        return False

    def do(self, period: Period, at: datetime | None) -> None:
        self.deliver(message_id(period), event(period, at))

    def deliver(self, name: str, content: dict[str, Any]) -> None:
        """Posts one message until it is taken. name: its id. Raises StateError where the receiver will not have it, now
        or later, UnavailableError where it has not taken it in all the time that was given."""
        body = json.dumps(content, separators=(",", ":")).encode()
        began_s, attempt = time.monotonic(), 0
        backoff = Backoff(self._patience.first_pause_s, self._patience.longest_pause_s)
        while True:
            attempt += 1
            answer, why = self._attempt(name, body)
            if answer is not None and 200 <= answer.status < 300:
                return
            if answer is not None and answer.status < 500 and answer.status not in _RETRIED:
                raise StateError(
                    f"{self.name} has refused {name}: {why}; it is tried again when this is started again",
                    Code.STATE_RECEIVER,
                )
            pause_s = max(backoff.pause_s(), _asked_pause_s(answer))
            spent_s = time.monotonic() - began_s
            if spent_s + pause_s > self._patience.give_up_s:
                raise UnavailableError(
                    f"{self.name} has not taken {name} in {attempt} attempts and {spent_s:.0f} s "
                    f"({why}), the limit is {self._patience.give_up_s:g} s; it is tried again when this is "
                    "started again",
                    Code.UNAVAILABLE_RECEIVER,
                )
            log.warning(
                "%s has not taken %s (%s), attempt %d; tried again in %.1f s",
                self.name, name, why, attempt, pause_s,
            )  # fmt: skip
            self._sleep(pause_s)

    def _attempt(self, name: str, body: bytes) -> tuple[_Answer | None, str]:
        """The answer, if one came, and what is to be reported of it."""
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"lowmark/{__version__}",
            **signed(self._read_secrets(), name, int(time.time()), body),
        }
        connection = self._connection()
        late = threading.Event()

        def end() -> None:
            late.set()
            _cut(connection)

        # A timeout of the socket is for one read of many: this one is for all of them.
        timer = threading.Timer(self._patience.attempt_s, end)
        timer.daemon = True
        timer.start()
        try:
            connection.connect()
            if late.is_set():  # while there was nothing to cut: its answer would count for nothing
                raise TimeoutError
            connection.sock.settimeout(self._patience.attempt_s)
            connection.request("POST", self._path, body, headers)
            response = connection.getresponse()
            response.read(MAX_ANSWER_BYTES)
            answer = _Answer(response.status, response.getheader("Retry-After", ""))
        except (OSError, http.client.HTTPException) as error:
            if late.is_set() or isinstance(error, TimeoutError):
                return None, f"no answer in {self._patience.attempt_s:g} s"
            return None, f"{type(error).__name__}: {error}"
        finally:
            timer.cancel()
            connection.close()
        if late.is_set():  # what was cut off may look like a short answer
            return None, f"no answer in {self._patience.attempt_s:g} s"
        return answer, f"status {answer.status}"

    def _read_secrets(self) -> list[bytes]:
        try:
            self._secrets = read_secrets(self._secret_file)
        except InvalidError as error:
            log.warning("%s: messages are signed by the secret before: %s", self.name, error)
        return self._secrets

    def _connection(self) -> http.client.HTTPConnection:
        where, timeout_s = (self._host, self._port), self._patience.attempt_s * _CONNECT_SHARE
        if self._tls is None:
            return http.client.HTTPConnection(*where, timeout=timeout_s)
        return http.client.HTTPSConnection(*where, timeout=timeout_s, context=self._tls)


def message_id(period: Period) -> str:
    """Names a period's message, the same at each attempt; a key holds dots, which an id must not."""
    return f"msg_{sha256(period.key.encode()).hexdigest()[:32]}"


def event(period: Period, at: datetime | None) -> dict[str, Any]:
    """What is posted of a period. at: as of `Action.do`."""
    return {"type": EVENT, "timestamp": moment_text(at), "data": period.completed(at)}


def _asked_pause_s(answer: _Answer | None) -> float:
    """By Retry-After in seconds; a date in it is passed over."""
    text = "" if answer is None else answer.retry_after.strip()
    if not text.isascii() or not text.isdigit():
        return 0.0
    return min(float(text[:10]), MAX_RETRY_AFTER_S)


def _cut(connection: http.client.HTTPConnection) -> None:
    """Ends what waits on a connection; that it is not there yet, or no more, is as well."""
    made = connection.sock
    if made is not None:
        try:
            made.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
