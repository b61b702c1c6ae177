"""One event of a partition for each complete period, exactly once, by Airflow's own record of its events."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset, BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from lowmark.airflow.hooks import LowmarkHook
from tracker.consumers.periods.releases import LOOKED_AT, reported, to_release


class ReleasePeriods(BaseOperator):
    """Gives `periods` one event for each period up to the one that `watched`, the asset of a `PeriodTrigger`, has
    reported last, with the period's start as its partition key: a Dag that is scheduled by partitions of it runs once for each period.

    *Exactly once*: Airflow writes the events of a task in the transaction that makes it a success, and the next run
    reads the position there. A report that comes twice, as after the triggerer was killed,
    finds its period released; one whose run had failed is made up for by the next. Give the Dag `max_active_runs=1`.
    Where the pipeline was restarted since the last release, or deleted, the tracker is asked, by `lowmark_conn_id`: of another
    pipeline of its name nothing is released, since its periods have the partition keys of the one before.
    """

    template_fields = ()

    def __init__(
        self,
        *,
        watched: Asset,
        periods: Asset,
        lowmark_conn_id: str = LowmarkHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("max_active_tis_per_dag", 1)
        super().__init__(inlets=[watched, periods], outlets=[periods], **kwargs)
        self.watched, self.periods, self.lowmark_conn_id = watched, periods, lowmark_conn_id

    def execute(self, context: Any) -> list[str]:
        """Returns the partition keys. Skipped where there is nothing new: a task that succeeds without a key would
        give the asset an event of no partition."""
        due = to_release(
            _extras(context["inlet_events"][self.periods]),
            reported(_extras(context["inlet_events"][self.watched])),
            lambda plan, generation: plan.check_same(
                LowmarkHook(self.lowmark_conn_id).target(), generation
            ),
        )
        if not due.keys:
            raise AirflowSkipException("every period that was reported is released")
        event = context["outlet_events"][self.periods]
        event.add_partitions(due.keys)
        event.extra = due.extra
        return due.keys


def _extras(events: Any) -> list[dict[str, Any]]:
    """Of an asset's events, the newest first."""
    return [event.extra or {} for event in events.ascending(False).limit(LOOKED_AT)]
