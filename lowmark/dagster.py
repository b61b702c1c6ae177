"""Dagster: one run for each complete period, and a check that no partition was made before it was complete.

    hourly = dg.HourlyPartitionsDefinition(start_date="2026-03-01-00:00")
    report = dg.define_asset_job("report", selection=[orders_by_hour], partitions_def=hourly)
    defs = dg.Definitions(
        assets=[orders_by_hour], jobs=[report],
        sensors=[period_sensor("127.0.0.1:7070", "orders", "load", job=report, partitions=hourly)],
        asset_checks=[complete_check("127.0.0.1:7070", "orders", "load", asset=orders_by_hour, partitions=hourly)],
    )

Needs the package `dagster` (`pip install 'lowmark[dagster]'`).
"""

# Annotations are what they say, not texts: Dagster looks at those of the functions that it calls.

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import dagster as dg

from tracker.consumers.periods.cut import Period
from tracker.consumers.periods.due import Due, Plan
from tracker.consumers.periods.made import Made, begun, judge
from tracker.consumers.periods.partitions import partition_keys
from tracker.consumers.periods.position import from_record, to_record
from tracker.core.model.slots import FOREVER
from tracker.errors import UnavailableError

MOST_RUNS = 24
"""Periods for whose runs one evaluation asks; those beyond come at the next ones."""
INTERVAL_S = 30
"""How often a sensor is evaluated, unless it says so."""


def period_sensor(
    target: str | Sequence[str],
    pipeline: str,
    segment: str | None = None,
    *,
    job: Any,
    every: str = "1h",
    since: int | datetime | None = None,
    partitions: dg.TimeWindowPartitionsDefinition | None = None,
    name: str | None = None,
    run_config: Mapping[str, Any] | None = None,
    most_runs: int = MOST_RUNS,
    minimum_interval_seconds: int = INTERVAL_S,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """A sensor that asks for one run of a job for each period of a segment (None: of the whole pipeline) that is
    complete, in order.

    every, since: as of `Plan.of`. partitions: those of the job: there is a run for each one that ends within the period, of
    whatever time zone and length they are. The run key is the period's key (of a second partition with its own), and the cursor is a record of the position: a daemon
    that dies after it has started a run and before it has kept the cursor asks for that run again, and Dagster starts
    none twice of one key. A cursor of other periods, as after a change of `every`, fails the evaluation, and so does one of a
    pipeline that was deleted where another one has its name. A tracker that is away is a skip, with the reason.
    """

    @dg.sensor(
        name=name or f"{pipeline}_{segment or 'all'}_complete".replace("-", "_"), job=job,
        minimum_interval_seconds=minimum_interval_seconds, default_status=default_status,
        description=f"One run for each {every} of {pipeline}/{segment or '*'} that is complete.",
    )  # fmt: skip
    def complete(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            plan = Plan.of(target, pipeline, segment, every, since)
            recorded = from_record(json.loads(context.cursor or "null"), plan.name, "the cursor")
            found = plan.look(target, recorded, most_runs)
        except UnavailableError as error:
            return dg.SkipReason(f"the tracker is away: {error}")
        requests = [
            run for period in found.periods for run in _runs(period, partitions, run_config)
        ]
        reason = None if requests else _reason(plan, found)
        cursor = json.dumps(to_record(plan.name, found.position, found.generation))
        return dg.SensorResult(run_requests=requests, skip_reason=reason, cursor=cursor)

    return complete


def _runs(
    period: Period,
    partitions: dg.TimeWindowPartitionsDefinition | None,
    run_config: Mapping[str, Any] | None,
) -> list[dg.RunRequest]:
    tags = {
        f"lowmark/{name}": str(value)
        for name, value in period.fields().items()
        if value is not None
    }
    return [
        dg.RunRequest(
            run_key=f"{period.key} {key}" if number else period.key, partition_key=key,
            tags=tags, run_config=dict(run_config or {}),
        )
        for number, key in enumerate([None] if partitions is None else partition_keys(period, partitions))
    ]  # fmt: skip


def _reason(plan: Plan, found: Due) -> dg.SkipReason:
    if found.position == FOREVER:
        return dg.SkipReason("the pipeline is complete; no period will follow")
    following = plan.period(found.position)
    return dg.SkipReason(
        f"period {following.key} is not complete yet (it begins at {following.start or following.from_slot})"
    )


def complete_check(
    target: str | Sequence[str],
    pipeline: str,
    segment: str | None = None,
    *,
    asset: Any,
    partitions: dg.TimeWindowPartitionsDefinition,
    name: str = "made_when_complete",
    blocking: bool = False,
) -> dg.AssetChecksDefinition:
    """A check of an asset's partitions: each was made, the last time, after its period had become complete.

    It looks at the partitions of its run. Fails, and names them, where the making of one began before the tracker announced
    that its period was complete, or is not complete yet: what was made of it may lack rows. Making the partition
    again mends it. At most 10,000 partitions a run; raises RefusedError, UnavailableError.
    """

    @dg.asset_check(asset=asset, name=name, blocking=blocking, partitions_def=partitions)
    def made_when_complete(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        key = asset.key if isinstance(asset, dg.AssetsDefinition) else asset
        made = [
            Made(each, partitions.time_window_for_partition_key(each).end, at_unix_s)
            for each in context.partition_keys
            for at_unix_s in _begun_at(context.instance, dg.AssetKey.from_coercible(key), each)
        ]
        found = judge(target, pipeline, segment, made)
        return dg.AssetCheckResult(
            passed=not found.early and not found.open,
            metadata={"partitions": len(made), "early": found.early, "not complete": found.open},
        )

    return made_when_complete


def _begun_at(instance: dg.DagsterInstance, asset: dg.AssetKey, partition: str) -> list[float]:
    """When the making of a partition began the last time, in seconds since 1970: with the step that made it. Of one that was
    only reported, by no run, when that was; nothing if it never was made."""
    wanted = dg.AssetRecordsFilter(asset, asset_partitions=[partition])
    return [
        begun(record.timestamp, _starts(instance, record.run_id, record.event_log_entry.step_key))
        for record in instance.fetch_materializations(wanted, limit=1).records
    ]


def _starts(instance: dg.DagsterInstance, run: str, step: str | None) -> list[float | None]:
    """When each attempt at a step of a run began."""
    if not run or step is None:
        return []
    return [
        attempt.start_time
        for stats in instance.get_run_step_stats(run, [step])
        for attempt in stats.attempts_list
    ]
