"""How refusals travel: a gRPC status, the message as its text, the whole as trailing metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias

import grpc

from tracker.core.model import Refusal, RefusalCode
from tracker.service.stats import CALLS_REFUSED
from tracker.wire.refusals import REFUSAL_KEY, refusal_to_pb

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

STATUS = {
    RefusalCode.UNKNOWN_PIPELINE: grpc.StatusCode.NOT_FOUND,
    RefusalCode.UNKNOWN_SEGMENT: grpc.StatusCode.NOT_FOUND,
    RefusalCode.UNKNOWN_FRONT: grpc.StatusCode.NOT_FOUND,
    RefusalCode.UNKNOWN_NODE: grpc.StatusCode.NOT_FOUND,
    RefusalCode.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    RefusalCode.CONFLICT: grpc.StatusCode.ALREADY_EXISTS,
    RefusalCode.BELOW_MIN_TIME: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalCode.BEYOND_HORIZON: grpc.StatusCode.OUT_OF_RANGE,
    RefusalCode.OUT_OF_ORDER: grpc.StatusCode.ABORTED,
    RefusalCode.LOST: grpc.StatusCode.DATA_LOSS,
    RefusalCode.FENCED: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalCode.ROLLED_BACK: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalCode.FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    RefusalCode.NOT_HOME: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalCode.COMPLETE: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalCode.NOT_READY: grpc.StatusCode.UNAVAILABLE,
}


MAX_MESSAGE_BYTES = 1_500
"""Of a refusal at the end of a call: it travels there twice, encoded, within the 8 KiB that gRPC lets
through. Longer ones, by the names that they quote, are cut."""


async def abort(context: Context, refusal: Refusal, addresses: Mapping[int, str]) -> NoReturn:
    """Ends a call with a refusal. `addresses`: where each shard listens, by number."""
    CALLS_REFUSED[refusal.code.value] += 1
    home = refusal.address or addresses.get(refusal.home, "")
    refusal = replace(refusal, message=brief(refusal.message))
    detail = refusal_to_pb(refusal, home).SerializeToString()
    await context.abort(STATUS[refusal.code], refusal.message, ((REFUSAL_KEY, detail),))
    raise AssertionError("abort returns never")


def brief(message: str) -> str:
    """A message that fits at the end of a call: its beginning and its end, where the advice is."""
    data = message.encode()
    if len(data) <= MAX_MESSAGE_BYTES:
        return message
    half = (MAX_MESSAGE_BYTES - 5) // 2
    # A character that was cut in two is left out.
    begin, end = (part.decode(errors="ignore") for part in (data[:half], data[-half:]))
    return f"{begin} ... {end}"
