"""The commands about periods: when which hour was complete, and marker files for each."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tracker.cli.common import (
    DEFAULT_TARGET,
    AsJson,
    PipelineName,
    SegmentName,
    Target,
    connect,
    print_json,
    show,
    when_told_to_end,
)
from tracker.client.history import history, moment
from tracker.client.moments import parse_duration_ns, parse_slot
from tracker.consumers.markers import MARKER, Markers
from tracker.consumers.periods import PeriodFollower, Periods
from tracker.core.model import PipelineSpec, TimeKind

MAX_LISTED_PERIODS = 10_000

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
        number = int(every) if spec.time is TimeKind.NUMBER else parse_duration_ns(every)
        return Periods.of(spec, number)
    except ValueError as error:
        raise typer.BadParameter(f"--every {every}: {error}") from None


def spec_of(target: str, pipeline: str) -> PipelineSpec:
    with connect(target) as admin:
        return admin.pipeline(pipeline).spec


@periods_app.command("list")
def periods_list(
    pipeline: PipelineName,
    from_: Annotated[str, typer.Option("--from", help="a moment, or slot:N: the first period's")],
    to: Annotated[str, typer.Option(help="a moment, or slot:N: no period ends behind it")] = "now",
    every: Every = "1h",
    segment: SegmentName = None,
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Tell of each period whether it is complete, and since when, out of the tracker's own history."""
    spec = spec_of(target, pipeline)
    periods = periods_of(spec, every)
    first = periods.first(parse_slot(from_, spec.slack_ns))
    count = max(0, (parse_slot(to, spec.slack_ns) - first) // periods.slots)
    if count > MAX_LISTED_PERIODS:
        raise typer.BadParameter(
            f"{count} periods are more than {MAX_LISTED_PERIODS}; ask for fewer"
        )
    listed = [
        periods.period(pipeline, segment, first + index * periods.slots) for index in range(count)
    ]
    answers = history(target, pipeline, [periods.completes(p.to_slot) for p in listed], segment)
    for period, reached in zip(listed, answers, strict=True):
        at = moment(reached.at_ms).isoformat(timespec="milliseconds") if reached.at_ms else None
        span = f"{period.start or period.from_slot} .. {period.end or period.to_slot}"
        state = (at or "before what is remembered") if reached.reached else "not complete"
        document = {**period.fields(), "complete": reached.reached, "complete_at": at}
        show(as_json, document, f"{span}  {state}")


def follower_of(
    target: str, pipeline: str, segment: str | None, every: str, record: str, since: str | None
) -> PeriodFollower:
    """Who follows a pipeline's periods, by what the options of a command say."""
    spec = spec_of(target, pipeline)
    begin = None if since is None else parse_slot(since, spec.slack_ns)
    return PeriodFollower(target, pipeline, segment, periods_of(spec, every), record, since=begin)


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
    timeout: Annotated[
        float | None, typer.Option(min=0, help="end after so many seconds without a period")
    ] = None,
    target: Target = DEFAULT_TARGET,
) -> None:
    """Print a JSON line for each period when it is complete, in order, none skipped and none twice; or,
    with --table, write a marker file instead. Until SIGTERM, --timeout, or the end of the pipeline."""
    when_told_to_end(sys.exit)
    with follower_of(target, pipeline, segment, every, record, since) as follower:
        if table is not None:
            Markers(follower, table, layout, marker).run(timeout)
            return
        for period in follower.completed(timeout):
            print_json(period.fields())
            sys.stdout.flush()
            follower.done(period)
