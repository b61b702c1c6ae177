"""Steps that the code takes and `protocol.py` does not have, in the same language, each with the step that it is wider than.

They are as safe as the others: `test_bridge.py` has the solver show that each keeps every invariant, by the obligations of `make proof`. So whatever a
run does by them is inside of what is proven.
"""

from __future__ import annotations

from typing import Any

from z3 import And, Implies, Not, Or

from tests.proof.logic import Effect, State, Step
from tests.proof.protocol import _may_go_out, adds, counts, in_cut


def _send_held_whole(now: State, w: Any, r: Any) -> Effect:
    """Rule 5: a whole report is made (`Reporter.send_whole_report`), waits until pins are durable that were appended before it, as any report does
    (`Reporter.committed`), and goes out as it was made. Meanwhile its sender may have reported again, and heard of an M that it has to come to first.
    `send_whole` asks that it says that, too."""
    s = now.sender(r)
    return Effect(
        when={
            "it is new": And(Not(now.posted(w)), now.tells(w) == r),
            **_may_go_out(now, r),
            "what it lets go of is inside M": now.every(
                lambda t: Implies(now.let_go(w, t), Or(now.needed(s, t), in_cut(now, s, t)))
            ),
            "it repeats what it does not let go of": now.every(
                lambda t: Implies(
                    And(counts(now, t), now.says_applied(r, t)),
                    Or(now.let_go(w, t), now.repeats(w, t)),
                )
            ),
        },
        then={"posted": adds(now.posted, w)},
    )


def _keep_pin_of_before(now: State, s: Any, f: Any) -> Effect:
    """Rules 8 and 9: a pin's record is durable behind the entry by which its shard has begun a later generation. There it is nothing, but a report
    that has waited for it goes out (`Reporter.committed`). `keep_pin` asks that its shard is still in the generation."""
    return Effect(
        when={
            "it is pinned": now.pinned(s, f),
            "it was in the generation": now.began(s),
            "what it is behind is durable": now.every(
                lambda a: Implies(now.pin(s, f, a), now.recorded(s, a))
            ),
        },
        then={"kept": adds(now.kept, s, f)},
    )


WIDER = {
    "send_whole": Step("send_held_whole", _send_held_whole, {}),
    "keep_pin": Step("keep_pin_of_before", _keep_pin_of_before, {}),
}
"""By the step that it is wider than."""
