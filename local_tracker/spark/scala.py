"""Scala's objects as Python sees them through py4j."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError


def items(sequence: Any) -> list[Any]:
    """The items of an indexed sequence."""
    return [sequence.apply(index) for index in range(sequence.size())]


def iterated(collection: Any) -> Iterator[Any]:
    """The items of any collection."""
    found = collection.iterator()
    while found.hasNext():
        yield found.next()


def optional(option: Any) -> Any:
    """What an option holds; None where it is empty."""
    return option.get() if option.isDefined() else None


def class_name(thing: Any) -> str:
    """The simple name of its class, of an object without the `$`."""
    return str(thing.getClass().getSimpleName()).removesuffix("$")


def private_field(thing: Any, name: str) -> Any:
    """A private field of a Java object, of its class or of one above it. Raises LookupError."""
    of = thing.getClass()
    while of is not None:
        try:
            field = of.getDeclaredField(name)
        except Py4JJavaError:  # a NoSuchFieldException
            of = of.getSuperclass()
            continue
        field.setAccessible(True)
        return field.get(thing)
    raise LookupError(f"{class_name(thing)} has no {name}")


def has_method(thing: Any, name: str) -> bool:
    """Whether it has a public method of that name without parameters. All of its methods take a JVM fifty milliseconds to list."""
    try:
        thing.getClass().getMethod(name, None)
    except Py4JJavaError:  # a NoSuchMethodException
        return False
    return True
