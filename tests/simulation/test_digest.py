"""The digest of all effects: the same wherever code lives, another one for any other effect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from enum import Enum
from pathlib import Path

import numpy as np
import pytest

from scripts.summary import ROOT
from tests.simulation.digest import digest_of, encoded, first_difference, joined, main
from tests.simulation.faults import FAULTS
from tracker.core.model import Cells, NodeKey
from tracker.core.model.routing import RoutingTable

SEEDS = range(12)


class Colour(Enum):
    RED = "red"


VALUES: list[Callable[[], object]] = [
    lambda: None, lambda: True, lambda: False, lambda: 0, lambda: 1, lambda: -1, lambda: 2**70,
    lambda: "", lambda: "1", lambda: b"1", lambda: 1.0, lambda: (), lambda: (1, 2), lambda: ((1,), 2),
    lambda: ("1", "2"), lambda: ("12",), lambda: {1: 2}, lambda: {2: 1}, lambda: {1, 2},
    lambda: Colour.RED, lambda: np.array([1, 2]), lambda: np.array([[1, 2]]),
    lambda: np.array([1, 2], np.uint64), lambda: NodeKey("n", 1), lambda: NodeKey("n", 2),
    lambda: Cells.of([(0, 1, 2, 3)]), lambda: Cells.of([(0, 1, 2, 4)]),
    lambda: RoutingTable.uniform(2), lambda: RoutingTable.uniform(3),
]  # fmt: skip


def test_equal_values_give_equal_bytes_and_others_do_not() -> None:
    one, other = ([encoded(make()) for make in VALUES] for _ in range(2))
    assert one == other
    assert len(set(one)) == len(VALUES)
    assert encoded([1, 2]) == encoded((1, 2)), "how a sequence is kept says nothing"
    assert encoded(np.int64(7)) == encoded(7)


def test_where_a_class_lives_and_what_its_fields_are_called_does_not_matter() -> None:
    moved = make_dataclass("NodeKey", ["node", "life"], namespace={"__module__": "elsewhere"})
    assert moved.__module__ == "elsewhere"
    assert encoded(moved("n", 1)) == encoded(NodeKey("n", 1))
    other = make_dataclass("NodeName", ["node_id", "incarnation"])
    assert encoded(other("n", 1)) != encoded(NodeKey("n", 1))


def test_what_a_value_has_only_worked_out_does_not_matter() -> None:
    cells = Cells.of([(0, 1, 2, 3), (1, 4, 5, 6)])
    before = encoded(cells)
    cells.lowest_slots()
    assert encoded(cells) == before


def test_what_is_no_plain_data_is_refused() -> None:
    @dataclass
    class Holds:
        thing: object = field(default_factory=object)

    with pytest.raises(TypeError, match="a object is no plain data"):
        encoded(Holds())


def printed(*arguments: str, hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.simulation.digest", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_seed_gives_one_digest_in_whatever_process(tmp_path: Path) -> None:
    output = tmp_path / "digest.json"
    words = ("--seeds", "0:12", "--output", str(output))
    one = printed(*words, "--workers", "1", hash_seed="1")
    assert printed(*words, "--workers", "2", "--against", str(output), hash_seed="2") == one
    document = json.loads(output.read_text())
    digests = [digest_of(seed) for seed in SEEDS]
    assert document["by_seed"] == {str(each.seed): each.digest for each in digests}
    assert one == f"{document['digest']}\n" == f"{joined(digests)}\n"
    assert len({each.digest for each in digests}) == len(SEEDS)
    assert not any(each.failed for each in digests)


def test_another_effect_is_another_digest_and_its_seed_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--seeds", "0:4", "--workers", "1"]
    assert main([*words, "--output", str(tmp_path / "one.json")]) == 0
    before = capsys.readouterr().out
    against = ["--output", str(tmp_path / "other.json"), "--against", str(tmp_path / "one.json")]
    with FAULTS["early"]():
        assert main([*words, *against]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-1] != before.strip()
    assert any(line.startswith("seed 0 is the first that differs") for line in said)
    with pytest.raises(ValueError, match="of other seeds"):
        first_difference([digest_of(7)], {"8": ""})


def test_a_seed_is_shown_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--show", "3"]) == 0
    *steps, last = capsys.readouterr().out.splitlines()
    assert last == f"seed 3: {digest_of(3).digest}"
    assert len(steps) > 1
    assert all(" epoch " in step for step in steps)
