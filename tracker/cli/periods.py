"""The commands about periods: when which hour was complete, and marks of each where readers look."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from pydantic import Field

from tracker.cli.common import (
    EXIT_TIMED_OUT,
    PipelineName,
    SegmentName,
    connect,
    exit_when_told,
    fail,
    only_pipeline,
    print_json,
    say,
    show,
    wrong_usage,
)
from tracker.cli.declared import by_settings
from tracker.cli.shared import Shared
from tracker.client import PipelineInfo
from tracker.client.history import history, moment
from tracker.client.moments import parse_duration_ns, parse_slot
from tracker.client.settings import Duration, Settings, seconds
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
from tracker.consumers.periods.webhook import Patience, Webhook
from tracker.core.model import PipelineSpec, TimeKind
from tracker.core.model.slots import FOREVER
from tracker.errors import Code, UnavailableError
from tracker.view.model import newest_promise

MAX_LISTED_PERIODS = 10_000
LISTED_PERIODS = 24
"""So many, where nobody says from when on."""

EVERY = "length of a period: 1h, 15m, 1d; or slots, where slots are numbers"


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
            f"the slots of pipeline {spec.name!r} are numbers, and no front promises any now: give --to slot:N"
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
    every: Annotated[str, typer.Option(help=EVERY)] = "1h",
    segment: SegmentName = None,
) -> None:
    """Show of each period whether it is complete, and since when, out of the tracker's own history.

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


TYPED = (
    "pipeline", "segment", "record", "every", "since", "mark_partition", "mark_delta", "mark_iceberg",
    "mark_openlineage", "webhook", "secret_file", "timeout",
)  # fmt: skip
"""The settings that are options as well: what one types by hand."""
VARIABLES = {"webhook": "LOWMARK_WEBHOOK_URL", "openlineage_namespace": "OPENLINEAGE_NAMESPACE"}


class FollowSettings(Settings):
    """The settings of `lowmark periods follow`."""

    pipeline: str = Field("", description="name of the pipeline; not needed where there is one")
    segment: str = Field("", description="one segment; none: the whole pipeline")
    record: str = Field("", description="the consumer's own file: which period is next")
    every: str = Field("1h", description=EVERY)
    since: str = Field(
        "", description="where to begin, if the record does not say: a moment, or slot:N"
    )
    mark_partition: list[str] = Field(
        [],
        description="write a file into each period's folder: LOCATION/dt={start:%Y-%m-%d}/hour={start:%H}",
    )
    marker: str = Field(SUCCESS, description="with mark_partition: name of the files")
    mark_delta: list[str] = Field(
        [], description="location of a Delta table: a commit without rows for each period"
    )
    mark_iceberg: list[str] = Field(
        [],
        description="an Iceberg table, as its catalog knows it: a snapshot and a tag for each period",
    )
    iceberg_catalog: str = Field(
        "", description="its catalog, by pyiceberg's configuration; none: the default one"
    )
    tag: str = Field(
        "",
        description="template of the tags; none: lowmark- and the period's start, such as 2026-03-01T13",
    )
    keep_tags: str = Field(
        "30d", description="how long expiring snapshots spares a tag: 30d, or forever"
    )
    mark_openlineage: list[str] = Field(
        [],
        description="URL of an OpenLineage receiver, or a directory for files of events: a run for each period",
    )
    openlineage_namespace: str = Field(
        NAMESPACE,
        description="with mark_openlineage: namespace of the jobs (OPENLINEAGE_NAMESPACE)",
    )
    openlineage_output: list[str] = Field(
        [],
        description="with mark_openlineage: location of a data set that a complete period is in, such as s3://lake/orders",
    )
    webhook: str = Field(
        "",
        description="post a signed message for each period: https://reports.example/hours (LOWMARK_WEBHOOK_URL)",
    )
    secret_file: str = Field(
        "",
        description="with webhook: file of secrets, one a line: `lowmark credentials token --webhook` makes one",
    )
    give_up_after: Duration = Field(
        "24h", description="with webhook: end when one period was not taken in so long"
    )
    answer_within: Duration = Field(
        "10s", description="with webhook: how long one attempt may take, with its answer"
    )
    receiver_ca: str = Field(
        "",
        description="with webhook: PEM file of the CA of the receiver's certificate; else the system's",
    )
    plain: bool = Field(
        False, description="with webhook: allow http to another machine, which anybody can read"
    )
    timeout: Duration | None = Field(None, description="end after so long without a period")


@by_settings(FollowSettings, TYPED, VARIABLES)
def periods_follow(context: typer.Context, settings: FollowSettings) -> None:
    """Do for each period when it is complete what the options say, and print a JSON line for it, in order, none
    skipped and none twice. Until SIGTERM, --timeout, or the end of the pipeline.

    It is marked wherever the options say; and a message is posted to --webhook until the receiver has answered with
    2xx. Exit status 3: a receiver or a place was away for longer than was given.
    """
    s = settings
    exit_when_told()
    if not s.record:
        raise typer.BadParameter("name the consumer's own file: --record")
    pipeline, begin = only_pipeline(context, s.pipeline), None
    webhook = _webhook(s) if s.webhook else None
    if s.since:
        with connect(context) as admin:
            begin = _slot(s.since, admin.pipeline(pipeline).spec)
    target, segment = Shared.of(context).target, s.segment or None
    with wrong_usage():
        periods = Periods(target, pipeline, segment, s.every, s.record, since=begin)
    with periods:
        with wrong_usage():
            actions = [*_marks(periods.cut, s), *([webhook] if webhook else [])]
        try:
            periods.run(*actions, Call(_print), timeout_s=seconds(s.timeout) if s.timeout else None)
        except UnavailableError as error:
            if error.code != Code.UNAVAILABLE_RECEIVER:
                raise
            fail(error, EXIT_TIMED_OUT)


def _webhook(s: FollowSettings) -> Webhook:
    if not s.secret_file:
        raise typer.BadParameter("--webhook needs --secret-file")
    patience = Patience(
        attempt_s=seconds(s.answer_within),
        give_up_s=seconds(s.give_up_after),
    )
    return Webhook(s.webhook, s.secret_file, ca=s.receiver_ca, patience=patience, plain=s.plain)


def _marks(cut: Cut, s: FollowSettings) -> Iterator[Action]:
    """Those that are asked for. Raises ValueError."""
    # Forever is said outright, too: else the table's history.expire.max-ref-age-ms decides.
    keep_ms = FOREVER if s.keep_tags == "forever" else parse_duration_ns(s.keep_tags) // 10**6
    for template in s.mark_partition:
        yield PartitionMark(cut, template, s.marker)
    for table in s.mark_delta:
        yield DeltaMark(cut, table)
    for table in s.mark_iceberg:
        yield IcebergMark(cut, table, s.iceberg_catalog or None, s.tag or None, keep_ms)
    for place in s.mark_openlineage:
        yield LineageMark(
            cut, place, namespace=s.openlineage_namespace, outputs=s.openlineage_output
        )


def _print(period: Period) -> None:
    print_json(period.fields())
    sys.stdout.flush()
