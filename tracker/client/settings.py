"""Settings that are declared once, in a pydantic model, and may be given in several places.

Of each setting the first place counts that has it: an option, `--set NAME=VALUE`, the environment, a YAML file. What
each place says is checked by itself, so that an error names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tracker.client.yaml_text import load_mapping, problems, shown
from tracker.errors import Code, InvalidError
from tracker.redacting import redacted

MAX_FILE_CHARACTERS = 1_000_000


class Settings(BaseModel):
    """Settings; each has a default. A file has them under the names of the fields."""

    # `standby: 1` or `lease_ms: "5000"` is a slip of the pen, not what is meant.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Given = TypeVar("Given", bound=Settings)


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
    return _checked(model, words, "", name, strict=False)


def assignments(words: Sequence[str], option: str = "--set") -> dict[str, str]:
    """`NAME=VALUE` words as a mapping. Raises InvalidError."""
    pairs = [word.partition("=") for word in words]
    if bad := [word for word, pair in zip(words, pairs, strict=True) if not pair[0] or not pair[1]]:
        raise InvalidError(
            f"{option} {shown(redacted(bad[0]))} is not NAME=VALUE", Code.INVALID_SETTINGS
        )
    return {name: value for name, _, value in pairs}


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
