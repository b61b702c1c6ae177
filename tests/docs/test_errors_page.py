"""docs/errors.md explains every reason for a refusal, with the status that it travels as."""

from __future__ import annotations

from tests.docs.pages import ROOT, table_rows
from tracker.core.model import RefusalCode
from tracker.service.rpc.errors import STATUS
from tracker.wire.refusals import REFUSAL_KEY

PAGE = ROOT / "docs" / "errors.md"


def test_every_code_has_a_row_and_every_row_a_code() -> None:
    codes = [row[0].strip("`") for row in table_rows(PAGE, "code")]
    assert sorted(codes) == sorted(code.value for code in RefusalCode)


def test_every_row_has_the_status_that_the_refusal_travels_as() -> None:
    shown = {row[0].strip("`"): row[1].strip("`") for row in table_rows(PAGE, "code")}
    assert shown == {code.value: status.name for code, status in STATUS.items()}


def test_the_page_names_the_metadata_that_carries_the_refusal() -> None:
    assert f"`{REFUSAL_KEY}`" in PAGE.read_text()


def test_every_row_says_what_it_means_and_what_to_do() -> None:
    for code, _, meaning, advice in table_rows(PAGE, "code"):
        assert len(meaning) > 20, code
        assert len(advice) > 20, code
