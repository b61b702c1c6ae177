"""Steps that the code takes and `protocol.py` does not have, in the same language, each with the step that it is wider than.

Those in `WIDER` are as safe as the others: `test_bridge.py` has the solver show that each keeps every invariant, by the obligations of `make proof`. So
whatever a run does by them is inside of what is proven. Those in `OUTSIDE` are not: nobody has shown that they keep the invariants, and where one was
taken, those that it breaks are not asked any more.
"""

from __future__ import annotations

from typing import Any

from z3 import And, Implies, Not, Or

from tests.proof.logic import Effect, Formula, Relation, State, Step
from tests.proof.protocol import (
    _grants_no_less,
    _may_go_out,
    adds,
    all_counted,
    announce,
    counts,
    has_slots,
    in_cut,
    seen_to_have,
    takes_part,
    touches,
)


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


def _grant_as_decided(now: State, p: Any, f: Any, given: Relation) -> Effect:
    """Rule 8: a home decides on a grant by the shards that count (`Pipeline.new_grants`), and by the time that its record is durable another one may
    count, whose joining stood before it in the log (`Rescaling._count_shard`). That one is not asked for its pin, and has announced nothing by
    itself yet; the front had joined here before. `grant_front` asks it, too."""

    def counts_since(s: Any) -> Formula:
        joined = now.joins(f)
        return And(
            Not(now.spoke(s)),
            Not(now.counted_first(p, s)),
            now.every(
                lambda r: Implies(
                    And(now.made(r), now.sender(r) == p, now.says_counted(r, s)),
                    now.says_applied(r, joined),
                )
            ),
            now.every(lambda p2: Implies(now.seen_counted(p2, p, s), now.seen(p2, p, joined))),
            Implies(now.welcome(s), now.seen_counted(s, p, s)),
        )

    return Effect(
        when={
            "it is in the generation": takes_part(now, p),
            "it is a home": And(has_slots(now, p), now.granter(f) == p),
            "it is not granted": Not(now.granted(f)),
            "it has pinned it itself": And(seen_to_have(now, p, p, f), now.kept(p, f)),
            "every shard has that counted before": all_counted(
                now, p, lambda s: Or(seen_to_have(now, p, s, f), counts_since(s))
            ),
            **_grants_no_less(now, p, f, given),
        },
        then={
            "granted": adds(now.granted, f),
            "grant": lambda f2, a: Or(now.grant(f2, a), And(f2 == f, given(a))),
        },
    )


def _announce_over_what_is_late(now: State, p: Any, news: Relation) -> Effect:
    """Rules 1 and 6: what a home has moved to the late ledger (`KeyTick.late`) is in no cell, and touches none (`ShardPipeline._touch`). `announce`
    holds it as touched until its entry is inside M."""
    effect = announce.body(now, p, news)
    touched = "nothing touched outside M reaches it"
    assert touched in effect.when

    def is_held(b: Any, i: Any, t: Any) -> Formula:
        is_touched = And(touches(now, t, i), now.touched(p, now.owner(i), t), Not(now.late(i)))
        return And(news(b), is_touched, now.reaches(now.at(i), b))

    held = now.every(lambda b, i, t: Implies(is_held(b, i, t), in_cut(now, p, t)))
    return Effect(when={**effect.when, touched: held}, then=effect.then)


def _keep_pin_ahead(now: State, s: Any, f: Any) -> Effect:
    """Rules 6 and 8: a snapshot has pins whose records are not durable by themselves (`FrontState.pin` survives as it is), and so keeps one that is
    behind an announcement which is not durable either, and which a crash takes back. `keep_pin` asks that this is durable. No front is granted less
    for it: grants are the largest pins."""
    return Effect(
        when={"it is pinned": now.pinned(s, f), "it is in the generation": takes_part(now, s)},
        then={"kept": adds(now.kept, s, f)},
    )


OUTSIDE = {"keep_pin": Step("keep_pin_ahead", _keep_pin_ahead, {})}
"""By the step that it is wider than."""
BROKEN_OUTSIDE = {"keep_pin_ahead": ("pins are behind what was announced",)}
"""By such a step the invariants that it breaks."""
WIDER = {
    "announce": Step("announce_over_what_is_late", _announce_over_what_is_late, {"news": "place"}),
    "grant_front": Step("grant_as_decided", _grant_as_decided, {"given": "place"}),
    "send_whole": Step("send_held_whole", _send_held_whole, {}),
    "keep_pin": Step("keep_pin_of_before", _keep_pin_of_before, {}),
}
"""By the step that it is wider than."""
