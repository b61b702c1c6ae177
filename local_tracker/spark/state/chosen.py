"""Whether the state of a query is held when it starts, and by which plan (promise 6: nothing is left out in
silence)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from local_tracker.spark.state.clocks import NO_WATERMARK_TELLS
from local_tracker.spark.state.entries import MAX_SEGMENTS
from local_tracker.spark.state.rules import HeldFor, StateKind, StatePlan
from tracker.client.state_names import batch_of
from tracker.core.log import Joined
from tracker.core.model import PipelineSpec
from tracker.errors import TrackingError

State = HeldFor | Literal["hold", "free"] | None
"""What is asked for at the start of a query: None holds where the plan says that state emits later."""

_GIVE = (
    "give state=HeldFor(delay_ms=..., span_ms=...), by how much the watermark is behind and how long after its "
    "event time a row has been emitted, or state='free', if min time may pass what is only in state"
)
_SHOWN = 3

log = logging.getLogger("lowmark.spark")


def may_create(
    creates: Sequence[str],
    named: Iterable[Sequence[str] | None],
    reads: Collection[str],
    spec: PipelineSpec,
) -> list[str]:
    """The segments that a query's state is held in: those that it creates, and those that its writers name beside
    them, whether or not they have written anything yet. named: by each writer of the session, which may be another
    query's; None where it names none. reads: the segments that the query reads, and edges lead from."""
    reached = {edge.target for edge in spec.edges if edge.source in reads}
    more = (name for each in named for name in each or () if name in reached)
    return list(dict.fromkeys((*creates, *more)))


def chosen_plan(
    node_id: str,
    state: State,
    found: StatePlan | None,
    mode: str,
    creates: Sequence[str],
    emits: object,
    asked: Joined,
) -> StatePlan | None:
    """By which plan the state of a query is held; None where nothing is. found: by the query's own plan, where
    that can be seen. emits: the front that it is, or None. asked: what the tracker would answer the node. Raises TrackingError where that would be
    wrong, or leave out what was held before, in silence."""
    if state not in ("hold", "free", None) and not isinstance(state, HeldFor):
        raise TrackingError(
            f"query {node_id!r}: state is {state!r}; it is 'hold', 'free', HeldFor(delay_ms=..., span_ms=...) or "
            "None"
        )
    if emits is not None and state not in (None, "free"):
        raise TrackingError(
            f"query {node_id!r} is a front of what it emits, emits={emits!r}, whose promises say when what is in its state comes: "
            "leave out state, or emits"
        )
    plan = None
    if creates and emits is None and state != "free":
        plan = _plan(node_id, state, found, mode)
    elif creates and emits is None and found is not None and found.emits_later:
        log.info(
            "query %r: what is only in its state is not held, as was asked for by state='free' (%s)",
            node_id, found,
        )  # fmt: skip
    if plan is None:
        check_nothing_left(node_id, asked)
        return None
    _check_can_hold(node_id, plan, creates, asked)
    return plan


def _plan(node_id: str, state: State, found: StatePlan | None, mode: str) -> StatePlan | None:
    if isinstance(state, HeldFor):
        if found is not None and found.by_clock:
            raise TrackingError(f"query {node_id!r}: {found.what} {NO_WATERMARK_TELLS}")
        return StatePlan.given(state, mode)
    if found is None:
        if state == "hold":
            raise TrackingError(
                f"query {node_id!r} is to hold what is in its state, and its plan cannot be seen here: {_GIVE}"
            )
        log.warning(
            "query %r: its plan cannot be seen here, so that if it has windows, joins of streams or timers, min "
            "time passes what is only in its state; if so, %s", node_id, _GIVE,
        )  # fmt: skip
        return None
    match found.kind:
        case StateKind.NOTHING:
            return None
        case StateKind.UNKNOWN:
            raise TrackingError(
                f"query {node_id!r} keeps rows in its state, and when they are emitted is not understood: "
                f"{found.what}; {_GIVE}"
            )
        case StateKind.USER if not found.has_timers and state is None:
            log.warning(
                "query %r: %s, has no timers, and is not held: if it emits later than in the batch that took the rows, "
                "give state='hold', which waits until its state is empty", node_id, found,
            )  # fmt: skip
            return None
        case StateKind.USER:
            log.warning(
                "query %r: %s, so all that it has taken is held until its state is empty, without rows and timers; "
                "if a watermark says it sooner, %s", node_id, found, _GIVE,
            )  # fmt: skip
    return found


def check_nothing_left(node_id: str, asked: Joined) -> None:
    """Raises TrackingError where an earlier run has left what would never be let go of."""
    names = sorted(held.name for held in asked.holds if batch_of(held.name) is None)
    if not names:
        return
    raise TrackingError(
        f"query {node_id!r}: {len(names)} holds stand for rows in its state, such as {names[:_SHOWN]}, and it is to "
        "hold nothing now, so that nobody would let go of them: start it with state='hold' or HeldFor(...) as "
        "before, or once more so and then query.stop(leave=True), which gives up what is in its state"
    )


def _check_can_hold(node_id: str, plan: StatePlan, creates: Sequence[str], asked: Joined) -> None:
    if len(set(creates)) > MAX_SEGMENTS:
        raise TrackingError(
            f"query {node_id!r} creates in {len(set(creates))} segments, and its state can hold in "
            f"{MAX_SEGMENTS}: let those who read what it writes share a segment"
        )
    if asked.spec.rounds > 1 and (looped := _in_a_loop(asked.spec, creates)):
        # By its holds a node may create what nothing that it consumed has become, so nobody would notice.
        raise TrackingError(
            f"query {node_id!r} keeps rows in its state ({plan}) and creates in {looped[0]!r}, which lies on a loop of "
            f"{asked.spec.rounds} rounds: what it emits later may be of a round that is over; let the loop's queries "
            "emit each batch whole (update or complete mode, or without state)"
        )


def _in_a_loop(spec: PipelineSpec, segments: Sequence[str]) -> list[str]:
    """Those from which a way leads back to them."""
    found = []
    for segment in segments:
        reached, ends = set[str](), {segment}
        while ends:
            ends = {edge.target for edge in spec.edges if edge.source in ends} - reached
            reached |= ends
        if segment in reached:
            found.append(segment)
    return found
