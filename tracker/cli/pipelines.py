"""`lowmark pipelines`: registering pipelines, looking at them, beginning them anew, ending them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tracker.cli.archive import write_archive
from tracker.cli.common import (
    PipelineName,
    Yes,
    ask,
    connect,
    say,
    show,
    wrong_usage,
)
from tracker.cli.shared import Shared
from tracker.cli.slots import slot_named
from tracker.client import Admin, PipelineInfo
from tracker.client.pipeline_file import begins_now, group_named, load_pipeline
from tracker.core.model import PipelineSpec, RefusalCode
from tracker.errors import Code, InvalidError, LowmarkError, RefusedError
from tracker.view.explanations import cell_json, ranges_text
from tracker.view.pipelines import time_and_slot_text


def pipelines_apply(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Option("--file", "-f", exists=True, help="a pipeline, or a directory of *.yaml"),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show what would change, and change nothing")
    ] = False,
    drop_open: Annotated[
        bool, typer.Option("--drop-open", help="give up what is open in segments that are removed")
    ] = False,
    succeeds: Annotated[
        str | None,
        typer.Option(
            "--succeeds",
            help="a pipeline in whose place a new one comes: it begins where that is complete",
        ),
    ] = None,
) -> None:
    """Register the pipeline of a YAML file, or those of a directory, or change it while it runs. Repeating it changes
    nothing.

    A pipeline that is there becomes what its file says: segments and edges, limits, fronts. A segment that the file
    does not name any more is removed: it takes nothing more, and is drained, or dropped. What cannot change while the
    pipeline runs is refused, with what to do instead: slack, rounds and what slots count change by a pipeline of another
    name that succeeds the one that is there. It waits half a minute for that to be complete, and shows what is open then.
    """
    files = sorted(file.glob("*.yaml")) if file.is_dir() else [file]
    if not files:
        raise typer.BadParameter(f"{file} has no *.yaml")
    texts = {str(each): _text(each) for each in files}
    pipelines = [(load_pipeline(text, name), text) for name, text in texts.items()]
    _check_in_one_file(zip((spec.name for spec, _ in pipelines), texts, strict=True))
    if succeeds is not None and len(pipelines) > 1:
        raise typer.BadParameter(f"{file} has {len(pipelines)} pipelines, and one succeeds another")
    with connect(context) as admin:
        for spec, text in pipelines:
            if begins_now(text):
                spec = _as_begun(admin, spec)
            applied = admin.apply(
                spec,
                dry_run=dry_run,
                drop_open=drop_open,
                succeeds=succeeds,
                group=group_named(text),
            )
            changes, start_slot = applied.changes, applied.spec.start_slot
            outcome = "registered" if applied.created else "unchanged"
            if succeeds and applied.created:
                begins = time_and_slot_text(start_slot, applied.spec)
                outcome += f" to succeed {succeeds}, from {begins} on; write `start: slot:{start_slot}` into its file"
            if changes:
                outcome = "changed " + ", ".join(_change_text(*each) for each in changes.items())
            names = applied.spec.segments
            if dropped := applied.dropped:
                items = sum(cell.items for cell in dropped)
                slots = ranges_text((cell.slot for cell in dropped), applied.spec)
                outcome += f"; given up: {items} items, open at {slots}"
            if dry_run:
                outcome = f"would be {outcome}"
            document = {
                "pipeline": spec.name, "created": applied.created, "changes": changes, "dry_run": dry_run,
                "dropped": [cell_json(cell, names) for cell in dropped],
                "start_slot": start_slot,
            }  # fmt: skip
            show(context, document, f"pipeline {spec.name}: {outcome}")


def _check_in_one_file(files: Iterable[tuple[str, str]]) -> None:
    """files: each with the name of its pipeline, which two of them would change in turns."""
    known: dict[str, str] = {}
    for pipeline, file in files:
        if (other := known.setdefault(pipeline, file)) != file:
            raise typer.BadParameter(f"pipeline {pipeline} is in two files: {other}, {file}")


def _as_begun(admin: Admin, spec: PipelineSpec) -> PipelineSpec:
    """A pipeline that begins now; one that is there goes on where it began."""
    try:
        return replace(spec, start_slot=admin.pipeline(spec.name).spec.start_slot)
    except RefusedError as error:
        if error.refusal.code is not RefusalCode.UNKNOWN_PIPELINE:
            raise
        return spec


def _change_text(name: str, values: tuple[Any, Any]) -> str:
    old, new = values
    if not isinstance(old, list):
        return f"{name} from {old} to {new}"
    more = [f"+ {each}" for each in new if each not in old]
    less = [f"- {each}" for each in old if each not in new]
    return f"{name} ({', '.join(more + less) or 'in another order'})"


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidError(
            f"{file} is not a text in UTF-8: {error}", Code.INVALID_PIPELINE
        ) from None


def restart(
    context: typer.Context,
    pipeline: PipelineName,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="a slot, or an ISO date or time; not before min time, where it begins if not given",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Begin a pipeline anew from its min time: a new generation. What is open is dropped and listed,
    all nodes are closed and must join again, and whatever they send of before is refused.

    Fronts hear from which slot on to commit anew what they have published. Nothing that was
    announced is taken back. What is open is shown, and asked for, before it is dropped.
    """
    as_json = Shared.of(context).as_json
    if as_json and not yes:
        raise typer.BadParameter("--json cannot ask: add --yes")
    with connect(context) as admin:
        info = admin.pipeline(pipeline)
        from_slot = _from_slot(from_, info.spec)
        if not as_json:
            _say_open(info)
        if not yes:
            question = f"Drop what is open in {pipeline}, close its nodes and begin anew?"
            ask(question)
        generation, began = admin.restart(pipeline, info.state.generation, from_slot)
    show(
        context, {"pipeline": pipeline, "generation": generation, "from_slot": began},
        f"{pipeline} is in generation {generation}, from {time_and_slot_text(began, info.spec)} on; start its nodes again",
    )  # fmt: skip


