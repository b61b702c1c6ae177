"""What is recorded of a query's state beside its logs, since they do not tell it.

- By which plans it was held, each from which batch on: a batch that is told after the query has got another
  plan was absorbed by the one that it had, and may be out by the one that it has now.
- The batches whose event times no watermark tells. A driver that is killed between the commit of the sink and
  `commits/N` finds the batch in the sink when it comes back. What the batch absorbed is in the state; but Spark does
  not evaluate it again, so that the watermark in `commits/N` knows nothing of its rows.

Both are written before the query runs: afterwards nothing tells.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.state.rules import US_PER_MS, Later, StatePlan, Watermark, Window
from tracker.errors import Code, FilesError

_KEPT = 1_000
_MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Widest:
    """A plan in two numbers, no less than it says of any event time: by how much its watermarks are behind, and
    how long after its event time a row is out. from_batch: the first that it was planned for; text: the plan."""

    from_batch: int
    text: str
    delay_ms: int
    span_ms: int

    @classmethod
    def of(cls, plan: StatePlan, from_batch: int) -> Widest:
        delays = [one.delay_ms for one in plan.watermarks]
        if plan.held_for is not None:
            delays.append(plan.held_for.delay_ms)
        spans_us = [
            wait.lag_us + sum(
                step.size_us if isinstance(step, Window) else step.by_us
                for step in wait.steps
                if isinstance(step, Window | Later)
            )
            for wait in plan.waits
        ]  # fmt: skip
        span_ms = -(-max(spans_us, default=0) // US_PER_MS) + 1
        return cls(from_batch, text_of(plan), max(delays, default=0), span_ms)


@dataclass(frozen=True, slots=True)
class Recorded:
    """plans: by which the state was held, oldest first. unseen: batches whose event times no watermark tells."""

    plans: tuple[Widest, ...] = ()
    unseen: frozenset[int] = frozenset()

    def has_changed_since(self, batch: int) -> bool:
        """Whether the query has got another plan behind a batch."""
        return len(self.plans) > 1 and self.plans[-1].from_batch > batch

    @property
    def one_has_told(self) -> bool:
        """Whether no plan of before had several watermarks, of which what one says is not said of all rows."""
        return all(plan.text.count(f"{Watermark.__name__}(") < 2 for plan in self.plans[:-1])

    def out_ms(self, next_watermark_ms: int) -> int:
        """As `StatePlan.bound_ms`, of what was absorbed under one of the plans and may be out by a later one,
        by the watermark that its batch left."""
        delay_ms = max(plan.delay_ms for plan in self.plans)
        return next_watermark_ms + delay_ms + 2 * max(plan.span_ms for plan in self.plans)


@dataclass(slots=True)
class StateRecord:
    """Of one query: `_lowmark/state` in its checkpoint."""

    log: CheckpointLog
    _path: str = field(init=False)

    def __post_init__(self) -> None:
        self._path = f"{self.log.root}/_lowmark/state"

    def read(self) -> Recorded:
        """Raises FilesError where the file is not as it was written."""
        data = self.log.files.read_whole(self._path, _MAX_BYTES)
        if data is None:
            return Recorded()
        try:
            document = json.loads(data)
            plans = tuple(Widest(**each) for each in document["plans"])
            return Recorded(plans, frozenset(int(batch) for batch in document["unseen"]))
        except (ValueError, KeyError, TypeError) as error:
            raise FilesError(
                f"{self._path} does not say how state was held: {error}", Code.FILES_LOG
            ) from None

    def begun(
        self, known: Recorded, plan: StatePlan, is_there: Callable[[int], bool] | None
    ) -> None:
        """The query is about to run by a plan. known: as `read` gave it. is_there: whether its sink has a batch;
        None where the query is only followed. Durable on return."""
        newest, committed = self.log.planned()[-1:], self.log.committed()
        plans, unseen = known.plans, set(known.unseen)
        if not plans or plans[-1].text != text_of(plan):
            # What is under way may have been absorbed by the plan of before.
            now = Widest.of(plan, max([*committed, *newest], default=-1) + 1)
            plans = (*plans, now)[-_KEPT:]
        under_way = [batch for batch in newest if batch not in committed]
        if is_there is not None:
            unseen.update(batch for batch in under_way if is_there(batch))
        document = {
            "plans": [asdict(each) for each in plans],
            "unseen": sorted(unseen)[-_KEPT:],
        }
        self.log.files.create(self._path, json.dumps(document).encode())


def text_of(plan: StatePlan) -> str:
    """By which it is told whether a query has got another plan: with all numbers, which the words for people have
    not, and in an order of its own."""
    waits = sorted(map(repr, plan.waits))
    return f"{plan.kind.value}: {plan.watermarks} {plan.held_for} {waits}"
