"""All commands put together."""

from __future__ import annotations

import errno
from typing import Any

import typer
from typer.core import TyperGroup

from tracker import __version__
from tracker.cli import (
    attach,
    attach_pipeline,
    barrier,
    credentials,
    dev,
    explain,
    export,
    fit,
    freshness,
    init,
    nodes,
    periods,
    pipelines,
    rescale,
    rescale_query,
    security,
    serve,
    status,
    wait,
    watch,
    webhook,
)
from tracker.cli.common import EXIT_UNAVAILABLE, AsJson, fail, show
from tracker.cli.store import store_app
from tracker.client import LowmarkError, UnavailableError
from tracker.files import FilesError
from tracker.store import StoreError


class _Commands(TyperGroup):
    """Errors of the client, of stores and of files become one line and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UnavailableError as error:
            fail(error, EXIT_UNAVAILABLE)
        except (FilesError, LowmarkError, StoreError, ValueError) as error:
            fail(error)
        except OSError as error:
            if error.errno == errno.EPIPE:  # whoever reads what is printed has seen enough
                raise
            fail(f"{error.filename}: {error.strerror}" if error.filename else error)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Lowmark tells up to which moment everything that entered a pipeline is processed.",
)
app.callback()(security.use_credentials)
for command in (
    dev.dev, init.init, serve.serve, explain.explain, freshness.freshness, wait.min_time, wait.wait, rescale.shards,
    rescale.rescale, fit.fit, rescale_query.rescale_query, attach.attach, attach_pipeline.attach_pipeline,
    watch.watch, status.status,
):  # fmt: skip
    app.command()(command)
for name, group in (
    ("pipelines", pipelines.pipelines_app), ("nodes", nodes.nodes_app), ("store", store_app),
    ("tokens", security.tokens_app), ("periods", periods.periods_app), ("webhook", webhook.webhook_app),
    ("barrier", barrier.barrier_app), ("credentials", credentials.credentials_app), ("export", export.export_app),
):  # fmt: skip
    app.add_typer(group, name=name)


def main() -> None:
    """The entry point."""
    app()


@app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version."""
    show(as_json, {"version": __version__}, __version__)


@app.command(
    "local-tracker",
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    },
)
def local_tracker(context: typer.Context) -> None:
    """Run a local tracker (`lowmark local-tracker --help` lists its options)."""
    from local_tracker.agent.main import main as run_agent

    raise typer.Exit(run_agent(context.args))
