"""A pipeline that succeeds another one, for what cannot change while it runs: it begins where the first is complete.

All that was ever in the first one is processed by then, so a successor may begin at any slot without claiming too much.
It begins at the last min time that the first has announced before it was complete, as far as that is remembered (to a
minute): below it fronts would have nothing to label, and from there on they may label whatever is left.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tracker.core.model import PipelineSpec, Refusal, RefusalCode, TimeKind
from tracker.core.model.slots import FOREVER
from tracker.errors import RefusedError

if TYPE_CHECKING:
    from tracker.client.admin import Admin, PipelineInfo

LOOK_INTERVAL_S = 0.2
"""How often it is looked whether a pipeline is complete."""
_SHOWN = 10
"""Of what is open, in a message."""


def succeeding(admin: Admin, spec: PipelineSpec, name: str, timeout_s: float) -> PipelineSpec:
    """A pipeline with the start that it has as the successor of pipeline `name`: as it is, where it has one or is
    registered. Waits up to `timeout_s` seconds for the other one to be complete. Raises RefusedError (CONFLICT) with
    what is open there, UnavailableError."""
    if spec.name == name:
        raise _refused(RefusalCode.INVALID, f"pipeline {name!r} cannot succeed itself")
    if (there := _known(admin, spec.name)) is not None:
        return replace(spec, start_slot=spec.start_slot or there.spec.start_slot)
    before = admin.pipeline(name)
    if spec.start_slot == 0 and (spec.time is TimeKind.NUMBER) != (
        before.spec.time is TimeKind.NUMBER
    ):
        raise _refused(
            RefusalCode.INVALID,
            f"pipeline {spec.name!r} counts {spec.time.value}, and {name!r} {before.spec.time.value}: no slot of one is "
            "one of the other; give its start in its file",
        )
    reached = _wait_complete(admin, before, timeout_s)
    return replace(spec, start_slot=spec.start_slot or converted(reached, before.spec, spec))


def converted(slot: int, of: PipelineSpec, to: PipelineSpec) -> int:
    """The last whole time of one pipeline that does not lie behind a slot of another one."""
    number = slot // of.rounds
    if to.time is not TimeKind.NUMBER:
        number = number * of.rounds * of.slack_ns // (to.slack_ns * to.rounds)
    return number * to.rounds


def _known(admin: Admin, name: str) -> PipelineInfo | None:
    try:
        return admin.pipeline(name)
    except RefusedError as error:
        if error.refusal.code is not RefusalCode.UNKNOWN_PIPELINE:
            raise
        return None


def _wait_complete(admin: Admin, info: PipelineInfo, timeout_s: float) -> int:
    """The last min time of a pipeline before it is complete; of one that is open, where it stands with nothing in it."""
    name, deadline, newest = info.spec.name, time.monotonic() + timeout_s, info.spec.start_slot
    while True:
        state = info.state
        if state.complete:
            return max(newest, _last_announced(admin, info.spec, state.generation))
        newest = max(newest, state.min_time)
        there = _open(info)
        if info.spec.open and state.begun and not there:
            return newest
        if time.monotonic() + LOOK_INTERVAL_S > deadline:
            more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
            raise _refused(
                RefusalCode.CONFLICT,
                f"pipeline {name!r} is not complete, so nothing can succeed it yet: "
                f"{', '.join(there[:_SHOWN]) or 'see lowmark explain'}{more}; let its fronts leave and what is open be "
                "processed, and ask again",
            )
        time.sleep(LOOK_INTERVAL_S)
        info = admin.pipeline(name)


def _open(info: PipelineInfo) -> list[str]:
    """What keeps a pipeline from being complete, each as some words."""
    there = [
        f"{each.open_slots} open slots in {each.segment!r}"
        for each in info.state.segments
        if each.open_slots
    ]
    there += [f"front {each.front!r} of node {each.node_id!r}" for each in info.state.fronts]
    return there if info.state.begun else [*there, "its fronts have not joined"]


def _last_announced(admin: Admin, spec: PipelineSpec, generation: int | None = None) -> int:
    """The last min time that is remembered of a pipeline that is complete."""
    from tracker.client.history import remembered  # which asks through an Admin

    heard = remembered(admin, spec.name, heard_generation=generation)
    told = [each.min_time for of_one in heard for each in of_one]
    return max((slot for slot in told if slot != FOREVER), default=spec.start_slot)


def _refused(code: RefusalCode, message: str) -> RefusedError:
    return RefusedError(Refusal(code, message))
