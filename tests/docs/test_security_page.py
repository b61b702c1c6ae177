"""docs/security.md shows what the code takes."""

from __future__ import annotations

from tests.docs.pages import ROOT, blocks, table_rows
from tracker.service import access
from tracker.service.tokens import Right, parse_tokens

PAGE = ROOT / "docs" / "security.md"


def test_the_file_of_tokens_is_one() -> None:
    (shown,) = [block.text for block in blocks(PAGE) if block.info == "yaml"]
    (token,) = parse_tokens(shown.encode(), "the page")
    assert token.may(Right.COMMIT, "flights")


def test_every_right_is_explained() -> None:
    shown = {row[0].strip("`") for row in table_rows(PAGE, "right")}
    assert shown == {right.value for right in Right}


def test_how_often_refusals_are_logged_is_said_rightly() -> None:
    assert (access.MAX_LOGGED_REFUSALS, access.LOGGED_PERIOD_S) == (20, 10.0)
    assert "20 times in ten seconds" in " ".join(PAGE.read_text().split())
