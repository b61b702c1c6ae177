"""What `lowmark doctor` looks at: what would not work here, why, and what to do.

A check is a function that yields findings. It changes nothing, and needs nothing but what it is about: where that is not
installed, or not there, it says so.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from local_tracker.spark.versions import SUPPORTED_PYSPARK, check_version
from tracker import __version__
from tracker.client import Admin
from tracker.client.credentials import Credentials
from tracker.dev.server import DEFAULT_DASHBOARD_PORT, HOST
from tracker.errors import LowmarkError, TrackingError
from tracker.redacting import redacted
from tracker.service.rpc.security import Security
from tracker.service.settings import DEFAULT_LISTEN, ServeSettings
from tracker.store import StoreError, check_store

ANSWER_S = 3.0
"""How long a tracker, or a program that is asked for its version, may take to answer."""
LEAST_FREE_BYTES = 2**30
NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "fuse.sshfs")
JAVA_OF_SPARK = {"3": 8, "4": 17}
"""The least Java, by the first number of a version of PySpark."""
_NOT_SYNCHRONISED = 0x40
"""STA_UNSYNC of adjtimex(2)."""


class State(Enum):
    """ok: it works; note: something does not that one may not need; wrong: it does not work."""

    OK = "ok"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. advice: what to do; empty where nothing is."""

    what: str
    state: State
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Here:
    """What a check may ask: where clients go, and whether somebody named that; what `lowmark serve` would read."""

    target: str
    is_named: bool
    settings: ServeSettings
    environment: Mapping[str, str]


Check = Callable[[Here], Iterator[Finding]]


def examine(here: Here) -> list[Finding]:
    """All findings, in the order in which one needs things."""
    return [finding for check in CHECKS for finding in check(here)]


def packages(here: Here) -> Iterator[Finding]:
    """Lowmark, Python, and which extras are installed."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("lowmark", State.OK, f"{__version__}, on Python {python}")
    absent = missing(_required())
    for extra in ("", "server"):
        if names := absent.get(extra):
            package = f"lowmark[{extra}]" if extra else "lowmark"
            yield Finding(
                "packages", State.WRONG, f"missing: {', '.join(names)}",
                f"pip install '{package}'",
            )  # fmt: skip
    others = [extra for extra in absent if extra in OF_USERS]
    if others:
        yield Finding(
            "extras", State.NOTE, f"not installed: {', '.join(others)}",
            f"pip install 'lowmark[{others[0]}]' where you need it",
        )  # fmt: skip


OF_USERS = ("spark", "kafka", "fronts", "files", "tables", "postgres", "certificates", "otel")
"""Extras that a user of Lowmark may want here; the others are of schedulers and of who works on it."""


def missing(requirements: Sequence[str]) -> dict[str, list[str]]:
    """By extra (empty: always) the packages that are not installed. requirements: as the metadata of a package have
    them."""
    found: dict[str, list[str]] = {}
    for requirement in requirements:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra == ['\"](\w+)['\"]", requirement)
        if name and not _installed(name[0]):
            found.setdefault(extra[1] if extra else "", []).append(name[0])
    return found


def _required() -> list[str]:
    try:
        return requires("lowmark") or []
    except PackageNotFoundError:  # a checkout
        return []


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def spark(here: Here) -> Iterator[Finding]:
    """PySpark, the Spark that it would start, and its Java."""
    pyspark = _installed("pyspark")
    if not pyspark:
        return
    try:
        check_version(pyspark)
    except TrackingError:
        tried = f"{SUPPORTED_PYSPARK[0]} to {SUPPORTED_PYSPARK[-1]}"
        yield Finding(
            "PySpark", State.WRONG, f"{pyspark} is not one that is tried: {tried}",
            f"pip install 'pyspark=={SUPPORTED_PYSPARK[-1]}.*'",
        )  # fmt: skip
    else:
        yield Finding("PySpark", State.OK, pyspark)
    home = here.environment.get("SPARK_HOME", "")
    jars = sorted(Path(home, "jars").glob("spark-core_*.jar")) if home else []
    started = jars[0].stem.rpartition("-")[2] if jars else ""
    if home and started != pyspark:
        yield Finding(
            "SPARK_HOME", State.WRONG, f"{home} has Spark {started or 'not at all'}, PySpark is {pyspark}",
            "unset SPARK_HOME, or install the PySpark of its version",
        )  # fmt: skip
    yield _java(here, JAVA_OF_SPARK.get(pyspark.partition(".")[0], 17))


def _java(here: Here, least: int) -> Finding:
    home = here.environment.get("JAVA_HOME", "")
    path = str(Path(home, "bin", "java")) if home else shutil.which("java") or ""
    advice = f"install Java {least} or newer (apt-get install openjdk-17-jre-headless), or set JAVA_HOME to it"
    if not path or not Path(path).exists():
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is none on PATH"
        return Finding("Java", State.WRONG, f"{where}; Spark needs one", advice)
    try:
        asked = subprocess.run(
            [path, "-version"], capture_output=True, text=True, check=False, timeout=ANSWER_S
        )
        said = re.search(r'version "(?:1\.)?(\d+)[^"]*"', asked.stderr + asked.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("Java", State.WRONG, f"{path} does not run: {error}", advice)
    if said is None:
        return Finding("Java", State.WRONG, f"{path} does not tell its version", advice)
    if int(said[1]) < least:
        return Finding("Java", State.WRONG, f"{path} is {said[1]}, the least is {least}", advice)
    return Finding("Java", State.OK, f"{said[1]}, {path}")


def tls(here: Here) -> Iterator[Finding]:
    """The files by which clients show themselves, and those of a process of the tracker."""
    s = here.settings
    try:
        credentials = Credentials.from_environment()
        if credentials.ca:
            credentials.channel("127.0.0.1:1", ()).close()
    except LowmarkError as error:
        yield Finding("TLS of clients", State.WRONG, str(error), "docs/security.md")
    else:
        files = (credentials.ca, credentials.cert, credentials.token_file)
        shown = ", ".join(file for file in files if file)
        yield Finding("TLS of clients", State.OK, shown or "none: a tracker without TLS")
    try:
        Security(s.tls_cert, s.tls_key, s.tls_ca, s.tokens).check(alone=True)
    except LowmarkError as error:
        yield Finding("TLS of lowmark serve", State.WRONG, str(error), "docs/security.md")
    else:
        yield Finding("TLS of lowmark serve", State.OK, s.tls_cert or "none")


def store(here: Here) -> Iterator[Finding]:
    """Where `lowmark serve` would record."""
    url = here.settings.store
    shown = redacted(url)
    try:
        check_store(url)
    except StoreError as error:
        yield Finding("store", State.WRONG, str(error), "docs/durability.md")
        return
    if not url.startswith("sqlite:"):
        yield Finding("store", State.OK, shown)
        return
    directory = Path(url.removeprefix("sqlite:")).absolute()
    there = next(path for path in (directory, *directory.parents) if path.exists())
    kind, free = _file_system(there), shutil.disk_usage(there).free
    if not os.access(there, os.W_OK | os.X_OK) or not there.is_dir():
        yield Finding(
            "store", State.WRONG, f"{shown}: {there} cannot be written",
            "name another directory: --store sqlite:DIRECTORY",
        )  # fmt: skip
    elif kind.startswith(NETWORK_FILE_SYSTEMS):
        yield Finding(
            "store", State.WRONG, f"{shown} is on {kind}, whose locks and syncs SQLite cannot rely on",
            "a directory of a local disk, or Redis (docs/durability.md)",
        )  # fmt: skip
    elif free < LEAST_FREE_BYTES:
        yield Finding("store", State.NOTE, f"{shown}: {free >> 20} MiB are free", "make room")
    else:
        yield Finding(
            "store", State.OK, f"{shown}, SQLite {sqlite3.sqlite_version}, {free >> 30} GiB free"
        )


def _file_system(path: Path) -> str:
    """The type of the file system of a path; empty where nobody tells."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    inside = [m for m in mounts if path.is_relative_to(m[1].encode().decode("unicode_escape"))]
    return max(inside, key=lambda mount: len(mount[1]), default=["", "", ""])[2]


