"""What `lowmark init` writes: a pipeline, a front, a query and a gated reader that run, to begin from.

They are templates beside this module, and only the pipeline's has a field: the moment at which it begins, which
is written down, so that applying the file again is no other pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from importlib.resources import files
from pathlib import Path

from tracker.errors import Code, StateError

PIPELINE_NAME = "orders"
PIPELINE, FRONT, QUERY, READER = NAMES = ("pipeline.yaml", "front.py", "query.py", "reader.py")
_START = "{start}"


class Source(Enum):
    """Where the data live: files, a Kafka topic, or files that become a Delta table."""

    FILES = "files"
    KAFKA = "kafka"
    DELTA = "delta"


EXTRAS = {
    Source.FILES: "server,spark",
    Source.KAFKA: "server,spark,kafka",
    Source.DELTA: "server,spark",
}
"""What of Lowmark the files of a source need, by its extras."""

_TEMPLATES = {
    Source.FILES: ("pipeline.yaml", "front_files.py", "query_files.py", "reader_files.py"),
    Source.KAFKA: ("pipeline.yaml", "front_kafka.py", "query_kafka.py", "reader_kafka.py"),
    Source.DELTA: ("pipeline.yaml", "front_files.py", "query_delta.py", "reader_delta.py"),
}


def write_files(directory: Path, source: Source, start: datetime) -> list[Path]:
    """Writes the files into a directory, made if missing; returns their paths. start: when the pipeline begins, with
    an offset. Raises StateError where one of them is there, OSError."""
    texts = {
        directory / name: _text(template, start)
        for name, template in zip(NAMES, _TEMPLATES[source], strict=True)
    }
    write_new(directory, texts)
    return list(texts)


def write_new(directory: Path, texts: Mapping[Path, str]) -> None:
    """Writes files into a directory, made if missing. Raises StateError where one of them is there, OSError."""
    there = [path.name for path in texts if path.exists() or path.is_symlink()]
    if there:
        raise StateError(
            f"{directory} has {', '.join(there)} already: nothing was written; name another directory, or take "
            "them away",
            Code.STATE_TAKEN,
        )
    directory.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        with path.open("x", encoding="utf-8") as file:  # not over a file that has come since
            file.write(text)


def _text(template: str, start: datetime) -> str:
    text = (files(__package__) / "templates" / f"{template}.template").read_text("utf-8")
    return text.replace(_START, start.isoformat(timespec="seconds"))
