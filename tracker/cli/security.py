"""What stands before a command: how it shows itself to a tracker, and how the answer is shown."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tracker import __version__
from tracker.cli.common import say
from tracker.cli.durations import lasting
from tracker.cli.shared import DEFAULT_TARGET, JSON_HELP, TARGET_HELP, Shared
from tracker.client.credentials import (
    CA_VARIABLE,
    CERT_VARIABLE,
    KEY_VARIABLE,
    TOKEN_VARIABLE,
    Credentials,
)


def print_version(wanted: bool) -> None:
    """Prints the version and ends, where that is asked."""
    if wanted:
        say(__version__)
        raise typer.Exit


def use_credentials(
    context: typer.Context,
    target: Annotated[
        str, typer.Option("--target", "-t", envvar="LOWMARK_TARGET", help=TARGET_HELP)
    ] = DEFAULT_TARGET,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
    tls_ca: Annotated[
        str,
        typer.Option(
            envvar=CA_VARIABLE, help="PEM file of the CA of the tracker's certificate; with it: TLS"
        ),
    ] = "",
    tls_cert: Annotated[
        str, typer.Option(envvar=CERT_VARIABLE, help="PEM file of this client's certificate")
    ] = "",
    tls_key: Annotated[
        str, typer.Option(envvar=KEY_VARIABLE, help="PEM file of the certificate's key")
    ] = "",
    token_file: Annotated[
        str, typer.Option(envvar=TOKEN_VARIABLE, help="file that holds this client's token")
    ] = "",
    retry_s: Annotated[
        float,
        lasting(
            "--retry-for",
            envvar="LOWMARK_RETRY_FOR",
            show_default="0s",
            help="how long a command goes on trying where no process of the tracker accepts a connection",
        ),
    ] = 0.0,
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """What stands before the command counts for it, and for what it starts."""
    context.obj = Shared(target, as_json, retry_s)
    Credentials(tls_ca, tls_cert, tls_key, token_file)  # what does not go together is refused here
    variables = (CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE, TOKEN_VARIABLE)
    given = zip(variables, (tls_ca, tls_cert, tls_key, token_file), strict=True)
    os.environ.update({variable: path for variable, path in given if path})
