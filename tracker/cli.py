"""The command line: `lowmark`. Every command that shows something has `--json` for scripts.

Exit status: 0 done; 1 refused, or what was given cannot be; 2 wrong usage; 3 `wait` ran out of time;
4 no process of the tracker answered; 5 `wait`: a front is silent, so it will not be reached.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    from rich.console import Console
    from rich.live import Live
    from typer.core import TyperGroup
except ImportError as missing:  # an executor installs the client alone
    raise SystemExit(
        f"the lowmark command needs {missing.name}: pip install 'lowmark[server]'"
    ) from None

from tracker import (
    __version__,
    cli_fit,
    cli_freshness,
    cli_operations,
    cli_periods,
    cli_rescale,
    cli_rescale_query,
    cli_security,
    cli_serve,
    cli_wait,
    cli_webhook,
)
from tracker.cli_common import (
    ANSWER_TIMEOUT_S,
    DEFAULT_TARGET,
    EXIT_REFUSED,
    EXIT_UNAVAILABLE,
    AsJson,
    PipelineName,
    Target,
    fail,
    print_json,
)
from tracker.cli_store import store_app
from tracker.client import Admin, LowmarkError, UnavailableError
from tracker.pipeline_file import load_pipeline

ATTACH_LOOK_INTERVAL_S = 0.5
"""How often `attach` looks whether following has failed."""
ATTACH_DRAIN_TIMEOUT_S = 5.0
"""How long `attach` goes on committing what is over when it is told to end."""
WATCH_TIMEOUT_S = 2.0
"""How long one look of `watch` may take before it says that the tracker does not answer."""


class _Commands(TyperGroup):
    """Errors of the client become one line and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UnavailableError as error:
            fail(error, EXIT_UNAVAILABLE)
        except (LowmarkError, ValueError) as error:
            fail(error, EXIT_REFUSED)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    help="Lowmark tells up to which moment everything that entered a pipeline is processed.",
)
pipelines_app = typer.Typer(no_args_is_help=True, help="Register pipelines and look at them.")
app.add_typer(pipelines_app, name="pipelines")
app.add_typer(cli_operations.nodes_app, name="nodes")
app.callback()(cli_security.use_credentials)
app.command()(cli_serve.serve)
app.command()(cli_operations.explain)
app.command()(cli_freshness.freshness)
app.command("min-time")(cli_wait.min_time)
app.command()(cli_wait.wait)
app.command()(cli_rescale.shards)
app.command()(cli_rescale.rescale)
app.command()(cli_fit.fit)
app.command("rescale-query")(cli_rescale_query.rescale_query)
pipelines_app.command("restart")(cli_operations.restart)
app.add_typer(store_app, name="store")
app.add_typer(cli_security.tokens_app, name="tokens")
app.add_typer(cli_periods.periods_app, name="periods")
app.add_typer(cli_webhook.webhook_app, name="webhook")


def main() -> None:
    """The entry point."""
    app()


@app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version."""
    if as_json:
        print_json({"version": __version__})
    else:
        typer.echo(__version__)


# --- processes ------------------------------------------------------------------------------------


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


@app.command()
def attach(
    checkpoint: Annotated[str, typer.Option(help="the query's checkpoint directory")],
    pipeline: PipelineName,
    node_id: Annotated[
        str, typer.Option(help="the node that the query is, the same at each start")
    ],
    reads: Annotated[
        list[str] | None,
        typer.Option(help="the segment of its input files, or DIRECTORY=SEGMENT for each source"),
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            help="SOURCE=SEGMENT:JOURNAL: the number of a source whose offsets number its records, "
            "their segment, and the journal of the front that labels them"
        ),
    ] = None,
    creates: Annotated[
        list[str] | None, typer.Option(help="a segment that reads its sink; may be repeated")
    ] = None,
    sink: Annotated[str | None, typer.Option(help="directory of its file sink")] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(help="SEGMENT=COLUMN: its items are rows, with their slots in a column"),
    ] = None,
    untracked: Annotated[
        list[str] | None,
        typer.Option(
            help="what min time is to pass: a source by its number, or a directory of its files"
        ),
    ] = None,
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
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Follow a Spark query that knows nothing of Lowmark, from its checkpoint and its sink's log, until
    SIGTERM. Needs no Spark."""
    import signal
    import threading

    from local_tracker.spark.attached import AttachedQuery
    from local_tracker.spark.follower import TrackingError
    from local_tracker.spark.logs import CheckpointLog

    if not reads and not ranges:
        raise typer.BadParameter("what the query reads must be told: --reads, --ranges, or both")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    begun = CheckpointLog(checkpoint)
    if not once and not begun.exists():
        typer.echo(f"{node_id}: waits for a query to begin in {begun.root}", err=True)
        while not begun.exists():
            if ended.wait(ATTACH_LOOK_INTERVAL_S):
                return
    try:
        followed = AttachedQuery(
            target, pipeline, node_id, checkpoint,
            reads=_reads(reads or []),
            ranges=_ranges(ranges or []),
            creates=creates or (), sink=sink, rows=_pairs("--rows", rows or []),
            untracked=untracked or (), first_batch=from_batch, take_over=take_over,
        ).start()  # fmt: skip
        try:
            while once and not ended.is_set():
                if followed.wait_durable(ATTACH_LOOK_INTERVAL_S):
                    break
            while not once and not ended.wait(ATTACH_LOOK_INTERVAL_S) and followed.failure is None:
                pass
        finally:
            clean = followed.close(ATTACH_DRAIN_TIMEOUT_S)
        if followed.failure is not None:
            raise followed.failure
    except TrackingError as error:
        fail(error, EXIT_REFUSED)
    if as_json:
        print_json({"node": node_id, "last_batch": followed.last_durable_batch})
    else:
        typer.echo(f"{node_id}: told up to batch {followed.last_durable_batch}")
    if not clean:
        fail(
            f"{node_id}: not all batches that are over are told; start again to tell the rest",
            EXIT_REFUSED,
        )


