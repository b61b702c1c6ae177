"""What a tracker and its clients need, made where it is missing, and left alone where it is there.

| bundle | files | who has it |
|---|---|---|
| `authority` | `ca.crt`, `ca.key` | nobody: it signs what is made later |
| `certificate` | `tls.crt`, `tls.key`, `ca.crt` | processes of the tracker |
| `client-certificate` | the same | clients |
| `NAME-certificate` | the same | other servers that are asked for by name, such as relays |
| `tokens` | `tokens.yaml` | processes: hashes of all tokens |
| `client-token`, `peer-token`, `admin-token` | `token` | clients, processes, whoever administers |

It may run as often as it likes, and end anywhere: each bundle follows from those before it. A token is written
before the file that knows its hash. Entries of that file that others have added stay, and so do rights that they
have changed. A token whose entry they have removed was taken away: it is not let in again, but another one is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import yaml

from tracker.cli.issuing.certificates import Authority, Pair, check_host
from tracker.cli.issuing.places import Place
from tracker.service.rpc.tokens import digest_of, new_token, parse_tokens

AUTHORITY, CERTIFICATE, CLIENT_CERTIFICATE = "authority", "certificate", "client-certificate"
TOKENS = "tokens"
CLIENT_HOST = "client.lowmark.invalid"
"""What a client's certificate is for. The domain `invalid` has no hosts (RFC 2606), so no shard is one of them."""
RIGHTS: dict[str, dict[str, list[str]]] = {
    "client": {"*": ["register", "commit", "subscribe"]},
    "peer": {"*": ["subscribe"]},
    "admin": {"*": ["administer"]},
}
"""Of the tokens that are made, by name."""
_NAME = re.compile(r"[a-z][a-z0-9-]{0,29}")
_KEPT = {"pipelines", "max_segments", "max_nodes"}
"""Of an entry that is there, what others may have changed."""


@dataclass(frozen=True)
class Wanted:
    """hosts: by which processes are dialled, later ones too. days: for how long certificates are valid. peer:
    processes know each other by their token, having no certificates of clients. others: by name of a certificate the hosts of
    a server that is no process of the tracker, and must not be able to act as one."""

    hosts: tuple[str, ...]
    days: int
    certificates: bool = True
    tokens: bool = True
    peer: bool = False
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for host in (*self.hosts, *(host for hosts in self.others.values() for host in hosts)):
            check_host(host)
            if _covers(host, CLIENT_HOST):
                raise ValueError(
                    f"{host!r} is what clients have: with it each could act as a shard"
                )
        if self.certificates and not self.hosts:
            raise ValueError("a certificate needs the hosts of the processes")
        for name, hosts in self.others.items():
            if name == "client" or not _NAME.fullmatch(name) or not hosts:
                raise ValueError(
                    f"{name}={','.join(hosts)} is not NAME=HOST,...: a name of small letters, but client, and what it is for"
                )


def _covers(host: str, name: str) -> bool:
    return host == name or (host.startswith("*.") and name.partition(".")[2] == host[2:])


def make(place: Place, wanted: Wanted, now: datetime) -> Iterator[tuple[str, str]]:
    """Makes what is missing; yields each bundle, and what became of it. now: with a time zone. Raises OSError and
    ValueError, and leaves what it cannot read as it is."""
    if wanted.certificates:
        authority, said = _authority(place, now)
        yield AUTHORITY, said
        for name, hosts, serves in (
            (CERTIFICATE, wanted.hosts, True), (CLIENT_CERTIFICATE, (CLIENT_HOST,), False),
            *((f"{name}-{CERTIFICATE}", hosts, True) for name, hosts in wanted.others.items()),
        ):  # fmt: skip
            yield name, _certificate(place, name, authority, hosts, wanted.days, now, serves=serves)
    if wanted.tokens:
        before, hashes = _entries(place), {}
        listed = {entry["name"] for entry in before}
        for name in RIGHTS:
            is_taken_away = bool(before) and name not in listed
            hashes[name], said = _token(place, f"{name}-token", anew=is_taken_away)
            yield f"{name}-token", said
        yield TOKENS, _tokens(place, before, hashes, wanted.peer)


def _authority(place: Place, now: datetime) -> tuple[Authority, str]:
    found = place.read(AUTHORITY)
    if "ca.crt" not in found:
        # The certificate comes last: where it is missing, nothing has been signed yet.
        made = Authority.made("lowmark", now)
        place.write(AUTHORITY, {"ca.key": made.pair.key, "ca.crt": made.pair.cert})
        return made, "made"
    try:
        authority = Authority(Pair(found["ca.crt"], found["ca.key"]))
    except (KeyError, ValueError, TypeError):
        raise ValueError(
            f"{AUTHORITY} holds no certificate of an authority with its key: give both back, or take it "
            "away, and all certificates are made anew, so that clients need the new ones"
        ) from None
    if authority.ends <= now:
        raise ValueError(f"{AUTHORITY} has ended at {authority.ends:%Y-%m-%d}: take it away")
    return authority, "is there"


def _certificate(
    place: Place, name: str, authority: Authority, hosts: Sequence[str], days: int, now: datetime,
    *, serves: bool,
) -> str:  # fmt: skip
    found = place.read(name)
    why = "nothing is there"
    if found:
        pair = Pair(found.get("tls.crt", b""), found.get("tls.key", b""))
        why = authority.why_anew(pair, hosts, now, serves=serves)
        if found.get("ca.crt") != authority.pair.cert:
            why = why or "it goes with another authority"
        if not why:
            return "is there"
    made = authority.issue(f"lowmark {name}", hosts, now, days, serves=serves)
    place.write(name, {"ca.crt": authority.pair.cert, "tls.key": made.key, "tls.crt": made.cert})
    return f"made anew: {why}" if found else "made"


def _token(place: Place, name: str, *, anew: bool) -> tuple[str, str]:
    """The hash of a token, and what became of it."""
    found = place.read(name)
    if found and not anew:
        token = found.get("token", b"").decode(errors="replace").strip()
        if not token:
            raise ValueError(f"{name} holds no token: give it back, or take it away")
        return digest_of(token).hex(), "is there"
    token = new_token()
    place.write(name, {"token": f"{token}\n".encode()})
    return digest_of(token).hex(), "made anew: its entry was removed" if found else "made"


def _entries(place: Place) -> list[dict[str, Any]]:
    """Of the file of tokens that is there; none where it is still to be written."""
    found = place.read(TOKENS)
    if not found:
        return []
    data = found.get("tokens.yaml", b"")
    parse_tokens(data, "tokens.yaml")  # refuses what cannot be, and quotes nothing of it
    entries: list[dict[str, Any]] = yaml.safe_load(data)["tokens"]
    return entries


def _tokens(place: Place, before: list[dict[str, Any]], hashes: dict[str, str], peer: bool) -> str:
    entries = [entry for entry in before if entry["name"] not in hashes]
    known = {entry["name"]: entry for entry in before}
    for name, digest in hashes.items():
        kept = {key: value for key, value in known.get(name, {}).items() if key in _KEPT}
        entry = {"name": name, "sha256": digest, "pipelines": RIGHTS[name], **kept}
        entries.append(entry | ({"peer": True} if peer and name == "peer" else {}))
    entries.sort(key=lambda entry: str(entry["name"]))
    before.sort(key=lambda entry: str(entry["name"]))
    if entries == before:
        return "is there"
    text = yaml.safe_dump({"tokens": entries}, sort_keys=False).encode()
    parse_tokens(text, "tokens.yaml")
    place.write(TOKENS, {"tokens.yaml": text})
    return "made anew: it said something else of them" if before else "made"
