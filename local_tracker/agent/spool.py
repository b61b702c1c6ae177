"""The durable record of an eager local tracker (rule 9): which steps it took, in which flush.

A file of records, each with its lengths and checksums, written and synced before it matters:

- *identity*: the name of this record, always the first, which no other record ever has; the generation
  of the pipeline that all of it is of, where that is known; and whether a sender's last step has been forgotten;
- *flush* number, with its steps: they belong to this flush, and are committed with it, at the latest by the next
  process; and the name of the record above to which it goes, where that is another local tracker's;
- *more* number, with steps, if any: they belong to this flush, too, of which the steps before were recorded ahead;
  it goes to this record above. A process that is there for it commits all of them as one;
- *split* number: the flush was refused as a whole, and its steps are flushes of their own instead,
  numbered on from it in their order;
- *done* number, with the reason if the flush was refused: it is settled.

After a crash, what is flushed and not done is committed again under its number (the tracker knows a
repeated one), and a step that a worker hands over again is known by its sender and number.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from local_tracker.core.window import Step
from local_tracker.worker.protocol import CellReader, pack_cells, promise_item, promise_of
from tracker.core.model import HoldMove
from tracker.errors import Code, HandOverError

MAX_SENDERS = 10_000
"""Senders whose last step is remembered; of more, the longest silent whose steps are settled are forgotten."""
MAX_FILE_BYTES = 8 << 20
"""Above it the record is written anew, with what is still needed."""

_LENGTHS = struct.Struct(">III")  # of header and body, checksum of both
# Without it a damaged length would look like a file cut off.
_LENGTHS_CHECKSUM = struct.Struct(">I")
_PREFIX_BYTES = _LENGTHS.size + _LENGTHS_CHECKSUM.size


@dataclass(frozen=True, slots=True)
class LastStep:
    """The last step of a sender, and what became of it: `error` (code, message) if it was refused;
    `settled` False while its flush is not done."""

    number: int
    settled: bool
    error: tuple[str, str] | None = None


class Spool:
    """A spool file; of one process at a time."""

    def __init__(self, path: str, of: str = "") -> None:
        """Opens a file, or makes one. of: under which name its flushes are known above, so that none is committed under another
        one; empty if the caller does not say. Raises HandOverError if another process has it or it can't be
        read, or if it has flushes of another one that are not known to be done."""
        self._path = Path(path)
        self.pending: OrderedDict[int, tuple[Step, ...]] = OrderedDict()
        self.above: dict[int, str] = {}
        """Of what is pending: the name of the record above to which it goes first."""
        self.senders: OrderedDict[str, LastStep] = OrderedDict()
        self.forgot = False
        """Whether a sender has been forgotten: then nobody knows of a step that arrives again whether it was taken."""
        self.last_number = 0
        self.identity = uuid.uuid4().hex
        self.generation: int | None = None
        """How often the pipeline had been restarted when this record was begun."""
        self._of = ""
        self.fresh = True
        """Whether there was no record, or not even its name in it: then nothing is known of steps that
        arrive again."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._lock()
            # Another process may have written it anew meanwhile: then a lock on the file of before keeps nobody out.
            if not os.path.samestat(os.fstat(self._file), self._path.stat()):
                raise self._in_use()
            self._read()
            if self.pending and self._of and of not in ("", self._of):
                raise HandOverError(
                    f"the spool {self._path} holds flushes of {self._of} that are not known to be done, and this is {of}, "
                    "under which they would count once more: start it as before until it has ended in order, or give it a "
                    "spool of its own",
                    Code.REFUSED_CONFLICT,
                )
            self._of = of or self._of
            self._rewrite()
        except BaseException:
            os.close(self._file)
            raise

    def flush(self, number: int, steps: tuple[Step, ...], above: str = "") -> None:
        """Records a flush before it is committed, and to which record above it goes; or more of one that is
        recorded and not committed yet."""
        kind = "more" if number in self.pending else "flush"
        self._append({"kind": kind, "number": number, "above": above}, steps)
        self._take_flush(number, steps, above)
        if os.fstat(self._file).st_size > MAX_FILE_BYTES:
            self._rewrite()

    def split(self, number: int) -> None:
        """Records that a flush's steps are flushes of their own."""
        self._append({"kind": "split", "number": number})
        self._take_split(number)

    def done(self, number: int, error: tuple[str, str] | None = None) -> None:
        """Records that a flush is durable, or has been refused. Not synced: at worst it is committed
        again after a crash of the machine, under its number, by which whoever is above knows it."""
        self._append({"kind": "done", "number": number, "error": error}, sync=error is not None)
        self._take_done(number, error)

    def sync(self) -> None:
        """What was recorded as done stays so, also where the machine crashes. Raises HandOverError."""
        try:
            os.fdatasync(self._file)
        except OSError as error:
            raise HandOverError(
                f"the spool {self._path} cannot be written: {error}", Code.HAND_OVER_UNKNOWN
            ) from error

    def begin_generation(self, generation: int, last_flush: int = 0) -> int:
        """The pipeline is in this generation: nothing of an older one may count in it, so the record begins
        anew, under another name, where it was of one. Returns how many flushes are given up. last_flush: the number of the
        last one of this generation that whoever is above has, and the record too unless it began behind it. Raises
        HandOverError."""
        if generation == self.generation and last_flush > self.last_number:
            raise HandOverError(
                f"the spool {self._path} ends at flush {self.last_number}, and flush {last_flush} of this node is durable: "
                "it is an older copy, or the node has run with another spool since. Put back the one that has all of "
                "them, or remove this one: whoever hands a step over again is then told that its outcome is unknown",
                Code.REFUSED_ROLLED_BACK,
            )
        given_up = 0
        if self.generation not in (None, generation):
            given_up = len(self.pending)
            self.identity, self.fresh, self.forgot = uuid.uuid4().hex, True, False
            for record in (self.pending, self.above, self.senders):
                record.clear()
        if self.generation != generation:
            self.generation, self.last_number = generation, max(self.last_number, last_flush)
            self._rewrite()
        return given_up

    def close(self) -> None:
        os.close(self._file)

    # --- inside -----------------------------------------------------------------------------------

    def _take_flush(self, number: int, steps: tuple[Step, ...], above: str) -> None:
        self.pending[number] = self.pending.get(number, ()) + steps
        self.above[number] = above
        self.last_number = max(self.last_number, number)
        for step in steps:
            self.senders[step.sender] = LastStep(step.number, settled=False)
            self.senders.move_to_end(step.sender)
        while len(self.senders) > MAX_SENDERS:
            settled = next((sender for sender, last in self.senders.items() if last.settled), None)
            if settled is None:
                break
            del self.senders[settled]
            self.forgot = True

    def _take_split(self, number: int) -> None:
        above = self.above.pop(number)
        for index, step in enumerate(self.pending.pop(number)):
            self._take_flush(number + 1 + index, (step,), above)

    def _take_done(self, number: int, error: tuple[str, str] | None) -> None:
        del self.above[number]
        for step in self.pending.pop(number):
            last = self.senders.get(step.sender)
            if last is not None and last.number == step.number:
                self.senders[step.sender] = LastStep(step.number, True, error)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._in_use() from None

    def _in_use(self) -> HandOverError:
        return HandOverError(
            f"another local tracker uses the spool {self._path}; give each its own",
            Code.REFUSED_CONFLICT,
        )

    def _read(self) -> None:
        for header, body in _records(self._path.read_bytes(), str(self._path)):
            try:
                self._take(header, body)
            except (AttributeError, HandOverError, LookupError, TypeError, ValueError) as error:
                raise HandOverError(
                    f"the spool {self._path} has a record that this version cannot read "
                    f"({error!r}); start the version that wrote it",
                    Code.REFUSED_INVALID,
                ) from None

    def _take(self, header: dict[str, Any], body: bytes) -> None:
        error = header.get("error") and (header["error"][0], header["error"][1])
        match header["kind"]:
            case "identity":
                self.identity, self.last_number = header["identity"], header["number"]
                self.generation, self.forgot = header["generation"], header.get("forgot", False)
                self._of = header.get("of", "")
                self.fresh = False
            case "sender":
                last = LastStep(header["number"], header["settled"], error)
                self.senders[header["sender"]] = last
            case "flush" | "more":
                steps = _steps(header["steps"], body)
                self._take_flush(header["number"], steps, header["above"])
            case "split":
                self._take_split(header["number"])
            case "done":
                self._take_done(header["number"], error)
            case other:
                raise ValueError(f"there is no record of kind {other!r}")

    def _rewrite(self) -> None:
        """What is still needed, in a new file that takes the place of the old one."""
        unfinished = self._path.with_name(self._path.name + ".unfinished")
        old = self._file
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        unfinished.unlink(
            missing_ok=True
        )  # of a process that died meanwhile, or a link of somebody else's
        self._file = os.open(unfinished, flags, 0o600)
        try:
            self._lock()
            header: dict[str, Any] = {
                "kind": "identity", "identity": self.identity, "number": self.last_number,
                "generation": self.generation, "forgot": self.forgot, "of": self._of,
            }  # fmt: skip
            self._append(header, sync=False)
            for sender, last in self.senders.items():
                header = {"kind": "sender", "sender": sender, **asdict(last)}
                self._append(header, sync=False)
            for number, steps in self.pending.items():
                header = {"kind": "flush", "number": number, "above": self.above[number]}
                self._append(header, steps, sync=False)
            os.fsync(self._file)
            os.replace(unfinished, self._path)
        except BaseException:
            os.close(self._file)
            self._file = old
            raise
        os.close(old)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _append(
        self, header: dict[str, Any], steps: tuple[Step, ...] = (), sync: bool = True
    ) -> None:
        header["steps"] = [_step_header(step) for step in steps]
        text = json.dumps(header, separators=(",", ":")).encode()
        body = pack_cells(cells for s in steps for cells in (s.created, s.consumed))
        record = text + body
        lengths = _LENGTHS.pack(len(text), len(body), zlib.crc32(record))
        lengths += _LENGTHS_CHECKSUM.pack(zlib.crc32(lengths))
        before = os.fstat(self._file).st_size
        try:
            _write_all(self._file, lengths + record)
            if sync:
                os.fdatasync(self._file)
        except OSError as error:
            raise HandOverError(
                f"the spool {self._path} cannot be written ({error}): nothing more is taken; make "
                "room and start the local tracker again, which goes on from what is in it",
                self._take_back(before),
            ) from error

    def _take_back(self, size_bytes: int) -> str:
        """What was not written to its end must not be found by the next process. Returns the code of
        the error: whether that is sure."""
        try:
            os.ftruncate(self._file, size_bytes)
            os.lseek(self._file, size_bytes, os.SEEK_SET)
            os.fsync(self._file)
        except OSError:
            return Code.HAND_OVER_UNKNOWN
        return Code.REFUSED_FULL


