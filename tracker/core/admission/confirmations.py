"""What waits until every shard has an entry of this home's log (rules 3, 9)."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from tracker.core.log import (
    Answer,
    Effect,
    MoveTerms,
    PipelineChanged,
    PipelineDeleted,
    PipelineRegistered,
    Placed,
    Restart,
    ShardNumber,
)
from tracker.core.log.journal import Journal
from tracker.core.model import Refusal
from tracker.core.model import durable as d
from tracker.core.model.placements import Placement
from tracker.core.pipeline.homes import Homes
from tracker.core.pipeline.pipelines import Pipelines
from tracker.core.replication.replication import Replication

Reply = Restart | ShardNumber | MoveTerms | Placement | None
"""What is answered when every shard has an entry."""
MAX_WAITING = 10_000
"""Requests that wait for one thing, as for a shard that is away. The oldest is forgotten for one more: whoever asked for it asks
again, as behind a crash."""


def waiting_requests(requests: Iterable[Any] = ()) -> deque[Any]:
    """Requests whose answers wait, oldest first: no more than MAX_WAITING, of which the newest stay."""
    return deque(requests, MAX_WAITING)


@dataclass(slots=True, eq=False)
class Confirmations:
    """Answers that wait, and what else follows when something is durable or confirmed. Not durable."""

    _journal: Journal
    _pipelines: Pipelines
    _replication: Replication
    _homes: Homes
    _effects: list[Effect]
    registrations: dict[str, tuple[int, deque[Hashable]]] = d.forgotten(d.ASKS_AGAIN, dict)
    """Registrations that some shard has not confirmed: by pipeline the entry, and who waits for it."""
    _requests: deque[tuple[int, Hashable, Reply]] = d.forgotten(d.ASKS_AGAIN, waiting_requests)
    """Requests to answer when every shard has this entry of the home log, and with what."""
    _placings: deque[tuple[int, Hashable, Reply]] = d.forgotten(d.ASKS_AGAIN, waiting_requests)
    """The same of placements, which wait also for a shard that is joining: other groups act by them, and it may be the only one that
    is left in a moment."""

    @property
    def waits(self) -> bool:
        """Whether anybody waits for an answer."""
        return bool(self.registrations or self._requests or self._placings)

    def await_registration(self, pipeline: str, requests: Iterable[Hashable]) -> None:
        """Answers when every shard has the entry that is appended next."""
        self.registrations[pipeline] = self._journal.home_appended + 1, waiting_requests(requests)

    def restore(self) -> None:
        """Registrations that some shard has not confirmed are waited for, though nobody asks any more."""
        for item in self._replication.outbox:
            if isinstance(item.entry, PipelineRegistered):
                self.registrations[item.entry.spec.name] = (item.number, waiting_requests())
            elif isinstance(item.entry, PipelineChanged) and not item.entry.activated:
                self.registrations[item.entry.pipeline] = (item.number, waiting_requests())
        # Of those that have ended since, maybe by the log of another shard, nobody waits for anything.
        for name in self.registrations.keys() - self._pipelines.keys():
            del self.registrations[name]

    def tell(self) -> None:
        """Answers who waited for what every shard has by now. What is answered may rest on other homes' logs, too, first of all on how
        all go on without lost shards: nobody is answered before all are known to have heard that."""
        if not self.waits or not self._homes.all_heard():
            return
        confirmed, held = (
            self._replication.confirmed_everywhere(),
            self._replication.held_everywhere(),
        )
        self._answer_registrations(confirmed)
        for waiting, everywhere in ((self._requests, confirmed), (self._placings, held)):
            while waiting and waiting[0][0] <= everywhere:
                _, request, result = waiting.popleft()
                self._effects.append(Answer(request, result))

    def answer(self, request: Hashable, result: Reply) -> None:
        """Answers when every shard has applied all that this home has logged so far."""
        waiting = self._placings if isinstance(result, Placement) else self._requests
        waiting.append((self._journal.home_appended, request, result))

    def is_being_told(self, pipeline: str) -> bool:
        """Whether some shard lacks what this home has decided last on where a pipeline belongs."""
        everywhere = self._replication.held_everywhere()
        for item in reversed(self._replication.outbox):
            if item.number <= everywhere:
                return False
            if isinstance(item.entry, Placed) and item.entry.placement.pipeline == pipeline:
                return True
            if isinstance(item.entry, PipelineDeleted) and item.entry.pipeline == pipeline:
                return True
        return False

    def forget_pipeline(self, name: str, refusal: Refusal) -> None:
        """A pipeline was deleted: whoever waits for its registration hears that instead."""
        _, requests = self.registrations.pop(name, (0, ()))
        self._effects.extend(Answer(request, refusal) for request in requests)

    def _answer_registrations(self, everywhere: int) -> None:
        for name, (number, requests) in list(self.registrations.items()):
            pipeline = self._pipelines.get(name)
            if number <= everywhere and pipeline is not None and not pipeline.change_awaits:
                del self.registrations[name]
                spec = pipeline.spec
                self._effects.extend(Answer(request, spec) for request in requests)
