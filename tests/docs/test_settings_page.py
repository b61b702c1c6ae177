"""docs/settings.md, and the settings of the chart, are what the declarations make of them."""

from __future__ import annotations

import re

from scripts import settings_page
from tests.docs.pages import blocks
from tracker.service.settings import (
    CONFIG_VARIABLE,
    ServeSettings,
    for_a_process,
    read_settings,
    variable_of,
)

PAGE = settings_page.PAGE


def test_what_follows_from_the_declarations_is_up_to_date() -> None:
    assert settings_page.main(["--check"]) == 0


def test_the_file_of_settings_is_one() -> None:
    (shown,) = [block.text for block in blocks(PAGE) if block.info == "yaml settings"]
    settings = for_a_process(read_settings(shown, "the page", {}))
    assert (settings.shard, settings.lease_ms) == (0, 5000)
    assert settings.peers == "10.0.0.1:7070,10.0.0.2:7070"


def test_the_named_variables_are_read() -> None:
    named = set(re.findall(r"\bLOWMARK_(?:SERVE_[A-Z_]*[A-Z]|STORE)\b", PAGE.read_text()))
    assert named <= {CONFIG_VARIABLE, *map(variable_of, ServeSettings.model_fields)}
