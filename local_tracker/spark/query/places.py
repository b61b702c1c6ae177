"""What sources of files may list, by their places."""

from __future__ import annotations

import re

from tracker.files import parent

_WILDCARD = re.compile(r"[*?\[\]{},\\]")


def may_list(place: str, file: str) -> bool:
    """Whether a source of files whose place this is, perhaps with wildcards, may list a file; both are
    locations. True wherever it is not known."""
    (store, wanted), (other, path) = _parts(place), _parts(file)
    if store and other and store != other:
        return False
    for pattern, name in zip(wanted, path, strict=False):
        literals = _WILDCARD.split(pattern)
        if len(literals) == 1 and pattern != name:
            return False
        if not name.startswith(literals[0]):
            return False
        if "{" in pattern:
            return True  # there may be slashes among what it leaves open
        if not name.endswith(literals[-1]):
            return False
    return len(wanted) <= len(path)


def _parts(where: str) -> tuple[str, list[str]]:
    """Its store, empty where it names none, and the names of its path."""
    store, named, rest = where.rpartition("://")
    host, _, path = rest.partition("/")
    return (f"{store}://{host}" if named else ""), [part for part in path.split("/") if part]


def folder(file: str) -> str:
    """The directory, by its location, that was listed for a file: above the folders of partitions."""
    where = parent(file)
    while "=" in where.rpartition("/")[2]:
        where = parent(where)
    return where
