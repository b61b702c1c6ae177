"""What may be given at every command, or before it: declared once, and heeded wherever it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

DEFAULT_TARGET = "127.0.0.1:7070"
TARGET_HELP = "host:port of the tracker, or several with ,"
JSON_HELP = "print JSON, for scripts"
_PANEL = "For every command"


@dataclass(slots=True)
class Shared:
    """To which tracker a command goes, and how what it has found is shown.

    retry_s: for how many seconds a command goes on trying where no process accepts a connection;
    is_patient: it goes on asking a tracker that is away, as it would later, or may need none.
    """

    target: str = DEFAULT_TARGET
    as_json: bool = False
    retry_s: float = 0.0
    is_patient: bool = False

    @staticmethod
    def of(context: typer.Context) -> Shared:
        """Of the command that runs."""
        return context.ensure_object(Shared)


def _take_target(context: typer.Context, value: str | None) -> None:
    if value is not None:
        Shared.of(context).target = value


def _take_json(context: typer.Context, value: bool) -> None:
    if value:
        Shared.of(context).as_json = True


def _declared(
    target: Annotated[
        str | None,
        typer.Option(
            "--target", "-t", help=f"{TARGET_HELP} (LOWMARK_TARGET)", callback=_take_target, expose_value=False,
            is_eager=True,  # which pipeline there is, is asked there
            rich_help_panel=_PANEL,
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help=JSON_HELP, callback=_take_json, expose_value=False, rich_help_panel=_PANEL
        ),
    ] = False,
) -> None:  # fmt: skip
    """Declares the options that commands share; it is never run."""


def _options() -> list[Any]:
    app = typer.Typer(add_completion=False)
    app.command()(_declared)
    return list(typer.main.get_command(app).params)


_TARGET, _JSON = _options()


class Prints(TyperCommand):
    """A command that needs no tracker."""

    shared: tuple[Any, ...] = (_JSON,)
    is_patient = False

    def get_params(self, ctx: Any) -> list[Any]:
        return [*super().get_params(ctx), *self.shared]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        Shared.of(ctx).is_patient = self.is_patient
        return super().parse_args(ctx, args)


class Asks(Prints):
    """One that asks a tracker and ends: one that is not there is reported at once."""

    shared = (_TARGET, _JSON)


class Follows(Asks):
    """One that waits for a tracker that is away."""

    is_patient = True
