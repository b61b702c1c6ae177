"""The commands about periods: when which hour was complete, and marks of each where readers look."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tracker.cli.common import (
    PipelineName,
    SegmentName,
    connect,
    exit_when_told,
    print_json,
    say,
    show,
    wrong_usage,
)
from tracker.cli.shared import Shared
from tracker.client import PipelineInfo
from tracker.client.history import history, moment
from tracker.client.moments import parse_duration_ns, parse_slot
from tracker.consumers.periods.cut import Cut, Period
from tracker.consumers.periods.delta import DeltaMark
from tracker.consumers.periods.folders import (
    SUCCESS,
    PartitionMark,
)
from tracker.consumers.periods.follow import Periods
from tracker.consumers.periods.iceberg import IcebergMark
from tracker.consumers.periods.once import Action, Call
from tracker.consumers.periods.openlineage import NAMESPACE, LineageMark
from tracker.core.model import PipelineSpec, TimeKind
from tracker.core.model.slots import FOREVER
from tracker.view.model import newest_promise

MAX_LISTED_PERIODS = 10_000
LISTED_PERIODS = 24
"""So many, where nobody says from when on."""

Every = Annotated[
    str, typer.Option(help="length of a period: 1h, 15m, 1d; or slots, where slots are numbers")
]
Since = Annotated[
    str | None,
    typer.Option(help="where to begin, if the record does not say: a moment, or slot:N"),
]


def _begins(info: PipelineInfo, cut: Cut, from_: str | None, to: str | None, last: int) -> range:
    """Where the periods begin that are to be listed. Raises typer.BadParameter."""
    spec = info.spec
    end = _newest(info) if to is None else _slot(to, spec)
    if from_ is not None:
        first = cut.first(_slot(from_, spec))
    else:
        first = max(cut.first(spec.start_slot), cut.first(end + 1) - (last + 1) * cut.slots)
    count = max(0, (end - first) // cut.slots)
    if count > MAX_LISTED_PERIODS:
        raise typer.BadParameter(
            f"{count} periods are more than {MAX_LISTED_PERIODS}; ask for fewer"
        )
    return range(first, first + count * cut.slots, cut.slots)


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


def periods_list(
    context: typer.Context,
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
) -> None:
    """Tell of each period whether it is complete, and since when, out of the tracker's own history.

    "by" a moment: the tracker remembers no announcement that is closer to the end of the period, which was
    complete then or before.
    """
    with connect(context) as admin:
        info = admin.pipeline(pipeline)
    with wrong_usage():
        cut = Cut.parse(info.spec, every)
    listed = [cut.period(pipeline, segment, slot) for slot in _begins(info, cut, from_, to, last)]
    answers = history(
        Shared.of(context).target, pipeline, [cut.completes(p.to_slot) for p in listed], segment
    )
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
        show(context, document, f"{span}  {since if reached.reached else 'not complete'}")
    if not listed and not Shared.of(context).as_json:
        say("no period has ended there yet", err=True)


def periods_by(
    context: typer.Context,
    pipeline: str,
    segment: str | None,
    every: str,
    record: str,
    since: str | None,
) -> Periods:
    """A pipeline's periods, by what the options of a command say."""
    begin = None
    if since is not None:
        with connect(context) as admin:
            begin = _slot(since, admin.pipeline(pipeline).spec)
    with wrong_usage():
        return Periods(Shared.of(context).target, pipeline, segment, every, record, since=begin)


Places = list[str]
MarkPartition = Annotated[
    Places | None,
    typer.Option(
        help="write a file into each period's folder: LOCATION/dt={start:%Y-%m-%d}/hour={start:%H}"
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
    cut: Cut,
    delta: Places | None,
    iceberg: Places | None,
    catalog: str | None,
    tag: str | None,
    keep_tags: str,
) -> list[Action]:
    """The marks in tables that the options of a command ask for."""
    # Forever is said outright, too: else the table's history.expire.max-ref-age-ms decides.
    keep_ms = FOREVER if keep_tags == "forever" else parse_duration_ns(keep_tags) // 10**6
    return [
        *(DeltaMark(cut, table) for table in delta or ()),
        *(IcebergMark(cut, table, catalog, tag, keep_ms) for table in iceberg or ()),
    ]


def periods_follow(
    context: typer.Context,
    pipeline: PipelineName,
    record: Annotated[str, typer.Option(help="the consumer's own file: which period is next")],
    every: Every = "1h",
    segment: SegmentName = None,
    since: Since = None,
    mark_partition: MarkPartition = None,
    marker: Annotated[str, typer.Option(help="with --mark-partition: name of the files")] = SUCCESS,
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
) -> None:
    """Mark each period when it is complete wherever the options say, and print a JSON line for it, in order, none skipped and none twice. Until SIGTERM, --timeout, or the end of the pipeline."""
    exit_when_told()
    with periods_by(context, pipeline, segment, every, record, since) as periods:
        cut, actions = periods.cut, list[Action]()
        with wrong_usage():
            actions += [PartitionMark(cut, each, marker) for each in mark_partition or ()]
            actions += table_marks(cut, mark_delta, mark_iceberg, iceberg_catalog, tag, keep_tags)
            actions += [
                LineageMark(
                    cut,
                    place,
                    namespace=openlineage_namespace,
                    outputs=openlineage_output or (),
                )
                for place in mark_openlineage or ()
            ]
        periods.run(*actions, Call(_print), timeout_s=timeout)


def _print(period: Period) -> None:
    print_json(period.fields())
    sys.stdout.flush()
