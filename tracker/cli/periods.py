"""The commands about periods: when which hour was complete, and marks of each where readers look."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tracker.cli.common import (
    DEFAULT_TARGET,
    AsJson,
    PatientTarget,
    PipelineName,
    SegmentName,
    Target,
    connect,
    exit_when_told,
    print_json,
    say,
    show,
    wrong_usage,
)
from tracker.client import PipelineInfo
from tracker.client.history import history, moment
from tracker.client.moments import parse_duration_ns, parse_slot
from tracker.consumers.delta_marks import DeltaMark
from tracker.consumers.iceberg_marks import IcebergMark
from tracker.consumers.marks import Mark, marked
from tracker.consumers.openlineage_marks import NAMESPACE, LineageMark
from tracker.consumers.partition_marks import (
    MARKER,
    PartitionMark,
    partition_mark,
    strftime_layout,
)
from tracker.consumers.periods import PeriodFollower, Periods
from tracker.core.model import PipelineSpec, TimeKind
from tracker.core.model.slots import FOREVER
from tracker.view.model import newest_promise

MAX_LISTED_PERIODS = 10_000
LISTED_PERIODS = 24
"""So many, where nobody says from when on."""

periods_app = typer.Typer(
    no_args_is_help=True, help="Hours, or other periods, and when they were complete."
)

Every = Annotated[
    str, typer.Option(help="length of a period: 1h, 15m, 1d; or slots, where slots are numbers")
]
Since = Annotated[
    str | None,
    typer.Option(help="where to begin, if the record does not say: a moment, or slot:N"),
]


def periods_of(spec: PipelineSpec, every: str) -> Periods:
    try:
        return Periods.parse(spec, every)
    except ValueError as error:
        raise typer.BadParameter(f"--every {every}: {error}") from None


def spec_of(target: str, pipeline: str) -> PipelineSpec:
    with connect(target) as admin:
        return admin.pipeline(pipeline).spec


def _begins(
    info: PipelineInfo, periods: Periods, from_: str | None, to: str | None, last: int
) -> range:
    """Where the periods begin that are to be listed. Raises typer.BadParameter."""
    spec = info.spec
    end = _newest(info) if to is None else _slot(to, spec)
    if from_ is not None:
        first = periods.first(_slot(from_, spec))
    else:
        first = max(
            periods.first(spec.start_slot), periods.first(end + 1) - (last + 1) * periods.slots
        )
    count = max(0, (end - first) // periods.slots)
    if count > MAX_LISTED_PERIODS:
        raise typer.BadParameter(
            f"{count} periods are more than {MAX_LISTED_PERIODS}; ask for fewer"
        )
    return range(first, first + count * periods.slots, periods.slots)


def _slot(text: str, spec: PipelineSpec) -> int:
    """Raises typer.BadParameter."""
    with wrong_usage():
        return parse_slot(text, spec.slack_ns, spec.rounds)


def _newest(info: PipelineInfo) -> int:
    """The slot up to which there may be periods by now."""
    spec = info.spec
    if spec.time is not TimeKind.NUMBER:
        return parse_slot("now", spec.slack_ns, spec.rounds)
    newest = newest_promise(info)
    if newest is None:
        raise typer.BadParameter(
            f"the slots of pipeline {spec.name!r} are numbers, and no front promises any now: say --to slot:N"
        )
    return newest


@periods_app.command("list")
def periods_list(
    pipeline: PipelineName,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="a moment, or slot:N: the first period's; if not given, --last periods, or those since the "
            "pipeline's start",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="a moment, or slot:N: no period ends behind it; now, or where slots are numbers the newest promise"
        ),
    ] = None,
    last: Annotated[
        int, typer.Option(min=1, max=MAX_LISTED_PERIODS, help="without --from: so many periods")
    ] = LISTED_PERIODS,
    every: Every = "1h",
    segment: SegmentName = None,
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Tell of each period whether it is complete, and since when, out of the tracker's own history.

    "by" a moment: the tracker remembers no announcement that is closer to the end of the period, which was
    complete then or before.
    """
    with connect(target) as admin:
        info = admin.pipeline(pipeline)
    periods = periods_of(info.spec, every)
    listed = [
        periods.period(pipeline, segment, slot) for slot in _begins(info, periods, from_, to, last)
    ]
    answers = history(target, pipeline, [periods.completes(p.to_slot) for p in listed], segment)
    for period, reached in zip(listed, answers, strict=True):
        at = moment(reached.at_ms).isoformat(timespec="milliseconds") if reached.at_ms else None
        span = f"{period.start or period.from_slot} .. {period.end or period.to_slot}"
        exact = None if at is None else reached.exact
        since = f"{'' if exact else 'by '}{at}" if at else "complete; since when is not remembered"
        document = {
            **period.fields(),
            "complete": reached.reached,
            "complete_at": at,
            "exact": exact,
        }
        show(as_json, document, f"{span}  {since if reached.reached else 'not complete'}")
    if not listed and not as_json:
        say("no period has ended there yet", err=True)


