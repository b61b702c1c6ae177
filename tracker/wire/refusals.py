"""Refusals, as calls carry them."""

from __future__ import annotations

from acker.v1 import types_pb2 as pb
from tracker.core.model import PipelineSpec, Refusal, RefusalCode, Refused

REFUSAL_KEY = "lowmark-refusal-bin"
"""Trailing metadata of a refused call: a serialised `Refusal`."""


def invalid(message: str) -> Refused:
    return Refused(RefusalCode.INVALID, message)


def unreadable(size: int, error: Exception) -> Refused:
    """Why a request of so many bytes is no message."""
    return invalid(f"a request of {size} bytes cannot be read: {error}")


def segment_number(spec: PipelineSpec, name: str) -> int:
    """The number of a segment. Raises Refused(UNKNOWN_SEGMENT)."""
    if name not in spec.segments:
        raise Refused(
            RefusalCode.UNKNOWN_SEGMENT,
            f"pipeline {spec.name!r} has no segment {name!r}; it has {list(spec.segments)[:20]}",
        )
    return spec.segments.index(name)


def refusal_to_pb(refusal: Refusal, home_address: str = "") -> pb.Refusal:
    return pb.Refusal(
        code=refusal.code.value,
        message=refusal.message,
        home=refusal.home,
        home_address=home_address,
        expected=refusal.expected,
        min_times=refusal.min_times,
    )


def refusal_from_pb(message: pb.Refusal) -> Refusal:
    """A refusal; a code that this version does not know reads as INVALID."""
    try:
        code = RefusalCode(message.code)
    except ValueError:
        code = RefusalCode.INVALID
    return Refusal(code, message.message, message.home, message.expected, tuple(message.min_times))
