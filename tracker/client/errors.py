"""The errors of the client: what the tracker refused, and what could not be reached in time."""

from __future__ import annotations

import grpc

from acker.v1 import types_pb2 as pb
from tracker.core.model import Refusal, RefusalCode
from tracker.wire.refusals import REFUSAL_KEY, refusal_from_pb


class LowmarkError(Exception):
    """Any error of the client."""


class ClosedError(LowmarkError):
    """The client object was closed, or belongs to another process; what waits in it has failed."""


class UnavailableError(LowmarkError):
    """No process of the tracker answered in time."""


class RefusedError(LowmarkError):
    """The tracker refused; `refusal` says why, for programs and for people. `home_address`: whom to
    ask instead, where the refusal names one."""

    def __init__(self, refusal: Refusal, home_address: str = "") -> None:
        super().__init__(f"{refusal.message} [{refusal.code.value}]")
        self.refusal = refusal
        self.home_address = home_address


class FencedError(RefusedError):
    """The key can commit no more: another process runs under the node's id, or it was evicted."""


class TickRefusedError(RefusedError):
    """One tick was refused whole: nothing of it was applied. The ticks behind it go on, but for those
    that promise or let a front leave."""


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
