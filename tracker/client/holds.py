"""Holds of a node: time that it holds without an item in flight (rule 11).

    hold = node.hold("reports", slot, content=what_was_consumed)   # in the tick that consumes it
    hold.move_to(later, content=what_was_emitted)                  # in the tick that emits it
    hold.release()

Min time of the segment, and of what it leads to, does not pass a hold. The tracker keeps it, by the node's id and
the hold's name: a program that ends without letting go finds it again in `NodeClient.holds` when it joins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from tracker.client.updates import slot_at
from tracker.core.log import Joined
from tracker.core.model import HoldMove, PipelineSpec, Refusal, RefusalCode, TickContent
from tracker.core.model.slots import FOREVER
from tracker.errors import LowmarkError, RefusedError

Commit: TypeAlias = Callable[[TickContent], "Future[int]"]


class Hold:
    """One hold of a node, in one segment. Made by `NodeClient.hold`, or found again in `NodeClient.holds`.
    Thread-safe."""

    def __init__(
        self, name: str, segment: str, number: int, slot: int, spec: PipelineSpec, commit: Commit
    ) -> None:
        self.name, self.segment = name, segment
        self.number = number
        """Of the segment."""
        self.slot = slot
        """Where it stands, by what was committed and not refused; FOREVER once it was let go of."""
        self.durable_slot: int | None = slot
        """Where it stands by what is durable; None while its beginning is not."""
        self.is_late = False
        """Whether a tick was refused because min time has passed it: it was begun for what had come too late, or was
        written off. It holds nothing then: let go of it, or begin it anew by `NodeClient.hold`."""
        self._spec, self._commit = spec, commit
        self._released: Future[int] | None = None
        self.before: Hold | None = None
        """The one of this name whose end was on its way when this one began, and may be refused."""

    def move_to(self, slot: int | datetime, content: TickContent | None = None) -> Future[int]:
        """Moves it up to a slot, or to that of a moment, in a tick with whatever else that is to carry: what is
        emitted where it stood, say. The future is that of the tick; where it is refused, nothing has moved. Raises what `NodeClient.commit`
        does, and RefusedError for a slot below the one where it stands, or if it was let go of."""
        content = TickContent() if content is None else content
        return self._commit(replace(content, holds=(*content.holds, self.at(slot))))

    def release(self, content: TickContent | None = None) -> Future[int]:
        """Lets go of it, in a tick with whatever else that is to carry. A second time, without more to carry,
        it returns the future of the first."""
        if content is None and self._released is not None:
            return self._released
        future = self.move_to(FOREVER, content)
        self._released = future
        future.add_done_callback(self._released_or_not)
        return future

    def at(self, slot: int | datetime) -> HoldMove:
        """What a tick carries in `holds` so that it stands there from then on: with it, one tick moves several."""
        spec = self._spec
        return HoldMove(self.name, self.number, slot_at(slot, spec.slack_ns, spec.rounds))

    def _released_or_not(self, future: Future[int]) -> None:
        if self._released is future and future.exception() is not None:
            self._released = None


class HoldBook:
    """The holds of one joining of a node. Used while holding the node's lock."""

    def __init__(self, pipeline: str, joined: Callable[[], Joined], commit: Commit) -> None:
        """joined: what the node got, and the pipeline as it has heard of it last."""
        self._pipeline, self._joined, self._commit = pipeline, joined, commit
        self.holds: dict[str, Hold] = {
            held.name: self._hold(held.name, held.segment, held.slot) for held in joined().holds
        }

    def _hold(self, name: str, number: int, slot: int) -> Hold:
        spec = self._joined().spec

        def commit(content: TickContent) -> Future[int]:
            known = self.holds.get(name)
            if known is None or known is not hold:
                raise self._refused(f"hold {name!r} was let go of, or is of an earlier joining")
            return self._commit(content)

        hold = Hold(name, spec.segments[number], number, slot, spec, commit)
        return hold

    def check(self, moves: Iterable[HoldMove]) -> None:
        """Raises RefusedError where a hold cannot be so, before it is sent."""
        for move in moves:
            known = self.holds.get(move.name)
            if known is not None and move.slot < known.slot < FOREVER:
                raise self._refused(
                    f"hold {move.name!r} stands at slot {known.slot} of segment {known.segment!r}, and cannot "
                    f"move back to {move.slot}: a hold only moves up"
                )

    def committed(self, moves: Iterable[HoldMove]) -> list[tuple[Hold, HoldMove]]:
        """A tick with these is on its way. Returns what to say of it to `settled`."""
        moved: list[tuple[Hold, HoldMove]] = []
        for move in moves:
            known = self.holds.get(move.name)
            if known is not None and known.slot < FOREVER:
                known.slot = move.slot
            elif move.slot != FOREVER:
                before = known
                known = self.holds[move.name] = self._hold(move.name, move.segment, move.slot)
                known.durable_slot, known.before = None, before
            if known is not None:
                moved.append((known, move))
        return moved

    def settled(
        self,
        moved: Iterable[tuple[Hold, HoldMove]],
        *,
        durable: bool,
        min_times: Sequence[int] = (),
    ) -> None:
        """The tick is durable, or was refused, or given up. min_times: of the refusal, by segment number."""
        for known, move in moved:
            if min_times and known.durable_slot is not None:
                known.is_late = known.durable_slot < min_times[known.number]
            if durable:
                known.durable_slot, known.is_late, known.before = move.slot, False, None
            elif known.durable_slot is None:
                known.slot = FOREVER
            else:
                known.slot = known.durable_slot
            ended = known.slot == FOREVER and known.durable_slot in (None, FOREVER)
            if ended and self.holds.get(move.name) is known:
                del self.holds[move.name]
                if known.before is not None and known.before.slot < FOREVER:
                    self.holds[move.name] = known.before

    def _refused(self, message: str) -> RefusedError:
        node = self._joined().key.node_id
        text = f"pipeline {self._pipeline!r}, node {node!r}: {message}"
        return RefusedError(Refusal(RefusalCode.INVALID, text), of_tick=True)


def below_grant(pipeline: str, name: str, segment: str, slot: int, granted: int) -> LowmarkError:
    """Why a hold cannot begin at a slot."""
    return RefusedError(
        Refusal(
            RefusalCode.BELOW_MIN_TIME,
            f"pipeline {pipeline!r}, segment {segment!r}: hold {name!r} cannot begin at slot {slot}: min times "
            f"are announced by which nothing may begin there below slot {granted}; begin it there, or in the "
            "tick that consumes what it stands for",
        ),
        of_tick=True,
    )
