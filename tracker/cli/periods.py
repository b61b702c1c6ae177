"""The commands about periods: when which hour was complete, and marks of each where readers look."""

from __future__ import annotations

import sys
from collections.abc import Callable
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


TYPED = ("pipeline", "segment", "record", "every", "since", "mark", "webhook", "timeout")
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
    mark: list[str] = Field(
        [],
        description="where each period is marked; may be repeated. partition:LOCATION/dt={start:%Y-%m-%d}/hour={start:%H}: a "
        "file in its folder; delta:LOCATION of a table: a commit without rows; iceberg:TABLE, as its catalog knows it: a "
        "snapshot and a tag; openlineage:URL of a receiver, or a directory for files of events: a run",
    )
    marker: str = Field(SUCCESS, description="with partition: name of the files")
    iceberg_catalog: str = Field(
        "",
        description="with iceberg: its catalog, by pyiceberg's configuration; none: the default one",
    )
    tag: str = Field(
        "",
        description="with iceberg: template of the tags; none: lowmark- and the period's start, such as 2026-03-01T13",
    )
    keep_tags: str = Field(
        "30d", description="with iceberg: how long expiring snapshots spares a tag: 30d, or forever"
    )
    openlineage_namespace: str = Field(
        NAMESPACE,
        description="with openlineage: namespace of the jobs (OPENLINEAGE_NAMESPACE)",
    )
    openlineage_output: list[str] = Field(
        [],
        description="with openlineage: location of a data set that a complete period is in, such as s3://lake/orders",
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
        marks = [_mark(s, text) for text in s.mark]
        periods = Periods(target, pipeline, segment, s.every, s.record, since=begin)
    with periods:
        with wrong_usage():
            actions = [*(mark(periods.cut) for mark in marks), *([webhook] if webhook else [])]
        try:
            periods.run(*actions, Call(_print), timeout_s=seconds(s.timeout) if s.timeout else None)
        except UnavailableError as error:
            if error.code != Code.UNAVAILABLE_RECEIVER:
                raise
            fail(error, EXIT_TIMED_OUT)


def _webhook(s: FollowSettings) -> Webhook:
    if not s.secret_file:
        raise typer.BadParameter("--webhook needs --set secret_file=FILE")
    patience = Patience(
        attempt_s=seconds(s.answer_within),
        give_up_s=seconds(s.give_up_after),
    )
    return Webhook(s.webhook, s.secret_file, ca=s.receiver_ca, patience=patience, plain=s.plain)


def _mark(s: FollowSettings, text: str) -> Callable[[Cut], Action]:
    """What makes the one that is asked for. Raises ValueError."""
    kind, _, place = text.partition(":")
    match kind if place else "":
        case "partition":
            return lambda cut: PartitionMark(cut, place, s.marker)
        case "delta":
            return lambda cut: DeltaMark(cut, place)
        case "iceberg":
            # Forever is said outright, too: else the table's history.expire.max-ref-age-ms decides.
            forever = s.keep_tags == "forever"
            keep_ms = FOREVER if forever else parse_duration_ns(s.keep_tags) // 10**6
            catalog, tag = s.iceberg_catalog or None, s.tag or None
            return lambda cut: IcebergMark(cut, place, catalog, tag, keep_ms)
        case "openlineage":
            namespace, outputs = s.openlineage_namespace, s.openlineage_output
            return lambda cut: LineageMark(cut, place, namespace=namespace, outputs=outputs)
    raise ValueError(
        f"--mark {text!r} is none of partition:FOLDERS, delta:LOCATION, iceberg:TABLE and openlineage:URL"
    )


def _print(period: Period) -> None:
    print_json(period.fields())
    sys.stdout.flush()
