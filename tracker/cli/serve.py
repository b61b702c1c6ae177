"""`lowmark serve`: its options, which are made from the settings' declarations, and what they start."""

from __future__ import annotations

import inspect
import os
import sys
from typing import Any

import typer
import yaml

from tracker.cli.common import show
from tracker.cli.declared import parameter, parameters, read_text
from tracker.cli.shared import Shared
from tracker.errors import InvalidError
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
    --join a:7070 --listen d:7070, then lowmark shards NUMBER.

    docs/settings.md has all settings, of which the options are those that one types by hand.
    """
    from tracker.client.connection import parse_targets
    from tracker.service.run import configure_logging
    from tracker.service.run import main as run_process
    from tracker.service.supervisor import consecutive_addresses, supervise

    try:
        settings = read_settings(*read_text(config), os.environ, assigned, options)
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


_SHOW = parameter(
    "show_config", False, bool,
    typer.Option("--show-config", help="print the settings that count, without secrets, and end"),
)  # fmt: skip
_OPTIONS = parameters(ServeSettings, TYPED, CONFIG_VARIABLE)
vars(serve)["__signature__"] = inspect.Signature([*_OPTIONS[:3], _SHOW, *_OPTIONS[3:]])
