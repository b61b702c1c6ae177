"""The mutations of the shells fit the code as it is, and name tests that there are; what runs them can fail."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.summary import ROOT
from tests.mutations.mutation import MutationError
from tests.mutations.shells import ShellMutation, all_shell_mutations, missing_tests
from tests.mutations.shells.running import ShellOutcome, run_shells

SHELLS = {mutation.name: mutation for mutation in all_shell_mutations()}
LEAVES = SHELLS["leaves-before-its-last-batch"]
ROW = {
    "what": "Made for a test.", "file": LEAVES.file, "symbol": LEAVES.symbol, "old": LEAVES.old,
    "new": "    if False:\n", "tests": ["tests/fronts/test_core.py"],
}  # fmt: skip


def written(directory: Path, **changed: object) -> ShellMutation:
    """The mutation of a file with this one row."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in {**ROW, **changed}.items()]
    (directory / "room.toml").write_text("\n".join(["[made-for-a-test]", *lines]))
    (mutation,) = all_shell_mutations(directory)
    return mutation


@pytest.mark.parametrize("name", sorted(SHELLS))
def test_a_mutation_fits_the_code_and_changes_it(name: str) -> None:
    mutation = SHELLS[name]
    text = mutation.changed(ROOT)
    assert text != (ROOT / mutation.file).read_text()
    compile(text, mutation.file, "exec")


def test_every_test_that_is_to_find_one_is_there() -> None:
    assert not missing_tests(SHELLS.values(), ROOT)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"file": "tracker.py"}, "made-for-a-test changes tracker.py"),
        ({"new": LEAVES.old}, "changes nothing in FrontCore.next_tick"),
        ({"tests": []}, "names no test"),
        ({"what": "No sentence"}, "is a sentence"),
        ({"rule": 1}, "has file, new, old, rule"),
    ],
)
def test_a_mutation_that_cannot_be_is_refused(
    broken: dict[str, object], why: str, tmp_path: Path
) -> None:
    written(tmp_path)
    with pytest.raises(MutationError, match=re.escape(why)):
        written(tmp_path, **broken)


def test_one_that_does_not_fit_any_more_says_so(tmp_path: Path) -> None:
    with pytest.raises(MutationError, match="made-for-a-test does not apply, the code has changed"):
        written(tmp_path, old="    if nobody:\n").changed(ROOT)


def test_a_test_that_is_gone_is_named_with_the_mutations_that_need_it(tmp_path: Path) -> None:
    gone = written(tmp_path, tests=["tests/fronts/test_core.py::test_nobody", "tests/x.py"])
    assert missing_tests([gone], ROOT) == [
        "tests/fronts/test_core.py::test_nobody, which is to find made-for-a-test",
        "tests/x.py, which is to find made-for-a-test",
    ]
    with pytest.raises(MutationError, match=r"there is no tests/fronts/test_core\.py::test_nobody"):
        run_shells([gone], 1, lambda outcome: None)


def test_a_failing_test_finds_one_and_what_harms_nobody_or_never_worked_is_not_found(
    tmp_path: Path,
) -> None:
    harmless = written(tmp_path, new="    if self._waiting and True:\n", tests=list(LEAVES.tests))
    broken = written(tmp_path, new="    if self._waiting and tru:\n", tests=list(LEAVES.tests))
    told: list[str] = []
    known = ShellOutcome("found before", found=True)
    control, outcomes = run_shells(
        [LEAVES, harmless, broken, replace(LEAVES, name=known.name)],
        2,
        lambda outcome: told.append(outcome.name),
        {known.name: known},
    )
    assert outcomes.pop() is known and known.name not in told
    assert not control.found and not control.error
    assert [outcome.found for outcome in outcomes] == [True, False, False]
    assert outcomes[0].message.startswith(f"FAILED {LEAVES.tests[0]}")
    assert not outcomes[1].error
    assert "NameError" in outcomes[2].error