def _records(content: bytes, path: str) -> Iterator[tuple[dict[str, Any], bytes]]:
    """(header, body) of each record. A last one that was not written to its end is left out: nothing
    has been done by it. Raises HandOverError for damage anywhere else."""
    at = 0
    while at + _PREFIX_BYTES <= len(content):
        begin = at + _PREFIX_BYTES
        lengths = content[at : at + _LENGTHS.size]
        if _LENGTHS_CHECKSUM.unpack_from(content, at + _LENGTHS.size)[0] != zlib.crc32(lengths):
            if not any(content[at:]):  # zeros: the file had grown before it was written
                return
            raise _damaged(content, at, path)
        header_bytes, body_bytes, checksum = _LENGTHS.unpack(lengths)
        end = begin + header_bytes + body_bytes
        record = content[begin:end]
        if end > len(content):
            return
        if zlib.crc32(record) != checksum:
            if not any(content[end:]):
                return
            raise _damaged(content, at, path)
        try:
            header = json.loads(record[:header_bytes])
        except (
            RecursionError,
            ValueError,
        ):  # nested without end, or no JSON, with a checksum that is right
            raise _damaged(content, at, path) from None
        yield header, record[header_bytes:]
        at = end


def _damaged(content: bytes, at: int, path: str) -> HandOverError:
    return HandOverError(
        f"the spool {path} is damaged at byte {at} of {len(content)}; restore it, or remove it and "
        "restart the workers whose steps it held",
        Code.REFUSED_INVALID,
    )


def _steps(headers: list[Any], body: bytes) -> tuple[Step, ...]:
    cells = CellReader(body)
    return tuple(
        Step(
            sender, number, cells.read(created), cells.read(consumed),
            tuple(map(promise_of, heartbeats)),
            tuple(HoldMove(name, segment, slot) for name, segment, slot in holds),
        )
        for sender, number, created, consumed, heartbeats, holds in headers
    )  # fmt: skip


def _step_header(step: Step) -> list[Any]:
    """A step but for its cells."""
    return [
        step.sender, step.number, len(step.created), len(step.consumed),
        [promise_item(each) for each in step.heartbeats],
        [[h.name, h.segment, h.slot] for h in step.holds],
    ]  # fmt: skip


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
