"""What the dashboard answers, and what it refuses, whoever asks."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

import tracker
from tests.dashboard.scene import Showing
from tests.waits import HANG_S, until
from tracker import http as http_module
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import PipelineSpec
from tracker.dashboard import server as server_module

SPEC = PipelineSpec("p", ("a",), front_count=1)


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as embedded:
        embedded.register(SPEC)
        yield embedded


@pytest.fixture
def showing(running: EmbeddedTracker) -> Iterator[Showing]:
    showing = Showing(running.target)
    yield showing
    showing.close()


def connected(showing: Showing) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(showing.dashboard.address, timeout=HANG_S)


def asked(
    showing: Showing, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    with closing(connected(showing)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()


def raw(showing: Showing, data: bytes) -> bytes:
    """All that is answered to some bytes until the connection ends."""
    host, _, port = showing.dashboard.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=HANG_S) as connection:
        connection.sendall(data)
        found = b""
        try:
            while part := connection.recv(65_536):
                found += part
        except ConnectionResetError:  # closed with something unread
            pass
        return found


def test_every_answer_says_what_a_page_may_do(showing: Showing) -> None:
    for path in ("/", "/app.js", "/asking.js", "/drawing.js", "/style.css", "/icon.svg", "/none"):
        status, headers, body = asked(showing, path)
        assert status == (404 if path == "/none" else 200), path
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert int(headers["content-length"]) == len(body)


def test_nothing_is_fetched_from_elsewhere(showing: Showing) -> None:
    for path in ("/", "/app.js", "/asking.js", "/drawing.js", "/style.css"):
        text = asked(showing, path)[2].decode().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text and "https:" not in text, path
        assert "innerHTML" not in text and "insertAdjacentHTML" not in text, path


def test_one_connection_serves_several_requests(showing: Showing) -> None:
    with closing(connected(showing)) as connection:
        for method in ("GET", "HEAD", "GET"):
            connection.request(method, "/style.css")
            answer = connection.getresponse()
            assert answer.status == 200 and bool(answer.read()) == (method == "GET")


def test_a_look_says_what_there_is(showing: Showing) -> None:
    status, _, body = asked(showing, "/api/v1/pipelines")
    assert status == 200
    assert [each["pipeline"] for each in json.loads(body)["pipelines"]] == ["p"]
    look = json.loads(asked(showing, "/api/v1/pipelines/p")[2])
    (segment,) = look["segments"]
    assert (segment["segment"], segment["state"]) == ("a", "waiting")
    assert segment["causes"][0]["kind"] == "front_missing"


def test_what_is_no_get_is_refused(showing: Showing) -> None:
    status, _, _ = asked(showing, "/", "DELETE")
    assert status == 405
    assert raw(showing, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
    body = b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"
    assert raw(showing, body).startswith(b"HTTP/1.1 413")
    long = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (2 * http_module.MAX_HEAD_BYTES)
    assert raw(showing, long)[:12] in (b"HTTP/1.1 431", b"")


def test_a_name_that_only_resolves_to_this_machine_is_refused(showing: Showing) -> None:
    assert asked(showing, "/", Host="localhost:1")[0] == 200
    assert asked(showing, "/", Host="[::1]:80")[0] == 200
    status, _, body = asked(showing, "/api/v1/pipelines/p", Host="pages.example")
    assert status == 421 and "this machine" in json.loads(body)["message"]


def test_a_client_that_asks_nothing_is_sent_away(
    showing: Showing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_module, "HEAD_TIMEOUT_S", 0.2)
    assert raw(showing, b"GET / HTTP/1.1\r\nHost: local") == b""
    monkeypatch.setattr(http_module, "IDLE_TIMEOUT_S", 0.2)
    assert raw(showing, b"") == b""


def test_connections_are_bounded(running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 1)
    with closing(Showing(running.target)) as showing:
        with closing(connected(showing)) as first:
            first.request("GET", "/api/v1/pipelines/p/events")
            assert first.getresponse().readline(), "it is being answered"
            assert raw(showing, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
        until(lambda: asked_or_none(showing) == 200)


def asked_or_none(showing: Showing) -> int | None:
    try:
        return asked(showing, "/")[0]
    except (OSError, http.client.HTTPException):
        return None
