"""The zip for `--py-files`: what Python workers need to acknowledge, and what starts a local tracker.

The workers' side imports the standard library and NumPy. The local tracker's own process, which a
worker starts from the same zip, also needs gRPC and protobuf where it runs.
"""

from __future__ import annotations

import importlib.util
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

PACKAGES = (
    "local_tracker", "local_tracker.core", "local_tracker.worker", "local_tracker.agent",
    "tracker", "tracker.core", "tracker.core.cut", "tracker.core.home", "tracker.core.insight",
    "tracker.core.log", "tracker.core.membership", "tracker.core.model", "tracker.core.pipeline",
    "tracker.core.process", "tracker.core.replication", "tracker.core.shard",
    "tracker.wire", "tracker.client", "tracker.metrics", "tracker.files",
    "acker", "acker.v1",
    "lowmark",
)  # fmt: skip
"""Packages whose own modules go in; sub-packages that are not named do not."""

_SAME_MOMENT = (2020, 1, 1, 0, 0, 0)
"""Every file's time, so that the same code gives the same zip."""


def build_zip(path: str) -> str:
    """Writes the zip to `path` and returns the path. An existing file is replaced at once."""
    unfinished = f"{path}.unfinished"
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in sorted(_files()):
            entry = zipfile.ZipInfo(name, _SAME_MOMENT)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes())
    os.replace(unfinished, path)
    return path


def _files() -> Iterator[tuple[str, Path]]:
    """(name in the zip, file) of every module."""
    for package in PACKAGES:
        # The packages' folders, without importing what they need.
        top, *rest = package.split(".")
        spec = importlib.util.find_spec(top)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"package {top!r}, which workers need, is not installed")
        folder = Path(next(iter(spec.submodule_search_locations)), *rest)
        for file in folder.glob("*.py"):
            yield "/".join((*package.split("."), file.name)), file
