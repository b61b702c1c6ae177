"""A log in a store: a file for each record, `000000000012.json`, created only if absent.

Whoever takes the log begins a run of it, by a record at the next free number. Whoever had it before finds that
number taken at its next word, and is refused: so two never write one log, however late either of them comes, and
nothing is locked. The number that an ended run would write next stays taken for ever, since records that begin a
run are never deleted; the others may be, from the first on, by the run that has the log. A beginning names the
records before it that counted then, so that only the last one needs to be read.

A listing must show what had been created before it was asked for, as those of S3, Google, Azure and HDFS do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from tracker.errors import FilesError
from tracker.files.interface import Files
from tracker.files.locations import child

MAX_RECORD_BYTES = 16 * 2**20
"""The most that is read of a record."""
MAX_TAKEN_FIRST = 100
"""How often whoever takes a log may find the next number taken before it gives up: by records of a run that
goes on, which are few in that time."""

_SUFFIX = ".json"


class TakenOverError(FilesError):
    """Another process has begun a run of the log."""


@dataclass(frozen=True, slots=True)
class Record:
    """number: from 1, growing. value: None where a run begins; before: then the numbers of the records before it,
    but for beginnings, and some that have been deleted since."""

    number: int
    value: dict[str, Any] | None
    before: tuple[int, ...] = ()


class Chain:
    """A log in a directory of a store. One thread writes it; a reader needs a `Chain` of its own. What it
    does raises FilesError, and AwayError where it may be done again."""

    def __init__(self, files: Files, directory: str) -> None:
        self.directory, self._files = directory, files
        self._run, self._next = "", 0  # of the run that has been begun here
        self._unsettled: bytes | None = None
        """The next record, while it is not known whether it is there."""

    def numbers(self) -> list[int]:
        """Of the records that there are, in order; one request for a thousand."""
        names = (name.removesuffix(_SUFFIX) for name in self._files.names(self.directory))
        return sorted(int(name) for name in names if len(name) == 12 and name.isascii() and name.isdigit())  # fmt: skip

    def read(self, numbers: Iterable[int]) -> list[Record]:
        """These records, but for those that have been deleted."""
        found = (self._read(number) for number in numbers)
        return [record for record in found if record is not None]

    def take(self) -> list[Record]:
        """Begins a run; returns the records before it that are there, in order, but for beginnings."""
        run = uuid4().hex
        for _ in range(MAX_TAKEN_FIRST):
            numbers = self.numbers()
            number, records = max(numbers, default=0) + 1, self._counting(numbers)
            data = _text(run, None, [record.number for record in records])
            if not self._files.create_if_absent(self._at(number), data):
                continue
            if max(self.numbers(), default=number) <= number:
                self._run, self._next = run, number + 1
                return records
            # The number was free since a run that goes on had written, and deleted it, meanwhile.
        raise TakenOverError(
            f"{self.directory} is written by another process, which was ahead {MAX_TAKEN_FIRST} times; end one "
            f"of the two"
        )

    def _counting(self, numbers: list[int]) -> list[Record]:
        """Of the records that there are, those that are no beginnings, in order."""
        behind: list[Record] = []
        for number in reversed(numbers):
            record = self._read(number)
            if record is not None and record.value is None:
                named = set(record.before)
                return self.read(n for n in numbers if n in named) + behind[::-1]
            behind += [] if record is None else [record]
        return behind[::-1]

    def append(self, value: dict[str, Any]) -> int:
        """Adds a record to the log; returns its number. After AwayError it may be there: then it is added
        before any other is. Raises TakenOverError, and then nothing was added."""
        assert self._run, "the log was not taken"
        data = _text(self._run, value)
        if self._unsettled not in (None, data):
            self._add(self._unsettled)
        return self._add(data)

    def _add(self, data: bytes) -> int:
        number, self._unsettled = self._next, data
        created = self._files.create_if_absent(self._at(number), data)
        self._unsettled = None
        if not created:
            raise TakenOverError(
                f"{self.directory} has been taken over by another process, which has written record "
                f"{number}; end one of the two"
            )
        self._next = number + 1
        return number

    def delete(self, numbers: Iterable[int]) -> None:
        """Deletes records of which none begins a run, in order."""
        for number in sorted(numbers):
            self._files.delete(self._at(number))

    def _at(self, number: int) -> str:
        return child(self.directory, f"{number:012d}{_SUFFIX}")

    def _read(self, number: int) -> Record | None:
        raw = self._files.read_whole(self._at(number), MAX_RECORD_BYTES, is_there=True)
        if raw is None:
            return None
        try:
            found = json.loads(raw)
            value, before = found["value"], tuple(map(int, found["before"]))
            if not isinstance(value, dict | None):
                raise TypeError(f"value {value!r}")
        except (KeyError, RecursionError, TypeError, ValueError) as error:
            raise FilesError(f"{self._at(number)} is damaged: restore it ({error!r})") from None
        return Record(number, value, before)


def _text(run: str, value: dict[str, Any] | None, before: Sequence[int] = ()) -> bytes:
    return json.dumps({"run": run, "value": value, "before": list(before)}).encode()
