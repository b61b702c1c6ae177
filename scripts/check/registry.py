"""The table of checks, `checks.toml`, as data."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

TABLE = Path(__file__).with_name("checks.toml")
QUICK, WHOLE = "quick", "whole"
SABOTAGE = "SABOTAGE"


@dataclass(frozen=True)
class Check:
    """One check: a module that ends with `NAME: OK key=value ...`, `FAILED` or `SKIPPED`, and with 0 only if OK."""

    name: str
    what: str
    module: str
    quick: str
    """Arguments of its quick form."""
    needs: tuple[str, ...] = ()
    """Programs without which it is skipped, each found or installed by `scripts/ensure-NAME`."""
    wants: tuple[str, ...] = ()
    """Programs without which it does less, and says so."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The variables of make that it takes, and the option that each stands for."""
    sabotages: tuple[str, ...] = ()
    """Faults that it can plant."""
    finds: tuple[str, ...] = ()
    """Keys of its summary that count what its own judge has found. With a planted fault one of them is above zero,
    or it has not found the fault, however it failed."""


@dataclass(frozen=True)
class Form:
    """A check with the arguments of one run. name: `quick`, `whole`, or what differs from that: `SABOTAGE=early`."""

    check: Check
    name: str
    arguments: tuple[str, ...]
    sabotage: str = ""


class UnknownWord(Exception):
    """A name, variable or sabotage that there is not."""


def read_checks(path: Path = TABLE) -> dict[str, Check]:
    """All checks by name, in the order of the table."""
    checks = {}
    for name, row in tomllib.loads(path.read_text()).items():
        lists = {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
        checks[name] = Check(name, **{**row, **lists})
    return checks


def quick(check: Check) -> Form:
    return Form(check, QUICK, tuple(shlex.split(check.quick)))


def whole(check: Check, variables: Mapping[str, str], arguments: tuple[str, ...] = ()) -> Form:
    """The whole check, or what `variables` (as N=500) and further `arguments` make of it."""
    given = {name: value for name, value in variables.items() if name != SABOTAGE}
    if unknown := sorted(given.keys() - check.options.keys()):
        takes = (
            ", ".join([*check.options, SABOTAGE]) if check.sabotages else ", ".join(check.options)
        )
        raise UnknownWord(f"{check.name} takes no {unknown[0]}; it takes {takes or 'none'}")
    words = [word for name, value in given.items() for word in (check.options[name], value)]
    shown = [f"{name}={value}" for name, value in variables.items()]
    shown += [f"ARGS={shlex.join(arguments)}"] if arguments else []
    if sabotage := variables.get(SABOTAGE, ""):
        if sabotage not in check.sabotages:
            known = ", ".join(check.sabotages) or "none"
            raise UnknownWord(f"{check.name} has no sabotage {sabotage!r}; there are: {known}")
        words += ["--sabotage", sabotage]
    return Form(check, " ".join(shown) or WHOLE, (*words, *arguments), sabotage)


def sabotaged(check: Check) -> list[Form]:
    """The check with each of the faults that it can plant."""
    return [whole(check, {SABOTAGE: sabotage}) for sabotage in check.sabotages]
