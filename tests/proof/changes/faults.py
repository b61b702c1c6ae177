"""Faults planted into the steps of a change: with each the promise is broken, by a run from the beginning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from z3 import And, Implies, Not, Or

from tests.proof.changes.invariants import PROMISES
from tests.proof.logic import Effect, Formula, State
from tests.proof.mutations import Mutation, instead, leaves_as_it_is, without
from tests.proof.runs import Plant

LABEL = "put_out/t=1 judge_labels/t=1 log_judged/t=1"
"""The front labels the first item, and its home takes that."""
LABELLED = f"{LABEL} pass_on/s=2,t=1"
"""So does the second shard."""
KNOWN = "decide_change/v=2 apply_change/s=1,v=2 apply_change/s=2,v=2"
"""A change is decided, and both shards have heard of it."""
TOLD = "make_report/s=1,r=1 send_report/r=1 take_report/p=2,r=1"
"""The second shard hears what the first one says."""
BOTH_TOLD = f"{TOLD} make_report/s=2,r=2 send_report/r=2 take_report/p=1,r=2"
CONSUMED = f"{LABELLED} {KNOWN} {BOTH_TOLD} judge/t=2 log_judged/t=2 pass_on/s=1,t=2"
"""A worker has the second shard for its home, and consumes the first item while a change is under way, of which both shards have heard."""
ONE = "activate/h=1,v=2 log_activation/h=1,v=2 receive_activation/s=2,h=1,v=2"
OTHER = "activate/h=2,v=2 log_activation/h=2,v=2 receive_activation/s=1,h=2,v=2"
ACTIVE = f"{ONE} {OTHER}"
"""Both homes judge by it, and both shards have applied that."""
LET_GO = (
    "make_report/s=2,r=3 send_report/r=3 take_report/p=1,r=3 make_report/s=1,r=4 let_go/p=1,v=2"
)
"""The first shard has heard of all activations, and lets go of old edges."""
CHANGED = f"{KNOWN} {BOTH_TOLD} {ACTIVE} {LET_GO}"
"""A whole change, as the first shard knows it."""
NEWS = "make_report/s=1 announce_by_edges/p=1"
"""The first shard announces something."""
FIRST = "make_report/s=2 send_report take_report/p=1"
"""The first shard hears from the second one."""

FAULTS: dict[str, Mutation] = {}


def fault(step: str, story: str, **sizes: int) -> Callable[[Plant], Plant]:
    """A plant as a mutation by its name, with its docstring as what it breaks."""

    def take(plant: Plant) -> Plant:
        name = plant.__name__.replace("_", "-")
        says = (plant.__doc__ or "").strip()
        FAULTS[name] = Mutation(name, "f", 12, says, step, plant, story, PROMISES[0], sizes=sizes)
        return plant

    return take


# --- which edges count ------------------------------------------------------------------------------


def _counts_if(
    now: State, effect: Effect, given: Mapping[str, Any], counts: Callable[[Any], Formula]
) -> Effect:
    """A process announces by the edges of those versions that it knows and of which this is so."""
    p, news = given["p"], given["news"]
    by_them = now.every(
        lambda v, a, b: Implies(
            And(news(b), now.knows(p, v), counts(v), now.leads(v, a, b)), news(a)
        )
    )
    return instead(effect, "what leads there is among it", by_them)


@fault(
    "announce_by_edges",
    f"{FIRST} {LABEL} decide_change/v=2 apply_change/s=1 {NEWS} judge/t=2",
)
def edges_gone_at_once(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A process that hears of a change counts the edges of before no more, by which homes still judge."""
    p = given["p"]
    newest = lambda v: now.every(lambda v2: Implies(now.knows(p, v2), Not(now.less(v, v2))))  # noqa: E731
    return _counts_if(now, effect, given, newest)


