"""Commands whose settings are declared by a model: what one types by hand as options, all by `--set` and in a file."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer

from tracker.client.settings import Settings, from_words, read_layers
from tracker.errors import Code, InvalidError

Given = TypeVar("Given", bound=Settings)

_SHORT = {"pipeline": ["-p"], "segment": ["-s"]}


def by_settings(
    model: type[Given], typed: Sequence[str], variables: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Callable[[typer.Context, Given], None]], Callable[..., None]]:
    """Makes a command of a function that takes its settings. typed: those that are options; variables: those that the
    environment may have, with their names there."""

    def decorate(run: Callable[[typer.Context, Given], None]) -> Callable[..., None]:
        def command(
            context: typer.Context, config: str, assigned: list[str], **options: Any
        ) -> None:
            try:
                texts = {field: os.environ.get(name) for field, name in variables.items()}
                said = {field: text for field, text in texts.items() if text}
                found = from_words(model, said, lambda name: variables[name])
                settings = read_layers(model, *read_text(config), found, assigned, options)
            except InvalidError as error:
                raise typer.BadParameter(str(error)) from None
            run(context, settings)

        command.__doc__ = run.__doc__
        vars(command)["__signature__"] = inspect.Signature(parameters(model, typed))
        return command

    return decorate


def read_text(config: str) -> tuple[str, str]:
    """The text of a file of settings, and what it is called. Raises InvalidError."""
    if not config:
        return "{}", "no file"
    try:
        if config == "-":
            return sys.stdin.read(), "standard input"
        return Path(config).read_text(encoding="utf-8"), config
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError(
            f"--config {config} cannot be read: {error}", Code.INVALID_SETTINGS
        ) from None


def parameters(
    model: type[Settings], typed: Sequence[str], config_variable: str | None = None
) -> list[inspect.Parameter]:
    """The context of a command, `--config`, `--set` and the options; one that is not given is None, or an empty list."""
    found = [
        inspect.Parameter(
            "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
        ),
        parameter("config", "", str, typer.Option(
            "--config", envvar=config_variable, show_default=False,
            help="YAML file of settings; -: standard input. All else counts before it",
        )),
        parameter("assigned", [], list[str], typer.Option(
            "--set", metavar="NAME=VALUE", show_default=False,
            help="any setting (docs/settings.md); may be repeated, for a list too",
        )),
    ]  # fmt: skip
    for field in typed:
        declared = model.model_fields[field]
        default = declared.get_default(call_default_factory=True)
        kind, many = _kind(declared.annotation), isinstance(default, list)
        option = typer.Option(
            f"--{field.replace('_', '-')}", *_SHORT.get(field, ()), help=declared.description,
            show_default=str(default) if default else False,
        )  # fmt: skip
        found.append(parameter(field, [] if many else None, kind if many else kind | None, option))
    return found


def _kind(annotation: Any) -> Any:
    """What an option is read as; it is checked by the model."""
    inner = [each for each in get_args(annotation) if each is not type(None)]
    if get_origin(annotation) is list or not inner:
        return annotation
    first = inner[0]
    if get_origin(first) is Annotated:
        first = get_args(first)[0]
    return type(first) if get_origin(annotation) is Literal else first


def parameter(name: str, default: Any, kind: Any, option: Any) -> inspect.Parameter:
    """One option of a command."""
    annotation = Annotated[kind, option]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