def follower_of(
    target: str, pipeline: str, segment: str | None, every: str, record: str, since: str | None
) -> PeriodFollower:
    """Who follows a pipeline's periods, by what the options of a command say."""
    spec = spec_of(target, pipeline)
    begin = None if since is None else _slot(since, spec)
    return PeriodFollower(target, pipeline, segment, periods_of(spec, every), record, since=begin)


Places = list[str]
MarkPartition = Annotated[
    Places | None,
    typer.Option(
        help="write _SUCCESS into each period's folder: LOCATION/dt={start:%Y-%m-%d}/hour={start:%H}"
    ),
]
MarkDelta = Annotated[
    Places | None,
    typer.Option(help="location of a Delta table: a commit without rows for each period"),
]
MarkIceberg = Annotated[
    Places | None,
    typer.Option(
        help="an Iceberg table, as its catalog knows it: a snapshot and a tag for each period"
    ),
]
IcebergCatalog = Annotated[
    str | None,
    typer.Option(help="its catalog, by pyiceberg's configuration; none: the default one"),
]
Tag = Annotated[
    str | None,
    typer.Option(
        help="template of the tags; none: lowmark- and the period's start, such as 2026-03-01T13"
    ),
]
KeepTags = Annotated[
    str, typer.Option(help="how long expiring snapshots spares a tag: 30d, or forever")
]

MarkOpenLineage = Annotated[
    Places | None,
    typer.Option(
        help="URL of an OpenLineage receiver, or a directory for files of events: a run for each period"
    ),
]
OpenLineageNamespace = Annotated[
    str,
    typer.Option(
        envvar="OPENLINEAGE_NAMESPACE", help="with --mark-openlineage: namespace of the jobs"
    ),
]
OpenLineageOutput = Annotated[
    Places | None,
    typer.Option(
        help="with --mark-openlineage: location of a data set that a complete period is in, such as s3://lake/orders"
    ),
]


def table_marks(
    periods: Periods,
    delta: Places | None,
    iceberg: Places | None,
    catalog: str | None,
    tag: str | None,
    keep_tags: str,
) -> list[Mark]:
    """The marks in tables that the options of a command ask for."""
    # Forever is said outright, too: else the table's history.expire.max-ref-age-ms decides.
    keep_ms = FOREVER if keep_tags == "forever" else parse_duration_ns(keep_tags) // 10**6
    return [
        *(DeltaMark(periods, table) for table in delta or ()),
        *(IcebergMark(periods, table, catalog, tag, keep_ms) for table in iceberg or ()),
    ]


@periods_app.command("follow")
def periods_follow(
    pipeline: PipelineName,
    record: Annotated[str, typer.Option(help="the consumer's own file: which period is next")],
    every: Every = "1h",
    segment: SegmentName = None,
    since: Since = None,
    table: Annotated[
        str | None, typer.Option(help="a directory: write marker files into its partition folders")
    ] = None,
    layout: Annotated[
        str,
        typer.Option(
            help="with --table: a period's folder, by strftime of its start (UTC), {slot}"
        ),
    ] = "date=%Y-%m-%d/hour=%H",
    marker: Annotated[str, typer.Option(help="with --table: name of the marker files")] = MARKER,
    mark_partition: MarkPartition = None,
    mark_delta: MarkDelta = None,
    mark_iceberg: MarkIceberg = None,
    iceberg_catalog: IcebergCatalog = None,
    tag: Tag = None,
    keep_tags: KeepTags = "30d",
    mark_openlineage: MarkOpenLineage = None,
    openlineage_namespace: OpenLineageNamespace = NAMESPACE,
    openlineage_output: OpenLineageOutput = None,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="end after so many seconds without a period")
    ] = None,
    target: PatientTarget = DEFAULT_TARGET,
) -> None:
    """Mark each period when it is complete wherever the options say, and print a JSON line for it (not with
    --table), in order, none skipped and none twice. Until SIGTERM, --timeout, or the end of the pipeline."""
    exit_when_told()
    with follower_of(target, pipeline, segment, every, record, since) as follower:
        periods = follower.periods
        marks: list[Mark] = []
        with wrong_usage():
            if table is not None:
                marks.append(PartitionMark(periods, table, strftime_layout(layout), marker))
            marks += [partition_mark(periods, template) for template in mark_partition or ()]
            marks += table_marks(periods, mark_delta, mark_iceberg, iceberg_catalog, tag, keep_tags)
            marks += [
                LineageMark(
                    periods,
                    place,
                    namespace=openlineage_namespace,
                    outputs=openlineage_output or (),
                )
                for place in mark_openlineage or ()
            ]
        for period in marked(follower, marks, timeout):
            if table is None:
                print_json(period.fields())
                sys.stdout.flush()
