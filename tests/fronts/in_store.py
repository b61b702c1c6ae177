"""Fronts whose record is in an object store, and processes of theirs that die at any request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tracker.files import STORES, Files

_REQUESTS = ("pipe_file", "cat_file", "cp_file", "rm_file", "ls", "find", "call_s3")


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def requests_of(where: str, on_request: Callable[[Callable[[], Any]], Any]) -> Iterator[None]:
    """Meanwhile each request to a store goes by `on_request`, which may send it by calling what it is
    given."""
    made: Any = STORES.files(where)
    client = made._fs  # noqa: SLF001 - what sends the requests
    patches = []
    for name in _REQUESTS:
        real = getattr(client, name)

        def asked(*arguments: Any, _real: Any = real, **options: Any) -> Any:
            return on_request(lambda: _real(*arguments, **options))

        patches.append(patch.object(client, name, asked))
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


@contextmanager
def killed_at(where: str, request: int, *, arrives: bool) -> Iterator[None]:
    """The process ends at a request (from 0), which has arrived or has not, and sends nothing more."""
    count = 0

    def ask(send: Callable[[], Any]) -> Any:
        nonlocal count
        count += 1
        if count == request + 1 and arrives:
            send()
        if count > request:
            raise Killed
        return send()

    with requests_of(where, ask):
        yield


def counted(where: str) -> int:
    """How many requests the store of a location was sent so far."""
    files: Files = STORES.files(where)
    return sum(files.requests.counted().values())
