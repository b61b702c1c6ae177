"""PostgreSQL servers of the tests' own: on free ports of this host, in directories of theirs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import psycopg

from tests.cluster.network import fresh_address
from tests.cluster.part import PartProcess
from tests.waits import HANG_S, until

FAST_TO_MAKE = ("--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "--username=postgres")
COMMITTED = "extract(epoch FROM pg_xact_commit_timestamp(xmin))"
"""In SQL: when a row was committed, in seconds of Unix time, by the server's clock."""
_USERS = ("postgres", "nobody")
"""Who a server runs as where this process is root, which it refuses to be."""


def postgres_bin() -> Path | None:
    """The directory of the server's programs; None where there is none."""
    found = shutil.which("initdb")
    candidates = [os.environ.get("POSTGRES_BIN", ""), os.path.dirname(found) if found else ""]
    candidates += [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    there = [Path(each) for each in candidates if each and (Path(each) / "initdb").exists()]
    return there[-1] if there else None


class PostgresServer(PartProcess):
    """One server; started, killed and started again with what it had on disk."""

    def __init__(self, log: Path) -> None:
        """log: what it says, and what making its directory says."""
        programs = postgres_bin()
        assert programs is not None, "no PostgreSQL: run scripts/ensure-postgres"
        self.host, _, port = fresh_address().rpartition(":")
        self.port = int(port)
        self._programs = programs
        self._directory = Path(tempfile.mkdtemp(prefix="lowmark-postgres-"))
        self._as = _as_another(self._directory)
        command = [
            *self._as, str(programs / "postgres"), "-D", str(self._directory / "data"), "-p", str(self.port),
            "-c", "track_commit_timestamp=on", "-c", f"listen_addresses={self.host}", "-c", f"unix_socket_directories={self._directory}",
        ]  # fmt: skip
        super().__init__(command, log, self._answers)

    def dsn(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@{self.host}:{self.port}/{database}"

    def start(self) -> Self:
        """Starts it, the first time in a new directory; returns when it answers."""
        data = self._directory / "data"
        if not data.exists():
            made = subprocess.run(
                [*self._as, str(self._programs / "initdb"), *FAST_TO_MAKE, "-D", str(data)],
                capture_output=True, text=True, check=False, cwd=self._directory, timeout=HANG_S,
            )  # fmt: skip
            assert made.returncode == 0, made.stdout + made.stderr
        return super().start()

    def kill(self) -> None:
        """kill -9 of all its processes: those of connections outlive the first one by a moment, in which they
        still commit, and keep another one from starting."""
        with psycopg.connect(self.dsn()) as connection:
            rows = connection.execute("SELECT pid FROM pg_stat_activity").fetchall()
        super().kill()
        for (pid,) in rows:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not any(_lives(pid) for (pid,) in rows), "its processes do not end")

    def new_database(self, name: str) -> str:
        """Makes a database; returns its DSN."""
        self.run(f'CREATE DATABASE "{name}"')
        return self.dsn(name)

    def run(self, *statements: str, database: str = "postgres") -> None:
        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def remove(self) -> None:
        """Ends it, and removes what it has on disk."""
        self.discard()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            # expires: asked again until it is ready
            with psycopg.connect(self.dsn(), connect_timeout=5) as connection:
                return connection.execute("SELECT 1").fetchone() is not None
        except psycopg.OperationalError:
            return False


def _lives(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    found = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    return found.stdout.strip()[:1] not in ("", "Z")


def _as_another(directory: Path) -> Sequence[str]:
    """How the server is started as a user who is not root and owns its directory."""
    if os.geteuid() != 0:
        return ()
    for user in _USERS:
        try:
            shutil.chown(directory, user)
        except LookupError:
            continue
        return ("setpriv", f"--reuid={user}", "--clear-groups", "--")
    raise AssertionError(f"no user to run PostgreSQL as, of {_USERS}")
