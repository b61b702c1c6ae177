"""What is proven: the protocol of one tracker, how pipelines move between several, and how they change while they run."""

from __future__ import annotations

from tests.proof import invariants, protocol
from tests.proof.changes import invariants as of_changes
from tests.proof.changes import system as changes
from tests.proof.groups import invariants as of_groups
from tests.proof.groups import system as groups
from tests.proof.logic import Lemma, System

PROTOCOL = System(
    protocol.VOCABULARY,
    protocol.STEPS,
    invariants.INVARIANTS,
    protocol.beginning,
    protocol.fixed_facts,
    protocol.goes_on,
    "items come of something",
    Lemma(
        "announce",
        "what reaches it was created inside M",
        invariants.is_inside_the_cut,
        invariants.was_made_before,
    ),
)
"""Rules 1 to 11."""
GROUPS = System(
    groups.VOCABULARY, groups.STEPS, of_groups.INVARIANTS, groups.beginning, groups.fixed_facts
)
"""Rule 13."""
CHANGES = System(
    changes.VOCABULARY,
    changes.STEPS,
    of_changes.INVARIANTS,
    changes.beginning,
    changes.fixed_facts,
    changes.is_consumed_later,
    "taken items come of something",
    Lemma(
        "announce_by_edges",
        "what is there was created inside M",
        of_changes.is_inside,
        of_changes.was_taken_before,
    ),
)
"""Rule 12, as far as edges and new segments go."""
