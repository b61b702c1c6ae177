"""Clients of a pipeline's min times over HTTP, who record what they hear: of streams, quick, slow and coming back, and
of answers that are asked for again."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import cycle
from typing import Any
from urllib.parse import urlencode

from examples.history import Recorder
from tests.waits import HANG_S
from tracker.core.model.slots import FOREVER

POLL_S = 0.02  # paces: the load
AWAY_S = 0.05  # paces: the load


class Reader:
    """Hears of one segment, or of the whole pipeline, until that is complete, from one process after the other."""

    def __init__(
        self,
        name: str,
        addresses: Sequence[str],
        pipeline: str,
        segment: str | None,
        recorder: Recorder,
    ) -> None:
        self.name = name
        self._addresses, self._recorder, self._segment = cycle(addresses), recorder, segment
        self._pipeline, self._last = pipeline, ""
        self.heard = self.came_back = 0
        self.complete = threading.Event()
        self.over = threading.Event()
        """It is to end, whatever it has heard."""
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self.over.set()
        self._thread.join(HANG_S)

    def _run(self) -> None:
        while not (self.complete.is_set() or self.over.wait(AWAY_S)):
            with (
                suppress(OSError, http.client.HTTPException),
                closing(
                    http.client.HTTPConnection(next(self._addresses), timeout=HANG_S)
                ) as connection,
            ):
                self.read(connection)

    def read(self, connection: http.client.HTTPConnection) -> None:
        """One stream, from the last event on."""
        query = f"?{urlencode({'segment': self._segment})}" if self._segment else ""
        headers = {"Last-Event-ID": self._last} if self._last else {}
        connection.request(
            "GET", f"/api/v1/pipelines/{self._pipeline}/events{query}", headers=headers
        )
        answer = connection.getresponse()
        self.came_back += bool(self._last)
        events = 0
        while not self.over.is_set() and (line := answer.readline().decode()):
            kind, _, value = line.rstrip("\n").partition(": ")
            if kind == "id":
                self._last = value
            elif kind == "data":
                self.take(json.loads(value)["min_time"])
                events += 1
                if not self.goes_on(events):
                    return

    def goes_on(self, events: int) -> bool:
        """Whether it reads on behind so many events of a stream."""
        return True

    def take(self, min_time: int) -> None:
        """It has heard of its segment."""
        self.heard += 1
        self._recorder.heard(self.name, self._segment, min_time)
        if min_time == FOREVER:
            self.complete.set()


class Returning(Reader):
    """Comes back with its last event after every few, to the other process."""

    EVENTS = 5

    def goes_on(self, events: int) -> bool:
        return events < self.EVENTS


class Slow(Reader):
    """Reads the next event when others have heard so many."""

    EVENTS = 10
    other: Reader

    def goes_on(self, events: int) -> bool:
        until = self.other.heard + self.EVENTS
        while self.other.heard < until and not (
            self.other.complete.is_set() or self.over.wait(POLL_S)
        ):
            pass
        return True


class Deaf(Reader):
    """Asks for a stream and reads nothing of it, until the others are done."""

    def read(self, connection: http.client.HTTPConnection) -> None:
        connection.request("GET", f"/api/v1/pipelines/{self._pipeline}/events")
        self.over.wait(HANG_S)


class Polling(Reader):
    """Asks for min times again and again, with the ETag of what it has."""

    polls = unchanged = 0

    def __init__(self, *what: Any) -> None:
        super().__init__(*what)
        self._furthest: dict[str | None, int] = {}

    def read(self, connection: http.client.HTTPConnection) -> None:
        etag = ""
        while not self.over.wait(POLL_S):
            headers = {"If-None-Match": etag} if etag else {}
            connection.request(
                "GET", f"/api/v1/pipelines/{self._pipeline}/min_times", headers=headers
            )
            answer = connection.getresponse()
            body, self.polls = answer.read(), self.polls + 1
            self.unchanged += answer.status == 304
            if answer.status != 200:
                continue
            etag = answer.headers["etag"]
            self._take_all(json.loads(body))
            if self.complete.is_set():
                return

    def _take_all(self, told: dict[str, Any]) -> None:
        """What is further than what it has; another process may be a moment behind the one that answered before."""
        for each in (*told["segments"], told):
            segment = each.get("segment")
            if each["min_time"] > self._furthest.get(segment, -1):
                self._furthest[segment] = each["min_time"]
                if segment is None:
                    self.take(each["min_time"])
                else:
                    self._recorder.heard(self.name, segment, each["min_time"])
