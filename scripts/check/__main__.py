"""Runs checks, and keeps what each came to in `build/check.json`.

    python -m scripts.check [NAME ... | all] [N=... SEEDS=... SECONDS=... SABOTAGE=...] [-- ARGUMENTS]

Without a name it runs the quick form of each check, with names the whole checks, with SABOTAGE=all each of their
sabotages, which counts as OK if the check finds the planted fault by its own judgement. What was OK on this very code is not run again,
and what failed the last time goes first. A check that lacks a program that can't be installed here is skipped, with the
reason. Variables and arguments for one check alone: N=500, `-- --only run`.

    python -m scripts.check --alone NAME ...    the check itself, in place of this program: what `make NAME` does
    python -m scripts.check --show              the record as a table
    python -m scripts.check --page              the same into docs/verification.md, and the record beside the code
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from scripts.check.record import PAGE, Record, Result, Status, commit
from scripts.check.registry import (
    SABOTAGE,
    Check,
    Form,
    UnknownWord,
    quick,
    read_checks,
    sabotaged,
    whole,
)
from scripts.check.running import SHOWN_OF_A_FAILURE, Needs, command_of, log_of, run
from scripts.check.showing import LINE_WIDTH, cut, page_rows, show, written

ALL = "all"
FLAGS = ("--alone", "--show", "--page")


def chosen(
    checks: Mapping[str, Check], words: Sequence[str], arguments: Sequence[str]
) -> list[Form]:
    """The forms that are asked for, in the order of the table. Raises UnknownWord."""
    names = [word for word in words if "=" not in word]
    variables = dict(word.split("=", 1) for word in words if "=" in word)
    if unknown := [name for name in names if name not in (*checks, ALL)]:
        raise UnknownWord(f"no check {unknown[0]!r}; there are: {', '.join(checks)}")
    named = [check for check in checks.values() if not names or check.name in names or ALL in names]
    if variables == {SABOTAGE: ALL} and not arguments:
        return [form for check in named for form in sabotaged(check)]
    if not names and not variables and not arguments:
        return [quick(check) for check in named]
    if len(named) != 1 and (arguments or variables):
        raise UnknownWord(
            "variables and arguments are for one check alone; SABOTAGE=all is for all"
        )
    return [whole(check, variables, tuple(arguments)) for check in named]


def run_all(
    forms: Sequence[Form], record: Record, needs: Needs, code: str,
    run_one: Callable[[Form, Needs], Result] = run,
) -> list[Result]:  # fmt: skip
    """Runs what is not done yet, what failed the last time first; returns the results of all, in that order."""
    ordered = sorted(forms, key=lambda form: not record.has_failed(form.check.name, form.name))
    results = []
    for number, form in enumerate(ordered, 1):
        if record.is_done(form.check.name, form.name, code):
            done = record.results[form.check.name, form.name]
        else:
            print(f"== {number}/{len(ordered)} {form.check.name} {form.name}", flush=True)
            done = run_one(form, needs)
            record.add(done)
            _say(form, done)
        results.append(done)
    return results


def _say(form: Form, result: Result) -> None:
    """How a check ended; of one that is not OK, the end of what it printed."""
    log = log_of(form)
    if result.status in (Status.FAILED, Status.BROKEN) and log.exists():
        lines = log.read_text(errors="replace").splitlines()[-SHOWN_OF_A_FAILURE:]
        print("\n".join(f"   {line}" for line in lines))
        print(f"   all of it: {log}")
    print(
        f"   {result.status} after {result.seconds:.0f} s: {cut(result.line, LINE_WIDTH)}",
        flush=True,
    )


def summary(results: Sequence[Result], code: str) -> tuple[str, bool]:
    """The last line, and whether all is well: nothing failed, and something ran."""
    count = {status: sum(each.status is status for each in results) for status in Status}
    same = all(each.commit == code for each in results)
    ok = same and count[Status.OK] > 0 and not count[Status.FAILED] and not count[Status.BROKEN]
    pairs = " ".join(f"{status.lower()}={number}" for status, number in count.items())
    seconds = round(sum(each.seconds for each in results))
    moved = "" if same else " moved_meanwhile=true"
    line = f"check: {'OK' if ok else 'FAILED'} checks={len(results)} {pairs} seconds={seconds} commit={code}{moved}"
    return line, ok


def alone(forms: Sequence[Form], needs: Needs) -> int:
    """Becomes the check, if it can run here."""
    (form,) = forms
    if why := needs.why_not(form):
        print(f"{form.check.name}: SKIPPED {why}", flush=True)
        return 1
    command = command_of(form)
    os.execv(command[0], command)


def main(given: Sequence[str]) -> int:
    """The exit code: 0 if nothing failed."""
    split = given.index("--") if "--" in given else len(given)
    words, arguments = [word for word in given[:split] if word], list(given[split + 1 :])
    flags = {word for word in words if word.startswith("-")}
    checks, record, code = read_checks(), Record.read(), commit()
    try:
        if unknown := flags - set(FLAGS):
            raise UnknownWord(f"no option {min(unknown)!r}; there are: {', '.join(FLAGS)}")
        forms = chosen(checks, [word for word in words if word not in flags], arguments)
    except UnknownWord as error:
        print(f"check: {error}", file=sys.stderr)
        return 2
    if "--alone" in flags:
        return alone(forms, Needs())
    if "--page" in flags:
        record.keep(checks)
        PAGE.write_text(written(PAGE.read_text(), page_rows(checks, record)))
        return 0
    if "--show" in flags:
        show(record.results.values(), code)
        return 0
    results = run_all(forms, record, Needs(), code)
    show(results, code)
    line, ok = summary(results, code)
    print(line, flush=True)
    return 0 if ok else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended
    sys.exit(main(sys.argv[1:]))
