"""docs/operations.md names all that can hold min time, and commands that there are."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT
from tracker.core.insight.explain import HoldKind

PAGE = ROOT / "docs" / "operations.md"


def test_every_reason_is_in_the_table() -> None:
    text = PAGE.read_text()
    heading, *named = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert heading == "kind"
    assert sorted(named) == sorted(kind.value for kind in HoldKind)
