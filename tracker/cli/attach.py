"""`lowmark attach`: following a Spark query that knows nothing of Lowmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tracker.cli.common import (
    PipelineName,
    fail,
    say,
    show,
    told_to_end,
)
from tracker.cli.shared import Shared
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

Ranges = Annotated[
    list[str] | None,
    typer.Option(
        help="SOURCE=SEGMENT:JOURNAL: the number of a source whose offsets number its records, "
        "their segment, and the journal of the front that labels them"
    ),
]
Topic = Annotated[
    list[str] | None,
    typer.Option(
        help="SOURCE=SEGMENT:TOPIC: a Kafka topic that a source reads, by its number, and the segment of the "
        "topic's records; may be repeated, for one source too"
    ),
]
Topics = Annotated[
    str | None,
    typer.Option(help="the directory in which it is recorded what is labelled of Kafka topics"),
]
FromEarliest = Annotated[
    bool,
    typer.Option(
        "--from-earliest", help="the query began to read its topics at startingOffsets=earliest"
    ),
]
Untracked = Annotated[
    list[str] | None,
    typer.Option(
        help="what min time is to pass: a source by its number, or a directory of its files"
    ),
]
Sink = Annotated[
    str | None, typer.Option(help="directory of its file sink, or location of its table")
]
Starting = Annotated[
    list[str] | None,
    typer.Option(
        help="SOURCE=VERSION: with which version the reader of a table was told to begin (its "
        "startingVersion); without it, a source reads the table as it was first"
    ),
]
State = Annotated[
    str | None,
    typer.Option(
        help="delay=5s,span=1h,ahead=1m: by how much the query's watermark is behind, how long after its event time "
        "a row has been emitted that is in its state, and how far event times may be ahead of the clock; without it, min time does not wait for what is there"
    ),
]


def attach(
    context: typer.Context,
    checkpoint: Annotated[str, typer.Option(help="the query's checkpoint directory")],
    pipeline: PipelineName,
    node_id: Annotated[
        str, typer.Option(help="the node that the query is, the same at each start")
    ],
    reads: Annotated[
        list[str] | None,
        typer.Option(help="the segment of its input files, or DIRECTORY=SEGMENT for each source"),
    ] = None,
    ranges: Ranges = None,
    topic: Topic = None,
    topics: Topics = None,
    from_earliest: FromEarliest = False,
    creates: Annotated[
        list[str] | None, typer.Option(help="a segment that reads its sink; may be repeated")
    ] = None,
    sink: Sink = None,
    starting: Starting = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(help="SEGMENT=COLUMN: its items are rows, with their slots in a column"),
    ] = None,
    untracked: Untracked = None,
    state: State = None,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="end another query that is followed under this node id"),
    ] = False,
    from_batch: Annotated[
        int | None, typer.Option(min=0, help="begin at this batch; those before are not told")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="end when all that is over by now is told")
    ] = False,
) -> None:
    """Follow a Spark query that knows nothing of Lowmark, from its checkpoint and its sink's log, until
    SIGTERM. Needs no Spark."""

    from local_tracker.spark.session.attached import AttachedQuery

    if not reads and not ranges and not topic:
        raise typer.BadParameter(
            "tell what the query reads: --reads, --ranges, or both; topics by --topic"
        )
    sources: dict[str, OffsetRanges | Sequence[OffsetRanges]] = {
        **_ranges(ranges or []), **_topics(topic or [], topics, pipeline, from_earliest)
    }  # fmt: skip
    ended = told_to_end()
    if not once and not _wait_begun(checkpoint, node_id, ended):
        return
    try:
        followed = AttachedQuery(
            Shared.of(context).target, pipeline, node_id, checkpoint,
            reads=_reads(reads or []), ranges=sources, creates=creates or (), sink=sink,
            rows=name_values("--rows", rows or []), untracked=untracked or (), first_batch=from_batch,
            first_versions=_versions(starting or []), take_over=take_over,
            state=_state(state),
        ).start()  # fmt: skip
        clean = _follow(followed, once, ended)
    except (TrackingError, FilesError) as error:
        fail(error)
    last = followed.last_durable_batch
    show(context, {"node": node_id, "last_batch": last}, f"{node_id}: told up to batch {last}")
    if not clean:
        fail(f"{node_id}: not all batches that are over are told; start again to tell the rest")


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
    return given[0] if len(given) == 1 and "=" not in given[0] else name_values("--reads", given)


def _ranges(given: list[str]) -> dict[str, OffsetRanges]:
    from local_tracker.spark.formats.ranges import OffsetRanges, PublishedRanges

    sources = {}
    for number, where in name_values("--ranges", given).items():
        segment, journal = _of_segment("--ranges", number, where, "JOURNAL")
        sources[number] = OffsetRanges(segment, PublishedRanges(journal).slots)
    return sources


def _topics(
    given: list[str], topics: str | None, pipeline: str, from_earliest: bool
) -> dict[str, Sequence[OffsetRanges]]:
    """By the numbers of the sources: what is recorded of the topics that each reads."""
    from local_tracker.spark.formats.kafka import topic_ranges

    found: dict[str, list[OffsetRanges]] = {}
    for text in given:
        ((number, where),) = name_values("--topic", [text]).items()
        segment, topic = _of_segment("--topic", number, where, "TOPIC")
        if topics is None:
            raise typer.BadParameter(
                f"--topic {text} needs --topics, the directory in which its front, or the query that writes "
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
    pairs = name_values("--starting", given)
    for source, version in pairs.items():
        if not version.isdigit():
            raise typer.BadParameter(f"--starting {source}={version!r} is not SOURCE=VERSION")
    return {source: int(version) for source, version in pairs.items()}


def _state(given: str | None) -> HeldFor | None:
    from local_tracker.spark.state.rules import HeldFor

    try:
        return None if given is None else HeldFor.parse(given)
    except ValueError as error:
        raise typer.BadParameter(f"--state: {error}") from None


def name_values(option: str, given: list[str]) -> dict[str, str]:
    """`NAME=VALUE` texts as a mapping; a name may hold `=` itself."""
    pairs = [text.rpartition("=") for text in given]
    if bad := [text for text, pair in zip(given, pairs, strict=True) if not pair[0] or not pair[2]]:
        raise typer.BadParameter(f"{option} {bad[0]!r} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}
