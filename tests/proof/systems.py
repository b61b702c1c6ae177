"""What is proven: the protocol of one tracker, and how pipelines move between several."""

from __future__ import annotations

from tests.proof import invariants, protocol
from tests.proof.groups import invariants as of_groups
from tests.proof.groups import system as groups
from tests.proof.logic import System

PROTOCOL = System(
    protocol.VOCABULARY,
    protocol.STEPS,
    invariants.INVARIANTS,
    protocol.beginning,
    protocol.fixed_facts,
    protocol.goes_on,
)
"""Rules 1 to 11."""
GROUPS = System(
    groups.VOCABULARY, groups.STEPS, of_groups.INVARIANTS, groups.beginning, groups.fixed_facts
)
"""Rule 13."""
