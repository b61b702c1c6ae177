"""All commands put together."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from tracker import __version__
from tracker.cli import (
    attach,
    explain,
    fit,
    freshness,
    nodes,
    periods,
    pipelines,
    rescale,
    rescale_query,
    security,
    serve,
    wait,
    watch,
    webhook,
)
from tracker.cli.common import EXIT_UNAVAILABLE, AsJson, fail, show
from tracker.cli.store import store_app
from tracker.client import LowmarkError, UnavailableError
from tracker.store import StoreError


class _Commands(TyperGroup):
    """Errors of the client and of stores become one line and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UnavailableError as error:
            fail(error, EXIT_UNAVAILABLE)
        except (LowmarkError, StoreError, ValueError) as error:
            fail(error)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    help="Lowmark tells up to which moment everything that entered a pipeline is processed.",
)
app.add_typer(pipelines.pipelines_app, name="pipelines")
app.add_typer(nodes.nodes_app, name="nodes")
app.callback()(security.use_credentials)
app.command()(serve.serve)
app.command()(explain.explain)
app.command()(freshness.freshness)
app.command("min-time")(wait.min_time)
app.command()(wait.wait)
app.command()(rescale.shards)
app.command()(rescale.rescale)
app.command()(fit.fit)
app.command("rescale-query")(rescale_query.rescale_query)
app.add_typer(store_app, name="store")
app.add_typer(security.tokens_app, name="tokens")
app.add_typer(periods.periods_app, name="periods")
app.add_typer(webhook.webhook_app, name="webhook")


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


app.command()(attach.attach)
app.command()(watch.watch)
