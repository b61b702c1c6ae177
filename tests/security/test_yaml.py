"""YAML that people write means what it looks like, and takes no longer than its length."""

from __future__ import annotations

from typing import Any

import pytest

from tracker.client.pipeline_file import load_pipeline
from tracker.client.yaml_text import load_mapping


def read(text: str) -> dict[Any, Any]:
    return load_mapping(text, "file.yaml", 10_000, "of settings")


def bomb(levels: int) -> str:
    """Each level merges the one below twice: the work doubles with each line."""
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize("text", [bomb(30), "a: &a {k: v}\nb: {<<: *a}"])
def test_merges_are_refused_before_they_are_done(text: str) -> None:
    assert len(text) < 2_000
    with pytest.raises(ValueError, match=r"file\.yaml is not YAML: merges"):
        read(text)


@pytest.mark.parametrize("text", ["a: 1\na: 2", "b: {a: 1, a: 2}", "- 1\n", "b: [{a: 1, 'a': 2}]"])
def test_no_key_stands_twice(text: str) -> None:
    with pytest.raises(ValueError, match=r"a key stands here twice|must hold one mapping"):
        read(text)


def test_keys_of_other_types_are_other_keys() -> None:
    assert read("1: a\n'1': b") == {1: "a", "1": "b"}


@pytest.mark.parametrize("number", ["1:30", "190:20:30", "-1:30", "190:20:30.15", "0:10"])
def test_numbers_to_the_base_of_60_are_texts(number: str) -> None:
    assert read(f"a: {number}\nb: 90\nc: 1.5\nd: 2013-01-01") | {"d": 0} == {
        "a": number, "b": 90, "c": 1.5, "d": 0,
    }  # fmt: skip


def test_a_pipeline_says_what_is_wrong_with_it() -> None:
    with pytest.raises(ValueError, match=r"p\.yaml is not YAML: a key stands here twice"):
        load_pipeline("name: a\nname: b\nsegments: [s]\nopen: true", "p.yaml")
