"""`lowmark pipelines`: registering pipelines and looking at them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tracker.cli.common import ANSWER_TIMEOUT_S, DEFAULT_TARGET, AsJson, Target, print_json
from tracker.client import Admin
from tracker.client.pipeline_file import load_pipeline

pipelines_app = typer.Typer(no_args_is_help=True, help="Register pipelines and look at them.")


def look(admin: Admin, pipeline: str, history: Any, as_json: bool) -> bool:
    """Shows a pipeline once; returns whether it is complete."""
    from tracker.cli.render.pipelines import pipeline_view
    from tracker.view.pipelines import pipeline_json, shards_json

    info, shards = history.take(admin.pipeline(pipeline)), admin.shards()
    if as_json:
        print_json({**pipeline_json(info), "shards": shards_json(shards)})
        sys.stdout.flush()
    else:
        Console().print(pipeline_view(info, shards, history))
    return bool(info.state.complete)


@pipelines_app.command("apply")
def pipelines_apply(
    file: Annotated[
        Path,
        typer.Option("--file", "-f", exists=True, help="a pipeline, or a directory of *.yaml"),
    ],
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Register the pipeline of a YAML file, or those of a directory. Repeating it changes nothing.

    Of a pipeline that is there the limits may be changed while it runs: horizon_slots, max_open_cells,
    max_open_units, max_nodes and max_staged. Whatever else differs is refused.
    """
    files = sorted(file.glob("*.yaml")) if file.is_dir() else [file]
    if not files:
        raise typer.BadParameter(f"{file} has no *.yaml")
    specs = [load_pipeline(each.read_text(), str(each)) for each in files]
    with Admin(target, ANSWER_TIMEOUT_S) as admin:
        for spec in specs:
            applied = admin.apply(spec)
            changes = applied.changes
            if as_json:
                print_json({"pipeline": spec.name, "created": applied.created, "changes": changes})
                continue
            said = "registered" if applied.created else "unchanged"
            if changes:
                texts = (f"{name} from {old} to {new}" for name, (old, new) in changes.items())
                said = f"changed {', '.join(texts)}"
            typer.echo(f"pipeline {spec.name}: {said}")


@pipelines_app.command("list")
def pipelines_list(target: Target = DEFAULT_TARGET, as_json: AsJson = False) -> None:
    """List the pipelines."""
    from tracker.cli.render.pipelines import pipelines_table
    from tracker.view.pipelines import pipeline_json

    with Admin(target, ANSWER_TIMEOUT_S) as admin:
        pipelines = admin.pipelines()
    if as_json:
        print_json([pipeline_json(info) for info in pipelines])
    else:
        Console().print(pipelines_table(pipelines))


@pipelines_app.command("show")
def pipelines_show(
    pipeline: Annotated[str, typer.Argument(help="name of the pipeline")],
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Show one pipeline and its state; as registered too, with --json."""
    from tracker.view.pipelines import WatchHistory

    with Admin(target, ANSWER_TIMEOUT_S) as admin:
        look(admin, pipeline, WatchHistory(), as_json)
