"""The one codec: between the core's data and messages, field by field, as both declare their fields.

A kind of message is one `Codec`. Most are `derived` from a dataclass and a message whose fields have the same
names: a field that is added to one and forgotten in the other is an error of the import. What is asked for a
thousand times a second (ticks, cells) is written by hand, and is a part of the others like any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from tracker.wire.fields import is_repeated
from tracker.wire.refusals import invalid

Core = TypeVar("Core")
Message = TypeVar("Message")

_SCALARS = {
    FieldDescriptor.CPPTYPE_STRING: str,
    FieldDescriptor.CPPTYPE_BOOL: bool,
    FieldDescriptor.CPPTYPE_DOUBLE: float,
}


@dataclass(frozen=True, slots=True)
class Codec(Generic[Core, Message]):
    """Between what a type of the core, or a union of some, stands for and a message, or what a field of a
    message holds: str, bytes, bool, float or int. from_pb may raise Refused(INVALID)."""

    core: Any
    message: Any
    to_pb: Callable[[Core], Message]
    from_pb: Callable[[Message], Core]
    to_part: Callable[[Core], Any] | None = None
    """What a message of which this is a part is made with: the fields of this one, by name. None: the same as
    to_pb gives."""


Known = Mapping[tuple[Any, Any], Codec[Any, Any]]


def derived(
    core: type[Core], message: type[Message], *parts: Codec[Any, Any], **names: str
) -> Codec[Core, Message]:
    """Between a dataclass and a message with the same fields. parts: for all that they hold and that is not
    the same in both; names: those that fields of the dataclass have in the message, where they differ.

    A tuple of values is a repeated field; a tuple of other things, of a length that its type gives, is a
    message with as many fields, in their order (or with more, which are left out). None is a field that is not
    there. Raises TypeError where that does not come out even.
    """
    described = dict(message.DESCRIPTOR.fields_by_name)  # type: ignore[attr-defined]
    hints = get_type_hints(core)
    known = {(part.core, part.message): part for part in parts}
    ways = []
    for name in (field.name for field in fields(core) if field.init):  # type: ignore[arg-type]
        field = described.pop(names.get(name, name), None)
        if field is None:
            raise TypeError(f"{message.__name__} has no field for {core.__name__}.{name}")
        ways.append((name, field.name, *_way(hints[name], field, known)))
    if described:
        raise TypeError(f"{core.__name__} has no field for {message.__name__}.{[*described]}")

    written = [(here, there, None if write is _same else write) for here, there, write, _ in ways]
    reads = [(there, read) for _, there, _, read in ways]
    make: Callable[..., Any] = message

    def to_part(value: Core) -> dict[str, Any]:
        return {
            there: getattr(value, here) if write is None else write(getattr(value, here))
            for here, there, write in written
        }

    def to_pb(value: Core) -> Message:
        return make(**to_part(value))

    def from_pb(told: Message) -> Core:
        return core(*[read(told, there) for there, read in reads])

    if len(reads) > 1 and all(read is getattr for _, read in reads):
        fields_of = attrgetter(*[there for there, _ in reads])
        return Codec(core, message, to_pb, lambda told: core(*fields_of(told)), to_part)
    return Codec(core, message, to_pb, from_pb, to_part)


def bare(core: type[Core], content: Codec[Any, Any] | type) -> Codec[Core, Any]:
    """Between a dataclass of one field and what that holds."""
    (name,) = (field.name for field in fields(core))  # type: ignore[arg-type]
    make: Callable[[Any], Core] = core
    if isinstance(content, type):
        return Codec(core, content, attrgetter(name), make)
    to_pb, from_pb = content.to_pb, content.from_pb
    return Codec(
        core,
        content.message,
        lambda value: to_pb(getattr(value, name)),
        lambda told: make(from_pb(told)),
    )


def choice(
    core: Any, message: type[Message], oneof: str, empty: str, **arms: Codec[Any, Any]
) -> Codec[Any, Message]:
    """Between a union of types and a message that holds one of its arms. empty: what is refused where it
    holds none that is known."""
    by_type = {
        core: (name, arm.to_part or arm.to_pb)
        for name, arm in arms.items()
        for core in get_args(arm.core) or [arm.core]
    }

    make: Callable[..., Message] = message

    def to_pb(value: Any) -> Message:
        name, write = by_type[type(value)]
        return make(**{name: write(value)})

    def from_pb(told: Any) -> Any:
        name = told.WhichOneof(oneof)
        if name not in arms:
            raise invalid(empty)
        return arms[name].from_pb(getattr(told, name))

    return Codec(core, message, to_pb, from_pb)


def _same(value: Any) -> Any:
    return value


def _way(
    hint: Any, field: FieldDescriptor, known: Known
) -> tuple[Callable[[Any], Any], Callable[[Any, str], Any]]:
    """How what a field of a dataclass holds is written, and how it is read off a message."""
    arguments = get_args(hint)
    if get_origin(hint) in (Union, UnionType) and NoneType in arguments:
        (inner,) = (each for each in arguments if each is not NoneType)
        to_pb, from_pb = _ways(inner, _type_of(field), known)
        return (
            lambda value: None if value is None else to_pb(value),
            lambda told, name: from_pb(getattr(told, name)) if told.HasField(name) else None,
        )
    if not is_repeated(field):
        to_pb, from_pb = _ways(hint, _type_of(field), known)
        if from_pb is _same:
            return to_pb, getattr
        return to_pb, lambda told, name: from_pb(getattr(told, name))
    if get_origin(hint) is not tuple or arguments[1:] != (...,):
        raise TypeError(f"{field.full_name} is repeated, and {hint} is not")
    to_pb, from_pb = _ways(arguments[0], _type_of(field), known)
    if to_pb is _same:
        return _same, lambda told, name: tuple(getattr(told, name))
    return (
        lambda values: [to_pb(value) for value in values],
        lambda told, name: tuple(map(from_pb, getattr(told, name))),
    )


def _type_of(field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        return GetMessageClass(field.message_type)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return bytes
    return _SCALARS.get(field.cpp_type, int)


def _ways(hint: Any, there: Any, known: Known) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """How one value of a type is written as one of another type, and read."""
    part = known.get((hint, there))
    if part is not None:
        return part.to_part or part.to_pb, part.from_pb
    if hint is there:
        return _same, _same
    if get_origin(hint) is not tuple or not hasattr(there, "DESCRIPTOR"):
        raise TypeError(f"nothing is known between {hint} and {there}")
    arguments = get_args(hint)
    described = there.DESCRIPTOR.fields[: len(arguments)]
    ways = [
        (field.name, *_way(argument, field, known))
        for argument, field in zip(arguments, described, strict=True)
    ]
    names = [name for name, _, _ in ways]
    writes = [write for _, write, _ in ways]
    if all(write is _same for write in writes) and len(names) > 1:
        return lambda values: dict(zip(names, values, strict=True)), attrgetter(*names)
    return (
        lambda values: {
            name: write(value) for name, write, value in zip(names, writes, values, strict=True)
        },
        lambda told: tuple([read(told, name) for name, _, read in ways]),
    )


def by_name(names: tuple[str, ...]) -> Codec[int, str]:
    """Between the core's number of a segment, of a pipeline that has these, and the contract's name of it; -1
    and no name stand for none."""
    numbers = {name: number for number, name in enumerate(names)}
    return Codec(int, str, (*names, "").__getitem__, {**numbers, "": -1}.__getitem__)
