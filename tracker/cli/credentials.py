"""`lowmark credentials`: certificates and tokens for a tracker and those who come to it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tracker.cli.common import EXIT_REFUSED, fail, say, write_secret, wrong_usage
from tracker.cli.durations import lasting
from tracker.consumers.periods.signing import new_secret

DAY_S = 86_400
VALID_DAYS = 730
MAX_VALID_DAYS = 3650
"""Certificates that are asked for longer are refused: their authority does not last much longer."""


def create(
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            help="by which processes are dialled: a name, *.NAME or an address; several with ,; NAME=HOST,...: "
            "another certificate, of a server that is none of them, such as a relay",
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
    valid_s: Annotated[
        float,
        lasting(
            "--valid-for", least_s=DAY_S, show_default=f"{VALID_DAYS}d",
            help=f"how long certificates are valid: whole days, to {MAX_VALID_DAYS}d",
        ),
    ] = VALID_DAYS * DAY_S,
    certificates: Annotated[bool, typer.Option(help="whether to make certificates")] = True,
    tokens: Annotated[bool, typer.Option(help="whether to make tokens")] = True,
    peer: Annotated[
        bool, typer.Option("--peer", help="processes know each other by their token")
    ] = False,
) -> None:  # fmt: skip
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
    named: dict[str, tuple[str, ...]] = {"": ()}
    for given in hosts or []:
        name, _, some = given.rpartition("=")
        all_of_it = dict.fromkeys((*named.get(name, ()), *filter(None, some.split(","))))
        named[name] = tuple(all_of_it)
    own = named.pop("")
    with wrong_usage():
        wanted = Wanted(own, _days(valid_s), certificates, tokens, peer, named)
    try:
        place: Place = (
            Directories(out) if out is not None else Secrets(Path(kubernetes or ""), secrets)
        )
        for name, said in make(place, wanted, datetime.now(UTC)):
            say(f"{name}: {said}")
    except OSError as error:
        fail(error)


def _days(valid_s: float) -> int:
    """Raises ValueError."""
    days = int(valid_s // DAY_S)
    if days > MAX_VALID_DAYS:
        raise ValueError(f"--valid-for {days}d is longer than the most, {MAX_VALID_DAYS}d")
    return days


def token(
    out: Annotated[Path, typer.Option(help="new file for the token, which is shown nowhere else")],
    name: Annotated[
        str | None, typer.Argument(help="who has it: shown in logs; not with --webhook")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="PIPELINE=RIGHT,...: of register, commit, subscribe and administer; PIPELINE may end "
            "in *; may be repeated"
        ),
    ] = None,
    peer: Annotated[
        bool, typer.Option("--peer", help="for processes of the tracker that have no certificates")
    ] = False,
    webhook: Annotated[
        bool,
        typer.Option(
            "--webhook",
            help="instead: a secret that messages are signed with, for sender and receiver",
        ),
    ] = False,
) -> None:
    """Make a token: write it to a file, and print a file of tokens for `lowmark serve --tokens`, which
    holds only its hash. Where there is one already, all but the first line is added to it."""
    if webhook:
        if name or allow or peer:
            raise typer.BadParameter("--webhook makes a secret without a name and rights")
        return write_secret(out, new_secret())
    if not name:
        raise typer.BadParameter("name who has the token")
    import yaml

    from tracker.service.rpc.tokens import digest_of, new_token, parse_tokens

    made = new_token()
    rights = {}
    for given in allow or []:
        pipeline, found, words = given.rpartition("=")
        if not found or not pipeline:
            raise typer.BadParameter(f"--allow {given!r} is not PIPELINE=RIGHT,...")
        rights[pipeline] = words.split(",")
    entry = {"name": name, "sha256": digest_of(made).hex(), "pipelines": rights}
    entries = [{**entry, **({"peer": True} if peer else {})}]
    text = yaml.safe_dump({"tokens": entries}, sort_keys=False)
    parse_tokens(text.encode(), "the entry")  # raises what cannot be
    write_secret(out, made)
    if not rights and not peer:
        say(
            f"lowmark: token {name} may do nothing yet: name that by --allow PIPELINE=RIGHT,... or in the file "
            "of tokens", err=True,
        )  # fmt: skip
    say(text, nl=False)
