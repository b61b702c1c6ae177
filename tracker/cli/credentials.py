"""`lowmark credentials`: certificates and tokens for a tracker and those who come to it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tracker.cli.common import EXIT_REFUSED, fail, say, wrong_usage


def create(
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            help="by which processes are dialled: a name, *.NAME or an address; several with ,",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="directory in which they are kept")] = None,
    kubernetes: Annotated[
        Path | None,
        typer.Option(help="instead: directory with token, ca.crt and namespace of an account"),
    ] = None,
    secrets: Annotated[
        str, typer.Option(help="with --kubernetes: Secrets named PREFIX-..., which are there")
    ] = "",
    days: Annotated[int, typer.Option(min=1, max=3650, help="that certificates are valid")] = 730,
    certificates: Annotated[bool, typer.Option(help="whether to make certificates")] = True,
    tokens: Annotated[bool, typer.Option(help="whether to make tokens")] = True,
    peer: Annotated[
        bool, typer.Option("--peer", help="processes know each other by their token")
    ] = False,
) -> None:
    """Make an authority, certificates of the processes and of clients, tokens and the file of their hashes,
    where they are missing. What is there stays, but for certificates that end soon or are for other hosts."""
    try:
        from tracker.cli.issuing.credentials import Wanted, make
    except ModuleNotFoundError as error:
        if error.name != "cryptography":
            raise
        fail(
            "certificates are made by a library: pip install 'lowmark[certificates]'", EXIT_REFUSED
        )
    from tracker.cli.issuing.places import Directories, Place, Secrets

    if (out is None) == (kubernetes is None) or (kubernetes is None) != (not secrets):
        raise typer.BadParameter("give --out DIRECTORY, or --kubernetes DIRECTORY --secrets PREFIX")
    named = dict.fromkeys(host for given in hosts or [] for host in given.split(",") if host)
    with wrong_usage():
        wanted = Wanted(tuple(named), days, certificates, tokens, peer)
    try:
        place: Place = (
            Directories(out) if out is not None else Secrets(Path(kubernetes or ""), secrets)
        )
        for name, said in make(place, wanted, datetime.now(UTC)):
            say(f"{name}: {said}")
    except OSError as error:
        fail(error)
