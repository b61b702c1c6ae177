"""What a tracker tells, as it may be written to a terminal.

A name that was stored before trackers refused such ones may hold control characters, and a tracker that is
not to be trusted says what it likes. Texts for people are put together of data that have gone through
`as_printable`, so that no name can end a line, or pass for what the command says itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from tracker.core.model.names import printable

Data = TypeVar("Data")


def as_printable(value: Data) -> Data:
    """The same data with each text in it printable: of dataclasses, mappings, lists and tuples as deep as they
    go. All else is as it was."""
    return cast(Data, _as_printable(value))


def _as_printable(value: Any) -> Any:
    if isinstance(value, str) and type(value) is str:
        return printable(value)
    if is_dataclass(value) and not isinstance(value, type):
        told = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        changed = {name: _as_printable(each) for name, each in told.items()}
        return replace(value, **changed) if any(changed[n] is not told[n] for n in told) else value
    if isinstance(value, Mapping):
        return {_as_printable(key): _as_printable(each) for key, each in value.items()}
    if type(value) is tuple or type(value) is list:
        parts = [_as_printable(each) for each in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        return type(value)(parts)
    return value