def delete(
    context: typer.Context,
    pipeline: PipelineName,
    drop_open: Annotated[
        bool, typer.Option("--drop-open", help="also where something is open, which is lost then")
    ] = False,
    archive: Annotated[
        Path | None,
        typer.Option(
            "--archive",
            help="a new Parquet file, written before: what it was, its history and its ledgers",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """End a pipeline for good: its nodes and subscribers hear of it, what was kept of it goes, and its name is free.

    Refused while anything is open or a front may still label, which is listed, unless --drop-open drops it.
    """
    as_json = Shared.of(context).as_json
    if as_json and not yes:
        raise typer.BadParameter("--json cannot ask: add --yes")
    with connect(context) as admin:
        info = admin.pipeline(pipeline)
        if not yes:
            _say_open(info)
            ask(f"End {pipeline} for good, and forget what was kept of it?")
        kept = ""
        if archive is not None:
            with wrong_usage():
                kept = f"; {write_archive(admin, pipeline, archive)} rows of it are in {archive}"
        try:
            admin.delete(pipeline, info.state.generation, drop_open=drop_open)
        except RefusedError:
            if archive is not None and _is_there(admin, info):
                archive.unlink()
            raise
    show(context, {"pipeline": pipeline, "deleted": True}, f"{pipeline} is deleted{kept}")


def _is_there(admin: Admin, info: PipelineInfo) -> bool:
    """Whether a pipeline is certain to be there still, and not another one of its name: of an attempt whose answer was lost it
    may have been deleted."""
    try:
        found = admin.pipeline(info.spec.name)
    except LowmarkError:
        return False
    return found.state.generation == info.state.generation


def _say_open(info: PipelineInfo) -> None:
    for segment in info.state.segments:
        say(f"{segment.segment}: {segment.open_items} items open in {segment.open_slots} slots")


def _from_slot(text: str | None, spec: PipelineSpec) -> int | None:
    if text is None:
        return None
    with wrong_usage():
        return slot_named(text, spec)
