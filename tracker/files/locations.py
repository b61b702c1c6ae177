"""Locations: one way of writing where a file is.

A location is an absolute path on this machine, or `scheme://authority/path`, plainly: without percent
signs for what a URI cannot hold, doubled slashes, or a slash at the end. What has several schemes by the
programs that read it (`s3`, `s3a`) has one here, so that all who name a file name it alike.
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from tracker.core.model.units import one_scheme

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


def location(text: str) -> str:
    """The location that a path, a URI, or a unit's name means. A path without a scheme is one of this
    machine; what has a scheme is a URI, in which `%20` is a space. Raises ValueError."""
    found = _SCHEME.fullmatch(text)
    if found is None:
        return os.path.abspath(text)
    scheme, rest = found[1].lower(), found[2]
    authority, path = "", rest
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
    return location_of(scheme, authority, unquote(path))


def location_of(scheme: str, authority: str, path: str) -> str:
    """The location with these parts, plainly written. Raises ValueError."""
    if path and not path.startswith("/"):
        raise ValueError(
            f"{scheme}:{path} is no location: after {scheme}: comes a path, or // with a host or bucket"
        )
    if scheme == "file":
        if authority not in ("", "localhost") or not path:
            raise ValueError(f"file://{authority}{path} is not a file of this machine")
        return os.path.abspath(re.sub("/+", "/", path))
    return one_scheme(scheme, authority) + re.sub("/+", "/", path).rstrip("/")


def text_of(where: str) -> str:
    """The text that means a location: the inverse of `location`."""
    return where.replace("%", "%25") if scheme(where) else where


def scheme(where: str) -> str:
    """The scheme of a location; empty for a path of this machine."""
    return "" if where.startswith("/") else where.partition(":")[0]


def child(directory: str, name: str) -> str:
    """The location of a file or folder by its name or relative path in a directory."""
    return f"{directory.rstrip('/')}/{name}"


def parent(where: str) -> str:
    """The directory that a location is in; the top of a store is in itself."""
    if where.count("/") <= (1 if where.startswith("/") else 2):
        return "/" if where.startswith("/") else where
    return where.rpartition("/")[0]


def parents(where: str) -> list[str]:
    """The directories that a location is in, the innermost first."""
    found = []
    while (above := parent(where)) != where:
        found.append(above)
        where = above
    return found
