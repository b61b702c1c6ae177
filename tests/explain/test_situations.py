"""`lowmark explain` names who is to blame, whatever it is that keeps min time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.docs.pages import ROOT, table_rows
from tests.explain.situations import SITUATIONS, World
from tests.waits import HANG_S, until
from tracker.view.explanations import explanation_json, explanation_text


def first_cause(here: World) -> dict[str, Any]:
    """The cause that is named first for the pipeline's last segment, which everything holds."""
    explanation = here.tracker.admin().explain(
        "p",
        silent_after_ms=here.silent_after_ms,
        shard_timeout_s=1.0,  # expires: of a shard that is away; asked again
    )
    causes = explanation_json(explanation)["segments"][-1]["causes"]
    return dict(causes[0]) if causes else {}


def named(cause: dict[str, Any], kind: str, here: World) -> bool:
    return {**cause, **here.expected, "kind": kind} == cause


@pytest.mark.parametrize("name", SITUATIONS)
def test_who_is_to_blame_is_named_first(name: str) -> None:
    situation = SITUATIONS[name]
    with situation.plant() as here:
        # What has happened is known to all processes a little later, which no event tells.
        until(
            lambda: named(first_cause(here), situation.kind.value, here),
            lambda: f"{first_cause(here)} instead of {here.expected}",
            HANG_S,
        )
        cause = again = first_cause(here)
        assert named(again, situation.kind.value, here), f"it was not to stay: {again}"
        assert cause["advice"] and not cause["text"].endswith(".")


def test_the_page_lists_all_situations() -> None:
    rows = table_rows(ROOT / "docs" / "explain.md", "what has happened")
    told = {(words, kind.strip("`")) for words, kind, _ in rows}
    assert told == {(s.words, s.kind.value) for s in SITUATIONS.values()}


def test_the_text_says_because_of_whom_and_what_to_do() -> None:
    with SITUATIONS["query_stopped"].plant() as here:
        text = explanation_text(here.tracker.admin().explain("p"))
        assert "because query etl is not connected" in text
        assert (
            "start it again; if it is gone for good: lowmark nodes retire etl --pipeline p" in text
        )
