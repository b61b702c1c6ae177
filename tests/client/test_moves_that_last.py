"""A move that takes long is waited for by calls that are answered, so that whoever asks is told where it is (docs/groups.md)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import grpc
import pytest

from acker.v1 import group_service_pb2 as pb
from acker.v1.group_service_pb2_grpc import GroupServiceServicer, add_GroupServiceServicer_to_server
from tests.waits import HANG_S
from tracker.client import Admin

ANSWER_S = 1.0
"""So much of the time of a call is left for its answer, at least."""


class Moves(GroupServiceServicer):
    """Notes for how long it is asked to wait, and for how long the call goes on; the pipeline is there at the second question."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, float]] = []

    def MovePipeline(
        self, request: pb.MovePipelineRequest, context: Any
    ) -> pb.MovePipelineResponse:
        self.asked.append((request.wait_ms / 1_000, context.time_remaining()))
        return pb.MovePipelineResponse(over=len(self.asked) > 1, group=request.group)


@pytest.fixture
def moves() -> Iterator[tuple[str, Moves]]:
    """A process of a tracker, and where it is reached."""
    found = Moves()  # type: ignore[abstract]
    server = grpc.server(ThreadPoolExecutor(1))
    add_GroupServiceServicer_to_server(found, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}", found
    server.stop(None)


def test_a_call_that_waits_for_a_move_has_time_left_for_its_answer(
    moves: tuple[str, Moves],
) -> None:
    target, found = moves
    with closing(Admin(target, HANG_S)) as admin:
        admin.move("p", 1)
    assert len(found.asked) == 2
    assert all(wait_s + ANSWER_S < left_s for wait_s, left_s in found.asked), found.asked
