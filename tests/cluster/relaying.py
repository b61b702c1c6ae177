"""A relay of a tracker, as a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.children import Running
from tests.cluster.network import fresh_address
from tests.waits import until


@contextmanager
def relay(target: str, directory: Path, *options: str, **environment: str) -> Iterator[str]:
    """One that serves until the end; gives its address."""
    address = fresh_address()
    process = Running(
        "tests.cluster.serving", "", "--", "serve", "--listen", address, "--set", f"relay={target}", *options,
        errors=directory / f"relay-{address.rpartition(':')[2]}.log", environment=environment,
    )  # fmt: skip
    with process:
        until(lambda: "relaying" in process.errors(), process.errors)
        yield address
        assert process.stop() == 0, process.errors()
