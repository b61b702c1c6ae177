"""What waits in Airflow's triggerer: one wait of a sensor, and the periods of an asset's watcher.

All watchers of one pipeline and connection share one subscription in a triggerer. What a watcher reports is kept by
Airflow before its position is: a triggerer that is killed reports at most its last few periods again, under the same
keys, and leaves none out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent
from airflow.triggers.shared_stream import SharedStreamProducer

from lowmark.airflow.hooks import LowmarkHook
from tracker.client.subscriber import AsyncSubscriber
from tracker.client.waiting import wait_complete_async
from tracker.consumers.periods.due import Plan
from tracker.consumers.periods.position import Confirmed, from_record, to_record
from tracker.consumers.periods.releases import Report
from tracker.errors import RefusedError

SEND_AT_MOST_EVERY_S = 0.5
"""Min time may move hundreds of times a second; watchers hear of it so often, and each time the newest."""
SEND_AT_LEAST_EVERY_S = 5.0
"""So that whoever joins late hears where min time is, though it does not move."""
MOST_REPORTED = 100
"""Periods that one message makes a watcher report; those behind come with the next message."""


class CompleteTrigger(BaseTrigger):
    """Waits until everything before a moment is processed; fires once, with the outcome (`reached`, `timed out`,
    `held`, `refused`) and why.

    until: an ISO moment; deadline_unix_s: when the wait has timed out, in seconds since 1970.
    """

    def __init__(
        self,
        pipeline: str,
        segment: str | None,
        until: str,
        deadline_unix_s: float,
        silent_after_s: float | None,
        lowmark_conn_id: str = LowmarkHook.default_conn_name,
    ) -> None:
        super().__init__()
        self.pipeline, self.segment, self.until = pipeline, segment, until
        self.deadline_unix_s, self.silent_after_s = deadline_unix_s, silent_after_s
        self.lowmark_conn_id = lowmark_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """As Airflow keeps it."""
        return "lowmark.airflow.triggers.CompleteTrigger", {
            "pipeline": self.pipeline, "segment": self.segment, "until": self.until,
            "deadline_unix_s": self.deadline_unix_s, "silent_after_s": self.silent_after_s,
            "lowmark_conn_id": self.lowmark_conn_id,
        }  # fmt: skip

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Asks the processes of the tracker in turn while one is away."""
        try:
            waited = await wait_complete_async(
                await LowmarkHook(self.lowmark_conn_id).atarget(),
                self.pipeline,
                datetime.fromisoformat(self.until),
                self.segment,
                timeout_s=max(0.0, self.deadline_unix_s - time.time()),
                silent_after_s=self.silent_after_s,
            )
        except (RefusedError, ValueError) as error:
            yield TriggerEvent({"outcome": "refused", "slot": None, "why": str(error)})
        else:
            yield TriggerEvent(
                {"outcome": waited.outcome.value, "slot": waited.slot, "why": waited.why}
            )


@dataclass(frozen=True, slots=True)
class _Message:
    """A message to all watchers of a pipeline. min_times: by segment, None is the whole pipeline; safe: everything
    that watchers have reported by messages up to this number is in Airflow's database."""

    number: int
    min_times: Mapping[str | None, int]
    safe: int


class _Subscription(SharedStreamProducer):
    """The one subscription of all watchers of a pipeline in this triggerer."""

    def __init__(self, pipeline: str, lowmark_conn_id: str) -> None:
        self.pipeline, self.lowmark_conn_id = pipeline, lowmark_conn_id
        self._min_times: dict[str | None, int] = {}
        self._moved = asyncio.Event()
        self._safe = 0

    async def open_stream(self) -> AsyncIterator[tuple[_Message, int]]:
        """Numbered messages, for ever. Raises RefusedError for an unknown pipeline."""
        target = await LowmarkHook(self.lowmark_conn_id).atarget()
        async with AsyncSubscriber(target, self.pipeline) as subscriber:
            hearing = asyncio.create_task(self._hear(subscriber))
            hearing.add_done_callback(lambda _: self._moved.set())
            try:
                await self._moved.wait()
                number = 0
                while not hearing.done():
                    number += 1
                    self._moved.clear()
                    yield _Message(number, dict(self._min_times), self._safe), number
                    await asyncio.sleep(SEND_AT_MOST_EVERY_S)
                    await self._wait()
                hearing.result()
            finally:
                hearing.cancel()
                await asyncio.gather(hearing, return_exceptions=True)

    async def _hear(self, subscriber: AsyncSubscriber) -> None:
        async with aclosing(subscriber.updates()) as updates:  # type: ignore[type-var]
            async for update in updates:
                self._min_times[update.segment] = update.min_time
                if None in self._min_times:  # the pipeline's own comes last of the first ones
                    self._moved.set()

    async def _wait(self) -> None:
        try:
            await asyncio.wait_for(self._moved.wait(), SEND_AT_LEAST_EVERY_S)
        except TimeoutError:
            pass

    async def advance(self, batch: Sequence[Any]) -> None:
        """Airflow has stored what was reported by these messages. Where a watcher failed at one it begins again at
        its own record, and those that live have not failed: what they reported is safe."""
        self._safe = max(self._safe, *(item.broker_payload for item in batch))


