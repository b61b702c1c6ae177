"""Min times as server-sent events: each change once, from the last that a client has heard, and never for too many."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

import tracker
from tests.client.support import (
    TWO_SEGMENTS,
    consume,
    create,
    delete,
    done,
    joined_front,
    promise,
    use_again,
)
from tests.dashboard.scene import Showing
from tests.dashboard.test_http import asked, connected
from tests.waits import HANG_S, until
from tracker.client import NodeClient, PipelineInfo
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER
from tracker.dashboard import events as events_module
from tracker.dashboard.query import DashboardQuery

PATH = "/api/v1/pipelines/two/events"


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as embedded:
        embedded.register(TWO_SEGMENTS)
        yield embedded


@pytest.fixture
def front(running: EmbeddedTracker) -> NodeClient:
    """It has an item of slot 5 in flight, and promises slot 9."""
    node = joined_front(running.node("two", "n", "front"))
    done(node.commit(create(5, 1)))
    done(node.commit(promise(9)))
    assert running.subscriber("two").wait_until(5, timeout_s=HANG_S)
    return node


@pytest.fixture
def showing(running: EmbeddedTracker) -> Iterator[Showing]:
    with closing(Showing(running.target)) as showing:
        yield showing


class Listening:
    """A stream of events that is open."""

    def __init__(self, showing: Showing, path: str = PATH, **headers: str) -> None:
        self._connection = connected(showing)
        self._connection.request("GET", path, headers=headers)
        self.answer = self._connection.getresponse()

    def lines(self) -> dict[str, str]:
        """The fields of the next event; nothing when the stream has ended."""
        found: dict[str, str] = {}
        while line := self.answer.readline().decode():
            name, _, value = line.rstrip("\n").partition(": ")
            if not name and "event" in found:
                return found
            found[name] = value
        return {}

    def next(self) -> dict[str, Any]:
        """The data of the next event."""
        fields = self.lines()
        assert fields["event"] == "min_time", fields
        told = json.loads(fields["data"])
        self.last = fields["id"]
        assert self.last.endswith(f".{told['min_time']}")
        return dict(told)

    def close(self) -> None:
        self._connection.close()


def test_it_hears_what_is_now_and_then_each_change_until_all_is_complete(
    showing: Showing, front: NodeClient
) -> None:
    with closing(Listening(showing)) as whole, closing(
        Listening(showing, f"{PATH}?segment=second")
    ) as second:  # fmt: skip
        assert whole.answer.headers["content-type"] == "text/event-stream"
        assert whole.next() == {
            "pipeline": "two", "segment": None, "min_time": 5, "complete": False, "whole_time": None,
            "round": None, "time": "1970-01-01T00:00:00.050000+00:00", "text": "1970-01-01 00:00:00.050",
        }  # fmt: skip
        assert (first := second.next())["segment"] == "second" and first["min_time"] == 5
        done(front.commit(consume(5, 1)))
        assert whole.next()["min_time"] == 9 == second.next()["min_time"]
        done(front.leave_front("front"))
        last = whole.next()
        assert last["complete"] and last["min_time"] == FOREVER and whole.lines() == {}
    status, _, body = asked(showing, PATH, **{"Last-Event-ID": whole.last})
    assert (status, body) == (204, b""), "by which an EventSource stays away"


def test_whoever_comes_back_hears_only_what_is_further(showing: Showing, front: NodeClient) -> None:
    with closing(Listening(showing)) as first:
        first.next()
    with closing(Listening(showing, **{"Last-Event-ID": first.last})) as again:
        done(front.commit(consume(5, 1)))
        assert again.next()["min_time"] == 9, "5 is not told again"
    ahead = {"Last-Event-ID": "0.8"}  # of another process, which this one is behind
    with closing(Listening(showing, **ahead)) as other:
        assert other.next()["min_time"] == 9


def test_who_reads_slowly_misses_what_lies_between_and_is_never_told_what_goes_back(
    showing: Showing, front: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "EVENT_INTERVAL_S", 0.0)
    done(front.commit(consume(5, 1)))
    with closing(Listening(showing)) as quick, closing(Listening(showing)) as slow:
        heard = [quick.next()["min_time"]]
        for slot in range(10, 60):
            done(front.commit(promise(slot)))
            while heard[-1] < slot:
                heard.append(quick.next()["min_time"])
        late = [slow.next()["min_time"]]
        while late[-1] < 59:
            late.append(slow.next()["min_time"])
    assert heard == sorted({*heard}) and late == sorted({*late})


def test_one_subscription_serves_all_and_ends_with_the_last(
    showing: Showing, front: NodeClient
) -> None:
    events = showing.dashboard.events
    with closing(Listening(showing)) as one, closing(Listening(showing)) as two:
        assert one.next() == two.next()
        assert (events.streams, events.followed) == (2, 1)
    # Nothing happens in the pipeline: it is noticed all the same that they have gone.
    until(lambda: (events.streams, events.followed) == (0, 0))


def test_a_head_of_a_stream_takes_no_place(showing: Showing, front: NodeClient) -> None:
    assert asked(showing, PATH, "HEAD")[0] == 200
    until(lambda: showing.dashboard.events.streams == 0)


@pytest.mark.parametrize("limit", ["MAX_STREAMS", "MAX_STREAMS_OF_A_CLIENT", "MAX_FOLLOWED"])
def test_streams_are_bounded_and_told_so(
    running: EmbeddedTracker, showing: Showing, front: NodeClient, limit: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    most = 1 if limit == "MAX_FOLLOWED" else 2
    monkeypatch.setattr(events_module, limit, most)
    running.register(TWO_SEGMENTS.__class__("other", ("a",), fronts=("front",)))
    other = PATH.replace("two", "other") if limit == "MAX_FOLLOWED" else PATH
    with ExitStack() as stack:
        for _ in range(most):
            stack.enter_context(closing(Listening(showing))).next()
        status, headers, body = asked(showing, other)
        assert (status, headers["retry-after"]) == (503, "10")
        error = json.loads(body)
        assert error["code"] == "unavailable.room" and f"{most} of " in error["message"]
        assert "min_times" in error["message"], "what to do"
    until(lambda: showing.dashboard.events.streams == 0)
    with closing(Listening(showing)) as again:
        again.next()


def test_a_client_that_reads_nothing_is_given_up(
    showing: Showing, front: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracker.http.WRITE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(events_module, "EVENT_INTERVAL_S", 0.0)
    monkeypatch.setattr(events_module, "KEEP_ALIVE_S", 0.0)  # as much as there is room for
    monkeypatch.setattr(events_module, "STILL_HERE", b":" + b" " * 1_000_000 + b"\n\n")
    host, _, port = showing.dashboard.address.rpartition(":")
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        deaf.connect((host, int(port)))
        deaf.sendall(f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        until(lambda: showing.dashboard.events.streams == 1)
        until(lambda: showing.dashboard.events.streams == 0)


def test_nothing_to_tell_is_told_so(
    showing: Showing, front: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "KEEP_ALIVE_S", 0.05)
    with closing(Listening(showing)) as listening:
        listening.next()
        assert listening.answer.readline() == b": still here\n"


def test_a_pipeline_that_is_deleted_ends_its_streams_with_the_reason(
    running: EmbeddedTracker, showing: Showing, front: NodeClient
) -> None:
    with closing(Listening(showing)) as listening:
        listening.next()
        with running.admin() as admin:
            admin.delete("two", 0, drop_open=True)
        fields = listening.lines()
        assert fields["event"] == "refused" and "two" in json.loads(fields["data"])["message"]
        assert listening.lines() == {}


def test_a_tracker_that_is_away_is_said_before_a_stream_begins(
    running: EmbeddedTracker, showing: Showing
) -> None:
    running.kill_shard(0)
    status, _, body = asked(showing, PATH)
    assert status == 503 and json.loads(body)["code"] == "unavailable.tracker"
    running.start_shard(0)


def test_a_client_that_sends_on_is_closed_at_a_limit(showing: Showing, front: NodeClient) -> None:
    host, _, port = showing.dashboard.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=HANG_S) as talking:
        talking.sendall(f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        until(lambda: showing.dashboard.events.streams == 1)
        with pytest.raises(OSError):
            while True:
                talking.sendall(b"x" * 4_096)
    until(lambda: showing.dashboard.events.streams == 0)


def test_a_second_request_waits_for_the_end_of_the_stream(
    showing: Showing, front: NodeClient
) -> None:
    connection: http.client.HTTPConnection = connected(showing)
    with closing(connection):
        connection.connect()
        request = f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        after = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        connection.sock.sendall(request)
        until(lambda: showing.dashboard.events.streams == 1)
        connection.sock.sendall(after)
        done(front.commit(consume(5, 1)))
        done(front.leave_front("front"))
        said = b""
        while part := connection.sock.recv(65_536):
            said += part
    assert said.count(b"HTTP/1.1 200") == 2 and b'"openapi"' in said


def test_who_comes_while_the_subscription_is_cut_off_hears_of_the_pipeline_that_has_the_name_now(
    running: EmbeddedTracker, showing: Showing, front: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_cut_off(*_: object) -> None:
        await asyncio.Event().wait()

    with closing(Listening(showing)) as before:
        assert before.next()["min_time"] == 5
        monkeypatch.setattr("tracker.client.subscriber._AsyncStream.pause", is_cut_off)
        running.stop_shard(0)
        running.start_shard(0)
        with closing(Listening(showing)) as meanwhile:
            assert meanwhile.next()["min_time"] == 5, "it is the same as before"
        use_again(running)
        with closing(Listening(showing)) as after:
            assert after.next()["min_time"] == 0
        fields = before.lines()
        assert fields["event"] == "refused" and "another one has its name" in fields["data"]


@pytest.mark.parametrize("leaves", [False, True], ids=["in_between", "complete"])
def test_who_comes_back_with_the_last_event_of_a_pipeline_that_was_deleted_is_refused(
    running: EmbeddedTracker, showing: Showing, front: NodeClient, leaves: bool
) -> None:
    """By the slot alone it would not hear of the one that has the name now until that is as far; never, if the one before was
    complete."""
    if leaves:
        done(front.commit(consume(5, 1)))
        done(front.leave_front("front"))
        assert running.subscriber("two").wait_until(FOREVER, timeout_s=HANG_S)
    with closing(Listening(showing)) as before:
        before.next()
    use_again(running)
    status, _, body = asked(showing, PATH, **{"Last-Event-ID": before.last})
    error = json.loads(body)
    assert (status, error["code"]) == (404, "refused.unknown_pipeline")
    assert "another one has its name" in error["message"]
    with closing(Listening(showing)) as anew:
        assert anew.next()["min_time"] == 0
        told = anew.last
    with closing(Listening(showing, **{"Last-Event-ID": told})) as again:
        other = joined_front(running.node("two", "n", "front"))
        done(other.commit(promise(3)))
        assert again.next()["min_time"] == 3


def test_a_stream_of_the_pipeline_that_has_the_name_now_goes_by_nothing_that_was_known_of_the_one_before(
    running: EmbeddedTracker, showing: Showing, front: NodeClient
) -> None:
    """Its slots are wider. Nobody has asked for it since it was registered, and within a second what was asked before is
    everybody's answer."""
    assert asked(showing, PATH.replace("events", "min_times"))[0] == 200
    delete(running)
    running.register(PipelineSpec("two", ("first", "third"), slack_ns=10**9, fronts=("front",)))
    other = joined_front(running.node("two", "n", "front"))
    done(other.commit(promise(7)))
    with closing(Listening(showing)) as whole:
        while (told := whole.next())["min_time"] < 7:
            pass
    assert told["time"] == "1970-01-01T00:00:07+00:00"
    with closing(Listening(showing, f"{PATH}?segment=second")) as gone:
        assert gone.answer.status == 404, "it would say nothing, ever"
        assert json.loads(gone.answer.read())["code"] == "refused.unknown_segment"


