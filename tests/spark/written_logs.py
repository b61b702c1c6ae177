"""The logs of a query, written as Spark writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

QUERY = "5f0c8a5e-98b4-4f5a-9c2b-7a1f0e7f0b11"


def source_file(slot: int) -> str:
    return f"file:///data/in/s{slot}-front-{slot:08d}.parquet"


class Logs:
    """The checkpoint of a query that reads files and writes them."""

    def __init__(self, directory: Path) -> None:
        self.checkpoint, self.sink = directory / "cp", directory / "out"
        for folder in ("cp/offsets", "cp/commits", "cp/sources/0", "out/_spark_metadata"):
            (directory / folder).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
        self._log_offset = -1

    def batch(
        self, number: int, slot: int, source: str | None = None, *, others: Sequence[str] = ()
    ) -> None:
        """One that reads one file and writes one. others: the offsets of further sources."""
        self.windowed(number, [source or source_file(slot)], at_ms=0, next_ms=0, others=others)

    def windowed(
        self,
        number: int,
        sources: Sequence[str],
        *,
        at_ms: int,
        next_ms: int,
        written: int = 1,
        others: Sequence[str] = (),
    ) -> None:
        """One that reads files, has watermarks, and writes so many files."""
        if sources:
            self._log_offset += 1
            entries = [json.dumps({"path": p, "batchId": self._log_offset}) for p in sources]
            self.write("cp/sources/0", self._log_offset, "\n".join(["v1", *entries]))
        header = {"batchWatermarkMs": at_ms, "batchTimestampMs": 1_700_000_000_000 + number}
        offset = json.dumps({"logOffset": self._log_offset})
        offsets = "\n".join(["v1", json.dumps(header), offset, *others])
        self.write("cp/offsets", number, offsets)
        parts = [f"file://{self.sink}/part-{number}-{n}.parquet" for n in range(written)]
        lines = [json.dumps({"path": path, "size": 1}) for path in parts]
        self.write("out/_spark_metadata", number, "\n".join(["v1", *lines]))
        self.write("cp/commits", number, f'v1\n{{"nextBatchWatermarkMs":{next_ms}}}')

    def write(self, folder: str, number: int, text: str) -> None:
        hidden = self.checkpoint.parent / folder / f".{number}"
        hidden.write_text(text)
        hidden.rename(hidden.with_name(str(number)))