class PeriodTrigger(BaseEventTrigger):
    """Fires for each period of a segment (None: of the whole pipeline) that is complete, in order, for the watcher of
    one asset. The event's payload has the period's key, slots, start and end, and `partition_key`: its start in UTC.

    every, since: as of `Plan.of`, `since` an ISO moment. record: under which name its position is kept, in
    Airflow's own store of the asset; two watchers with the same of everything are one trigger to Airflow.
    """

    def __init__(
        self,
        pipeline: str,
        segment: str | None = None,
        every: str = "1h",
        since: str | None = None,
        record: str = "lowmark",
        lowmark_conn_id: str = LowmarkHook.default_conn_name,
    ) -> None:
        super().__init__()
        self.pipeline, self.segment, self.every, self.since = pipeline, segment, every, since
        self.record, self.lowmark_conn_id = record, lowmark_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """As Airflow keeps it."""
        return "lowmark.airflow.triggers.PeriodTrigger", {
            "pipeline": self.pipeline, "segment": self.segment, "every": self.every, "since": self.since,
            "record": self.record, "lowmark_conn_id": self.lowmark_conn_id,
        }  # fmt: skip

    def shared_stream_key(self) -> Hashable:
        """One subscription for each pipeline and connection."""
        return ("lowmark", self.lowmark_conn_id, self.pipeline)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """The subscription that all with one key share."""
        return _Subscription(kwargs["pipeline"], kwargs["lowmark_conn_id"])

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Not without a shared stream: nothing would say what Airflow has stored."""
        raise RuntimeError(
            "PeriodTrigger needs Airflow 3.3 or later, as the trigger of an asset's watcher"
        )
        yield

    async def filter_shared_stream(
        self, shared_stream: AsyncIterator[_Message]
    ) -> AsyncIterator[TriggerEvent]:
        """Reports the periods that are complete from its record on. The record moves when Airflow has stored the
        events, never before."""
        target = await LowmarkHook(self.lowmark_conn_id).atarget()
        since = None if self.since is None else datetime.fromisoformat(self.since)
        plan = await asyncio.to_thread(
            Plan.of, target, self.pipeline, self.segment, self.every, since
        )
        way = Confirmed(await self._recorded(plan))
        async for message in shared_stream:
            if way.confirmed(message.safe):
                await self._write(plan, way.position)
            if way.full:
                continue
            due = await asyncio.to_thread(
                plan.due,
                way.ahead,
                message.min_times[self.segment],
                lambda slot: plan.passed(target, slot),
                MOST_REPORTED,
            )
            for period in due.periods:
                yield TriggerEvent(Report(plan, period).payload())
            way.moved(message.number, due.position)

    async def _recorded(self, plan: Plan) -> int:
        """Where to go on. Raises StateError for the record of other periods, ValueError for several assets."""
        where = f"the asset's record {self.record!r}"
        recorded = from_record(await self._store().aget(self.record), plan.name, where)
        if recorded is not None:
            return recorded.next
        await self._write(plan, plan.begin)
        return plan.begin

    async def _write(self, plan: Plan, position: int) -> None:
        await self._store().aset(self.record, to_record(plan.name, position))

    def _store(self) -> Any:
        if self.asset_state_store is None:
            raise ValueError("PeriodTrigger is for the watcher of an asset (AssetWatcher)")
        return self.asset_state_store
