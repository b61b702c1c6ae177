"""`lowmark serve`: its options, which are made from the settings' declarations, and what they start."""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from tracker.cli.common import show
from tracker.cli.shared import Shared
from tracker.errors import Code, InvalidError
from tracker.service.settings import (
    CONFIG_VARIABLE,
    DEFAULT_LISTEN,
    TYPED,
    ServeSettings,
    for_a_process,
    read_settings,
    server_config,
)


def serve(
    context: typer.Context, config: str, assigned: list[str], show_config: bool, **options: Any
) -> None:
    """Run a tracker until SIGTERM: one process, or several on this machine for development.

    One process of several machines: --shard I --peers a:7070,b:7070,... A standby of theirs:
    --standby --listen c:7070 --peers a:7070,b:7070,... One more shard of a tracker that runs:
    --join a:7070 --listen d:7070, then lowmark rescale.

    docs/settings.md has all settings, of which the options are those that one types by hand.
    """
    from tracker.client.connection import parse_targets
    from tracker.service.run import configure_logging
    from tracker.service.run import main as run_process
    from tracker.service.supervisor import consecutive_addresses, supervise

    given = {field: value for field, value in options.items() if value is not None}
    try:
        settings = read_settings(*_read(config), os.environ, assigned, given)
        if Shared.of(context).as_json:
            settings = settings.model_copy(update={"log_json": True})
        process = for_a_process(settings)
        addresses = parse_targets(process.peers) if process.peers else ()
        if not process.peers and not process.join:
            addresses = consecutive_addresses(process.listen or DEFAULT_LISTEN, process.shards)
        run = server_config(process, addresses)
    except InvalidError as error:
        raise typer.BadParameter(str(error)) from None
    if show_config:
        shown = settings.shown()
        return show(context, shown, yaml.safe_dump(shown, sort_keys=False).rstrip("\n"))
    configure_logging(process.log_level, as_json=process.log_json or None)
    _warn_of_arguments(process.store)
    if process.shards == 1:
        raise typer.Exit(run_process(run))
    raise typer.Exit(supervise(_shards(settings, addresses)))


def _shards(settings: ServeSettings, addresses: tuple[str, ...]) -> list[ServeSettings]:
    """The settings of each of several processes."""
    from tracker.service.supervisor import LEFT, consecutive_addresses

    metrics = [""] * len(addresses)
    if settings.metrics_listen:
        metrics[:] = consecutive_addresses(
            settings.metrics_listen, len(addresses), "--metrics-listen"
        )
    pages = [settings.dashboard_listen] + [""] * len(addresses)  # one page shows all of them
    return [
        settings.of_shard(
            shard, addresses,
            metrics_listen=metrics[shard], dashboard_listen=pages[shard], left_status=LEFT,
        )
        for shard in range(len(addresses))
    ]  # fmt: skip


def _warn_of_arguments(store: str) -> None:
    """Warns where a password stands in the arguments of this process."""
    import structlog

    from tracker.store import shown_store

    if shown_store(store) != store and any(store in argument for argument in sys.argv):
        structlog.get_logger(__name__).warning(
            "insecure",
            reason="the password of the store stands in the arguments of this process, which everybody "
            "on this machine can read; give the address in LOWMARK_STORE",
        )


def _read(config: str) -> tuple[str, str]:
    """The text of a file of settings, and what it is called."""
    if not config:
        return "{}", "no file"
    try:
        if config == "-":
            return sys.stdin.read(), "standard input"
        return Path(config).read_text(encoding="utf-8"), config
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError(
            f"--config {config} cannot be read: {error}", Code.INVALID_SETTINGS
        ) from None


def _options() -> list[inspect.Parameter]:
    """The options of `serve`. One that is not given is None, so that what is given elsewhere counts."""
    found = [
        inspect.Parameter(
            "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
        ),
        _parameter("config", "", str, typer.Option(
            "--config", envvar=CONFIG_VARIABLE, show_default=False,
            help="YAML file of settings; -: standard input. All else counts before it",
        )),
        _parameter("assigned", [], list[str], typer.Option(
            "--set", metavar="NAME=VALUE", show_default=False,
            help="any setting of docs/settings.md: --set lease_ms=5000; may be repeated",
        )),
        _parameter("show_config", False, bool, typer.Option(
            "--show-config", help="print the settings that count, without secrets, and end",
        )),
    ]  # fmt: skip
    for field in TYPED:
        declared = ServeSettings.model_fields[field]
        kind = int if declared.default is None else type(declared.default)
        option = typer.Option(
            f"--{field.replace('_', '-')}", help=declared.description,
            show_default=str(declared.default) if declared.default else False,
        )  # fmt: skip
        found.append(_parameter(field, None, kind | None, option))
    return found


def _parameter(name: str, default: Any, kind: Any, option: Any) -> inspect.Parameter:
    annotation = Annotated[kind, option]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


vars(serve)["__signature__"] = inspect.Signature(_options())
