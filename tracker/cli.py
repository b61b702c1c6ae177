"""The command line: `lowmark`. Every command that shows something has `--json` for scripts."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    from rich.console import Console
    from rich.live import Live
except ImportError as missing:  # an executor installs the client alone
    raise SystemExit(
        f"the lowmark command needs {missing.name}: pip install 'lowmark[server]'"
    ) from None

from tracker import __version__
from tracker.client import Admin, LowmarkError, RefusedError, Subscriber, UnavailableError
from tracker.client.subscriber import CALL_TIMEOUT_S
from tracker.client.updates import slot_time
from tracker.core.slots import FOREVER
from tracker.pipeline_file import PipelineFileError, load_pipeline, parse_slot

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Lowmark tells up to which moment everything that entered a pipeline is processed.",
)
pipelines_app = typer.Typer(no_args_is_help=True, help="Register pipelines and look at them.")
app.add_typer(pipelines_app, name="pipelines")

EXIT_REFUSED = 1
"""The tracker refused, or what was given cannot be."""
EXIT_TIMED_OUT = 3
"""`wait`: min time had not reached the moment in time."""
EXIT_UNAVAILABLE = 4
"""No process of the tracker answered."""

Target = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        envvar="LOWMARK_TARGET",
        help="host:port of the tracker, or several with ,",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON, for scripts")]
PipelineName = Annotated[str, typer.Option("--pipeline", "-p", help="name of the pipeline")]
DEFAULT_TARGET = "127.0.0.1:7070"


def main() -> None:
    """The entry point; errors of the client become one line and an exit status."""
    try:
        app()
    except UnavailableError as error:
        _fail(error, EXIT_UNAVAILABLE)
    except (RefusedError, LowmarkError, PipelineFileError, ValueError) as error:
        _fail(error, EXIT_REFUSED)


def _fail(error: Exception, status: int) -> None:
    print(f"lowmark: {error}", file=sys.stderr)
    raise SystemExit(status)


def _print_json(value: Any) -> None:
    print(json.dumps(value))


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


@app.command()
def serve(
    listen: Annotated[
        str, typer.Option(help="host:port of this process, or of the first of --shards")
    ] = DEFAULT_TARGET,
    store: Annotated[
        str, typer.Option(envvar="LOWMARK_STORE", help="sqlite:DIRECTORY, or memory:")
    ] = "sqlite:lowmark-data",
    shards: Annotated[
        int, typer.Option(min=1, max=64, help="run this many processes, on consecutive ports")
    ] = 1,
    shard: Annotated[
        int | None, typer.Option(min=0, help="run one process: the number of its shard")
    ] = None,
    peers: Annotated[
        str, typer.Option(help="with --shard: host:port of every shard, in order, with ,")
    ] = "",
    block_slots: Annotated[
        int, typer.Option(min=1, help="neighbouring slots of one shard; the same for ever")
    ] = 64,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error")] = "info",
) -> None:
    """Run a tracker: one process, or several on this machine for development."""
    from tracker.service.run import configure_logging
    from tracker.service.run import main as run_process
    from tracker.service.server import ServerConfig
    from tracker.supervisor import consecutive_addresses, supervise

    configure_logging(log_level)
    if shard is not None:
        addresses = tuple(address.strip() for address in peers.split(",") if address.strip())
        listening = listen if listen != DEFAULT_TARGET else ""
        config = ServerConfig(
            shard, addresses or (listen,), store, listen=listening, block_slots=block_slots
        )
        raise SystemExit(run_process(config))
    addresses = consecutive_addresses(listen, shards)
    if shards == 1:
        raise SystemExit(run_process(ServerConfig(0, addresses, store, block_slots=block_slots)))
    raise SystemExit(
        supervise(
            addresses,
            ["--store", store, "--block-slots", str(block_slots), "--log-level", log_level],
        )
    )


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
    from local_tracker.agent import main as run_agent

    raise SystemExit(run_agent(context.args))


@app.command("min-time")
def min_time(
    pipeline: PipelineName,
    segment: Annotated[str | None, typer.Option("--segment", "-s")] = None,
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Print min time (exclusive): everything before it is processed, and nothing more can come."""
    with Subscriber(target, pipeline) as subscriber:
        slot = subscriber.min_time(segment)
        slack_ns = subscriber.slack_ns()
    _show_min_time(pipeline, segment, slot, slack_ns, as_json)


