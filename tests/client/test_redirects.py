"""Who is home is asked until somebody knows, also while shards change hands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from acker.v1.pipeline_service_pb2 import GetPipelineRequest
from tests.waits import HANG_S
from tracker.client.connection import MAX_REDIRECTS, Connection
from tracker.core.model import Refusal, RefusalCode
from tracker.errors import UnavailableError
from tracker.wire.refusals import REFUSAL_KEY, refusal_to_pb

A, B = "127.0.0.1:1", "127.0.0.1:2"


class NotHome(grpc.RpcError):
    """A process says that another one is home."""

    def __init__(self, home_address: str) -> None:
        self._message = refusal_to_pb(Refusal(RefusalCode.NOT_HOME, "it is at home there"))
        self._message.home_address = home_address

    def trailing_metadata(self) -> Any:
        return ((REFUSAL_KEY, self._message.SerializeToString()),)

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.FAILED_PRECONDITION

    def details(self) -> str:
        return "it is at home there"


def asked(answers: Callable[[int], str | None]) -> Callable[[grpc.Channel], Callable[..., str]]:
    """A method that is redirected to what `answers` gives for the number of the call, from 0; None: it
    is answered."""
    count = -1

    def method(request: Any, timeout: float) -> str:
        nonlocal count
        count += 1
        home = answers(count)
        if home is not None:
            raise NotHome(home)
        return f"answered call {count}"

    return lambda channel: method


def test_processes_that_name_each_other_are_asked_until_one_knows() -> None:
    calls = 3 * MAX_REDIRECTS
    connection = Connection([A, B])
    method = asked(lambda count: (A, B)[count % 2] if count < calls else None)
    answer, _ = connection.call(method, None, HANG_S)
    assert answer == f"answered call {calls}"
    connection.close()


def test_one_that_cannot_say_where_home_is_is_asked_again() -> None:
    connection = Connection([A, B])
    answer, address = connection.call(asked(lambda count: "" if count < 2 else None), None, HANG_S)
    assert (answer, address) == ("answered call 2", A)
    connection.close()


def test_after_the_time_that_is_given_the_caller_is_told_why() -> None:
    connection = Connection([A, B])
    with pytest.raises(UnavailableError, match="at home there"):
        connection.call(asked(lambda count: B), None, 0.2)
    connection.close()


class Places:
    """Processes by address, each of which answers for some pipelines, and sends others to another one."""

    def __init__(self, **lives: str) -> None:
        """lives: by pipeline where it does."""
        self.lives, self.asked = lives, list[tuple[str, str]]()

    def make(self, channel: grpc.Channel) -> Callable[..., str]:
        (address,) = [a for a, c in self.channels.items() if c is channel]

        def method(request: GetPipelineRequest, timeout: float) -> str:
            self.asked.append((address, request.pipeline))
            if self.lives[request.pipeline] != address:
                raise NotHome(self.lives[request.pipeline])
            return address

        return method

    def connect(self, connection: Connection) -> None:
        self.channels = {address: connection.channel(address) for address in (A, B)}


def test_where_a_pipeline_lives_is_remembered_by_its_name() -> None:
    places = Places(here=A, there=B)
    connection = Connection(A)
    places.connect(connection)
    for _ in range(3):
        for name in ("here", "there"):
            connection.call(places.make, GetPipelineRequest(pipeline=name), HANG_S)
    assert [address for address, name in places.asked if name == "here"] == [A, A, A]
    assert [address for address, name in places.asked if name == "there"] == [A, B, B, B]
    places.lives["there"] = A
    connection.call(places.make, GetPipelineRequest(pipeline="there"), HANG_S)
    assert places.asked[-2:] == [(B, "there"), (A, "there")], "it has moved"
    connection.close()
