"""`lowmark query attach`: following Spark queries that know nothing of Lowmark, from their checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer
from pydantic import Field

from tracker.cli.common import fail, only_pipeline, say, show, told_to_end
from tracker.cli.declared import by_settings
from tracker.cli.shared import Shared
from tracker.client.settings import Settings
from tracker.client.signals import ToldToEnd
from tracker.errors import TrackingError
from tracker.files import FilesError

if TYPE_CHECKING:
    from local_tracker.spark.formats.ranges import OffsetRanges
    from local_tracker.spark.session.attached import AttachedQuery
    from local_tracker.spark.state.rules import HeldFor

ATTACH_LOOK_INTERVAL_S = 0.5
"""How often `attach` looks whether following has failed."""
ATTACH_DRAIN_TIMEOUT_S = 5.0
"""How long `attach` goes on committing what is over when it is told to end."""

TYPED = (
    "checkpoint", "pipeline", "node_id", "reads", "creates", "sink", "storage", "warehouse", "take_over", "once",
)  # fmt: skip
"""The settings that are options as well: what one types by hand."""


class AttachSettings(Settings):
    """The settings of `lowmark query attach`."""

    checkpoint: str = Field("", description="the query's checkpoint directory")
    pipeline: str = Field("", description="name of the pipeline; not needed where there is one")
    node_id: str = Field("", description="the node that the query is, the same at each start")
    reads: list[str] = Field(
        [], description="the segment of its input files, or DIRECTORY=SEGMENT for each source"
    )
    ranges: list[str] = Field(
        [],
        description="SOURCE=SEGMENT:JOURNAL: the number of a source whose offsets number its records, "
        "their segment, and the journal of the front that labels them",
    )
    topic: list[str] = Field(
        [],
        description="SOURCE=SEGMENT:TOPIC: a Kafka topic that a source reads, by its number, and the segment of the "
        "topic's records; several for one source, too",
    )
    topics: str = Field(
        "", description="the directory in which it is recorded what is labelled of Kafka topics"
    )
    from_earliest: bool = Field(
        False, description="the query began to read its topics at startingOffsets=earliest"
    )
    creates: list[str] = Field([], description="a segment that reads its sink; may be repeated")
    sink: str = Field("", description="directory of its file sink, or location of its table")
    starting: list[str] = Field(
        [],
        description="SOURCE=VERSION: the version with which the reader of a table began (its "
        "startingVersion); without it, a source reads the table as it was first",
    )
    rows: list[str] = Field(
        [], description="SEGMENT=COLUMN: its items are rows, with their slots in a column"
    )
    untracked: list[str] = Field(
        [],
        description="what min time is to pass: a source by its number, or a directory of its files; with storage "
        "FLOW=NUMBER of a source of a flow",
    )
    state: str = Field(
        "",
        description="delay=5s,span=1h,ahead=1m: by how much the query's watermark is behind, how long after its event "
        "time a row has been emitted that is in its state, and how far event times may be ahead of the clock; without "
        "it, min time does not wait for what is there",
    )
    take_over: bool = Field(
        False, description="end another query that is followed under this node id"
    )
    from_batch: int | None = Field(
        None, ge=0, description="begin at this batch; those before are left out"
    )
    once: bool = Field(False, description="end when all that is over by now is committed")
    storage: str = Field(
        "",
        description="instead of a checkpoint: the `storage` of a declarative pipeline's spark-pipeline.yml",
    )
    warehouse: str = Field(
        "spark-warehouse",
        description="with storage: the directory of its tables (spark.sql.warehouse.dir)",
    )
    table: list[str] = Field([], description="with storage: TABLE=DIRECTORY of a table elsewhere")
    start: str = Field(
        "now",
        description="with storage: where a new pipeline begins: slot:N, an ISO date or time, or now",
    )
    print_only: bool = Field(
        False, description="with storage: print the pipeline's file, and do nothing"
    )
    from_now: bool = Field(
        False,
        description="with storage: what the pipeline has done so far is left out; it is at rest",
    )


OF_A_QUERY = {
    "checkpoint", "node_id", "reads", "ranges", "topic", "topics", "from_earliest", "creates", "sink", "starting",
    "rows", "state", "take_over", "from_batch",
}  # fmt: skip
OF_A_STORAGE = {"storage", "warehouse", "table", "start", "print_only", "from_now"}


@by_settings(AttachSettings, TYPED)
def attach(context: typer.Context, settings: AttachSettings) -> None:
    """Follow a Spark query that knows nothing of Lowmark, from its checkpoint and its sink's log, until
    SIGTERM. Needs no Spark.

    With --storage: all flows of a declarative pipeline (spark-pipelines run), from their checkpoints and tables, new
    versions and full refreshes too. The pipeline that they make is registered, unless one of its name is there.
    """
    s = settings
    if bool(s.checkpoint) == bool(s.storage):
        raise typer.BadParameter(
            "give --checkpoint of a query, or --storage of a declarative pipeline"
        )
    kind, others = ("storage", OF_A_QUERY) if s.storage else ("checkpoint", OF_A_STORAGE)
    if wrong := sorted(s.model_fields_set & others):
        raise typer.BadParameter(f"{', '.join(wrong)}: not with {kind}")
    pipeline = only_pipeline(context, s.pipeline)
    if s.storage:
        from tracker.cli.attach_pipeline import attach_pipeline

        return attach_pipeline(context, pipeline, s)
    _attach(context, pipeline, s)


def _attach(context: typer.Context, pipeline: str, s: AttachSettings) -> None:

    from local_tracker.spark.session.attached import AttachedQuery

    if not s.node_id:
        raise typer.BadParameter("name the node that the query is: --node-id")
    if not s.reads and not s.ranges and not s.topic:
        raise typer.BadParameter(
            "tell what the query reads: --reads, ranges, or both; topics by topic (docs/settings.md)"
        )
    sources: dict[str, OffsetRanges | Sequence[OffsetRanges]] = {
        **_ranges(s.ranges), **_topics(s.topic, s.topics, pipeline, s.from_earliest)
    }  # fmt: skip
    ended = told_to_end()
    if not s.once and not _wait_begun(s.checkpoint, s.node_id, ended):
        return
    try:
        followed = AttachedQuery(
            Shared.of(context).target, pipeline, s.node_id, s.checkpoint,
            reads=_reads(s.reads), ranges=sources, creates=s.creates, sink=s.sink or None,
            rows=name_values("rows", s.rows), untracked=s.untracked, first_batch=s.from_batch,
            first_versions=_versions(s.starting), take_over=s.take_over,
            state=_state(s.state),
        ).start()  # fmt: skip
        clean = _follow(followed, s.once, ended)
    except (TrackingError, FilesError) as error:
        fail(error)
    last = followed.last_durable_batch
    text = f"{s.node_id}: committed up to batch {last}"
    show(context, {"node": s.node_id, "last_batch": last}, text)
    if not clean:
        fail(f"{s.node_id}: some batches that are over are not committed; start again for the rest")


def _wait_begun(checkpoint: str, node_id: str, ended: ToldToEnd) -> bool:
    """Waits for a query to begin there; returns whether one has, before the command was ended."""
    from local_tracker.spark.query.logs import CheckpointLog

    log = CheckpointLog(checkpoint)
    if not log.exists():
        say(f"{node_id}: waits for a query to begin in {log.root}", err=True)
    while not log.exists():
        if ended.wait(ATTACH_LOOK_INTERVAL_S):
            return False
    return True


def _follow(followed: AttachedQuery, once: bool, ended: ToldToEnd) -> bool:
    """Until the command is ended, or with `once` until all that is over is committed. Returns whether
    all that is over has been committed. Raises TrackingError if following has failed."""
    try:
        while not ended.is_set() and followed.failure is None:
            if not once:
                ended.wait(ATTACH_LOOK_INTERVAL_S)
            elif followed.wait_durable(ATTACH_LOOK_INTERVAL_S):
                break
    finally:
        clean = followed.close(ATTACH_DRAIN_TIMEOUT_S)
    if followed.failure is not None:
        raise followed.failure
    return clean


def _reads(given: list[str]) -> str | dict[str, str]:
    return given[0] if len(given) == 1 and "=" not in given[0] else name_values("reads", given)


def _ranges(given: list[str]) -> dict[str, OffsetRanges]:
    from local_tracker.spark.formats.ranges import OffsetRanges, PublishedRanges

    sources = {}
    for number, where in name_values("ranges", given).items():
        segment, journal = _of_segment("ranges", number, where, "JOURNAL")
        sources[number] = OffsetRanges(segment, PublishedRanges(journal).slots)
    return sources


def _topics(
    given: list[str], topics: str, pipeline: str, from_earliest: bool
) -> dict[str, Sequence[OffsetRanges]]:
    """By the numbers of the sources: what is recorded of the topics that each reads."""
    from local_tracker.spark.formats.kafka import topic_ranges

    found: dict[str, list[OffsetRanges]] = {}
    for text in given:
        ((number, where),) = name_values("topic", [text]).items()
        segment, topic = _of_segment("topic", number, where, "TOPIC")
        if not topics:
            raise typer.BadParameter(
                f"topic {text} needs topics, the directory in which its front, or the query that writes "
                f"it, records what it labels"
            )
        labels = topic_ranges(topics, pipeline, topic, segment, from_earliest=from_earliest)
        found.setdefault(number, []).append(labels)
    return {number: tuple(labels) for number, labels in found.items()}


def _of_segment(option: str, source: str, where: str, what: str) -> tuple[str, str]:
    segment, colon, name = where.partition(":")
    if not colon or not segment or not name:
        raise typer.BadParameter(f"{option} {source}={where!r} is not SOURCE=SEGMENT:{what}")
    return segment, name


def _versions(given: list[str]) -> dict[str, int]:
    pairs = name_values("starting", given)
    for source, version in pairs.items():
        if not version.isdigit():
            raise typer.BadParameter(f"starting {source}={version!r} is not SOURCE=VERSION")
    return {source: int(version) for source, version in pairs.items()}


def _state(given: str) -> HeldFor | None:
    from local_tracker.spark.state.rules import HeldFor

    try:
        return HeldFor.parse(given) if given else None
    except ValueError as error:
        raise typer.BadParameter(f"state: {error}") from None


def name_values(option: str, given: list[str]) -> dict[str, str]:
    """`NAME=VALUE` texts as a mapping; a name may hold `=` itself."""
    pairs = [text.rpartition("=") for text in given]
    if bad := [text for text, pair in zip(given, pairs, strict=True) if not pair[0] or not pair[2]]:
        raise typer.BadParameter(f"{option} {bad[0]!r} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}