def _show_min_time(
    pipeline: str, segment: str | None, slot: int, slack_ns: int, as_json: bool
) -> None:
    moment = slot_time(slot, slack_ns)
    if as_json:
        _print_json(
            {
                "pipeline": pipeline,
                "segment": segment,
                "min_time": slot,
                "time": moment.isoformat() if moment else None,
                "complete": slot == FOREVER,
            }
        )
    elif slot == FOREVER:
        print("complete")
    else:
        print(moment.isoformat() if moment else f"slot:{slot}")


@app.command()
def wait(
    pipeline: PipelineName,
    until: Annotated[
        str, typer.Option(help="an ISO date or time (UTC unless it has an offset), now, or slot:N")
    ],
    segment: Annotated[str | None, typer.Option("--segment", "-s")] = None,
    timeout: Annotated[float | None, typer.Option(min=0, help="seconds; none: for ever")] = None,
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Wait until everything before a moment is processed.

    Exit status: 0 reached, 3 timed out, 1 refused (an unknown pipeline, say), 4 no tracker answers.
    """
    with Subscriber(target, pipeline) as subscriber:
        slack_ns = subscriber.slack_ns(CALL_TIMEOUT_S if timeout is None else max(timeout, 1.0))
        slot = parse_slot(until, slack_ns, up=True)
        reached = subscriber.wait_until(slot, segment, timeout)
        now = subscriber.min_time(segment)
        _show_min_time(pipeline, segment, now, subscriber.slack_ns(), as_json)
    if not reached:
        if not as_json:
            print(f"lowmark: {until} was not reached within {timeout:g} s", file=sys.stderr)
        raise SystemExit(EXIT_TIMED_OUT)


@app.command()
def watch(
    pipeline: PipelineName,
    target: Target = DEFAULT_TARGET,
    interval: Annotated[float, typer.Option(min=0.05, help="seconds between looks")] = 0.5,
    once: Annotated[bool, typer.Option(help="look once")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch a pipeline: min time, lag and open items by segment, fronts, shards."""
    from tracker.shown import pipeline_json, pipeline_view

    with Admin(target) as admin:
        if as_json:
            while True:
                info = admin.pipeline(pipeline)
                shards = [
                    {
                        "shard": s.state.shard,
                        "address": s.address,
                        "connected": s.state.connected,
                        "entries_behind": s.state.entries_behind,
                    }
                    for s in admin.shards()
                ]
                _print_json({**pipeline_json(info), "shards": shards})
                sys.stdout.flush()
                if once or info.state.complete:
                    return
                time.sleep(interval)
        console = Console()
        first = pipeline_view(admin.pipeline(pipeline), admin.shards())
        if once:
            console.print(first)
            return
        with Live(first, console=console, auto_refresh=False) as live:
            try:
                while True:
                    live.update(
                        pipeline_view(admin.pipeline(pipeline), admin.shards()), refresh=True
                    )
                    time.sleep(interval)
            except KeyboardInterrupt:
                return


@pipelines_app.command("apply")
def pipelines_apply(
    file: Annotated[Path, typer.Option("--file", "-f", exists=True, dir_okay=False)],
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Register the pipeline of a YAML file. Repeating it changes nothing."""
    spec = load_pipeline(file.read_text(), str(file))
    with Admin(target) as admin:
        registered, created = admin.register(spec)
    if as_json:
        _print_json({"pipeline": registered.name, "created": created})
    else:
        print(f"pipeline {registered.name}: {'registered' if created else 'unchanged'}")


@pipelines_app.command("list")
def pipelines_list(target: Target = DEFAULT_TARGET, as_json: AsJson = False) -> None:
    """List the pipelines."""
    from tracker.shown import pipeline_json, pipelines_table

    with Admin(target) as admin:
        pipelines = admin.pipelines()
    if as_json:
        _print_json([pipeline_json(info) for info in pipelines])
    else:
        Console().print(pipelines_table(pipelines))


@pipelines_app.command("show")
def pipelines_show(
    pipeline: PipelineName, target: Target = DEFAULT_TARGET, as_json: AsJson = False
) -> None:
    """Show one pipeline as registered, and its state."""
    watch(pipeline, target, once=True, as_json=as_json)


if __name__ == "__main__":
    main()
