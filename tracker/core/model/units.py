"""Units: files that are items as a whole, and what their names say.

A unit is named by its URI exactly as Spark's own logs name it, so that who wrote a file and who read
it, from two logs, come to the same ack value. Where a front chooses the file's name, the name tells
the slot: `s{slot}-{front}-{batch}.{suffix}`, so that a reader needs to ask nobody.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from tracker.core.model.slots import HIGHEST_SLOT, LOWEST_SLOT

MAX_FILE_NAME_BYTES = 255
"""What local file systems take as one name; hidden names for writing are no longer than this."""

_HIDDEN_BYTES = len("..tmp")
_URI_PUNCTUATION = "/_-!.~'()*,;:$&+=@"
"""What java.net.URI leaves as it is in a path, besides letters and digits of any script."""

_WITH_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(/.*)", re.DOTALL)
_ONE_SCHEME = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "gcs": "gs"}
_HDFS_PORT = ":8020"

_LABELLED = re.compile(
    r"s(0|-?[1-9][0-9]{0,18})-([A-Za-z0-9_.~%-]+)-([0-9]{8}|[1-9][0-9]{8,18})\.([A-Za-z0-9.]+)"
)


@dataclass(frozen=True, slots=True, order=True)
class LabelledFile:
    """What the name of a front's file says. batch: the front's own number of it, from 0."""

    slot: int
    front: str
    batch: int
    suffix: str


def unit_name(path: str) -> str:
    """The name of the unit that is the file at an absolute local path, `file:///...`, or at a plain
    location `scheme://authority/path`: as Spark logs it, under one scheme (`one_scheme`). Spaces, control
    characters, `%` and what a URI reserves are percent-encoded in the path; letters of other scripts
    stay. Raises ValueError if the path is not absolute."""
    begin = "file://"
    if not path.startswith("/"):
        found = _WITH_SCHEME.fullmatch(path)
        if found is None:
            raise ValueError(f"{path!r} is not an absolute path; a unit is named by where it is")
        begin, path = one_scheme(found[1], found[2]), found[3]
    return begin + "".join(_encoded(c) for c in re.sub("/+", "/", path))


def canonical_name(name: str) -> str:
    """The one name of a unit that a log may name by several: `s3a://bucket/key` is `s3://bucket/key`.
    Names of local files are as they were logged."""
    found = None if name.startswith("file:") else _WITH_SCHEME.fullmatch(name)
    return name if found is None else one_scheme(found[1], found[2]) + found[3]


def one_scheme(scheme: str, authority: str) -> str:
    """How the names of all units of a store begin, whichever of its schemes a program reaches it by:
    `s3a` and `s3n` are `s3`, `abfss` is `abfs`, `gcs` is `gs`; the port that HDFS has anyway is left out."""
    scheme = scheme.lower()
    if scheme == "hdfs":
        authority = authority.removesuffix(_HDFS_PORT)
    return f"{_ONE_SCHEME.get(scheme, scheme)}://{authority}"


def local_path(name: str) -> str:
    """The path of the local file that a unit is: the inverse of `unit_name`. Raises ValueError."""
    for prefix in ("file:///", "file:/"):
        if name.startswith(prefix):
            return "/" + unquote(name[len(prefix) :], errors="strict")
    raise ValueError(f"unit {name!r} is not a local file: its name does not begin with file:/")


def file_name(slot: int, front: str, batch: int, suffix: str) -> str:
    """The name of a front's file whose items all have one slot, without a directory.

    batch: the front's own number of the file, from 0; suffix: `parquet`, `json`, without a dot. The
    front's name is percent-encoded, so that any is possible. Raises ValueError.
    """
    if not LOWEST_SLOT <= slot <= HIGHEST_SLOT:
        raise ValueError(f"slot {slot} is not within {LOWEST_SLOT} to {HIGHEST_SLOT}")
    if not 0 <= batch <= HIGHEST_SLOT:
        raise ValueError(f"batch {batch} of front {front!r} is not within 0 to {HIGHEST_SLOT}")
    name = f"s{slot}-{quote(front, safe='')}-{batch:08d}.{suffix}"
    if _LABELLED.fullmatch(name) is None:
        raise ValueError(
            f"front {front!r} with suffix {suffix!r} makes no file name: the front needs a name, the "
            "suffix letters and digits without a leading dot"
        )
    if len(name) > MAX_FILE_NAME_BYTES - _HIDDEN_BYTES:
        raise ValueError(
            f"front {front!r} makes a file name of {len(name)} bytes, the limit is "
            f"{MAX_FILE_NAME_BYTES - _HIDDEN_BYTES}; give the front a shorter name"
        )
    return name


def parse_file_name(name: str) -> LabelledFile | None:
    """What a name made by `file_name` says; None if it was not made by it. A file name without a
    directory, not percent-encoded for a URI."""
    match = _LABELLED.fullmatch(name)
    if match is None:
        return None
    slot, front, batch, suffix = match.groups()
    labelled = LabelledFile(int(slot), unquote(front), int(batch), suffix)
    try:
        again = file_name(labelled.slot, labelled.front, labelled.batch, suffix)
    except ValueError:
        return None
    return labelled if again == name else None


def slot_in_name(name: str) -> int | None:
    """The slot that a unit's name tells (a URI, or a file name alone); None if it tells none."""
    last = name.rsplit("/", 1)[-1]
    labelled = parse_file_name(unquote(last) if "/" in name else last)
    return None if labelled is None else labelled.slot


def _encoded(character: str) -> str:
    if character.isascii():
        plain = character.isalnum() or character in _URI_PUNCTUATION
    else:
        plain = not _is_space_or_control(character)
    return character if plain else "".join(f"%{byte:02X}" for byte in character.encode())


def _is_space_or_control(character: str) -> bool:
    """Java's Character.isSpaceChar or isISOControl, beyond ASCII."""
    return character in "\x85\u00a0\u1680\u2028\u2029\u202f\u205f\u3000" or (
        "\x80" <= character <= "\x9f" or "\u2000" <= character <= "\u200a"
    )
