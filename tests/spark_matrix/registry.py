"""The rows, by number, and the sessions that they run in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.spark_matrix.world import World


@dataclass(frozen=True)
class Profile:
    """A kind of Spark session: its name in the table, its master and its settings."""

    name: str
    master: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.name)


LOCAL = Profile("local", "local[2,2]")
"""Two cores; a task may fail once."""

CLUSTER = Profile("cluster", "local-cluster[2,1,1024]")
"""Two executors, each a process with one core."""

TWO_HOSTS = "two hosts"
"""The master of profiles that need a cluster on two addresses (`standalone`)."""

BOTH = (LOCAL, CLUSTER)

Body = Callable[["World"], None]


@dataclass(frozen=True)
class Row:
    """One line of the matrix. `body` is None for what is not covered; then `why` says why."""

    number: str
    name: str
    body: Body | None
    profiles: tuple[Profile, ...]
    quick: tuple[Profile, ...] = ()
    """The sessions in which it is part of the quick form."""
    why: str = ""
    since: str = ""
    """The first minor version of PySpark that can do it; on an older one it is refused."""


ROWS: list[Row] = []


def row(
    number: str, name: str, *profiles: Profile, quick: bool | Profile = False, since: str = ""
) -> Callable[[Body], Body]:
    """Registers a row that runs once in a session of each profile (default: local). quick: whether all of them are
    part of the quick form, or which one is."""
    all_profiles = profiles or (LOCAL,)
    in_quick = (quick,) if isinstance(quick, Profile) else all_profiles if quick else ()

    def register(body: Body) -> Body:
        _add(Row(number, name, body, all_profiles, in_quick, since=since))
        return body

    return register


def not_covered(number: str, name: str, why: str) -> None:
    """Lists what the matrix should have and has not: the run then says that it is not whole."""
    _add(Row(number, name, None, (LOCAL,), why=why))


def _add(added: Row) -> None:
    assert all(known.number != added.number for known in ROWS), added.number
    ROWS.append(added)


def in_order(numbers: Row) -> tuple[int, ...]:
    """Sorts rows as people read their numbers."""
    return tuple(int(part) for part in numbers.number.split("."))
