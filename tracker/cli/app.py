"""All commands put together. One is imported when it is run, or shown: most of what the shortest takes is imports."""

from __future__ import annotations

import errno
from collections import UserDict
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from tracker.cli import security
from tracker.cli.common import EXIT_UNAVAILABLE, fail
from tracker.cli.shared import Asks, Follows, Prints
from tracker.client import LowmarkError, UnavailableError
from tracker.store import StoreError

Declared = tuple[str, type[TyperCommand]]
"""A function in a module of this package, MODULE:NAME, and the kind of command it is."""

VERBS: dict[str, Declared] = {
    "dev": ("dev:dev", Prints),
    "init": ("init:init", Prints),
    "doctor": ("doctor:doctor", Asks),
    "serve": ("serve:serve", Prints),
    "status": ("status:status", Asks),
    "watch": ("watch:watch", Asks),
    "explain": ("explain:explain", Asks),
    "wait": ("wait:wait", Follows),
    "shards": ("shards:shards", Asks),
}
NOUNS: dict[tuple[str, str], dict[str, Declared]] = {
    ("pipelines", "Register pipelines, change their limits, and begin them anew."): {
        "apply": ("pipelines:pipelines_apply", Asks),
        "move": ("groups:move", Asks),
        "restart": ("pipelines:restart", Asks),
        "delete": ("pipelines:delete", Asks),
    },
    ("groups", "The groups of a deployment, in which pipelines live."): {
        "list": ("groups:groups_list", Asks),
        "cordon": ("groups:cordon", Asks),
        "drain": ("groups:drain", Asks),
    },
    ("nodes", "Show the nodes of a pipeline, and look after those that are gone."): {
        "list": ("nodes:nodes_list", Asks),
        "retire": ("retire:retire", Asks),
    },
    ("store", "Look after the stores of shards whose processes are stopped."): {
        "copy": ("store:copy_command", Prints),
        "accept-loss": ("store:accept_loss_command", Prints),
    },
    ("periods", "Hours, or other periods, and when they were complete."): {
        "list": ("periods:periods_list", Asks),
        "follow": ("periods:periods_follow", Follows),
    },
    ("barrier", "Write rows of tracked queries into a sink in the order of time, each once."): {
        "run": ("barrier:run", Follows),
        "late": ("barrier:late_command", Prints),
    },
    ("credentials", "Make certificates and tokens."): {
        "create": ("credentials:create", TyperCommand),
        "token": ("credentials:token", TyperCommand),
    },
    (
        "query",
        "Spark queries: follow one from outside, kill its driver in a test, give its state more partitions.",
    ): {
        "attach": ("attach:attach", Follows),
        "check": ("query_check:query_check", Prints),
        "rescale": ("query_rescale:query_rescale", Prints),
    },
}


class _Lazy(UserDict[str, Any]):
    """Commands by name; one that is declared is made when it is first asked for."""

    def __getitem__(self, name: str) -> Any:
        command = super().__getitem__(name)
        if isinstance(command, tuple):
            command = self[name] = _made(name, *command)
        return command


def _made(name: str, place: str, kind: type[TyperCommand]) -> Any:
    module, _, function = place.partition(":")
    run = getattr(import_module(f"tracker.cli.{module}"), function)
    paragraphs = (run.__doc__ or "").split("\n\n")  # a terminal has other lines than the code
    alone = typer.Typer(add_completion=False)
    alone.command(name, cls=kind, help="\n\n".join(" ".join(p.split()) for p in paragraphs))(run)
    return typer.main.get_command(alone)


def _group(noun: str, text: str, declared: dict[str, Declared]) -> TyperGroup:
    group = TyperGroup(name=noun, help=text, no_args_is_help=True)
    group.commands = _Lazy(declared)
    return group


class _Commands(TyperGroup):
    """Errors of the client, of stores and of files become one line and an exit status."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        groups = {noun: _group(noun, text, below) for (noun, text), below in NOUNS.items()}
        self.commands = _Lazy({**VERBS, **groups})

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


def main() -> None:
    """The entry point."""
    app()
