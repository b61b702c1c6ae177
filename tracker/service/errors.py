"""How refusals travel: a gRPC status, the message as its text, the whole as trailing metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

import grpc

from tracker import convert
from tracker.core.model import Refusal, RefusalCode

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
    RefusalCode.FENCED: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalCode.ROLLED_BACK: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalCode.FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    RefusalCode.NOT_HOME: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalCode.COMPLETE: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalCode.NOT_READY: grpc.StatusCode.UNAVAILABLE,
}


async def abort(context: Context, refusal: Refusal, addresses: Sequence[str]) -> NoReturn:
    """Ends a call with a refusal. `addresses`: where each shard listens, by number."""
    home = addresses[refusal.home] if 0 <= refusal.home < len(addresses) else ""
    detail = convert.refusal_to_pb(refusal, home).SerializeToString()
    await context.abort(STATUS[refusal.code], refusal.message, ((convert.REFUSAL_KEY, detail),))
    raise AssertionError("abort returns never")
