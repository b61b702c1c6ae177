"""All commands put together."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

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
    store,
    wait,
    watch,
    webhook,
)
from tracker.cli.common import EXIT_UNAVAILABLE, fail, show
from tracker.cli.shared import Asks, Follows, Prints
from tracker.client import LowmarkError, UnavailableError
from tracker.store import StoreError


class _Commands(TyperGroup):
    """Errors of the client, of stores and of files become one line and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UnavailableError as error:
            fail(error, EXIT_UNAVAILABLE)
        except (LowmarkError, StoreError, ValueError) as error:
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


def version(context: typer.Context) -> None:
    """Print the version."""
    show(context, {"version": __version__}, __version__)


def local_tracker(context: typer.Context) -> None:
    """Run a local tracker (`lowmark local-tracker --help` lists its options)."""
    from local_tracker.agent.main import main as run_agent

    raise typer.Exit(run_agent(context.args))


Command = tuple[str, Callable[..., None], type[TyperCommand]]

VERBS: list[Command] = [
    ("dev", dev.dev, Prints),
    ("init", init.init, Prints),
    ("serve", serve.serve, Prints),
    ("status", status.status, Asks),
    ("watch", watch.watch, Asks),
    ("explain", explain.explain, Asks),
    ("wait", wait.wait, Follows),
    ("min-time", wait.min_time, Asks),
    ("freshness", freshness.freshness, Asks),
    ("shards", rescale.shards, Asks),
    ("rescale", rescale.rescale, Asks),
    ("fit", fit.fit, Asks),
    ("rescale-query", rescale_query.rescale_query, Follows),
    ("attach", attach.attach, Follows),
    ("attach-pipeline", attach_pipeline.attach_pipeline, Follows),
    ("version", version, Prints),
]
NOUNS: dict[tuple[str, str], list[Command]] = {
    ("pipelines", "Register pipelines and look at them."): [
        ("apply", pipelines.pipelines_apply, Asks),
        ("list", pipelines.pipelines_list, Asks),
        ("show", pipelines.pipelines_show, Asks),
        ("restart", pipelines.restart, Asks),
    ],
    ("nodes", "Look after nodes that are gone."): [("retire", nodes.retire, Asks)],
    ("store", "Export and import the stores of shards whose processes are stopped."): [
        ("export", store.export_command, Prints),
        ("import", store.import_command, Prints),
        ("accept-loss", store.accept_loss_command, Prints),
    ],
    ("periods", "Hours, or other periods, and when they were complete."): [
        ("list", periods.periods_list, Asks),
        ("follow", periods.periods_follow, Follows),
    ],
    ("webhook", "Post each hour to a URL when it is complete, signed."): [
        ("secret", webhook.secret, TyperCommand),
        ("follow", webhook.follow, Follows),
    ],
    ("barrier", "Write rows of tracked queries into a sink in the order of time, each once."): [
        ("run", barrier.run, Follows),
        ("late", barrier.late_command, Prints),
    ],
    ("credentials", "Make certificates and tokens."): [
        ("create", credentials.create, TyperCommand),
    ],
    ("tokens", "Make tokens for clients."): [("create", security.create, TyperCommand)],
    ("export", "Tell other systems how far pipelines are."): [("otlp", export.otlp, Asks)],
}  # fmt: skip

for name, run, kind in VERBS:
    app.command(name, cls=kind)(run)
for (noun, text), commands in NOUNS.items():
    group = typer.Typer(no_args_is_help=True, help=text)
    for name, run, kind in commands:
        group.command(name, cls=kind)(run)
    app.add_typer(group, name=noun)
app.command(
    "local-tracker",
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    },
)(local_tracker)


def main() -> None:
    """The entry point."""
    app()