def clock(here: Here) -> Iterator[Finding]:
    """Whether something keeps the clock, by which fronts label."""
    advice = (
        "let chrony or systemd-timesyncd keep it: clocks may differ by less than a pipeline's slack"
    )
    try:
        status = ctypes.create_string_buffer(1024)  # zero: adjtimex reads, and sets nothing
        state = ctypes.CDLL(None, use_errno=True).adjtimex(status)
        flags = int.from_bytes(status.raw[_STATUS_AT : _STATUS_AT + 4], sys.byteorder)
    except (AttributeError, OSError):
        state = -1
    if state < 0:
        yield Finding("clock", State.NOTE, "this system does not tell whether it is kept", advice)
    elif flags & _NOT_SYNCHRONISED:
        yield Finding("clock", State.NOTE, "nothing that this system knows of keeps it", advice)
    else:
        yield Finding("clock", State.OK, "synchronised")


_STATUS_AT = 5 * ctypes.sizeof(ctypes.c_long)
"""Where `status` is in a struct timex: behind modes (padded), offset, freq, maxerror and esterror."""


def tracker(here: Here) -> Iterator[Finding]:
    """Whether the tracker that commands ask answers, and is of this release; and the ports of one that would be started."""
    try:
        with Admin(here.target, ANSWER_S) as admin:
            shards = admin.routing().shards
    except LowmarkError as error:
        state = State.WRONG if here.is_named else State.NOTE
        advice = "start one: lowmark dev; or name it: --target HOST:PORT, LOWMARK_TARGET"
        yield Finding("tracker", state, str(error), advice)
        yield from _ports(here)
        return
    releases = sorted({shard.state.release or "unknown" for shard in shards})
    text = f"{len(shards)} shards at {here.target}, of release {', '.join(releases)}"
    away = [str(shard.state.shard) for shard in shards if not shard.state.connected]
    if away:
        yield Finding(
            "tracker", State.WRONG, f"{text}, of which {', '.join(away)} are away, and min time stands",
            "start them again, on their stores; lowmark shards shows them",
        )  # fmt: skip
    elif releases == [__version__]:
        yield Finding("tracker", State.OK, text)
    else:
        yield Finding(
            "tracker", State.NOTE, f"{text}; this is {__version__}",
            "docs/operations.md: upgrading, and going back",
        )  # fmt: skip


def _ports(here: Here) -> Iterator[Finding]:
    listen = here.settings.listen or DEFAULT_LISTEN
    dashboard = here.settings.dashboard_listen or f"{HOST}:{DEFAULT_DASHBOARD_PORT}"
    for name, address in (("tracker", listen), ("dashboard", dashboard)):
        what = f"port of the {name}"
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((host.strip("[]"), int(port)))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            yield Finding(
                what, State.WRONG, f"{address}: {reason}",
                "end what listens there, or name another: lowmark dev --port, lowmark serve --listen",
            )  # fmt: skip
        else:
            yield Finding(what, State.OK, f"{address} is free")


CHECKS: tuple[Check, ...] = (packages, spark, store, tls, clock, tracker)
