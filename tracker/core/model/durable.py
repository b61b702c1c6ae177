"""What of a component outlives a crash: said once, where its fields are declared.

Each field of a component is declared: it `survives` a crash, or is a `part` that has such fields itself, or
`follows` from what survives, or is `forgotten`, for a reason. What a snapshot holds of a component, and how the
component comes back from it, follows from that; so does the stored form, which is derived from what a snapshot
holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

Saved = TypeVar("Saved")

A_MOMENT = "it is of a clock that begins anew with each run of the process"
ASKS_AGAIN = "whoever asked for it asks again"
FOR_PEOPLE = "it is for people"
HEARD_AGAIN = "others say again what was heard of them"
REPORTED_AGAIN = "after a restart all is reported again"


@dataclass(frozen=True, slots=True)
class Form:
    """How the value of a field is saved, as data that nobody changes. kind: the type of what is saved, from the
    field's; load: the value, from the one that a component begins with, and what was saved; factory: of that."""

    kind: Callable[[Any], Any]
    save: Callable[[Any], Any]
    load: Callable[[Any, Any], Any]
    factory: Any = None


def form(kind: Any, save: Callable[[Any], Any], load: Callable[[Any, Any], Any]) -> Form:
    """A form of its own, of a type that is given."""
    return Form(lambda _: kind, save, load)


def _tuple_of(number: int) -> Callable[[Any], Any]:
    return lambda hint: tuple.__class_getitem__((get_args(hint)[number], ...))


def _pairs_of(hint: Any) -> Any:
    return tuple.__class_getitem__((tuple.__class_getitem__(get_args(hint)), ...))


AS_IT_IS = Form(lambda hint: hint, lambda value: value, lambda _, saved: saved)
SEQUENCE = Form(_tuple_of(0), tuple, lambda begun, saved: type(begun)(saved) or begun)
"""A list or deque. What an older store does not say stays as it begins."""
SORTED = Form(_tuple_of(0), lambda value: tuple(sorted(value)), lambda _, saved: set(saved), set)
"""A set."""
KEYS = Form(_tuple_of(0), tuple, lambda _, saved: dict.fromkeys(saved), dict)
"""A dict of Nones."""
ITEMS = Form(_pairs_of, lambda value: tuple(value.items()), lambda _, saved: dict(saved), dict)
"""A dict, as pairs."""


def values(*key: str) -> Form:
    """A dict of dataclasses that say their key themselves, by these attributes."""
    key_of = attrgetter(*key)
    return Form(
        _tuple_of(1),
        lambda things: tuple(map(replace, things.values())),
        lambda _, saved: {key_of(thing): replace(thing) for thing in saved},
        dict,
    )


def each(kind: Any, save: Callable[[Any], Iterable[Any]], add: Callable[[Any, Any], Any]) -> Form:
    """Things of one kind; `add` puts one of them back."""

    def load(begun: Any, saved: Any) -> Any:
        for thing in saved:
            add(begun, thing)
        return begun

    return form(tuple.__class_getitem__((kind, ...)), lambda value: tuple(save(value)), load)


@dataclass(frozen=True, slots=True)
class Declared:
    """What is said of a field. forms: how it is saved, by the name under which it is (a field may be saved in
    two parts); own: it is this shard's alone, and a shard that joins is not sent it; ahead: it also counts records
    that are appended and not durable yet; is_forgotten: it need not come back as it was; reason: why not, or
    from what it follows."""

    forms: Mapping[str, Form] = field(default_factory=dict)
    own: bool = False
    ahead: bool = False
    is_part: bool = False
    is_forgotten: bool = False
    reason: str = ""


def _field(declared: Declared, factory: Any, of_field: Any) -> Any:
    if factory is not None:
        of_field["default_factory"] = factory
    return field(metadata={Declared: declared}, **of_field)


