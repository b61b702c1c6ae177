"""docs/faq.md: short answers, each with the page that has the rest; its figures are those of the code."""

from __future__ import annotations

import re

import pytest

from fronts.core import MAX_WAITING_BATCHES
from fronts.front import HEARTBEAT_INTERVAL_MS
from local_tracker.spark.query.follow import MAX_BATCHES_BEHIND
from local_tracker.worker.settings import load
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "faq.md"
ANSWERS = dict(re.findall(r"^## (.+)\n\n((?:[^#\n].*\n+)+)", PAGE.read_text(), re.MULTILINE))
ANSWERS.pop("Where to go next", None)


def test_there_are_twenty_questions() -> None:
    assert len(ANSWERS) == 20


@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_has_two_to_six_sentences_and_leads_on(question: str) -> None:
    answer = re.sub(r"(?:\[[^\]]+\]\([^)]+\)[,.]\s*)+\Z", "", ANSWERS[question])
    assert answer != ANSWERS[question], "an answer ends with links to the pages that have the rest"
    assert 2 <= len(re.findall(r"\.(?=\s)", answer)) <= 6


@pytest.mark.parametrize(
    "said",
    [
        f"promises by its clock every {HEARTBEAT_INTERVAL_MS} ms",
        f"sends {1000 // HEARTBEAT_INTERVAL_MS} a second",
        f"up to {MAX_BATCHES_BEHIND} batches",
        f"wait for {load(environment={}).deadline_s:g} s, and fail",
        f"until {MAX_WAITING_BATCHES:,} batches wait",
    ],
)
def test_a_figure_is_that_of_the_code(said: str) -> None:
    assert said in " ".join(PAGE.read_text().split())
