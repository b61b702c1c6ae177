"""Messages of the contract as somebody might send them who means ill, or whose memory is broken.

`mutated(message)` changes a valid message here and there: a field set to a value at the edge of its
type, left out, repeated, thousands of them; then perhaps its bytes. `anything(type)` makes a message
from nothing but its type. Both know the names that the tests use, so that some of what they say fits.
"""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from hypothesis import strategies as st

from acker.v1 import types_pb2 as pb

Kind = TypeVar("Kind", bound=Message)

MANY = 300
_MAX_DEPTH = 4

NAMES = ("", "p", "q", "in", "out", "F", "G", "n", "m", "w", "file:///a", "query", "run", "op")
ODD_NAMES = ("\x00", "\n", "é", "\U0010ffff", "x" * 1_024, "x" * 1_025, "ä" * 2_000, "..", "%2F")
names = st.sampled_from(NAMES) | st.sampled_from(ODD_NAMES) | st.text(max_size=5)

EDGES_64 = (0, 1, -1, 2, 2**31, 2**32, 2**62, 2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1)
EDGES_32 = (0, 1, -1, 2, 3, 2**31 - 1, -(2**31))
int64s = st.sampled_from(EDGES_64) | st.integers(-5, 130) | st.integers(-(2**63), 2**63 - 1)
int32s = st.sampled_from(EDGES_32) | st.integers(-2, 4)
uint64s = st.sampled_from((0, 1, 2**63, 2**64 - 1)) | st.integers(0, 2**64 - 1)


_ARRAYS = {
    "segments": (4, int32s),
    "slots": (8, int64s),
    "checksums": (8, int64s),
    "counts": (8, st.sampled_from(EDGES_64)),
}
"""Of packed cells: the bytes of an element, and what may stand in its place."""


WIDTHS = {name: width for name, (width, _) in _ARRAYS.items()}
"""Bytes of an element of each array of packed cells."""


def _element(draw: st.DrawFn, name: str) -> bytes:
    width, values = _ARRAYS[name]
    value: int = draw(values)
    return (value % 2 ** (8 * width)).to_bytes(width, "little")


def _fill_cells(draw: st.DrawFn, cells: Any) -> None:
    """Some cells, with values at the edges of their types."""
    rows = draw(st.integers(0, 4))
    for name in _ARRAYS:
        setattr(cells, name, b"".join(_element(draw, name) for _ in range(rows)))


def _change_cells(draw: st.DrawFn, cells: Any) -> None:
    """Changes an element, or the length of one array, or of all."""
    count = len(cells.slots) // 8
    name = draw(st.sampled_from(list(_ARRAYS)))
    width, _ = _ARRAYS[name]
    array = bytearray(getattr(cells, name))
    match draw(st.sampled_from(("element", "element", "element", "length", "many"))):
        case "element" if count:
            place = width * draw(st.integers(0, count - 1))
            array[place : place + width] = _element(draw, name)
            setattr(cells, name, bytes(array))
        case "many" if 0 < count < MANY:
            for each in _ARRAYS:
                setattr(cells, each, getattr(cells, each) * MANY)
        case _:
            length = draw(st.integers(0, len(array) + width))
            setattr(cells, name, bytes(array[:length]).ljust(length, b"\1"))


@st.composite
def _value(draw: st.DrawFn, field: Any, depth: int) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_INT64:
            return draw(int64s)
        case FieldDescriptor.CPPTYPE_UINT64:
            return draw(uint64s)
        case FieldDescriptor.CPPTYPE_INT32:
            return draw(int32s)
        case FieldDescriptor.CPPTYPE_ENUM:
            return draw(int32s)
        case FieldDescriptor.CPPTYPE_BOOL:
            return draw(st.booleans())
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return draw(st.binary(max_size=70))
        case FieldDescriptor.CPPTYPE_STRING:
            return draw(names)
        case FieldDescriptor.CPPTYPE_MESSAGE:
            message = message_factory.GetMessageClass(field.message_type)()
            _fill(draw, message, depth + 1)
            return message
    raise NotImplementedError(f"{field.full_name} is of a type that the contract had not")


