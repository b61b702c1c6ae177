"""When a simulated process could hear, and whom it has heard: by that its evictions are judged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests import inside
from tests.simulation.checkers import Failure
from tests.simulation.plan import MS
from tracker.core.log import Event, HomeEntry, KeyClosed, NodeAlive, Record, SubmitTick, SubmitTicks
from tracker.core.process import Process

SIGNS = (SubmitTick, SubmitTicks, NodeAlive)
"""By what a node shows that it lives."""
NOTICED_PAUSE_MS = 15
"""A process notices that it was paused for so long: longer than twice its `evict_check_ms`. One that was paused
for less counts the pause as silence, since it can't tell it from a moment in which nothing came."""


@dataclass(slots=True)
class Hearing:
    """Of one process that began at `began_ns`."""

    began_ns: int
    deaf_ns: int = 0
    """For how long it could not hear, up to when it last could."""
    deaf_since_ns: int | None = None
    heard: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """By pipeline and node: when it was last heard, and how much deafness there had been."""

    def can_hear(self, now_ns: int, *, can: bool) -> None:
        """Whether it can from now on."""
        if can and self.deaf_since_ns is not None:
            self.deaf_ns += now_ns - self.deaf_since_ns
            self.deaf_since_ns = None
        elif not can and self.deaf_since_ns is None:
            self.deaf_since_ns = now_ns

    def hear(self, process: Process, event: Event, now_ns: int) -> None:
        """It takes an event."""
        if isinstance(event, SIGNS) and event.session in inside.sessions(process):
            name, key = inside.sessions(process)[event.session]
            self.heard[name, key.node_id] = now_ns, self.deaf_ns

    def check(self, process: Process, record: Record, now_ns: int, unread: Iterable[Event]) -> None:
        """Nobody is evicted who was heard, or would have been, within the time that it may be silent."""
        entry = record.entry if isinstance(record, HomeEntry) else None
        if not isinstance(entry, KeyClosed) or not entry.evicted or entry.retired:
            return
        node_id, pipeline = entry.key.node_id, inside.pipeline(process, entry.pipeline)
        if entry.keeps_places == pipeline.spec.open:
            raise Failure(
                "broken", f"{entry}, and whether it is open there is {pipeline.spec.open}"
            )
        for event in unread:
            if isinstance(event, SIGNS) and _says(process, event.session, entry):
                raise Failure("false", f"{node_id} was evicted though {event} had arrived")
        policies = {policy.front: policy for policy in pipeline.spec.front_policies}
        fronts = pipeline.home.nodes[node_id].fronts
        limit_ms = inside.evict_after_ms(pipeline.spec, policies, fronts)
        assert limit_ms is not None
        at_ns, deaf_ns = self.heard.get((entry.pipeline, node_id), (self.began_ns, 0))
        silent_ns = now_ns - at_ns - (self.deaf_ns - deaf_ns)
        if silent_ns < limit_ms * MS:
            raise Failure(
                "false",
                f"{node_id} was evicted after {silent_ns / MS:.3f} ms in which it could be heard, it may "
                f"be silent for {limit_ms} ms",
            )


def _says(process: Process, session: Any, entry: KeyClosed) -> bool:
    return inside.sessions(process).get(session) == (entry.pipeline, entry.key)
