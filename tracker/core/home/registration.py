"""Checking a pipeline before it is registered, and telling two pipelines apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from tracker.core.home.home import MAX_NAME_CHARACTERS
from tracker.core.model import (
    HOLD_FRONT,
    LIMITS,
    Edge,
    FrontPolicy,
    PipelineSpec,
    RefusalCode,
    Refused,
    SilentFront,
    TimeKind,
)
from tracker.core.model.rounds import MAX_ROUNDS
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT

MAX_SEGMENTS = 1_000
MAX_EDGES = 10_000
MAX_FRONTS = 10_000
MAX_DELAY_SLOTS = 2**48
"""So that the delays of any path add up to far less than forever."""
MAX_SLACK_NS = 366 * 86_400 * 10**9


def check_spec(spec: PipelineSpec) -> None:
    """Raises Refused(INVALID) naming the first thing in a pipeline that cannot be."""

    def refuse(message: str) -> Refused:
        return Refused(RefusalCode.INVALID, f"pipeline {spec.name[:60]!r}: {message}")

    _check_names(spec, refuse)
    known = set(spec.segments)
    for edge in spec.edges:
        for name in (edge.source, edge.target):
            if name not in known:
                raise refuse(
                    f"edge {edge.source!r} -> {edge.target!r} names segment {name!r}, which is not "
                    f"among its segments {sorted(known)[:20]}"
                )
        if not 0 <= edge.delay <= MAX_DELAY_SLOTS:
            raise refuse(
                f"edge {edge.source!r} -> {edge.target!r} has a delay of {edge.delay} slots; "
                f"a delay must lie within 0 and {MAX_DELAY_SLOTS}"
            )
    if not LOWEST_SLOT <= spec.start_slot <= HIGHEST_SLOT:
        raise refuse(f"start_slot {spec.start_slot} is not within {LOWEST_SLOT} to {HIGHEST_SLOT}")
    for name in ("slack_ns", *LIMITS):
        value = getattr(spec, name)
        if not 0 < value < FOREVER:
            raise refuse(f"{name} is {value}; it must be positive and below {FOREVER}")
    if spec.slack_ns > MAX_SLACK_NS:
        raise refuse(f"slack_ns {spec.slack_ns} is over the limit of {MAX_SLACK_NS}, a year")
    if unknown := sorted({*spec.removed} - known):
        raise refuse(f"removed names segment {unknown[0]!r}, which is not among its segments")
    if len(spec.removed) == len(spec.segments):
        raise refuse("all of its segments are removed; to end it: lowmark pipelines delete")
    for edge in spec.edges:
        if edge.target in spec.removed and edge.source not in spec.removed:
            raise refuse(
                f"edge {edge.source!r} -> {edge.target!r} leads to a segment that is removed"
            )
    _check_rounds(spec, refuse)
    _check_fronts(spec, refuse)
    _check_time(spec, refuse)


def _check_rounds(spec: PipelineSpec, refuse: Callable[[str], Refused]) -> None:
    if not 1 <= spec.rounds <= MAX_ROUNDS:
        raise refuse(f"it has {spec.rounds} rounds; a time may have 1 to {MAX_ROUNDS}")
    if spec.slack_ns * spec.rounds > MAX_SLACK_NS:
        raise refuse(
            f"{spec.rounds} rounds of slack_ns {spec.slack_ns} last longer than the limit of {MAX_SLACK_NS}, a year"
        )
    if spec.start_slot % spec.rounds:
        raise refuse(
            f"start_slot {spec.start_slot} lies within a time, whose {spec.rounds} rounds are slots "
            f"{spec.times.whole(spec.start_slot)} and on; it begins with a whole time"
        )
    for edge in spec.edges:
        if edge.delay > spec.rounds and edge.delay % spec.rounds:
            raise refuse(
                f"edge {edge.source!r} -> {edge.target!r} has a delay of {edge.delay} slots, which is neither "
                f"below the {spec.rounds} rounds of a time nor whole times; an edge raises the round, or the time"
            )


def check_delays(spec: PipelineSpec) -> None:
    """Raises Refused(INVALID) for a delay that is not below the horizon: an item that follows from one at
    min time would always lie beyond it. To be asked of what is new; a pipeline that was registered so
    goes on."""
    for edge in spec.edges:
        if edge.delay >= spec.horizon_slots:
            raise Refused(
                RefusalCode.INVALID,
                f"pipeline {spec.name[:60]!r}: edge {edge.source!r} -> {edge.target!r} has a delay of "
                f"{edge.delay} slots, which must be below horizon_slots {spec.horizon_slots}: no item "
                "could ever be created there; register a larger horizon, or a smaller delay",
            )


def _check_names(spec: PipelineSpec, refuse: Callable[[str], Refused]) -> None:
    if not 0 < len(spec.segments) <= MAX_SEGMENTS:
        raise refuse(f"it has {len(spec.segments)} segments; the limit is 1 to {MAX_SEGMENTS}")
    if len(spec.edges) > MAX_EDGES:
        raise refuse(f"it has {len(spec.edges)} edges; the limit is {MAX_EDGES}")
    if len(spec.fronts) > MAX_FRONTS:
        raise refuse(f"it declares {len(spec.fronts)} fronts; the limit is {MAX_FRONTS}")
    for what, names in (
        ("name", (spec.name,)),
        ("segment", spec.segments),
        ("front", spec.fronts),
        ("front", tuple(policy.front for policy in spec.front_policies)),
    ):
        for name in names:
            if not 0 < len(name) <= MAX_NAME_CHARACTERS or not name.isprintable():
                raise refuse(
                    f"{what} {name[:60]!r} must have 1 to {MAX_NAME_CHARACTERS} printable characters"
                )
            if what == "front" and name.startswith(HOLD_FRONT):
                raise refuse(
                    f"{what} {name[:60]!r} begins as those by which holds begin ({HOLD_FRONT}); name it otherwise"
                )
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise refuse(f"{what} {twice!r} is named twice")


def _check_fronts(spec: PipelineSpec, refuse: Callable[[str], Refused]) -> None:
    if spec.front_count < 0 or (spec.fronts and spec.front_count):
        raise refuse(
            f"it declares fronts {list(spec.fronts)[:20]} and front_count {spec.front_count}; "
            "name the fronts, or give their number, which is not negative"
        )
    if not spec.fronts and not spec.front_count and not spec.open:
        raise refuse(
            "it declares no front and is not open, so it would be complete at once; "
            "declare its fronts by name or number, or register it as open"
        )
    for name, value in (
        ("front_count", spec.front_count), ("evict_after_ms", spec.evict_after_ms)
    ):  # fmt: skip
        if not 0 <= value < FOREVER:
            raise refuse(f"{name} is {value}; it must not be negative, and be below {FOREVER}")
    if spec.silent_front is SilentFront.EVICT and spec.evict_after_ms <= 0:
        raise refuse(
            f"silent fronts are to be evicted after {spec.evict_after_ms} ms; "
            "evict_after_ms must be positive"
        )
    if len(spec.front_policies) > MAX_FRONTS:
        raise refuse(f"it has {len(spec.front_policies)} front_policies; the limit is {MAX_FRONTS}")
    for policy in spec.front_policies:
        if spec.fronts and policy.front not in spec.fronts:
            raise refuse(
                f"front_policies names front {policy.front[:60]!r}, which is not among its fronts "
                f"{list(spec.fronts)[:20]}"
            )
        evicts = policy.silent_front is SilentFront.EVICT
        if evicts != (policy.evict_after_ms > 0) or policy.evict_after_ms >= FOREVER:
            raise refuse(
                f"front {policy.front[:60]!r} has silent_front {policy.silent_front.value} and evict_after_ms "
                f"{policy.evict_after_ms}; it must be positive with evict, and 0 with hold"
            )


def _check_time(spec: PipelineSpec, refuse: Callable[[str], Refused]) -> None:
    if not 0 <= spec.lateness_slots <= MAX_DELAY_SLOTS:
        raise refuse(
            f"lateness_slots is {spec.lateness_slots}; it must lie within 0 and {MAX_DELAY_SLOTS}"
        )
    if spec.lateness_slots and spec.time is TimeKind.ARRIVAL:
        raise refuse(
            f"lateness_slots is {spec.lateness_slots}, but time is arrival: an item cannot come in later "
            "than it comes in; say time event or number"
        )


def differs(registered: PipelineSpec, asked: PipelineSpec) -> bool:
    """Whether two pipelines are not the same; in which order edges are named makes none."""
    edges = {*registered.edges} != {*asked.edges}
    return edges or replace(registered, edges=()) != replace(asked, edges=())


def changed_fields(known: PipelineSpec, asked: PipelineSpec) -> dict[str, tuple[Any, Any]]:
    """By name of a field that differs, what it is and what is asked, as plain data: lists, texts and numbers."""
    return {
        field.name: (_plain(getattr(known, field.name)), _plain(getattr(asked, field.name)))
        for field in fields(PipelineSpec)
        if getattr(known, field.name) != getattr(asked, field.name)
    }


def differences(registered: PipelineSpec, asked: PipelineSpec) -> str:
    """What differs between two pipelines, for people: `field: registered ..., asked ...`."""
    return "; ".join(
        f"{name}: registered {_text(was)}, asked {_text(now)}"
        for name, (was, now) in changed_fields(registered, asked).items()
    )


def _text(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else repr(value)


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Edge):
        return f"{value.source} -> {value.target}" + (f" + {value.delay}" if value.delay else "")
    if isinstance(value, FrontPolicy):
        after = f" after {value.evict_after_ms} ms" if value.evict_after_ms else ""
        return f"{value.front}: {value.silent_front.value}{after}"
    return value.value if isinstance(value, SilentFront | TimeKind) else value
