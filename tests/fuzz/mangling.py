"""Messages of the contract, and bytes, as somebody might send them who means ill, or whose memory is broken.

A valid message is changed here and there: a field set to a value at the edge of its type, left out, repeated,
hundreds of them; then perhaps its bytes. The names are those that the tests use, so that some of what is said fits.
Every choice is asked of a `random.Random`: of one with a seed, of hypothesis, which makes what fails small, or of
`Told`, which takes them from bytes, so that whoever looks at what the code covers can steer them.
"""

from __future__ import annotations

import random
from typing import Any, TypeVar

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from acker.v1 import types_pb2 as pb

Kind = TypeVar("Kind", bound=Message)

NAMES = ("", "p", "q", "in", "out", "F", "G", "n", "m", "w", "file:///a", "query", "run", "op")
ODD_NAMES = ("\x00", "\n", "é", "\U0010ffff", "x" * 1_024, "x" * 1_025, "ä" * 2_000, "..", "%2F")
EDGES_64 = (0, 1, -1, 2, 2**31, 2**32, 2**62, 2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1)
EDGES_32 = (0, 1, -1, 2, 3, 2**31 - 1, -(2**31))
int64s = st.sampled_from(EDGES_64) | st.integers(-5, 130) | st.integers(-(2**63), 2**63 - 1)
uint64s = st.sampled_from((0, 1, 2**63, 2**64 - 1)) | st.integers(0, 2**64 - 1)
WIDTHS = {"segments": 4, "slots": 8, "checksums": 8, "counts": 8}
"""Bytes of an element of each array of packed cells."""
MANY = 200
MAX_DEPTH = 4
MAX_CHANGES = 4


class Told(random.Random):
    """Chooses by bytes, and always the first when there are none left."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data, self._place = data, 0

    def getrandbits(self, k: int) -> int:
        end = self._place + (k + 7) // 8
        value = int.from_bytes(self._data[self._place : end], "little")
        self._place = end
        return value & ((1 << k) - 1)

    def random(self) -> float:
        return self.getrandbits(53) / (1 << 53)


def mangled(choose: random.Random, message: Message) -> bytes:
    """What may arrive in the place of a valid message: changed here and there, or made of nothing but its type, then
    perhaps its bytes."""
    way = choose.randrange(8)
    data = _changed(choose, message, anew=way == 0).SerializeToString()
    return _damaged(choose, data) if way == 1 else data


def parsed(kind: type[Kind], data: bytes) -> Kind | None:
    """A message from bytes as gRPC reads it; None where it refuses them by itself."""
    try:
        return kind.FromString(data)
    except DecodeError:
        return None


_choices = st.randoms(use_true_random=False)


def sent(message: Kind) -> SearchStrategy[Kind]:
    """What may arrive in the place of a valid message, and is one."""
    return _choices.map(lambda choose: parsed(type(message), mangled(choose, message)) or message)


def mutated(message: Kind) -> SearchStrategy[Kind]:
    """A valid message with some changes; often none of them can be seen by its form."""
    return _choices.map(lambda choose: _changed(choose, message))


def damaged(data: bytes) -> SearchStrategy[bytes]:
    """Bytes that were cut off, or changed, or have something in between that does not belong there."""
    return _choices.map(lambda choose: _damaged(choose, data))


def _changed(choose: random.Random, message: Kind, anew: bool = False) -> Kind:
    changed = type(message)()
    if anew:
        _fill(choose, changed, 0)
    else:
        changed.CopyFrom(message)
    for _ in range(choose.randrange(MAX_CHANGES + 1)):
        _change(choose, changed)
    return changed


def _change(choose: random.Random, message: Any) -> None:
    """One change, somewhere in a message."""
    if isinstance(message, pb.Cells):
        _change_cells(choose, message)
        return
    present = [
        part
        for field, value in message.ListFields()
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
        for part in (value if field.is_repeated else (value,))
    ]
    if present and choose.randrange(4):
        _change(choose, choose.choice(present))
        return
    if not message.DESCRIPTOR.fields:
        return
    field = choose.choice(message.DESCRIPTOR.fields)
    way = choose.randrange(5)
    if way == 0:
        message.ClearField(field.name)
    elif field.is_repeated and way < 4 and len(values := getattr(message, field.name)):
        if way == 1:
            del values[choose.randrange(len(values))]
        else:
            values.extend([values[-1]] * (1 if way == 2 else MANY))
    else:
        put(message, field, _value(choose, field, 0))


def _fill(choose: random.Random, message: Any, depth: int) -> None:
    if isinstance(message, pb.Cells):
        _change_cells(choose, message)
        return
    for field in message.DESCRIPTOR.fields:
        if depth < MAX_DEPTH and choose.randrange(2):
            put(message, field, _value(choose, field, depth))


def _value(choose: random.Random, field: Any, depth: int) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_INT64:
            return choose.choice(EDGES_64) if choose.randrange(2) else choose.randrange(-5, 130)
        case FieldDescriptor.CPPTYPE_UINT64:
            return choose.choice((0, 1, 7, 2**63, 2**64 - 1))
        case FieldDescriptor.CPPTYPE_INT32 | FieldDescriptor.CPPTYPE_ENUM:
            return choose.choice(EDGES_32)
        case FieldDescriptor.CPPTYPE_BOOL:
            return bool(choose.randrange(2))
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return bytes(choose.randrange(256) for _ in range(choose.choice((0, 1, 4, 8, 16, 33))))
        case FieldDescriptor.CPPTYPE_STRING:
            return choose.choice(ODD_NAMES if choose.randrange(3) == 0 else NAMES)
        case FieldDescriptor.CPPTYPE_MESSAGE:
            message = message_factory.GetMessageClass(field.message_type)()
            _fill(choose, message, depth + 1)
            return message
    raise NotImplementedError(f"{field.full_name} is of a type that the contract had not")


def put(message: Any, field: Any, value: Any) -> None:
    """Sets a field, or adds to a repeated one."""
    if field.is_repeated:
        getattr(message, field.name).append(value)
    elif isinstance(value, Message):
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)


def _change_cells(choose: random.Random, cells: Any) -> None:
    """Changes or adds an element of an array, or the length of one."""
    name = choose.choice(tuple(WIDTHS))
    array, width = bytearray(getattr(cells, name)), WIDTHS[name]
    if choose.randrange(4):
        place = width * choose.randrange(len(array) // width + 1)
        value = choose.choice(EDGES_64 if width == 8 else EDGES_32)
        array[place : place + width] = (value % 2 ** (8 * width)).to_bytes(width, "little")
    elif choose.randrange(2) and len(array) < MANY:
        for each in WIDTHS:
            setattr(cells, each, getattr(cells, each) * choose.choice((2, MANY)))
        return
    else:
        del array[choose.randrange(len(array) + 1) :]
    setattr(cells, name, bytes(array))


def _damaged(choose: random.Random, data: bytes) -> bytes:
    broken = bytearray(data)
    for _ in range(choose.randrange(1, 4)):
        place = choose.randrange(len(broken) + 1)
        match choose.randrange(4):
            case 0 if place < len(broken):
                broken[place] ^= 1 << choose.randrange(8)
            case 1:
                del broken[place : place + choose.randrange(1, 9)]
            case 2:
                broken[place:place] = bytes(choose.randrange(256) for _ in range(4))
            case _:
                del broken[place:]
    return bytes(broken)
