"""A directory of files that fronts share: those who put files there, the members, and a reader."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.cluster.children import Running, discard
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.core.model import Cells, TickContent, Unit
from tracker.core.model.ack_values import unit_value
from tracker.core.model.units import parse_file_name, unit_name


class SharedDirectory:
    """`source`, in which whole files appear; `labelled`, to which members move them; the members by
    name, each a process; and a reader that consumes what is labelled."""

    def __init__(
        self,
        target: str,
        pipeline: str,
        path: Path,
        *,
        anyone_after_ms: int,
        histories: Path | None = None,
        reading: Callable[[str, int], None] = lambda unit, slot: None,
    ) -> None:
        """histories: where members write down their ticks, if they do; reading: is told of each file's
        unit and slot before its tick is committed."""
        self.target, self.pipeline, self.path = target, pipeline, path
        self.source, self.labelled = path / "source", path / "labelled"
        for directory in (self.source, self.labelled):
            directory.mkdir(parents=True)
        self.members: dict[str, Running] = {}
        self.put = 0
        """Files that were put there; each holds its number."""
        self.read: dict[str, int] = {}
        """What each labelled file held, by its name."""
        self._anyone_after_ms, self._histories, self._reading = anyone_after_ms, histories, reading
        self._reader = NodeClient(target, pipeline, "reader")
        self._reader.join(HANG_S)

    def come(self, name: str) -> Running:
        history = [str(self._histories / f"{name}.jsonl")] if self._histories else []
        self.members[name] = member = Running(
            "tests.processes.group_member", self.target, self.pipeline, name, str(self.source),
            str(self.labelled), str(self._anyone_after_ms), *history,
            errors=self.path / f"{name}.log",
        )  # fmt: skip
        member.start()
        member.until_says("started")
        return member

    def leave(self, name: str) -> None:
        member = self.members.pop(name)
        member.tell("finish")
        member.ends_well()

    def kill(self, name: str) -> None:
        self.members.pop(name).kill()

    def put_files(self, count: int) -> None:
        """Whole files appear."""
        for _ in range(count):
            hidden = self.source / f".{self.put}.json"
            hidden.write_text(str(self.put))
            os.rename(hidden, self.source / f"{self.put}.json")
            self.put += 1

    def waiting(self) -> list[str]:
        return [name for name in os.listdir(self.source) if name[0] != "."]

    def consume(self) -> None:
        """What is labelled and was not read yet has been processed; returns when that is handed over."""
        for name in sorted(os.listdir(self.labelled)):
            labels = parse_file_name(name)
            if labels is None or name in self.read:
                continue
            path = self.labelled / name
            unit = unit_name(str(path))
            self._reading(unit, labels.slot)
            content = TickContent(
                consumed=Cells.of([(0, labels.slot, unit_value(unit), 1)]),
                units_consumed=(Unit(0, unit, labels.slot),),
            )
            self._reader.commit(content, HANG_S)
            self.read[name] = int(path.read_text())

    def flush(self) -> None:
        """Returns when all that was consumed is durable."""
        self._reader.flush(HANG_S)

    def close(self) -> None:
        discard(self.members.values())
        self._reader.close()
