"""python -m tests.mutations [NAME ...]: every fault that is put into the core must be found.

Each mutation of this directory is applied to a copy of the code, and the simulator's seeds are run from 0
on until one breaks a promise. The same seeds on the code as it is must not: a control. Writes
build/mutants.json; exits 1 where a mutation survives or does not apply.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import asdict

from scripts.summary import finish
from tests.mutations.mutation import Mutation, all_mutations
from tests.mutations.search import Outcome, Search

MOST_SCHEDULES = 20_000
CONTROL_SCHEDULES = 2_000
_NAME_WIDTH = 44
_MESSAGE_WIDTH = 100


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


def search(
    chosen: list[Mutation], most_schedules: int, control_schedules: int, workers: int
) -> tuple[Outcome, list[Outcome]]:
    """The control's outcome, and those of the mutations; each is shown when it is known."""
    control, *outcomes = Search(workers, show).run(
        [(None, control_schedules), *((mutation, most_schedules) for mutation in chosen)]
    )
    return control, outcomes


def _choose(names: list[str]) -> list[Mutation]:
    known = {mutation.name: mutation for mutation in all_mutations()}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"mutants: no mutation {unknown[0]!r}; there are {', '.join(known)}")
    return [known[name] for name in names] or list(known.values())


def main(arguments: list[str] | None = None) -> int:
    """0 if every mutation was found and the code as it is was not."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="these alone")
    parser.add_argument(
        "--schedules", type=int, default=MOST_SCHEDULES, help="at most so many for each mutation"
    )
    parser.add_argument(
        "--control", type=int, default=CONTROL_SCHEDULES, help="so many on the code as it is"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="say what each mutation breaks")
    options = parser.parse_args(arguments)
    chosen = _choose(options.names)
    if options.list:
        for mutation in chosen:
            print(f"{mutation.name:<{_NAME_WIDTH}} rule {mutation.rule}: {mutation.what}")
        return 0
    began = time.monotonic()
    control, outcomes = search(chosen, options.schedules, options.control, options.workers)
    found = [outcome for outcome in outcomes if outcome.found]
    errors = [outcome.name for outcome in (control, *outcomes) if outcome.error]
    survived = [o.name for o in outcomes if not o.found and not o.error]
    shown: dict[str, object] = {
        "mutations": len(outcomes),
        "found": len(found),
        "survived": len(survived),
        "most_schedules": max((outcome.schedules for outcome in found), default=0),
        "control": "failed" if control.found or control.error else control.schedules,
        "seconds": round(time.monotonic() - began),
    }
    if errors:
        shown["no_answer"] = ",".join(name or "control" for name in errors)
    if survived:
        shown["survivors"] = ",".join(survived)
    ok = bool(outcomes) and len(found) == len(outcomes) and shown["control"] == control.limit
    rules = {mutation.name: mutation for mutation in chosen}
    details = {
        "by_mutation": [
            {"rule": rules[o.name].rule, "what": rules[o.name].what, **asdict(o)} for o in outcomes
        ],
        "unchanged": asdict(control),
    }
    return finish("mutants", ok=ok, shown=shown, details=details)


if __name__ == "__main__":
    sys.exit(main())