def test_a_stream_of_a_pipeline_that_is_deleted_before_it_is_listened_to_is_refused(
    running: EmbeddedTracker, showing: Showing, front: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipeline that has the name by then has not the segment, and its stream would say nothing, ever."""
    known = DashboardQuery.info

    def info(query: DashboardQuery, pipeline: str) -> PipelineInfo:
        found = known(query, pipeline)
        delete(running)
        running.register(PipelineSpec("two", ("third",), fronts=("front",)))
        return found

    monkeypatch.setattr(DashboardQuery, "info", info)
    with closing(Listening(showing, f"{PATH}?segment=second")) as gone:
        assert gone.answer.status == 404
        assert json.loads(gone.answer.read())["code"] == "refused.unknown_pipeline"


def test_who_comes_back_after_a_restart_of_the_pipeline_goes_on(
    running: EmbeddedTracker, showing: Showing, front: NodeClient
) -> None:
    with closing(Listening(showing)) as before:
        assert before.next()["min_time"] == 5
    running.admin().restart("two", 0)
    with closing(Listening(showing, **{"Last-Event-ID": before.last})) as again:
        other = joined_front(running.node("two", "n", "front"))
        done(other.commit(promise(8)))
        assert again.next()["min_time"] == 8
        assert again.last.startswith("1.")
