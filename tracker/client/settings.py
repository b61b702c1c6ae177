"""Settings that are declared once, in a pydantic model, and may be given in several places.

Of each setting the first place counts that has it: an option, `--set NAME=VALUE`, the environment, a YAML file. What
each place says is checked by itself, so that an error names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, WithJsonSchema

from tracker.client.moments import parse_duration_ns
from tracker.client.yaml_text import load_mapping, problems, shown
from tracker.errors import Code, InvalidError
from tracker.redacting import redacted

MAX_FILE_CHARACTERS = 1_000_000


class Settings(BaseModel):
    """Settings; each has a default. A file has them under the names of the fields."""

    # `standby: 1` or `lease_ms: "5000"` is a slip of the pen, not what is meant.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Given = TypeVar("Given", bound=Settings)


def seconds(duration: str) -> float:
    """What a setting that is a `Duration` says."""
    return parse_duration_ns(duration) / 1e9


def _is_duration(text: str) -> str:
    parse_duration_ns(text)
    return text


Duration = Annotated[
    str, AfterValidator(_is_duration), WithJsonSchema({"type": "string", "format": "duration"})
]
"""The type of a setting that is a number and its unit: `2s`, `10m`."""


def read_layers(
    model: type[Given],
    text: str,
    source: str,
    said: Mapping[str, Any],
    assigned: Sequence[str],
    options: Mapping[str, Any],
) -> Given:
    """What counts, by field: options, then `NAME=VALUE` words, then what an environment `said`, then the file. Raises
    InvalidError."""
    typed = {name: value for name, value in options.items() if value is not None and value != []}
    found = from_file(model, text, source) | dict(said)
    found |= from_words(model, assignments(assigned), lambda name: f"--set {name}")
    found |= from_words(model, typed, lambda name: f"--{name.replace('_', '-')}")
    return model.model_validate(found)


def from_file(model: type[Given], text: str, source: str) -> dict[str, Any]:
    """What the YAML text of a file says, by field. Raises InvalidError."""
    try:
        in_file = load_mapping(text, source, MAX_FILE_CHARACTERS, "of settings", secret=True)
    except ValueError as error:
        raise InvalidError(str(error), Code.INVALID_SETTINGS) from None
    return _checked(model, in_file, f"{source}: ", str)


def from_words(
    model: type[Given], words: Mapping[str, Any], name: Callable[[str], str]
) -> dict[str, Any]:
    """What a command line or an environment says, by field. name: a setting's name there. Raises InvalidError."""
    lists = {
        field for field, info in model.model_fields.items() if get_origin(info.annotation) is list
    }
    values = {
        field: [value] if field in lists and isinstance(value, str) else value
        for field, value in words.items()
    }
    return _checked(model, values, "", name, strict=False)


def assignments(words: Sequence[str]) -> dict[str, str | list[str]]:
    """`NAME=VALUE` words as a mapping; a name that stands in several has a list. Raises InvalidError."""
    found = dict[str, list[str]]()
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise InvalidError(
                f"--set {shown(redacted(word))} is not NAME=VALUE", Code.INVALID_SETTINGS
            )
        found.setdefault(name, []).append(value)
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


def _checked(
    model: type[Given],
    values: Mapping[Any, Any],
    source: str,
    name: Callable[[str], str],
    *,
    strict: bool = True,
) -> dict[str, Any]:
    def place(problem: Any) -> str:
        return _problem(model, problem, name)

    try:
        found = model.model_validate(dict(values), strict=strict)
    except ValidationError as error:
        raise InvalidError(source + problems(error, place), Code.INVALID_SETTINGS) from None
    return {field: getattr(found, field) for field in found.model_fields_set}


def _problem(model: type[Settings], problem: Any, name: Callable[[str], str]) -> str:
    first, *inner = map(str, problem["loc"])
    where = shown(redacted(".".join([name(first), *inner]))).strip("'")
    if problem["type"] == "extra_forbidden":
        known = ", ".join(model.model_fields)
        return f"{where}: there is no such setting; there are {known}"
    value, message = problem["input"], problem["msg"].removeprefix("Value error, ")
    if isinstance(value, list | dict):
        return f"{where}: {message}"  # what is in it is not looked through for passwords
    return f"{where}: {message} (it says {shown(redacted(value) if isinstance(value, str) else value)})"
