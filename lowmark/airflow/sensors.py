"""A sensor that takes no worker while it waits."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowException, AirflowSensorTimeout, AirflowSkipException

from lowmark.airflow.hooks import LowmarkHook
from lowmark.airflow.triggers import CompleteTrigger
from tracker.client.waiting import SILENT_AFTER_S, Outcome, generation_of


class HeldError(AirflowException):
    """What is waited for will not be reached until somebody acts; says which front it is. The task's own retries
    count."""


class CompleteSensor(BaseSensorOperator):
    """Done when everything before a moment is processed, in a segment and all that leads to it (None: in the whole
    pipeline).

    until: an ISO moment (UTC unless it has an offset) or a template; the end of the run's data interval if not given.
    timeout: of Airflow's sensors, counted from the task's first start of this try. silent_after: HeldError once a
    front that the moment depends on has been silent for so long (None: waits on). Ends with AirflowSensorTimeout, or
    is skipped where `soft_fail` is set, when the timeout passes.
    """

    template_fields = ("pipeline", "segment", "until", "lowmark_conn_id")

    def __init__(
        self,
        *,
        pipeline: str,
        segment: str | None = None,
        until: str = "{{ data_interval_end.isoformat() }}",
        silent_after: timedelta | None = timedelta(seconds=SILENT_AFTER_S),
        lowmark_conn_id: str = LowmarkHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline, self.segment, self.until = pipeline, segment, until
        self.silent_after, self.lowmark_conn_id = silent_after, lowmark_conn_id

    def execute(self, context: Any) -> None:
        """Hands the wait to the triggerer. The trigger knows its deadline by the clock, so a triggerer that is started
        again waits no longer than the first would have; and which pipeline is meant."""
        silent_after_s = None if self.silent_after is None else self.silent_after.total_seconds()
        trigger = CompleteTrigger(
            self.pipeline, self.segment, self.until, time.time() + self.timeout, silent_after_s,
            self.lowmark_conn_id, generation_of(LowmarkHook(self.lowmark_conn_id).target(), self.pipeline),
        )  # fmt: skip
        self.defer(trigger=trigger, method_name="execute_complete")

    def execute_complete(self, context: Any, event: dict[str, Any]) -> dict[str, Any]:
        """What the triggerer found: done, or why not."""
        if event["outcome"] == Outcome.REACHED.value:
            return event
        what = f"{self.pipeline}/{self.segment or '*'} before {self.until}"
        if event["outcome"] == Outcome.TIMED_OUT.value:
            said = f"{what} was not complete within {self.timeout:.0f} s"
            raise AirflowSkipException(said) if self.soft_fail else AirflowSensorTimeout(said)
        raise HeldError(f"{what} will not be complete by itself: {event['why']}")
