"""docs/errors.md explains every reason for a refusal, with the status that it travels as."""

from __future__ import annotations

import grpc

from tests.docs.pages import ROOT, table_rows
from tracker.core.model import RefusalCode

PAGE = ROOT / "docs" / "errors.md"


def test_every_code_has_a_row_and_every_row_a_code() -> None:
    codes = [row[0].strip("`") for row in table_rows(PAGE, "code")]
    assert sorted(codes) == sorted(code.value for code in RefusalCode)


def test_every_row_says_what_it_means_and_what_to_do() -> None:
    for code, status, meaning, advice in table_rows(PAGE, "code"):
        assert hasattr(grpc.StatusCode, status.strip("`")), f"{code}: {status} is no gRPC status"
        assert len(meaning) > 20, code
        assert len(advice) > 20, code