def _reads(given: list[str]) -> str | dict[str, str]:
    return given[0] if len(given) == 1 and "=" not in given[0] else _pairs("--reads", given)


def _ranges(given: list[str]) -> dict[str, Any]:
    from local_tracker.spark.ranges import OffsetRanges, PublishedRanges

    sources = {}
    for number, where in _pairs("--ranges", given).items():
        segment, colon, journal = where.partition(":")
        if not colon or not journal:
            raise typer.BadParameter(f"--ranges {number}={where!r} is not SOURCE=SEGMENT:JOURNAL")
        sources[number] = OffsetRanges(segment, PublishedRanges(journal).slots)
    return sources


def _pairs(option: str, given: list[str]) -> dict[str, str]:
    """`NAME=VALUE` texts as a mapping; a name may hold `=` itself."""
    pairs = [text.rpartition("=") for text in given]
    if bad := [text for text, pair in zip(given, pairs, strict=True) if not pair[0] or not pair[2]]:
        raise typer.BadParameter(f"{option} {bad[0]!r} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}


# --- looking --------------------------------------------------------------------------------------


@app.command()
def watch(
    pipeline: Annotated[
        str | None,
        typer.Option("--pipeline", "-p", help="name of the pipeline, if there are several"),
    ] = None,
    target: Target = DEFAULT_TARGET,
    interval: Annotated[float, typer.Option(min=0.05, help="seconds between looks")] = 0.5,
    once: Annotated[bool, typer.Option("--once", help="look once")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch a pipeline until it is complete: min time, lag and open items by segment, fronts, shards.

    Lag is how far min time is behind the newest promise of a front. With --json, one line a look.
    """
    from tracker.shown import Looks

    looks = Looks()
    with Admin(target, ANSWER_TIMEOUT_S) as admin:
        name = pipeline or _only_pipeline(admin)
        if once or as_json:
            while not _look(admin, name, looks, as_json) and not once:
                time.sleep(interval)
            return
        admin.pipeline(name)  # what cannot be is said before the screen is taken
    with Admin(target, WATCH_TIMEOUT_S) as admin:
        _watch_live(admin, name, looks, interval)


def _only_pipeline(admin: Admin) -> str:
    names = [info.spec.name for info in admin.pipelines()]
    if len(names) != 1:
        raise typer.BadParameter(
            f"name one with --pipeline; there are {', '.join(names)}"
            if names
            else "no pipeline is registered; see lowmark pipelines apply --help"
        )
    return names[0]


def _look(admin: Admin, pipeline: str, looks: Any, as_json: bool) -> bool:
    """Shows a pipeline once; returns whether it is complete."""
    from tracker.shown import pipeline_json, pipeline_view, shards_json

    info, shards = looks.take(admin.pipeline(pipeline)), admin.shards()
    if as_json:
        print_json({**pipeline_json(info), "shards": shards_json(shards)})
        sys.stdout.flush()
    else:
        Console().print(pipeline_view(info, shards, looks))
    return bool(info.state.complete)


def _watch_live(admin: Admin, pipeline: str, looks: Any, interval_s: float) -> None:
    from tracker.shown import pipeline_view

    info, shards = looks.take(admin.pipeline(pipeline)), admin.shards()
    try:
        with Live(pipeline_view(info, shards, looks), auto_refresh=False) as live:
            while not info.state.complete:
                time.sleep(interval_s)
                trouble = ""
                try:
                    info, shards = looks.take(admin.pipeline(pipeline)), admin.shards()
                except UnavailableError as error:
                    trouble = f"{error}; trying again"
                live.update(pipeline_view(info, shards, looks, trouble), refresh=True)
    except KeyboardInterrupt:
        return


# --- pipelines ------------------------------------------------------------------------------------


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
    from tracker.shown import pipeline_json, pipelines_table

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
    from tracker.shown import Looks

    with Admin(target, ANSWER_TIMEOUT_S) as admin:
        _look(admin, pipeline, Looks(), as_json)


if __name__ == "__main__":
    main()
