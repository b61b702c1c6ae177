"""What an API server has answered, as JSON lines, held against what the chart promises.

    python -m tests.kubernetes.judge FILE

It knows the record alone. Each line is a `what` of a `release`, by kind:

    expected    releases {release: [step]}, outside [release]: what the run was to do, and what is outside of the
                restricted standard, tried under it
    step        step, ok, said: a command of helm, and whether all that it waits for came to be
    objects     step, applied, missing [kind/name]: what of the release's manifest the API server does not have
    hooks       step, hooks {name: phase}: how each hook of the step ended, by helm's own record
    pods        step, wanted, ready, restricted: of the stateful set; whether the namespace enforces that standard
    shards      step, wanted, owners: how many processes own slots, by the tracker itself
    refused     pod, message, claims_restricted: a pod that admission did not let in
    claims      step, claims {name: uid}, pods {pod: [claim]}: what is bound
    secrets     step, secrets {name: digest}: what the release's secrets hold
    evicted     pod, status, away, allowed: an eviction, while so many pods of the set were away
    endpoints   step, service, ready [pod], pods [pod]: who is behind a service, and who is ready
    rights      account, found [right], wanted [right]: all that it may do and another account may not
    review      account, verb, resource, name, allowed, wanted: one SubjectAccessReview
    ran         wrong [text], acknowledged, announcements: what the processes and `tests.check` came to
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

Line: TypeAlias = dict[str, Any]
OVER_BUDGET = 429


def all_was_done(lines: list[Line]) -> Iterator[str]:
    """No run is good because it has ended early."""
    done = Counter((line["release"], line["step"]) for line in lines if line["what"] == "step")
    expected = [line for line in lines if line["what"] == "expected"]
    if not expected:
        yield "nothing was expected"
    for line in expected:
        for release, steps in line["releases"].items():
            for step in steps:
                if not done[release, step]:
                    yield f"{release} {step} was not done"


def steps_succeed(lines: list[Line]) -> Iterator[str]:
    for line in _of(lines, "step"):
        if not line["ok"]:
            yield f"{_where(line)}: {line['said']}"


def objects_are_there(lines: list[Line]) -> Iterator[str]:
    for line in _of(lines, "objects"):
        if not line["applied"]:
            yield f"{_where(line)}: nothing was applied"
        yield from (f"{_where(line)}: there is no {name}" for name in line["missing"])


def hooks_succeed(lines: list[Line]) -> Iterator[str]:
    for line in _of(lines, "hooks"):
        for name, phase in line["hooks"].items():
            if phase != "Succeeded":
                yield f"{_where(line)}: hook {name}: {phase or 'has not run'}"


def pods_come(lines: list[Line]) -> Iterator[str]:
    for line in _of(lines, "pods"):
        if line["ready"] != line["wanted"]:
            yield f"{_where(line)}: {line['ready']} of {line['wanted']} pods are ready"


def shards_follow_pods(lines: list[Line]) -> Iterator[str]:
    for line in _of(lines, "shards"):
        if line["owners"] != line["wanted"]:
            yield f"{_where(line)}: {line['owners']} shards own slots, not {line['wanted']}"


def restricted_is_what_it_says(lines: list[Line]) -> Iterator[str]:
    """A release that claims the restricted standard has no pod refused; what is outside of it is refused."""
    refused = list(_of(lines, "refused"))
    for line in refused:
        if line["claims_restricted"]:
            yield f"{line['release']}: {line['pod']} was refused: {line['message']}"
    for line in _of(lines, "expected"):
        for release in set(line["outside"]) - {each["release"] for each in refused}:
            yield f"{release}: no pod was refused: the standard is not enforced"


def claims_are_kept(lines: list[Line]) -> Iterator[str]:
    """Once bound, a claim is the same for ever; each pod has the one of its number."""
    seen: dict[str, dict[str, str]] = defaultdict(dict)
    for line in _of(lines, "claims"):
        known = seen[line["release"]]
        for name, uid in known.items():
            if (now := line["claims"].get(name)) != uid:
                yield f"{_where(line)}: claim {name} is {'another one' if now else 'gone'}"
        known.update(line["claims"])
        for pod, names in line["pods"].items():
            if [name.endswith(f"-{pod}") for name in names] != [True]:
                yield f"{_where(line)}: {pod} has the claims {names}"


def secrets_are_kept(lines: list[Line]) -> Iterator[str]:
    seen: dict[str, dict[str, str]] = defaultdict(dict)
    for line in _of(lines, "secrets"):
        for name, digest in seen[line["release"]].items():
            if line["secrets"].get(name) != digest:
                yield f"{_where(line)}: secret {name} is not what it was"
        seen[line["release"]].update(line["secrets"])


def budgets_hold(lines: list[Line]) -> Iterator[str]:
    """An eviction within the budget is granted, and one beyond it refused; both were tried."""
    tried = list(_of(lines, "evicted"))
    for line in tried:
        beyond = line["away"] >= line["allowed"]
        if beyond != (line["status"] == OVER_BUDGET):
            yield (
                f"{line['release']}: {line['pod']} was evicted with {line['status']} while "
                f"{line['away']} pods were away, of {line['allowed']} that may be"
            )
    if len({line["away"] >= line["allowed"] for line in tried}) == 1:
        yield "evictions were tried on one side of the budget alone"


def services_lead_to_who_is_ready(lines: list[Line]) -> Iterator[str]:
    for line in _of(lines, "endpoints"):
        if sorted(line["ready"]) != sorted(line["pods"]):
            yield f"{_where(line)}: {line['service']} leads to {line['ready']}, not {line['pods']}"


def accounts_may_what_they_need(lines: list[Line]) -> Iterator[str]:
    for line in _of(lines, "rights"):
        for right in sorted(set(line["found"]) ^ set(line["wanted"])):
            much = "may" if right in line["found"] else "may not"
            yield f"{line['release']}: {line['account']} {much} {right}"
    for line in _of(lines, "review"):
        if line["allowed"] != line["wanted"]:
            said = "may" if line["allowed"] else "may not"
            about = f"{line['verb']} {line['resource']} {line['name']}".rstrip()
            yield f"{line['release']}: {line['account']} {said} {about}"


def processes_do_well(lines: list[Line]) -> Iterator[str]:
    for line in _of(lines, "ran"):
        yield from (f"{line['release']}: {text}" for text in line["wrong"])


RULES: tuple[Callable[[list[Line]], Iterator[str]], ...] = (
    all_was_done, steps_succeed, objects_are_there, hooks_succeed, pods_come, shards_follow_pods,
    restricted_is_what_it_says, claims_are_kept, secrets_are_kept, budgets_hold,
    services_lead_to_who_is_ready, accounts_may_what_they_need, processes_do_well,
)  # fmt: skip


def violations(lines: list[Line]) -> list[str]:
    """What breaks the rules, each with the rule's name."""
    return [f"{rule.__name__}: {said}" for rule in RULES for said in rule(lines)]


def read(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _of(lines: Iterable[Line], what: str) -> Iterator[Line]:
    return (line for line in lines if line["what"] == what)


def _where(line: Line) -> str:
    return f"{line['release']} {line['step']}"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m tests.kubernetes.judge FILE", file=sys.stderr)
        return 2
    lines = read(Path(arguments[0]))
    found = violations(lines)
    for violation in found:
        print(violation)
    print(f"judge: {'FAILED' if found else 'OK'} lines={len(lines)} violations={len(found)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
