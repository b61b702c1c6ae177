"""What waits in Airflow's triggerer: one wait of a sensor, and the reports of an asset's watcher."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent

from lowmark.airflow.hooks import LowmarkHook
from tracker.client.subscriber import AsyncSubscriber
from tracker.client.waiting import wait_complete_async
from tracker.consumers.periods.due import Plan
from tracker.consumers.periods.releases import Report
from tracker.core.model.slots import FOREVER
from tracker.errors import RefusedError


class CompleteTrigger(BaseTrigger):
    """Waits until everything before a moment is processed; fires once, with the outcome (`reached`, `timed out`,
    `held`, `refused`) and why.

    until: an ISO moment; deadline_unix_s: when the wait has timed out, in seconds since 1970. generation: of the pipeline that
    is meant: a triggerer that is started again waits for no other one of its name, which is `refused`.
    """

    def __init__(
        self,
        pipeline: str,
        segment: str | None,
        until: str,
        deadline_unix_s: float,
        silent_after_s: float | None,
        lowmark_conn_id: str = LowmarkHook.default_conn_name,
        generation: int | None = None,
    ) -> None:
        super().__init__()
        self.pipeline, self.segment, self.until = pipeline, segment, until
        self.deadline_unix_s, self.silent_after_s = deadline_unix_s, silent_after_s
        self.lowmark_conn_id, self.generation = lowmark_conn_id, generation

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """As Airflow keeps it."""
        return "lowmark.airflow.triggers.CompleteTrigger", {
            "pipeline": self.pipeline, "segment": self.segment, "until": self.until,
            "deadline_unix_s": self.deadline_unix_s, "silent_after_s": self.silent_after_s,
            "lowmark_conn_id": self.lowmark_conn_id, "generation": self.generation,
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
                heard_generation=self.generation,
            )
        except (RefusedError, ValueError) as error:
            yield TriggerEvent({"outcome": "refused", "slot": None, "why": str(error)})
        else:
            yield TriggerEvent(
                {"outcome": waited.outcome.value, "slot": waited.slot, "why": waited.why}
            )


class PeriodTrigger(BaseEventTrigger):
    """Fires when periods of a segment (None: of the whole pipeline) have become complete, for the watcher of an asset.
    The event's payload is of the newest one, and reports all before it, too: its key, slots, start and end, and
    `partition_key`: its start in UTC.

    every, since: as of `Plan.of`, `since` an ISO moment. Two watchers with the same of everything are one trigger to
    Airflow. It keeps no record: whoever starts it again hears of the newest period again.
    """

    def __init__(
        self,
        pipeline: str,
        segment: str | None = None,
        every: str = "1h",
        since: str | None = None,
        lowmark_conn_id: str = LowmarkHook.default_conn_name,
    ) -> None:
        super().__init__()
        self.pipeline, self.segment, self.every, self.since = pipeline, segment, every, since
        self.lowmark_conn_id = lowmark_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """As Airflow keeps it."""
        return "lowmark.airflow.triggers.PeriodTrigger", {
            "pipeline": self.pipeline, "segment": self.segment, "every": self.every, "since": self.since,
            "lowmark_conn_id": self.lowmark_conn_id,
        }  # fmt: skip

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Asks the processes of the tracker in turn while one is away."""
        target = await LowmarkHook(self.lowmark_conn_id).atarget()
        since = None if self.since is None else datetime.fromisoformat(self.since)
        plan = await asyncio.to_thread(
            Plan.of, target, self.pipeline, self.segment, self.every, since
        )
        position = plan.begin
        async with AsyncSubscriber(target, self.pipeline) as subscriber:
            subscriber.goes_on_since(plan.generation)
            while position != FOREVER:
                await subscriber.wait_until(plan.needed(position), self.segment)
                min_time = await subscriber.min_time(self.segment)
                plan = await asyncio.to_thread(plan.renewed, target)
                if min_time < plan.needed(position):
                    continue
                generation = subscriber.heard_generation
                newest = await asyncio.to_thread(plan.newest, target, min_time, generation)
                report = Report(plan, newest, generation)
                yield TriggerEvent(report.payload())
                position = newest.to_slot
        await asyncio.Event().wait()  # one that has ended is started again, and would report again