@fault(
    "announce_by_edges",
    f"""{CONSUMED} {ACTIVE} make_report/s=1,r=3 send_report/r=3 take_report/p=2,r=3 make_report/s=2,r=4 let_go/p=2,v=2
    decide_change/v=3,v2=2 apply_change/s=1,v=3 make_report/s=1,r=5 announce_by_edges/p=1""",
    version=3,
    report=5,
)
def edges_of_an_earlier_change_forgotten(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A process to which the next change comes before it could let go of what one had taken away counts what there was just before, and not what was gone already."""
    p = given["p"]

    def one_of_two(v: Any) -> Formula:
        return now.every(
            lambda v2, v3: Not(
                And(now.knows(p, v2), now.knows(p, v3), now.less(v, v2), now.less(v2, v3))
            )
        )

    return _counts_if(now, effect, given, one_of_two)


@fault(
    "announce_by_edges",
    f"{CONSUMED} {ACTIVE} {NEWS}",
)
def edges_let_go_by_what_is_applied_here(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A process counts the edges of before no more once it has applied that all homes judge by the change, while another shard has still to apply what they had judged
    before."""
    p, v = given["p"], given["v"]
    applied = And(now.knows(p, v), now.every(lambda h: now.active(p, h, v)))
    weaker = without(effect, "edges count from a version on")
    return instead(weaker, "M is as far as it let go of others by", applied)


@fault(
    "announce_by_edges",
    f"{CONSUMED} {ACTIVE} {LET_GO} fail/p=1,v=2 take_report/p=1,r=2 {NEWS}",
    report=5,
)
def edges_let_go_before_M_is_as_far_again(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A process that comes back, and remembers that it had let go of edges, announces without them before it has heard again what it had gone by."""
    return without(effect, "M is as far as it let go of others by")


# --- activations ------------------------------------------------------------------------------------


@fault(
    "activate", f"{FIRST} {LABEL} decide_change/v=2 apply_change/s=2 activate/h=2 {NEWS} judge/t=2"
)
def activated_before_every_shard_reckons_with_it(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A home judges by new edges when it has heard of them, though another shard still announces without them."""
    return without(effect, "every shard reckons with it")


HEARD = f"{FIRST} {LABEL} {NEWS} record_all/p=1 {KNOWN} {BOTH_TOLD}"
"""The first shard announces something, and then both hear of a change and of each other."""


@fault("activate", f"{HEARD} activate/h=2 log_activation/h=2 fail/p=2 judge/t=2")
def activated_without_announcing_what_was_heard(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A home judges by new edges, and announces nothing of what others had announced: when it comes back, it does not know that."""
    own = lambda h, b: Or(  # noqa: E731
        And(h == given["h"], now.announced(h, b)), And(h != given["h"], now.rests_on(h, b))
    )
    changed = leaves_as_it_is(effect, "announced")
    return replace(changed, then={**changed.then, "rests_on": own})


@fault("log_activation", f"{HEARD} activate/h=2 log_activation/h=2 fail/p=2 judge/t=2")
def activated_ahead_of_what_was_announced(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """That a home judges by new edges is durable before what it has announced for that is."""
    return without(effect, "and so is what it had announced")


@fault(
    "make_report",
    f"{FIRST} {LABEL} {NEWS} {KNOWN} {BOTH_TOLD} activate/h=2 judge/t=2",
    report=4,
)
def reported_without_what_is_not_durable(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A shard that reckons with a change reports what it has announced durably, and not what is on the way to its log."""
    r, s = given["r"], given["s"]
    durably = now.every(lambda b: now.says_announced(r, b) == now.recorded(s, b))
    return instead(effect, "and what it had announced by then", durably)


# --- ticks ------------------------------------------------------------------------------------------


@fault("judge", f"{HEARD} activate/h=2 judge/t=2")
def created_below_what_was_announced(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A home takes what comes along a new edge, wherever it comes."""
    return without(effect, "nothing comes below what was announced")


@fault("judge", f"{LABELLED} {CHANGED} {NEWS} judge/t=2", report=5)
def judged_by_edges_that_are_gone(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A home that judges by a change still takes what comes along an edge that is gone."""
    t = given["t"]
    has_judged = now.some(
        lambda v: And(now.judges(now.home(t), v), Not(now.less(v, now.judged(t))))
    )
    return instead(effect, "the home judges by that version", has_judged)
