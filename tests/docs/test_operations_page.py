"""docs/operations.md names all that can hold min time, and commands that there are."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT, blocks
from tracker.core.insight.explain import HoldKind
from tracker.service.settings import (
    CONFIG_VARIABLE,
    ServeSettings,
    for_a_process,
    read_settings,
    variable_of,
)

PAGE = ROOT / "docs" / "operations.md"


def test_every_reason_is_in_the_table() -> None:
    text = PAGE.read_text()
    heading, *named = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert heading == "kind"
    assert sorted(named) == sorted(kind.value for kind in HoldKind)


def test_the_file_of_settings_is_one() -> None:
    (shown,) = [block.text for block in blocks(PAGE) if block.info == "yaml settings"]
    settings = for_a_process(read_settings(shown, "the page", {}))
    assert (settings.shard, settings.lease_ms) == (0, 5000)
    assert settings.peers == "10.0.0.1:7070,10.0.0.2:7070"


def test_the_named_variables_are_read() -> None:
    named = set(re.findall(r"\bLOWMARK_(?:SERVE_[A-Z_]*[A-Z]|STORE)\b", PAGE.read_text()))
    assert named <= {CONFIG_VARIABLE, *map(variable_of, ServeSettings.model_fields)}
