"""python -m tests.store.golden: pins how each kind of stored record, and a snapshot, reads and is written.

`golden.json` has by kind the bytes as they were when the kind, or a field of it, came; what is in there
stays, since stores with such bytes are about. Each has every field of its messages, every number and name another
one where it may, and a digest of what the core reads from it. `formats.json` has by the number of the format a
fingerprint of the form that it stands for. Run it after a change of what is stored, with the feature level raised, or where no
release records by the newest one yet, with its fingerprint taken out: it adds what is new, and changes nothing that is there.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

from google.protobuf.descriptor import FieldDescriptor, OneofDescriptor
from google.protobuf.message import Message

from acker.v1 import storage_pb2 as storage_pb
from tests.simulation.digest import Encoding
from tracker.core.model.levels import NEWEST_LEVEL
from tracker.core.model.slots import LOWEST_SLOT
from tracker.core.pipeline.snapshot import PipelineSnapshot
from tracker.core.process.snapshot import ProcessSnapshot
from tracker.wire.storage import (
    PIPELINE_FIELDS,
    record_from_bytes,
    record_to_bytes,
    snapshot_from_bytes,
    snapshot_to_bytes,
)

GOLDEN = Path(__file__).with_name("golden.json")
FORMATS = Path(__file__).with_name("formats.json")
SNAPSHOT = "snapshot"
_REPEATED = 2
_VALUES: dict[str, Callable[[int], Any]] = {
    "Cells.segments": lambda at: struct.pack("<2i", 0, 1),
    "Cells.slots": lambda at: struct.pack("<2q", 20, 30 + at),
    "Cells.checksums": lambda at: struct.pack("<2Q", 2**63 + 7, 9 + at),
    "Cells.counts": lambda at: struct.pack("<2q", 3, 4),
    "RoutingEntry.from_slot": lambda at: LOWEST_SLOT if at == 0 else 100 * at,
    "HistorySnapshot.segment": lambda at: at,
    "HistorySnapshot.tier": lambda at: 1,
}
"""By field what it holds in the message number `at` of several, where not every value may be."""

_LEFT_OUT = dict.fromkeys(
    ("PipelineSnapshot.joined", "FormerSnapshot.joined"), ("incarnation", "number")
)
"""By field what its messages do not have: fronts are known by their joining elsewhere, not there."""


@dataclass(frozen=True)
class Golden:
    """`stored`: the bytes, as hexadecimal digits; `says`: a digest of what is read from them."""

    stored: str
    says: str


def kinds() -> dict[str, Message]:
    """By name a message of every kind that is stored, with every field."""
    made: dict[str, Message] = {}
    for arms in _ways(storage_pb.Record.DESCRIPTOR):
        message = storage_pb.Record()
        _fill(message, arms)
        # An entry may be received as well as be the shard's own; one of them shows how. A run is received.
        kept_in = {"tick": ("home", "received"), "run": ("received",)}
        if "entry" in arms and arms["record"] not in kept_in.get(arms["entry"], ("home",)):
            continue
        made[" ".join(arms.values())] = message
    made[SNAPSHOT] = storage_pb.Snapshot()
    _fill(made[SNAPSHOT], {})
    return made


def _choices(kind: Any) -> list[OneofDescriptor]:
    """Where a message says one of several things; fields that may be missing do not count."""
    return [oneof for oneof in kind.oneofs if len(oneof.fields) > 1]


def _ways(kind: Any) -> Iterator[dict[str, str]]:
    """What a message may say, down to entries and their steps: by choice the field that it takes."""
    choices = _choices(kind)
    if not choices:
        inner = [field.message_type for field in kind.fields if field.message_type is not None]
        deeper = [each for each in inner if _choices(each)]
        yield from _ways(deeper[0]) if deeper else iter([{}])
        return
    for field in choices[0].fields:
        inner_ways = _ways(field.message_type) if field.message_type is not None else iter([{}])
        yield from ({choices[0].name: field.name, **way} for way in inner_ways)


def _fill(message: Message, arms: dict[str, str], at: int = 0) -> None:
    """Sets every field: numbers to that of the field, names to its name, and so on."""
    kind = message.DESCRIPTOR
    left_out = {
        field.name
        for oneof in _choices(kind)
        for field in oneof.fields
        if field.name != arms.get(oneof.name, oneof.fields[0].name)
    }
    for field in kind.fields:
        if field.name in left_out:
            continue
        here = getattr(message, field.name)
        if field.message_type is None:
            if field.is_repeated:
                here.extend(_value(kind, field, at, place) for place in range(_REPEATED))
            else:
                setattr(message, field.name, _value(kind, field, at, 0))
        elif field.is_repeated:
            for place in range(_REPEATED):
                _fill(each := here.add(), arms, place)
                for name in _LEFT_OUT.get(f"{kind.name}.{field.name}", ()):
                    each.ClearField(name)
        else:
            here.SetInParent()
            _fill(here, arms, at)


def _value(kind: Any, field: Any, at: int, place: int) -> Any:
    name = f"{kind.name}.{field.name}"
    if name in _VALUES:
        return _VALUES[name](at)
    if field.enum_type is not None:
        return field.enum_type.values[-1].number
    if field.type == FieldDescriptor.TYPE_BOOL:
        return True
    if field.type == FieldDescriptor.TYPE_STRING:
        return f"{field.name} {at} {place}"
    if field.type == FieldDescriptor.TYPE_BYTES:
        return f"{field.name} {at} {place}".encode()
    return field.number + at + place


def stored(message: Message) -> bytes:
    """A message as it is stored."""
    data = message.SerializeToString(deterministic=True)
    return data + crc32(data).to_bytes(4, "little")


def read(kind: str, data: bytes) -> Any:
    """What the core makes of stored bytes."""
    return snapshot_from_bytes(data) if kind == SNAPSHOT else record_from_bytes(data)


def written(kind: str, value: Any) -> bytes:
    """What the core's value is stored as."""
    return snapshot_to_bytes(value) if kind == SNAPSHOT else record_to_bytes(value)


