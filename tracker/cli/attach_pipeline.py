"""`lowmark query attach --storage`: following all flows of a declarative pipeline of Spark's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tracker.cli.attach import (
    ATTACH_DRAIN_TIMEOUT_S,
    ATTACH_LOOK_INTERVAL_S,
    AttachSettings,
    name_values,
)
from tracker.cli.common import (
    connect,
    fail,
    say,
    show,
    told_to_end,
    wrong_usage,
)
from tracker.cli.shared import Shared
from tracker.client import RefusedError
from tracker.client.moments import parse_slot
from tracker.client.signals import ToldToEnd
from tracker.core.model import PipelineSpec, RefusalCode
from tracker.core.model.slots import DEFAULT_SLACK_NS
from tracker.errors import TrackingError
from tracker.files import AwayError

if TYPE_CHECKING:
    from local_tracker.spark.session.declarative import FollowedPipeline
    from local_tracker.spark.session.flows import Tables

LOOK_INTERVAL_S = 2.0
"""How often new flows and versions are looked for: a listing of each folder, and a read of each version."""


def attach_pipeline(context: typer.Context, pipeline: str, s: AttachSettings) -> None:
    """Follows all flows of a declarative pipeline, and registers the pipeline that they make, unless one of its name is
    there."""

    from local_tracker.spark.session.flows import Tables
    from tracker.files import FilesError

    with wrong_usage():
        start_slot = parse_slot(s.start, DEFAULT_SLACK_NS, 1)
        tables = Tables(s.warehouse, name_values("table", s.table))
    try:
        if s.print_only:
            _print(pipeline, s.storage, tables, s.untracked, start_slot)
            return
        followed = _followed(context, pipeline, s.storage, tables, s.untracked, start_slot)
        if s.from_now:
            followed.begin_now()
        ended = told_to_end()
        last, clean = _follow(followed, s.once, ended)
    except (TrackingError, FilesError) as error:
        fail(error)
    shown = "\n".join(f"{name}: committed up to batch {batch}" for name, batch in last.items())
    show(context, {"last_batches": last}, shown or "no flow has begun")
    if not clean:
        fail("some batches that are over are not committed; start again for the rest")


def _print(
    pipeline: str, storage: str, tables: Tables, untracked: list[str], start_slot: int
) -> None:
    from local_tracker.spark.session.flows import (
        derived_pipeline,
        find_flows,
        pipeline_text,
        what_flows_read,
    )

    reads = what_flows_read(find_flows(storage), tables)
    derived = derived_pipeline(pipeline, reads, untracked, start_slot)
    say(pipeline_text(derived, reads, untracked), nl=False)


def _followed(
    context: typer.Context,
    pipeline: str,
    storage: str,
    tables: Tables,
    untracked: list[str],
    start_slot: int,
) -> FollowedPipeline:
    """The pipeline as registered, or else as it is derived. Nothing is followed yet."""
    from local_tracker.spark.session.declarative import FollowedPipeline, check_edges
    from local_tracker.spark.session.flows import derived_pipeline, find_flows, what_flows_read

    reads = what_flows_read(find_flows(storage), tables)
    spec = _registered(context, pipeline)
    if spec is None:
        spec = _register(context, derived_pipeline(pipeline, reads, untracked, start_slot))
    check_edges(spec, reads)
    return FollowedPipeline(Shared.of(context).target, spec, storage, tables, untracked=untracked)


def _registered(context: typer.Context, pipeline: str) -> PipelineSpec | None:
    with connect(context) as admin:
        try:
            return admin.pipeline(pipeline).spec
        except RefusedError as error:
            if error.refusal.code is not RefusalCode.UNKNOWN_PIPELINE:
                raise
            return None


def _register(context: typer.Context, spec: PipelineSpec) -> PipelineSpec:
    if not spec.segments:
        fail(
            "the storage shows no flow with a checkpoint yet, and the tracker has no such pipeline: run it "
            "once, or register its file (lowmark pipelines apply)"
        )
    with connect(context) as admin:
        registered, _ = admin.register(spec)
    say(f"registered pipeline {spec.name}: {', '.join(spec.segments)}", err=True)
    return registered


def _follow(
    followed: FollowedPipeline, once: bool, ended: ToldToEnd
) -> tuple[dict[str, int], bool]:
    """Until the command is ended, or with `once` until all that is over is committed. Returns the last
    batch of each flow that was told, and whether all that is over has been."""
    try:
        while not ended.is_set():
            try:
                followed.look()
            except AwayError as error:  # its queries wait for the store, too
                say(f"the storage is away, and looked at again: {error}", err=True)
                ended.wait(LOOK_INTERVAL_S)
                continue
            if not once:
                ended.wait(LOOK_INTERVAL_S)
            elif followed.wait_durable(ATTACH_LOOK_INTERVAL_S):
                break
    finally:
        last = {name: query.last_durable_batch for name, query in followed.queries.items()}
        clean = followed.close(ATTACH_DRAIN_TIMEOUT_S)
    return last, clean
