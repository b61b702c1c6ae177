"""Nothing in the repository depends on where it was written."""

from __future__ import annotations

import re
import subprocess

from tests.docs.pages import ROOT
from tests.waits import HANG_S

KNOWN_HOSTS = {
    "json-schema.org",  # the dialect of a schema
    "www.apache.org",
    "www.w3.org",
    "docs.astral.sh",
    "www.sqlite.org",  # the format of a file
    "github.com",  # published works that the protocol's paper refers to
    "timelydataflow.github.io",
    "localhost",
    "127.0.0.1",
}
ABSOLUTE = re.compile(r"(?<![\w.*{}/])/(?:work|root|home|Users)/\w+")
HOST = re.compile(r"https?://([\w.-]+)")


def _texts() -> list[tuple[str, str]]:
    """Tracked text files by name; generated stubs and the word-count text are not ours to word."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    ).stdout.split("\0")
    found = []
    for name in listed:
        path = ROOT / name
        if (
            not name
            or not path.is_file()
            or (name.startswith("proto/acker/v1/") and "_pb2" in name)
        ):
            continue
        try:
            found.append((name, path.read_text()))
        except UnicodeDecodeError:
            continue
    assert len(found) > 50
    return found


def test_no_file_names_a_place_on_a_machine() -> None:
    for name, text in _texts():
        place = ABSOLUTE.search(text)
        assert place is None, f"{name} names {place[0]}"


def test_no_file_names_a_host_that_is_not_known() -> None:
    for name, text in _texts():
        # Names below .example are nobody's, and never will be.
        unknown = {host for host in HOST.findall(text) if not host.endswith(".example")}
        unknown -= KNOWN_HOSTS
        assert not unknown, f"{name} names {unknown}"
