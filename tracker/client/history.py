"""When min time reached which slot: what the tracker remembers of its announcements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce

from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from tracker.client.admin import Admin
from tracker.client.updates import slot_until
from tracker.core.cut.history import Reached
from tracker.errors import UnavailableError
from tracker.wire.history import reached_from_pb

ANSWER_TIMEOUT_S = 30.0


def history(
    target: str | Sequence[str],
    pipeline: str,
    slots: Sequence[int | datetime],
    segment: str | None = None,
    *,
    heard_generation: int | None = None,
) -> list[Reached]:
    """When min time, of a segment or of the whole pipeline, reached each slot, or had all before a moment behind it:
    the earliest moment at which any process of the tracker announced it. A process that is away does not count.

    Moments are exact for full minutes of the last two days and full hours of the last year (for slots of
    a minute and more, or of no clock: for each slot, and every so many of them), and else those of the
    next announcement that is remembered, by which the slot was reached: `exact` tells. At most 10,000 slots; raises RefusedError, UnavailableError.

    heard_generation: of the pipeline that is meant. Raises RefusedError where that was deleted, and another one has its name.
    """
    if not slots:
        return []
    with Admin(target, ANSWER_TIMEOUT_S) as admin:
        asked = _slot_untils(admin, pipeline, slots)
        request = progress_pb.GetHistoryRequest(
            pipeline=pipeline, segment=segment or "", slots=asked, heard_generation=heard_generation
        )
        told = _asked(admin, request)
    return [reduce(_earlier, of_slot) for of_slot in zip(*told, strict=True)]


def of_each(
    target: str | Sequence[str],
    pipeline: str,
    slot: int,
    segment: str | None = None,
    heard_generation: int | None = None,
) -> list[Reached | UnavailableError]:
    """As `history`, of each process by itself; or why it does not say. Raises RefusedError, UnavailableError."""
    request = progress_pb.GetHistoryRequest(
        pipeline=pipeline, segment=segment or "", slots=[slot], heard_generation=heard_generation
    )
    with Admin(target, ANSWER_TIMEOUT_S) as admin:
        answers = _answers(admin, request)
    return [each if isinstance(each, UnavailableError) else each[0] for each in answers]


def remembered(
    admin: Admin, pipeline: str, segment: str = "", *, heard_generation: int | None = None
) -> list[list[Reached]]:
    """Of each process that answers the announcements of a segment, or of the whole pipeline, that it remembers, by slot.
    heard_generation: as of `history`. Raises RefusedError; UnavailableError where none answers."""
    request = progress_pb.GetHistoryRequest(
        pipeline=pipeline, segment=segment, heard_generation=heard_generation
    )
    return _asked(admin, request)


def _asked(admin: Admin, request: progress_pb.GetHistoryRequest) -> list[list[Reached]]:
    answers = _answers(admin, request)
    heard = [each for each in answers if not isinstance(each, UnavailableError)]
    away = [each for each in answers if isinstance(each, UnavailableError)]
    if away and not heard:
        raise away[0]
    return heard


def _answers(
    admin: Admin, request: progress_pb.GetHistoryRequest
) -> list[list[Reached] | UnavailableError]:
    answers = admin.ask_shards(
        lambda channel: progress_grpc.ProgressServiceStub(channel).GetHistory, request
    )
    return [
        answer
        if isinstance(answer, UnavailableError)
        else [reached_from_pb(each) for each in answer.reached]
        for _, answer in answers
    ]


def _slot_untils(admin: Admin, pipeline: str, slots: Sequence[int | datetime]) -> list[int]:
    if all(isinstance(slot, int) for slot in slots):
        return [slot for slot in slots if isinstance(slot, int)]
    spec = admin.pipeline(pipeline).spec
    return [slot_until(slot, spec.slack_ns, spec.rounds) for slot in slots]


def _earlier(one: Reached, other: Reached) -> Reached:
    """Which of two processes' answers says more."""
    known = [each for each in (one, other) if each.reached]
    timed = [each for each in known if each.at_ms is not None]
    if timed:
        first = min(timed, key=lambda each: each.at_ms or 0)
        # Of what one does not remember, something may have been earlier than all that the others do.
        min_time = min(each.min_time for each in known)
        return replace(first, min_time=min_time, exact=all(each.exact for each in timed))
    return known[0] if known else one


def moment(at_ms: int) -> datetime:
    """A moment of the history, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC)
