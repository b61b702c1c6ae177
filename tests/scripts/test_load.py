"""Runs beside busy processes add up on one commit, in one form, and only where nothing failed."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from scripts.check.record import note
from tests.load import __main__ as load
from tests.load.__main__ import Run, earlier

RUN = Run("abc", "form", passed=5, failed=0, broken=0, least=8.0, mean=9.0, seconds=60)


def test_runs_count_again_only_of_the_same_form_and_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "progress.jsonl"
    others = [replace(RUN, commit="abd"), replace(RUN, form="other"), replace(RUN, broken=1)]
    path.write_text("".join(json.dumps(asdict(each)) + "\n" for each in [RUN, *others, RUN]))
    monkeypatch.setattr(load, "commit", lambda: "abc")
    assert earlier(path, "form") == [RUN, RUN]
    assert earlier(tmp_path / "none", "form") == []


def test_code_that_was_changed_has_no_earlier_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_text(json.dumps(asdict(replace(RUN, commit="abc+"))) + "\n")
    monkeypatch.setattr(load, "commit", lambda: "abc+")
    assert earlier(path, "form") == []


def test_what_has_held_is_kept_beside_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept.jsonl"
    monkeypatch.setattr(load, "LOADED", kept)
    monkeypatch.setattr(load, "PROGRESS", tmp_path / "progress.jsonl")
    monkeypatch.setattr(load, "commit", lambda: "abc")
    held = replace(RUN, form=json.dumps([0, 1, ["processes", "spark"], []]))
    for each in (held, RUN, held):
        note(load.PROGRESS, asdict(each), each.commit)
    assert load.main(["--load", "0", "--keep"]) == 0
    assert load.main(["--load", "0", "--keep"]) == 0
    assert earlier(tmp_path / "none", held.form) == [held, held]
