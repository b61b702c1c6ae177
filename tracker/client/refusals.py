"""What the tracker refused, out of a call that failed."""

from __future__ import annotations

import grpc

from acker.v1 import types_pb2 as pb
from tracker.core.model import RefusalCode
from tracker.errors import FencedError, RefusedError
from tracker.wire.refusals import REFUSAL_KEY, refusal_from_pb


def refusal_of(error: grpc.RpcError) -> RefusedError | None:
    """The refusal that a failed call carries, if it is one."""
    trailing = getattr(error, "trailing_metadata", lambda: ())() or ()
    for key, value in trailing:
        if key == REFUSAL_KEY:
            message = pb.Refusal.FromString(value)
            refusal = refusal_from_pb(message)
            kind = FencedError if refusal.code is RefusalCode.FENCED else RefusedError
            return kind(refusal, message.home_address)
    return None
