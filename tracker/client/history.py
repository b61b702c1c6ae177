"""When min time reached which slot: what the tracker remembers of its announcements."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from tracker.client.admin import Admin
from tracker.client.connection import Connection
from tracker.client.errors import UnavailableError
from tracker.core.cut.history import Reached

ANSWER_TIMEOUT_S = 30.0
SHARD_TIMEOUT_S = 5.0
"""How long one shard may take for its part."""


def history(
    target: str | Sequence[str],
    pipeline: str,
    slots: Sequence[int],
    segment: str | None = None,
) -> list[Reached]:
    """When min time, of a segment or of the whole pipeline, reached each slot: the earliest moment at
    which any process of the tracker announced it. A process that is away does not count.

    Moments are exact for full minutes of the last two days and full hours of the last year (for slots of
    a minute and more, or of no clock: for each slot, and every so many of them), and else those of the
    next announcement that is remembered. At most 10,000 slots; raises RefusedError, UnavailableError.
    """
    request = progress_pb.GetHistoryRequest(pipeline=pipeline, segment=segment or "", slots=slots)
    with Admin(target, ANSWER_TIMEOUT_S) as admin:
        shards = admin.shards()
    found: list[Reached] | None = None
    trouble: UnavailableError | None = None
    for shard in shards:
        connection = Connection(shard.address)
        try:
            answer, _ = connection.call(
                lambda channel: progress_grpc.ProgressServiceStub(channel).GetHistory,
                request,
                SHARD_TIMEOUT_S,
            )
        except UnavailableError as error:
            trouble = error
            continue
        finally:
            connection.close()
        told = [
            Reached(r.slot, r.reached, r.at_ms if r.HasField("at_ms") else None, r.min_time)
            for r in answer.reached
        ]
        found = (
            told if found is None else [_earlier(*pair) for pair in zip(found, told, strict=True)]
        )
    if found is None:
        raise trouble or UnavailableError("the tracker names no shard")
    return found


def _earlier(one: Reached, other: Reached) -> Reached:
    """Which of two processes' answers says more."""
    known = [each for each in (one, other) if each.reached]
    timed = [each for each in known if each.at_ms is not None]
    if timed:
        return min(timed, key=lambda each: each.at_ms or 0)
    return known[0] if known else one


def moment(at_ms: int) -> datetime:
    """A moment of the history, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC)
