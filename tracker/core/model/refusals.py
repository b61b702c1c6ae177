"""Why something is refused, for programs and for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class RefusalCode(Enum):
    """Why something is refused; each maps to one gRPC status (`tracker.service.rpc.errors`)."""

    UNKNOWN_PIPELINE = "unknown_pipeline"
    UNKNOWN_SEGMENT = "unknown_segment"
    UNKNOWN_FRONT = "unknown_front"
    UNKNOWN_NODE = "unknown_node"
    INVALID = "invalid"
    CONFLICT = "conflict"
    BELOW_MIN_TIME = "below_min_time"
    BEYOND_HORIZON = "beyond_horizon"
    OUT_OF_ORDER = "out_of_order"
    FENCED = "fenced"
    ROLLED_BACK = "rolled_back"
    FULL = "full"
    NOT_HOME = "not_home"
    COMPLETE = "complete"
    NOT_READY = "not_ready"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal: the code for programs, the message for people (names the value, the limit and what
    to do). `home` is the shard to ask instead, for NOT_HOME, else -1; `expected` the number of the
    tick that is due, for OUT_OF_ORDER, else 0; `min_times`, for a tick that is BELOW_MIN_TIME, by segment
    number the slots below which its home takes nothing, else (); `pipeline` the one that is not here, for UNKNOWN_PIPELINE;
    `address` where to ask instead, host:port, where that is no shard of this group."""

    code: RefusalCode
    message: str
    home: int = -1
    expected: int = 0
    min_times: tuple[int, ...] = ()
    pipeline: str = ""
    address: str = ""


class Refused(Exception):
    """Raised inside a check; the state machine turns it into an effect and changes nothing."""

    def __init__(
        self,
        code: RefusalCode,
        message: str,
        *,
        home: int = -1,
        expected: int = 0,
        min_times: tuple[int, ...] = (),
    ) -> None:
        super().__init__(message)
        self.refusal = Refusal(code, message, home, expected, min_times)

    @classmethod
    def of(cls, refusal: Refusal) -> Refused:
        """Raises a refusal that came from elsewhere once more."""
        raised = cls(refusal.code, refusal.message)
        raised.refusal = refusal
        return raised