def _fill(draw: st.DrawFn, message: Message, depth: int) -> None:
    if isinstance(message, pb.Cells):
        _fill_cells(draw, message)
        return
    for field in message.DESCRIPTOR.fields:
        if draw(st.booleans()) and depth < _MAX_DEPTH:
            times = draw(st.integers(1, 3)) if field.is_repeated else 1
            for _ in range(times):
                put(message, field, draw(_value(field, depth)))


def put(message: Any, field: Any, value: Any) -> None:
    """Sets a field, or adds to a repeated one."""
    if field.is_repeated:
        getattr(message, field.name).append(value)
    elif isinstance(value, Message):
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)


def _change(draw: st.DrawFn, message: Any) -> None:
    """One change, somewhere in a message."""
    if isinstance(message, pb.Cells):
        _change_cells(draw, message)
        return
    present: list[Any] = [
        part
        for field, value in message.ListFields()
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
        for part in (value if field.is_repeated else (value,))
    ]
    if draw(st.integers(0, 3)) and present:
        _change(draw, draw(st.sampled_from(present)))
        return
    if not message.DESCRIPTOR.fields:
        return
    field = draw(st.sampled_from(list(message.DESCRIPTOR.fields)))
    if not field.is_repeated:
        if draw(st.integers(0, 3)):
            put(message, field, draw(_value(field, 0)))
        else:
            message.ClearField(field.name)
        return
    values = getattr(message, field.name)
    match draw(st.sampled_from(("add", "twice", "many", "less", "none"))):
        case "add":
            put(message, field, draw(_value(field, 0)))
        case "twice" if values:
            values.append(values[0])
        case "many" if values:
            values.extend([values[-1]] * MANY)
        case "less" if values:
            del values[draw(st.integers(0, len(values) - 1))]
        case _:
            message.ClearField(field.name)


@st.composite
def mutated(draw: st.DrawFn, message: Kind, most: int = 4) -> Kind:
    """A valid message with up to `most` changes; often none of them can be seen by its form."""
    changed = type(message)()
    changed.CopyFrom(message)
    for _ in range(draw(st.integers(0, most))):
        _change(draw, changed)
    return changed


@st.composite
def anything(draw: st.DrawFn, kind: type[Kind]) -> Kind:
    """A message of a type, made of values that fit the types of its fields."""
    message = kind()
    _fill(draw, message, 0)
    return message


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes that were cut off, or changed, or have something in between that does not belong there."""
    broken = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(broken)))
        match draw(st.sampled_from(("flip", "cut", "insert", "remove", "overwrite"))):
            case "flip" if place < len(broken):
                broken[place] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del broken[place:]
            case "insert":
                broken[place:place] = draw(st.binary(min_size=1, max_size=12))
            case "remove":
                del broken[place : place + draw(st.integers(1, 8))]
            case "overwrite":
                junk = draw(st.binary(min_size=1, max_size=12))
                broken[place : place + len(junk)] = junk
    return bytes(broken)


def parsed(kind: type[Kind], data: bytes) -> Kind | None:
    """A message from bytes as gRPC reads it; None where it refuses them by itself."""
    try:
        return kind.FromString(data)
    except DecodeError:
        return None


@st.composite
def sent(draw: st.DrawFn, message: Kind) -> Kind:
    """What may arrive in the place of a valid message: one that was changed, or whose bytes were, or
    anything of its type."""
    way = draw(st.sampled_from(("mutated", "mutated", "mutated", "damaged", "anything")))
    if way == "damaged":
        arrived = parsed(type(message), draw(damaged(message.SerializeToString())))
        return arrived if arrived is not None else draw(anything(type(message)))
    return draw(mutated(message) if way == "mutated" else anything(type(message)))
