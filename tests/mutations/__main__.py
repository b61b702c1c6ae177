"""python -m tests.mutations [NAME ...] [--shells [NAME ...]]: every fault that is put into the code must be found.

Each mutation of this directory is applied to a copy of the code, and the simulator's seeds are run from 0
on until one breaks a promise. The one that found it the last time comes first (`seeds.json`, which `--keep` writes).
The same seeds on the code as it is must not: a control. Those of `shells/` stand
around the core, and the tests that each names must find it; on the code as it is they pass. With `--shells` these
alone are tried, with neither name all of both. Writes build/mutants.json; exits 1 where a mutation survives or does
not apply. A run that was interrupted goes on: what was found in the same code is not looked for again. Of those that the
simulator hunts that is what it runs, and the mutation itself; of the others the whole commit, without changes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from typing import TypeVar

from scripts.check.record import SEEDS, commit, note, noted
from scripts.summary import BUILD, finish
from tests.mutations.mutation import Mutation, all_mutations
from tests.mutations.search import Outcome, Search
from tests.mutations.shells import ShellMutation, all_shell_mutations
from tests.mutations.shells.running import ShellOutcome, run_shells
from tests.simulation.progress import code_digest

PROGRESS = BUILD / "mutants-progress.jsonl"
MOST_SCHEDULES = 20_000
CONTROL_SCHEDULES = 2_000
_NAME_WIDTH = 44
_MESSAGE_WIDTH = 100

Result = tuple[bool, dict[str, object], dict[str, object]]
"""Whether all is as it should be, what the summary shows, and the details of its file."""


def show(outcome: Outcome) -> None:
    """One line."""
    name = outcome.name or "(no mutation)"
    if outcome.error:
        said = f"NO ANSWER: {outcome.error}"
    elif outcome.found:
        message = outcome.message.replace("\n", " ")
        said = f"found after {outcome.schedules:>5} schedules  {outcome.kind}: {message}"
    else:
        said = f"survived {outcome.schedules} schedules"
    if outcome.crashes:
        said += f" (crashed: {outcome.crashes})"
    width = _MESSAGE_WIDTH if outcome.found else 1000
    print(f"{name:<{_NAME_WIDTH}} {said}"[: _NAME_WIDTH + 30 + width], flush=True)


_O = TypeVar("_O", Outcome, ShellOutcome)


def _noting(
    layer: str,
    kind: type[_O],
    show: Callable[[_O], None],
    counts: Callable[[_O], bool],
    codes: Mapping[str, str],
) -> tuple[list[_O], Callable[[_O], None]]:
    """What came of those that were tried in this code before, and what shows an outcome, and keeps it where it counts.
    codes: by the name of each, in what code it counts."""

    def report(outcome: _O) -> None:
        show(outcome)
        if counts(outcome):
            note(PROGRESS, {layer: asdict(outcome)}, codes[outcome.name])

    lines = noted([PROGRESS], set(codes.values()))
    return [kind(**line[layer]) for line in lines if layer in line], report


def _hunted(mutation: Mutation | None, code: str) -> str:
    """What decides the outcome of a hunt, as one number. code: that of what the simulator runs."""
    return blake2b(f"{code} {mutation!r}".encode(), digest_size=8).hexdigest()


def _seeds() -> dict[str, int]:
    """By the name of each mutation the seed that has found it."""
    return dict(json.loads(SEEDS.read_text()))


def search(
    chosen: list[Mutation], most_schedules: int, control_schedules: int, workers: int
) -> tuple[Outcome, list[Outcome]]:
    """The control's outcome, and those of the mutations; each is shown when it is known."""
    code = code_digest()
    codes = {each.name: _hunted(each, code) for each in chosen} | {"": _hunted(None, code)}
    before, report = _noting(
        "core", Outcome, show, lambda o: o.found if o.name else not (o.found or o.error), codes
    )
    seeds = {name: seed for name, seed in _seeds().items() if seed < most_schedules}
    control, *outcomes = Search(workers, report).run(
        [(None, control_schedules), *((mutation, most_schedules) for mutation in chosen)],
        {(outcome.name, outcome.limit): outcome for outcome in before},
        seeds,
    )
    return control, outcomes


def keep(outcomes: Sequence[Outcome]) -> None:
    """Writes by which seeds they were found, beside those of the others."""
    found = {outcome.name: outcome.seed for outcome in outcomes if outcome.found}
    seeds = _seeds() | found
    known = {each.name: seeds[each.name] for each in all_mutations() if each.name in seeds}
    SEEDS.write_text(json.dumps(known, indent=1) + "\n")


