"""YAML that people write: one mapping, read within limits, and quoted in errors within limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from reprlib import Repr
from typing import Any

import yaml
from pydantic import ValidationError

SHOWN_CHARACTERS = 80
"""Of a wrong value, in an error."""
MAX_SHOWN_PROBLEMS = 10
MAX_ERROR_CHARACTERS = 2_000
_OF_YAML = (
    ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError
)  # fmt: skip
"""What PyYAML lets through of a value that is not of its tag (`!!int` of nothing, a date that is none),
or nested without end."""


class _Strict(yaml.SafeLoader):
    """Reads what YAML 1.2 calls the core schema, more or less: no merges, by which a kilobyte can take minutes; no
    key twice, of which the first would be forgotten; `1:30` is a text, and not 90."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = set()
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key_node.tag == _MERGE:
                raise yaml.constructor.ConstructorError(
                    None,
                    None,
                    "merges (<<) are not read: write out what is meant",
                    key_node.start_mark,
                )
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is not None and (key_node.tag, key) in keys:
                raise yaml.constructor.ConstructorError(
                    None, None, "a key stands here twice", key_node.start_mark
                )
            keys.add((key_node.tag, key))
        return super().construct_mapping(node, deep)


_MERGE = "tag:yaml.org,2002:merge"
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_Strict.add_implicit_resolver("tag:yaml.org,2002:str", _BASE_60, list("-+0123456789"))
for _resolvers in _Strict.yaml_implicit_resolvers.values():
    _resolvers.sort(key=lambda each: each[1] is not _BASE_60)  # the first that fits counts


def load_mapping(
    text: str, source: str, limit: int, of: str, *, secret: bool = False
) -> dict[Any, Any]:
    """The mapping that a text of up to `limit` characters holds. Raises ValueError naming `source`, and
    what the mapping would be `of`; where it may hold a secret, nothing of it is quoted."""
    if len(text) > limit:
        raise ValueError(f"{source} has {len(text)} characters; the limit is {limit}")
    try:
        document = yaml.load(text, Loader=_Strict)
    except (yaml.YAMLError, *_OF_YAML) as error:
        why = _line(error) if secret else f": {brief(error).replace(_UNNAMED, '')}"
        raise ValueError(f"{source} is not YAML{why}") from None
    if not isinstance(document, dict):
        held = "something else" if secret else shown(document)
        raise ValueError(f"{source} must hold one mapping {of}; it holds {held}")
    return document


_UNNAMED = 'in "<unicode string>", '
"""What PyYAML calls a text."""


def _line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f" at line {mark.line + 1}" if mark is not None else ""


def position(
    text: str, path: Sequence[object], *, of_key: bool = False
) -> tuple[str, tuple[object, ...]]:
    """Where a text that `load_mapping` has read holds what a path of keys and indices leads to: `line 3, column 5`, and
    the steps of the path that it has. of_key: where the last key stands, not its value."""
    node: Any = yaml.compose(text, Loader=_Strict)
    key = node
    steps = []
    for step in path:
        if isinstance(node, yaml.MappingNode):
            found = [pair for pair in node.value if getattr(pair[0], "value", None) == str(step)]
        else:
            is_index = isinstance(node, yaml.SequenceNode) and isinstance(step, int)
            found = [(node.value[step],) * 2] if is_index else []
        if found:
            key, node = found[0]
            steps.append(step)
    mark = (key if of_key else node).start_mark
    return f"line {mark.line + 1}, column {mark.column + 1}", tuple(steps)


def problems(error: ValidationError, place: Callable[[Any], str]) -> str:
    """What a model has found wrong, each in the words of `place`."""
    found = error.errors()
    text = "; ".join(place(problem) for problem in found[:MAX_SHOWN_PROBLEMS])
    if len(found) > MAX_SHOWN_PROBLEMS:
        text += f"; and {len(found) - MAX_SHOWN_PROBLEMS} more"
    return brief(text)


def brief(error: object) -> str:
    """An error's text, cut off where it is long."""
    text = str(error)
    return text if len(text) <= MAX_ERROR_CHARACTERS else f"{text[:MAX_ERROR_CHARACTERS]}..."


def shown(value: object) -> str:
    """A value in an error."""
    # Not repr(): by its aliases a small file can name more than anything could print.
    text = _BRIEF.repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


_BRIEF = Repr()
_BRIEF.maxlevel, _BRIEF.maxstring, _BRIEF.maxother = 2, SHOWN_CHARACTERS, SHOWN_CHARACTERS