def survives(
    how: Form | Mapping[str, Form] = AS_IT_IS, factory: Any = None, *, own: bool = False,
    ahead: bool = False, may_lag: str = "", **of_field: Any,
) -> Any:  # fmt: skip
    """A field that outlives a crash. how: its form, under its own name, or forms by other names; may_lag: why
    it may come back as it was earlier."""
    forms = {"": how} if isinstance(how, Form) else how
    factory = factory or next(iter(forms.values())).factory
    return _field(Declared(forms, own, ahead, False, bool(may_lag), may_lag), factory, of_field)


def part(factory: Any = None) -> Any:
    """A field that holds a component: what is durable of that is saved beside what is durable of this one."""
    return _field(Declared(is_part=True), factory, {})


def follows(reason: str, factory: Any = None, *, ahead: bool = False, **of_field: Any) -> Any:
    """A field that is not saved, and is the same after recovery, since it follows from what is durable."""
    return _field(Declared(reason=reason, ahead=ahead), factory, of_field)


def forgotten(reason: str, factory: Any = None, **of_field: Any) -> Any:
    """A field that a crash may forget."""
    return _field(Declared(reason=reason, is_forgotten=True), factory, of_field)


@cache
def declarations(kind: Any) -> Mapping[str, Declared]:
    """By field what is said of it, of those of which anything is."""
    return {f.name: f.metadata[Declared] for f in fields(kind) if Declared in f.metadata}


@cache
def _plan(kind: Any) -> tuple[list[tuple[str, str, Form, bool]], list[str]]:
    """(field, name under which it is saved, its form, whether it is this shard's own) of all; and the parts."""
    said = declarations(kind).items()
    forms = [
        (name, to or name, how, each.own) for name, each in said for to, how in each.forms.items()
    ]
    return forms, [name for name, each in said if each.is_part]


def saved(component: Any, *, for_newcomer: bool = False) -> dict[str, Any]:
    """What is durable of a component and its parts, by the names under which it is saved. for_newcomer: only
    what a shard that joins is sent."""
    forms, parts = _plan(component.__class__)
    durable = {
        saved_as: how.save(getattr(component, name))
        for name, saved_as, how, own in forms
        if not (own and for_newcomer)
    }
    for name in parts:
        durable |= saved(getattr(component, name), for_newcomer=for_newcomer)
    return durable


def restore(component: Any, snapshot: Any) -> None:
    """Brings a new component, and its parts, to what was saved of them. Whoever has a method `derive` works out
    there what follows."""
    forms, parts = _plan(component.__class__)
    for name in parts:
        restore(getattr(component, name), snapshot)
    for name, saved_as, how, _ in forms:
        setattr(component, name, how.load(getattr(component, name), getattr(snapshot, saved_as)))
    if hasattr(component, "derive"):
        component.derive()


class Snapshot:
    """What is saved of components. Its fields are those that they declare."""

    __slots__ = ()
    if TYPE_CHECKING:

        def __init__(self, **saved: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...


def _saved_fields(component: Any) -> Iterator[tuple[str, Any, Any]]:
    """(name, type, default or MISSING) of all that is saved of a component and its parts."""
    forms, parts = _plan(component)
    hints = get_type_hints(component)
    defaults = {each.name: each.default for each in fields(component)}
    for name, saved_as, how, _ in forms:
        kind = how.kind(hints[name])
        yield saved_as, kind, () if get_origin(kind) is tuple else defaults[name]
    for name in parts:
        yield from _saved_fields(hints[name])


def snapshot_of(*components: type) -> Callable[[type[Saved]], type[Saved]]:
    """Gives a class, before it is made a dataclass, a field for all that is saved of components."""

    def declare(kind: type[Saved]) -> type[Saved]:
        known = [each for component in components for each in _saved_fields(component)]
        for name, saved_type, default in sorted(known, key=lambda each: each[2] is not MISSING):
            kind.__annotations__[name] = saved_type
            if default is not MISSING:
                setattr(kind, name, default)
        return kind

    return declare
