"""The errors that a user of Lowmark can meet: one root, few classes, and a code that tells them apart.

A class is for programs that act by it: ask again, give up, start anew. What exactly went wrong is its `code`, which stays
as it is when a message gets better words. docs/errors.md is the table of all codes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from tracker.core.model.refusals import Refusal, RefusalCode


class Code(StrEnum):
    """What went wrong. The word before the dot is the class's, but for those of a hand-over, which may also be the
    tracker's own."""

    FAILED = "failed"

    REFUSED_UNKNOWN_PIPELINE = "refused.unknown_pipeline"
    REFUSED_UNKNOWN_SEGMENT = "refused.unknown_segment"
    REFUSED_UNKNOWN_FRONT = "refused.unknown_front"
    REFUSED_UNKNOWN_NODE = "refused.unknown_node"
    REFUSED_INVALID = "refused.invalid"
    REFUSED_CONFLICT = "refused.conflict"
    REFUSED_BELOW_MIN_TIME = "refused.below_min_time"
    REFUSED_BEYOND_HORIZON = "refused.beyond_horizon"
    REFUSED_OUT_OF_ORDER = "refused.out_of_order"
    REFUSED_FENCED = "refused.fenced"
    REFUSED_ROLLED_BACK = "refused.rolled_back"
    REFUSED_FULL = "refused.full"
    REFUSED_NOT_HOME = "refused.not_home"
    REFUSED_COMPLETE = "refused.complete"
    REFUSED_NOT_READY = "refused.not_ready"
    REFUSED_LOST = "refused.lost"

    FENCED_FRONT = "fenced.front"
    FENCED_SINK = "fenced.sink"

    CLOSED = "closed"

    UNAVAILABLE_TRACKER = "unavailable.tracker"
    UNAVAILABLE_BROKER = "unavailable.broker"
    UNAVAILABLE_FILES = "unavailable.files"
    UNAVAILABLE_SINK = "unavailable.sink"
    UNAVAILABLE_RECEIVER = "unavailable.receiver"
    UNAVAILABLE_ROOM = "unavailable.room"
    UNAVAILABLE_SLOTS = "unavailable.slots"

    LATE_ITEM = "late.item"
    LATE_ROWS = "late.rows"

    NOT_PUBLISHED = "not_published"

    TRACKING_QUERY = "tracking.query"
    TRACKING_FRONT = "tracking.front"
    TRACKING_RESCALE = "tracking.rescale"

    STATE_ORDER = "state.order"
    STATE_RECORD = "state.record"
    STATE_POSITION = "state.position"
    STATE_ROLLED_BACK = "state.rolled_back"
    STATE_TOPIC = "state.topic"
    STATE_SINK = "state.sink"
    STATE_RECEIVER = "state.receiver"
    STATE_EXTRA = "state.extra"
    STATE_LIMIT = "state.limit"
    STATE_TAKEN = "state.taken"

    FILES_FAILED = "files.failed"
    FILES_LOG = "files.log"
    FILES_EXCLUSIVE = "files.exclusive"

    INVALID_ARGUMENT = "invalid.argument"
    INVALID_SETTINGS = "invalid.settings"
    INVALID_PIPELINE = "invalid.pipeline"
    INVALID_CREDENTIALS = "invalid.credentials"
    INVALID_SIGNATURE = "invalid.signature"
    INVALID_ROW = "invalid.row"
    INVALID_ACKS = "invalid.acks"

    HAND_OVER_UNREACHABLE = "hand_over.unreachable"
    HAND_OVER_DEADLINE = "hand_over.deadline"
    HAND_OVER_PROTOCOL = "hand_over.protocol"
    HAND_OVER_RESTARTED = "hand_over.restarted"
    HAND_OVER_UNKNOWN = "hand_over.unknown_outcome"


def refused_code(code: RefusalCode) -> Code:
    """The code of the error that a refusal of the tracker is raised as."""
    return Code(f"refused.{code.value}")


class LowmarkError(Exception):
    """Whatever Lowmark raises that is no wrong use of Python. code: what went wrong, for programs, one of `Code`; the
    message is for people: what was refused, the value, the limit, what to do."""

    code: str = Code.FAILED

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors of tasks are pickled on their way to the driver; a class's own arguments are among its fields.
        return _again, (type(self), *self.args), self.__dict__


def _again(kind: type[LowmarkError], *arguments: Any) -> LowmarkError:
    """An error out of its pickle, whose fields follow."""
    return kind.__new__(kind, *arguments)


class RefusedError(LowmarkError):
    """The tracker refused; nothing was done, and asked again it refuses again. refusal: why, with what its code has
    beside; home_address: whom to ask instead, where the refusal names one. of_tick: one tick alone was refused: the
    ticks behind it go on, but for those that promise or let a front leave. behind: it is one of these."""

    def __init__(
        self,
        refusal: Refusal,
        home_address: str = "",
        *,
        of_tick: bool = False,
        behind: bool = False,
        code: str | None = None,
    ) -> None:
        super().__init__(
            f"{refusal.message} [{refusal.code.value}]", code or refused_code(refusal.code)
        )
        self.refusal, self.home_address = refusal, home_address
        self.of_tick, self.behind = of_tick, behind


class FencedError(RefusedError):
    """Another process runs in this one's place: of a node, a front, the writer of a sink. This one is over; or it was
    evicted."""

    def __init__(
        self, refusal: Refusal | str, home_address: str = "", *, code: str | None = None
    ) -> None:
        """refusal: the tracker's; of what else fences, a sink, say, its message."""
        if isinstance(refusal, str):
            refusal = Refusal(RefusalCode.FENCED, refusal)
        super().__init__(refusal, home_address, code=code)


class UnavailableError(LowmarkError):
    """It was not answered in time, or there is no room yet. It may be asked again; what changes something may have
    been done."""

    code = Code.UNAVAILABLE_TRACKER


class ClosedError(LowmarkError):
    """The client object was closed, or belongs to another process; what waits in it has failed."""

    code = Code.CLOSED


class LateError(LowmarkError):
    """Something below what has been released: giving it out would break the order."""

    code = Code.LATE_ITEM


class NotPublishedError(LowmarkError):
    """Raise it while publishing if nothing of the batch has got out, nor will: its labels are void."""

    code = Code.NOT_PUBLISHED


class TrackingError(LowmarkError):
    """A query or a front cannot be tracked any further, and has ended: start it again when the reason is gone. Of what
    was to be done to a query: nothing was."""

    code = Code.TRACKING_QUERY


class StateError(LowmarkError):
    """What is there does not allow it: a record, a buffer, a topic, a table, a front that was not started. It will not
    until somebody puts that right."""

    code = Code.STATE_RECORD


class FilesError(LowmarkError):
    """A file cannot be listed, read or written: says which, why, and what to do."""

    code = Code.FILES_FAILED


class InvalidError(LowmarkError, ValueError):
    """What was given cannot be: names the place, the value and what is allowed."""

    code = Code.INVALID_ARGUMENT


class HandOverError(LowmarkError):
    """Acks could not be handed over to the local tracker, or it has refused something: the tracker's refusals have
    their codes here too."""