def _named_as_in(message: type[Message], names: dict[str, str]) -> list[str]:
    """The core's names of a message's fields, in their order. names: those in the message that differ."""
    core_names = {there: here for here, there in names.items()}
    return [core_names.get(each.name, each.name) for each in message.DESCRIPTOR.fields]


_ORDER: dict[type, list[str]] = {
    PipelineSnapshot: _named_as_in(storage_pb.PipelineSnapshot, PIPELINE_FIELDS),
    ProcessSnapshot: _named_as_in(storage_pb.Snapshot, {}),
}
"""In which order the fields of a snapshot count, wherever components declare them."""


class _Said(Encoding):
    """Whatever classes and fields are called, and without what has its default: so that neither a new
    name nor a new field is another digest of what was stored before."""

    def name_of(self, kind: type) -> str:
        return ""

    def values_of(self, value: Any) -> Iterator[Any] | None:
        if not is_dataclass(value):
            return super().values_of(value)
        in_order = _ORDER.get(type(value), [each.name for each in fields(value)])
        return (
            getattr(value, each.name)
            for each in sorted(fields(value), key=lambda each: in_order.index(each.name))
            if each.init and (each.default is MISSING or getattr(value, each.name) != each.default)
        )


def said(value: Any) -> str:
    """A digest of what a value says."""
    parts: list[bytes] = []
    _Said(parts.append).encode(value)
    return blake2b(b"".join(parts), digest_size=16).hexdigest()


def golden() -> dict[str, list[Golden]]:
    """What is pinned, by kind, the oldest first."""
    data = json.loads(GOLDEN.read_text())
    return {kind: [Golden(**each) for each in pinned] for kind, pinned in data.items()}


def missing(pinned: dict[str, list[Golden]]) -> dict[str, Golden]:
    """What is not pinned yet: kinds that are new, or have new fields."""
    made = {kind: stored(message) for kind, message in kinds().items()}
    return {
        kind: Golden(data.hex(), said(read(kind, data)))
        for kind, data in made.items()
        if all(each.stored != data.hex() for each in pinned.get(kind, ()))
    }


def form(message: Any) -> list[Any]:
    """What bytes may be a message of a kind: its fields by their numbers, down to plain values, whatever
    they are called. message: its descriptor."""
    return [
        [
            field.number,
            field.type,
            field.is_repeated,
            field.has_presence,
            None if field.containing_oneof is None else min(_numbers(field.containing_oneof)),
            None if field.enum_type is None else sorted(field.enum_type.values_by_number),
            None if field.message_type is None else form(field.message_type),
        ]
        for field in sorted(message.fields, key=lambda field: field.number)
    ]


def _numbers(oneof: OneofDescriptor) -> list[int]:
    return [field.number for field in oneof.fields]


def fingerprint(*messages: Any) -> str:
    """Of the form of all that is stored, or of messages by their descriptors."""
    messages = messages or (storage_pb.Record.DESCRIPTOR, storage_pb.Snapshot.DESCRIPTOR)
    text = json.dumps([form(message) for message in messages])
    return blake2b(text.encode(), digest_size=16).hexdigest()


def formats() -> dict[str, str]:
    """By the number of a format the fingerprint that is pinned."""
    return dict(json.loads(FORMATS.read_text()))


def main() -> int:
    forms = formats()
    if forms.setdefault(str(NEWEST_LEVEL), fingerprint()) != fingerprint():
        print(
            "what is stored has another form: what is new is of another feature level, so raise NEWEST_LEVEL in "
            "tracker/core/model/levels.py, say there why, and record it at that level alone"
        )
        return 1
    FORMATS.write_text(json.dumps(forms, indent=1) + "\n")
    pinned = golden() if GOLDEN.exists() else {}
    new = missing(pinned)
    for kind, each in new.items():
        pinned.setdefault(kind, []).append(each)
        print(f"golden: {kind} is pinned")
    document = {kind: [asdict(each) for each in pinned[kind]] for kind in sorted(pinned)}
    GOLDEN.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