def show_shell(outcome: ShellOutcome) -> None:
    """One line."""
    name = outcome.name or "(no mutation, shells)"
    if outcome.error:
        said = f"NO ANSWER: {outcome.error}"
    elif outcome.found:
        said = f"found after {outcome.seconds:>5} s  {outcome.message}"[: 30 + _MESSAGE_WIDTH]
    else:
        said = f"survived its tests, {outcome.seconds} s"
    print(f"{name:<{_NAME_WIDTH}} {said}", flush=True)


_M = TypeVar("_M", Mutation, ShellMutation)


def _choose(known: Sequence[_M], names: list[str]) -> list[_M]:
    by_name = {mutation.name: mutation for mutation in known}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise SystemExit(f"mutants: no mutation {unknown[0]!r}; there are {', '.join(by_name)}")
    return [by_name[name] for name in names] or list(known)


def _core(chosen: list[Mutation], options: argparse.Namespace) -> Result:
    """What came of the mutations that the simulator hunts."""
    control, outcomes = search(chosen, options.schedules, options.control, options.workers)
    if options.keep:
        keep(outcomes)
    found = [outcome for outcome in outcomes if outcome.found]
    errors = [outcome.name for outcome in (control, *outcomes) if outcome.error]
    survived = [o.name for o in outcomes if not o.found and not o.error]
    shown: dict[str, object] = {
        "mutations": len(outcomes),
        "found": len(found),
        "survived": len(survived),
        "most_schedules": max((outcome.schedules for outcome in found), default=0),
        "control": "failed" if control.found or control.error else control.schedules,
    }
    if errors:
        shown["no_answer"] = ",".join(name or "control" for name in errors)
    if survived:
        shown["survivors"] = ",".join(survived)
    ok = bool(outcomes) and len(found) == len(outcomes) and shown["control"] == control.limit
    rules = {mutation.name: mutation for mutation in chosen}
    details: dict[str, object] = {
        "by_mutation": [
            {"rule": rules[o.name].rule, "what": rules[o.name].what, **asdict(o)} for o in outcomes
        ],
        "unchanged": asdict(control),
    }
    return ok, shown, details


def _shells(chosen: list[ShellMutation], options: argparse.Namespace) -> Result:
    """What came of the mutations that tests find."""
    codes = dict.fromkeys(("", *(each.name for each in chosen)), commit())
    before, report = _noting(
        "shell", ShellOutcome, show_shell, lambda o: bool(o.found and o.name), codes
    )
    known = {outcome.name: outcome for outcome in before}
    control, outcomes = run_shells(chosen, options.workers, report, known)
    found = [outcome.name for outcome in outcomes if outcome.found]
    shown: dict[str, object] = {"shells": len(outcomes), "shells_found": len(found)}
    if not_found := [o.name for o in outcomes if not o.found]:
        shown["shells_not_found"] = ",".join(not_found)
    if not (fine := not control.found and not control.error):
        shown["shells_control"] = "failed"
    details: dict[str, object] = {
        "by_shell_mutation": [asdict(outcome) for outcome in outcomes],
        "shells_unchanged": asdict(control),
    }
    return fine and bool(outcomes) and not not_found, shown, details


def main(arguments: list[str] | None = None) -> int:
    """0 if every mutation was found and the code as it is was not."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the core, these alone")
    parser.add_argument(
        "--shells", nargs="*", metavar="NAME", help="those around the core alone, or these of them"
    )
    parser.add_argument(
        "--schedules", type=int, default=MOST_SCHEDULES, help="at most so many for each mutation"
    )
    parser.add_argument(
        "--control", type=int, default=CONTROL_SCHEDULES, help="so many on the code as it is"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", action="store_true", help="the seeds that find, for the next run")
    parser.add_argument("--list", action="store_true", help="say what each mutation breaks")
    options = parser.parse_args(arguments)
    core = _choose(all_mutations(), options.names)
    shells = _choose(all_shell_mutations(), options.shells or [])
    if options.shells is not None and not options.names:
        core = []
    elif options.shells is None and options.names:
        shells = []
    if options.list:
        for mutation in core:
            print(f"{mutation.name:<{_NAME_WIDTH}} rule {mutation.rule}: {mutation.what}")
        for shell in shells:
            print(f"{shell.name:<{_NAME_WIDTH}} {shell.file}: {shell.what}")
        return 0
    began = time.monotonic()
    results = [_core(core, options)] if core else []
    results += [_shells(shells, options)] if shells else []
    shown = {key: value for _, part, _ in results for key, value in part.items()}
    details = {key: value for _, _, part in results for key, value in part.items()}
    shown["seconds"] = round(time.monotonic() - began)
    ok = all(fine for fine, _, _ in results)
    return finish("mutants", ok=ok, shown=shown, details=details)


if __name__ == "__main__":
    sys.exit(main())
