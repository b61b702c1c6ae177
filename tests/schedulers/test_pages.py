"""What `make schedulers` takes from the page of schedulers, and changes in it, is there."""

from __future__ import annotations

import ast

import pytest

from tests.schedulers.airflow import following
from tests.schedulers.airflow.home import changed, line


def test_dag_files_are_the_pages_with_other_words() -> None:
    for text, word in ((following.two_hours(), 'every="2h"'), (following.sensor(), "retries=50")):
        assert word in text
        ast.parse(text)


def test_what_is_to_be_replaced_must_be_there() -> None:
    with pytest.raises(AssertionError, match="the page has no 'two' any more: number"):
        changed("one", number=("two", "three"))


def test_the_command_that_adds_a_connection_names_its_type() -> None:
    assert "--conn-type lowmark" in line("airflow connections add")
