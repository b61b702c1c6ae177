"""Rule 12 as a transition system: shards, and a pipeline whose edges change while it runs.

A *version* is what the pipeline is between two changes, the first one, or what a change has made of it. `leads(v, a, b)` says that by the edges of a version an
item at place a can bring about one at b, or at an earlier slot of b's segment, and may be any relation: a path is a sequence of such steps, so
graphs need not be put together. What is announced at one moment is a set of places into which, by all edges that count, nothing leads from outside of it
(`test_places.py` holds `SegmentGraph` of an old and a new graph together to that).

A *tick* stands for an entry of a home's log, and what it creates, consumes and promises is fixed from the beginning, and may be anything. So is the version by which its
home judges it, since the home can take it only while it judges by that one. An activation is an entry of the log, too: ticks that are judged by
older versions stand ahead of it, all others behind it. An item is in its cell if its shard has applied its creation or its consumption, and not both.

The shards are there from the beginning, and so may fronts be. Others join by a tick, are pinned by every shard, and granted, as in the first system (rule 8). What a front labels can be
consumed as soon as it is published. What comes along an edge is there when a home takes it, and can be consumed when that is durable: before that it may still be
refused, and with it what was made of it is late.

Left out, since the first system has them: fronts that leave, late items, holds, eviction, restarts; shards and nodes that move, come and go; touches that are let go of, and whole
reports. Left out there as well: a segment that is removed while a front is in it, and changes of what is waited for.
Where the model lets more happen than the code does, this is said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from z3 import And, BoolVal, Implies, Not, Or, Xor

from tests.proof.logic import Effect, Formula, Relation, State, Step, Universe, Vocabulary

VOCABULARY = Vocabulary(
    fixed={
        # Versions: in which order, what there is by each, and what leads where; and by all of them. The first one there is; and who decides on the others.
        "less": "version version", "has": "version place", "leads": "version place place", "lasts": "place place", "original": "-> version", "registrar": "-> shard",
        # Items, and ticks: whose they are, in whose log, and by which version they are judged. Those of fronts label.
        "at": "item -> place", "creator": "item -> tick", "consumer": "item -> tick", "owner": "item -> shard",
        "parent": "item -> item", "by": "tick -> node", "home": "tick -> shard", "judged": "tick -> version", "labels": "tick",
        # Fronts: of which node they are, by which tick they join or that they were there before, where they label, and which ticks promise that they label no more.
        "labeller": "item -> front", "feeds": "front place", "node": "front -> node", "joins": "front -> tick", "old": "front", "promises": "tick front place",
        "home_of": "node -> shard",
        # What reports say.
        "sender": "report -> shard", "says_applied": "report tick", "says_active": "report shard version", "says_knows": "report version",
        "says_passed": "report front place", "says_announced": "report place",
    },
    changing={
        # Changes: decided; known at a shard; and from which version on edges count there.
        "decided": "version", "knows": "shard version", "since": "shard version",
        # Homes: which version they judge by, and which durably; what was announced when they began to; and whose activations a shard has applied.
        "judges": "shard version", "keeps": "shard version", "rests_on": "shard place", "active": "shard shard version",
        # Ticks: which have come, published by a front or taken by a home, and in which order; taken, and in which order; applied, durably.
        "came": "tick", "earlier": "tick tick", "accepted": "tick", "ahead": "tick tick", "applied": "shard tick",
        # What fronts have promised, and have as a shard has applied it.
        "promised": "front place", "passed": "shard front place",
        # Fronts: pinned at a shard, where, and durably; granted, and from where on.
        "pinned": "shard front", "pin": "shard front place", "kept": "shard front", "granted": "front", "grant": "front place",
        # Reports: made, sent.
        "made": "report", "sent": "report",
        # What a process has heard: of each shard, as it goes by it, and of what anyone has announced.
        "hears": "shard shard", "seen": "shard shard tick", "seen_active": "shard shard shard version", "seen_knows": "shard shard version",
        "seen_passed": "shard shard front place", "heard": "shard place",
        # What a process has announced: appended, durable.
        "announced": "shard place", "recorded": "shard place",
        # Nobody looks at these but the proof: what any process has announced durably; what one had announced when it heard of a version; what one had
        # announced durably when it heard of it, or before it will; and versions that some process goes by no more.
        "said": "place", "prior": "shard version place", "early": "version place", "over": "version",
    },
)  # fmt: skip
STEPS: dict[str, Step] = {}


def step(**sets: str) -> Callable[[Callable[..., Effect]], Step]:
    """A step of the system. sets: its parameters that are sets, with the sorts of what is in them."""

    def take(body: Callable[..., Effect]) -> Step:
        made = STEPS[body.__name__] = Step(body.__name__, body, sets)
        return made

    return take


# --- words ----------------------------------------------------------------------------------------


def durable(now: State, t: Any) -> Formula:
    """A tick is durable in its home's log, which is when the home has applied it."""
    return now.applied(now.home(t), t)


def in_cut(now: State, p: Any, t: Any) -> Formula:
    """A tick is inside M, as p knows it: every shard is known to have applied it (rule 6)."""
    return now.every(lambda s: now.seen(p, s, t))


def is_active(now: State, p: Any, v: Any) -> Formula:
    """M, as p knows it, holds the entries by which all homes have begun to judge by a version."""
    return now.every(lambda s, h: now.seen_active(p, s, h, v))


def seen_to_have(now: State, p: Any, s: Any, f: Any) -> Formula:
    """A front that was not there before has joined at a shard, as p knows it."""
    return And(Not(now.old(f)), now.seen(p, s, now.joins(f)))


def touches(now: State, t: Any, i: Any) -> Formula:
    return Or(now.creator(i) == t, now.consumer(i) == t)


def seen_open(now: State, p: Any, i: Any) -> Formula:
    """An item is in its cell, as its owner has told p."""
    s = now.owner(i)
    return Xor(now.seen(p, s, now.creator(i)), now.seen(p, s, now.consumer(i)))


def is_below(now: State, p: Any, b: Any) -> Formula:
    """A place lies below the largest min time that any process has announced, as far as p has heard (`Pipeline.floors`)."""
    return Or(now.announced(p, b), now.heard(p, b))


def adds(relation: Relation, *these: Any) -> Relation:
    """The relation, and it holds of these things."""
    return lambda *all_: Or(_are(all_, these), relation(*all_))


def becomes(relation: Relation, first: Any, meaning: Callable[..., Formula]) -> Relation:
    """The relation, and of this one it is this."""
    return lambda one, *more: Or(
        And(one == first, meaning(*more)), And(one != first, relation(one, *more))
    )


def _are(all_: tuple[Any, ...], these: tuple[Any, ...]) -> Formula:
    return And([one == other for one, other in zip(all_, these, strict=True)])


# --- what is taken for granted --------------------------------------------------------------------


def fixed_facts(now: State) -> dict[str, Formula]:
    """Of versions, and of fronts, whose ticks stand in one log."""
    return {
        "versions have an order": now.every(
            lambda v, v2, v3: And(
                Not(now.less(v, v)),
                Or(v == v2, now.less(v, v2), now.less(v2, v)),
                Implies(And(now.less(v, v2), now.less(v2, v3)), now.less(v, v3)),
            )
        ),
        "none is before the first one": now.every(lambda v: Not(now.less(v, now.original()))),
        "a node has one home": now.every(lambda t: now.home(t) == now.home_of(now.by(t))),
        "a front labels by its node": now.every(
            lambda i: Implies(
                now.labels(now.creator(i)), now.by(now.creator(i)) == now.node(now.labeller(i))
            )
        ),
        "and promises by it": now.every(
            lambda t, f, a: Implies(
                now.promises(t, f, a), And(now.labels(t), now.by(t) == now.node(f))
            )
        ),
        "one that was there feeds what was": now.every(
            lambda f, a: Implies(And(now.old(f), now.feeds(f, a)), now.has(now.original(), a))
        ),
        "some edges are of all versions": now.every(
            lambda v, a, b: Implies(now.lasts(a, b), now.leads(v, a, b))
        ),
        "edges lead where there is something": now.every(
            lambda v, a, b: Implies(now.leads(v, a, b), now.has(v, b))
        ),
    }


def is_consumed_later(now: State, i: Any) -> Formula:
    """An item that is consumed by its creator cancels out, and is none; and by which a front labels, it consumes nothing."""
    return And(now.creator(i) != now.consumer(i), Not(now.labels(now.consumer(i))))


def beginning(universe: Universe) -> State:
    """Nothing has happened, and all go by the first version."""
    first = universe.fixed["original"]()
    return universe.beginning(
        decided=lambda v: v == first,
        knows=lambda s, v: v == first,
        since=lambda s, v: v == first,
        judges=lambda h, v: v == first,
        keeps=lambda h, v: v == first,
        active=lambda s, h, v: v == first,
    )


# --- changes --------------------------------------------------------------------------------------


@step()
def decide_change(now: State, v: Any, v2: Any) -> Effect:
    """Rule 12: the registrar decides on a change, by an entry of its log, when the one before is over there (`PipelineChanged`, `Registrar._check_change`). (Nothing that is proven
    rests on that; what the code keeps of a change does.)"""
    return Effect(
        when={
            "it is newer": And(now.less(v2, v), Not(now.decided(v))),
            "than all before": now.every(
                lambda v3: Implies(now.decided(v3), Or(v3 == v2, now.less(v3, v2)))
            ),
            "which are over there": now.since(now.registrar(), v2),
        },
        then={"decided": adds(now.decided, v)},
    )


@step(new="place")
def apply_change(now: State, s: Any, v: Any, new: Relation) -> Effect:
    """Rule 12: a shard applies a change, by the registrar's log, and reckons with the edges of before and the new ones together (`Pipeline.change`,
    `GraphChange.begin`, `united`). A new segment begins where the whole pipeline is there, durably (`Pipeline._add_segments`); here it may begin anywhere."""
    known = now.knows(s, v)
    return Effect(
        when={
            "it is decided": And(now.decided(v), Not(known)),
            "it has applied all before": now.every(
                lambda v2: Implies(And(now.decided(v2), now.less(v2, v)), now.knows(s, v2))
            ),
            "what is new was not there before": now.every(
                lambda v2, b: Implies(And(new(b), now.knows(s, v2)), Not(now.has(v2, b)))
            ),
        },
        then={
            "knows": adds(now.knows, s, v),
            "announced": lambda p, b: Or(now.announced(p, b), And(p == s, new(b))),
            "recorded": lambda p, b: Or(now.recorded(p, b), And(p == s, new(b))),
            "said": lambda b: Or(now.said(b), new(b)),
            "prior": lambda p, v2, b: Or(
                now.prior(p, v2, b), And(p == s, v2 == v, Or(now.announced(s, b), new(b)))
            ),
            "early": lambda v2, b: Or(
                now.early(v2, b), And(new(b), Or(v2 == v, Not(now.knows(s, v2))))
            ),
        },
    )


@step(adopts="place", closed="place")
def activate(now: State, h: Any, v: Any, v2: Any, adopts: Relation, closed: Relation) -> Effect:
    """Rule 12: a home has heard that every shard reckons with a change, and with that what each had announced by then: from here on it judges by it, by an entry of its log
    (`Generations.activate_changes`, `Pipeline.may_activate`). Ahead of that it announces what it has heard of and what something could come below along the edges that there
    will be (`Reporter.adopt_announced`): all but a set into which nothing leads by them from outside of it."""
    return Effect(
        when={
            "it judges by an older one": And(now.judges(h, v2), now.less(v2, v)),
            "that is durable": now.keeps(h, v2),
            "every shard reckons with it": now.every(lambda s: now.seen_knows(h, s, v)),
            "it has heard what it announces": now.every(
                lambda b: Implies(adopts(b), is_below(now, h, b))
            ),
            "it announces what it has heard": now.every(
                lambda b: Implies(
                    is_below(now, h, b), Or(now.announced(h, b), adopts(b), closed(b))
                )
            ),
            "but what nothing can come below": now.every(
                lambda a, b: Implies(
                    closed(b), And(is_below(now, h, b), Implies(now.leads(v, a, b), closed(a)))
                )
            ),
        },
        then={
            "judges": becomes(now.judges, h, lambda v3: v3 == v),
            "announced": lambda p, b: Or(now.announced(p, b), And(p == h, adopts(b))),
            "rests_on": becomes(now.rests_on, h, lambda b: Or(now.announced(h, b), adopts(b))),
        },
    )


@step()
def log_activation(now: State, h: Any, v: Any) -> Effect:
    """Rule 12: that a home judges by a change is durable, and with it all that was appended ahead of that (`LogApplier.commit`, `GraphChange.activate`)."""
    return Effect(
        when={
            "it judges by it": And(now.judges(h, v), Not(now.keeps(h, v))),
            "ticks ahead of that are durable": _are_applied(now, h, h, v),
            "and so is what it had announced": now.every(
                lambda b: Implies(now.rests_on(h, b), now.recorded(h, b))
            ),
        },
        then={
            "keeps": becomes(now.keeps, h, lambda v2: v2 == v),
            "active": adds(now.active, h, h, v),
        },
    )


@step()
def receive_activation(now: State, s: Any, h: Any, v: Any) -> Effect:
    """Rules 3 and 12: another shard applies, in its place, the entry by which a home judges by a change (`Pipelines.activated`, `GraphChange.activate`). Of ticks that
    stand behind it some may be applied first, here."""
    return Effect(
        when={
            "it is durable at the home": And(now.active(h, h, v), Not(now.active(s, h, v))),
            "ticks ahead of it are applied": _are_applied(now, s, h, v),
        },
        then={"active": adds(now.active, s, h, v)},
    )


def _are_applied(now: State, s: Any, h: Any, v: Any) -> Formula:
    """At a shard, all ticks of a home that it has judged by older versions."""
    return now.every(
        lambda t: Implies(
            And(now.accepted(t), now.home(t) == h, now.less(now.judged(t), v)), now.applied(s, t)
        )
    )


@step()
def let_go(now: State, p: Any, v: Any, v2: Any) -> Effect:
    """Rule 12: at a process edges that a change has taken away count no more: its M holds the entries by which all homes judge by that (`Pipeline.settle_change`,
    `GraphChange.is_over`)."""
    return Effect(
        when={
            "it has counted older ones": And(now.since(p, v2), now.less(v2, v)),
            "it reckons with it": now.knows(p, v),
            "M holds all activations": is_active(now, p, v),
        },
        then={
            "since": becomes(now.since, p, lambda v3: v3 == v),
            "over": lambda v3: Or(now.over(v3), now.less(v3, v)),
        },
    )


# --- ticks ----------------------------------------------------------------------------------------


@step()
def put_out(now: State, t: Any) -> Effect:
    """Rule 1: a front publishes what it labels, by its grant and beyond its promises, and is to hand over that tick and no other (`FrontCore` in fronts/core.py). Whoever reads it may
    consume it from here on."""
    return Effect(
        when={
            "it is new, and of a front": And(now.labels(t), Not(now.came(t))),
            "its items are labelled where their fronts may": now.every(
                lambda i: Implies(now.creator(i) == t, _may_label(now, i))
            ),
        },
        then={
            **_comes(now, t),
            "promised": lambda f, a: Or(now.promised(f, a), now.promises(t, f, a)),
        },
    )


def _comes(now: State, t: Any) -> dict[str, Relation]:
    return {
        "came": adds(now.came, t),
        "earlier": lambda u, u2: Or(now.earlier(u, u2), And(u2 == t, now.came(u))),
    }


def _may_label(now: State, i: Any) -> Formula:
    f, a = now.labeller(i), now.at(i)
    granted = Or(now.old(f), And(now.granted(f), Not(now.grant(f, a))))
    return And(now.feeds(f, a), granted, Not(now.promised(f, a)))


@step()
def judge_labels(now: State, t: Any) -> Effect:
    """Rules 2, 3 and 12: a home takes the next tick of a front, as an entry of its log that is not durable yet (`Sessions.submit`, `TickJudge.judge`). A front joins a segment that there is
    by what the home judges by."""
    return Effect(
        when={
            "it is of a front": And(now.labels(t), now.came(t)),
            **_is_judged(now, t),
            "its node's earlier ones are there": now.every(
                lambda u: Implies(
                    And(now.labels(u), now.by(u) == now.by(t), now.earlier(u, t)), now.accepted(u)
                )
            ),
            "its fronts join where there is something": now.every(
                lambda f, a: Implies(
                    And(now.joins(f) == t, now.feeds(f, a)), now.has(now.judged(t), a)
                )
            ),
        },
        then=_accepted(now, t),
    )


@step()
def judge(now: State, t: Any) -> Effect:
    """Rules 1, 2 and 12: a home takes another tick, by the version that it judges by (`TickJudge.judge`): what is created came along one of its edges (`TickJudge._check_ways`), and not below any
    min time that the home has heard of (`HomePipeline.check`). What is consumed was published by a front, or its creation is durable."""
    h = now.home(t)
    return Effect(
        when={
            "it is not of a front": Not(now.labels(t)),
            **_is_judged(now, t),
            "what it consumes is there": now.every(
                lambda i: Implies(now.consumer(i) == t, _is_there(now, now.creator(i)))
            ),
            "no front joins by it": now.every(lambda f: now.joins(f) != t),
            "nothing comes below what was announced": now.every(
                lambda i: Implies(now.creator(i) == t, Not(is_below(now, h, now.at(i))))
            ),
        },
        of_items={
            "its items come along an edge": lambda i: Implies(
                now.creator(i) == t, _comes_of(now, i)
            )
        },
        then={**_comes(now, t), **_accepted(now, t)},
    )


def _is_judged(now: State, t: Any) -> dict[str, Formula]:
    return {
        "it is not accepted": Not(now.accepted(t)),
        "the home judges by that version": now.judges(now.home(t), now.judged(t)),
    }


def _is_there(now: State, t: Any) -> Formula:
    return Or(And(now.labels(t), now.came(t)), durable(now, t))


def _comes_of(now: State, i: Any) -> Formula:
    t, parent = now.creator(i), now.parent(i)
    return And(now.consumer(parent) == t, now.leads(now.judged(t), now.at(parent), now.at(i)))


def _accepted(now: State, t: Any) -> dict[str, Relation]:
    return {
        "accepted": adds(now.accepted, t),
        "ahead": lambda u, u2: Or(
            now.ahead(u, u2), And(u2 == t, now.accepted(u), now.home(u) == now.home(t))
        ),
    }


def _may_apply(now: State, s: Any, t: Any) -> dict[str, Formula]:
    return {
        "it is not applied": Not(now.applied(s, t)),
        "all ahead of it are": now.every(lambda u: Implies(now.ahead(u, t), now.applied(s, u))),
    }


def _applied(now: State, s: Any, t: Any) -> dict[str, Relation]:
    return {
        "applied": adds(now.applied, s, t),
        "passed": lambda s2, f, a: Or(now.passed(s2, f, a), And(s2 == s, now.promises(t, f, a))),
    }


@step()
def log_judged(now: State, t: Any) -> Effect:
    """Rule 3: a tick is durable in its home's log, behind the activation of what it was judged by, and the home applies its own part (`LogApplier.commit`)."""
    h = now.home(t)
    return Effect(
        when={
            "it is accepted": And(now.accepted(t), now.keeps(h, now.judged(t))),
            **_may_apply(now, h, t),
        },
        then=_applied(now, h, t),
    )


@step()
def pass_on(now: State, s: Any, t: Any) -> Effect:
    """Rules 2 and 3: another shard takes a tick of a home's log, which is durable there, and applies its part (`Receiver._take_entries`, `LogApplier.apply`)."""
    return Effect(
        when={"it is durable at its home": durable(now, t), **_may_apply(now, s, t)},
        then=_applied(now, s, t),
    )


@step(given="place")
def grant_by_pins(now: State, h: Any, f: Any, given: Relation) -> Effect:
    """Rule 8: the home grants a front when every shard is seen to have pinned it, from the largest pin on, and that is durable (`Pipeline.new_grants`,
    `FrontsGranted`). A larger grant would do. In the code none is given while a change is under way."""
    return Effect(
        when={
            "it has joined": Not(Or(now.old(f), now.granted(f))),
            "every shard has pinned it": now.every(lambda s: seen_to_have(now, h, s, f)),
            "its own pin is durable": now.kept(h, f),
            "from the largest pin on": now.every(lambda s, a: Implies(now.pin(s, f, a), given(a))),
        },
        then={
            "granted": adds(now.granted, f),
            "grant": lambda f2, a: Or(now.grant(f2, a), And(f2 == f, given(a))),
        },
    )


# --- reports --------------------------------------------------------------------------------------


@step()
def make_report(now: State, s: Any, r: Any) -> Effect:
    """Rules 5, 8 and 12: a shard says what it is at this moment, and goes by that itself (`Reporter.refresh`, `ShardPipeline.take_report`). With the changes that it has applied it says all that
    it had announced by then, and maybe more (`Pipeline.change`). In the same moment it pins the fronts that it has not pinned: behind all that it has announced where they feed
    (`Pipeline.new_pins`)."""

    def fresh(s2: Any, f: Any) -> Formula:
        there = And(Not(now.old(f)), now.applied(s, now.joins(f)))
        return And(s2 == s, there, Not(now.pinned(s, f)))

    return Effect(
        when={
            "the report is new": And(Not(now.made(r)), now.sender(r) == s),
            "it says what is applied": now.every(
                lambda t: now.says_applied(r, t) == now.applied(s, t)
            ),
            "and which homes judge by what": now.every(
                lambda h, v: now.says_active(r, h, v) == now.active(s, h, v)
            ),
            "it says what is promised": now.every(
                lambda f, a: now.says_passed(r, f, a) == now.passed(s, f, a)
            ),
            "it says which changes it reckons with": now.every(
                lambda v: now.says_knows(r, v) == now.knows(s, v)
            ),
            "and what it had announced by then": now.every(
                lambda v, b: Implies(now.prior(s, v, b), now.says_announced(r, b))
            ),
            "nothing that it has not announced": now.every(
                lambda b: Implies(now.says_announced(r, b), now.announced(s, b))
            ),
        },
        then={
            "made": adds(now.made, r),
            "pinned": lambda s2, f: Or(now.pinned(s2, f), fresh(s2, f)),
            "pin": lambda s2, f, a: Or(
                And(fresh(s2, f), now.feeds(f, a), now.announced(s, a)),
                And(Not(fresh(s2, f)), now.pin(s2, f, a)),
            ),
            **_goes_by(now, s, r),
        },
    )


def _goes_by(now: State, p: Any, r: Any) -> dict[str, Relation]:
    """A process goes by a report from here on (`Combiner.take`, `Vectors.take`)."""
    s = now.sender(r)

    def mine(p2: Any, s2: Any, new: Formula, old: Formula) -> Formula:
        return Or(And(p2 == p, s2 == s, new), And(Not(And(p2 == p, s2 == s)), old))

    return {
        "hears": adds(now.hears, p, s),
        "seen": lambda p2, s2, t: mine(p2, s2, now.says_applied(r, t), now.seen(p2, s2, t)),
        "seen_active": lambda p2, s2, h, v: mine(
            p2, s2, now.says_active(r, h, v), now.seen_active(p2, s2, h, v)
        ),
        "seen_knows": lambda p2, s2, v: mine(
            p2, s2, now.says_knows(r, v), now.seen_knows(p2, s2, v)
        ),
        "seen_passed": lambda p2, s2, f, a: mine(
            p2, s2, now.says_passed(r, f, a), now.seen_passed(p2, s2, f, a)
        ),
        "heard": lambda p2, b: Or(now.heard(p2, b), And(p2 == p, now.says_announced(r, b))),
    }


@step()
def send_report(now: State, r: Any) -> Effect:
    """Rules 5, 8 and 12: a report goes out once its pins, and what it says was announced, are durable (`Reporter.committed`). It may arrive anywhere, at any time, often or never."""
    return Effect(
        when={
            "it is made": now.made(r),
            "its pins are durable": now.every(
                lambda f: Implies(
                    And(Not(now.old(f)), now.says_applied(r, now.joins(f))),
                    now.kept(now.sender(r), f),
                )
            ),
            "what it says was announced is durable": now.every(
                lambda b: Implies(now.says_announced(r, b), now.recorded(now.sender(r), b))
            ),
        },
        then={"sent": adds(now.sent, r)},
    )


@step()
def take_report(now: State, p: Any, r: Any) -> Effect:
    """Rule 5: a process goes by a report of another shard (`Reporter.take_report`). In the code by none that is older than what it goes by; here by any."""
    return Effect(
        when={"it was sent": And(now.sent(r), now.sender(r) != p)}, then=_goes_by(now, p, r)
    )


# --- announcements --------------------------------------------------------------------------------


@step(news="place")
def announce_by_edges(now: State, p: Any, v: Any, news: Relation) -> Effect:
    """Rules 6, 7 and 12: a process announces places (appended, not durable) by the cut rule, with all edges that count there (`Combiner.allowed_min_times`, `SegmentGraph.min_times`):
    a set into which nothing leads by them from outside, and in which nothing is open at a shard, or was touched outside of M, or can be labelled by a front. Some of it may have been
    announced before. M has come as far as when it let go of edges, also after a crash (`StableCut.is_reached`)."""
    return Effect(
        when={
            "edges count from a version on": now.since(p, v),
            "every shard was heard": now.every(lambda s: now.hears(p, s)),
            "M is as far as it let go of others by": is_active(now, p, v),
            "what leads there is among it": now.every(
                lambda v2, a, b: Implies(
                    And(news(b), now.knows(p, v2), Not(now.less(v2, v)), now.leads(v2, a, b)), news(a)
                )
            ),
            "nothing open is there": now.every(
                lambda i: Not(And(news(now.at(i)), seen_open(now, p, i)))
            ),
            "nothing touched outside M is there": now.every(
                lambda i, t: Implies(
                    And(news(now.at(i)), touches(now, t, i), now.seen(p, now.owner(i), t)), in_cut(now, p, t)
                )
            ),
            "fronts from before label no more there": now.every(
                lambda f, a, s: Implies(And(news(a), now.feeds(f, a), now.old(f)), now.seen_passed(p, s, f, a))
            ),
            "fronts that some shard has hold it": now.every(
                lambda f, a, s, q: Implies(
                    And(news(a), now.feeds(f, a), seen_to_have(now, p, s, f)),
                    And(seen_to_have(now, p, q, f), Or(now.pin(q, f, a), now.seen_passed(p, q, f, a))),
                )
            ),
        },
        then={"announced": lambda p2, b: Or(now.announced(p2, b), And(p2 == p, news(b)))},
    )  # fmt: skip


@step()
def record_all(now: State, p: Any) -> Effect:
    """Rule 8: all that was announced is durable, and all pins are (`Announcement`, `Pinned`, `Reporter.publish`). Where a part of it becomes durable first, take it that it did when it was all."""
    return Effect(
        when={},
        then={
            "recorded": lambda p2, b: Or(now.recorded(p2, b), And(p2 == p, now.announced(p, b))),
            "kept": lambda p2, f: Or(now.kept(p2, f), And(p2 == p, now.pinned(p, f))),
            "said": lambda b: Or(now.said(b), now.announced(p, b)),
            "early": lambda v, b: Or(
                now.early(v, b),
                And(now.announced(p, b), Or(now.prior(p, v, b), Not(now.knows(p, v)))),
            ),
        },
    )


# --- crashes --------------------------------------------------------------------------------------


@step()
def fail(now: State, p: Any, v: Any, v2: Any) -> Effect:
    """Rules 3 and 12: a process dies at any moment, and comes back with what is durable (`Recovery.recover`, `Pipeline.derive`). Gone is what was accepted, announced or begun to be judged by and
    not durable, and all that was heard. Edges that it had let go of may count again. (A tick that is lost may come again and be judged by another version: take it then that it came
    only once.)"""

    def is_lost(t: Any) -> Formula:
        return And(now.accepted(t), now.home(t) == p, Not(now.applied(p, t)))

    def stays(t: Any) -> Formula:
        return And(now.came(t), Or(now.labels(t), Not(is_lost(t))))

    nothing = lambda *_: BoolVal(False)  # noqa: E731
    return Effect(
        when={
            "edges count from no later version on": And(
                now.since(p, v2), Not(now.less(v2, v)), now.knows(p, v)
            )
        },
        then={
            "came": stays,
            "earlier": lambda t, u: And(now.earlier(t, u), stays(t), stays(u)),
            "accepted": lambda t: And(now.accepted(t), Not(is_lost(t))),
            "ahead": lambda t, u: And(now.ahead(t, u), Not(is_lost(t)), Not(is_lost(u))),
            "judges": becomes(now.judges, p, lambda v2: now.keeps(p, v2)),
            "rests_on": becomes(now.rests_on, p, lambda b: now.recorded(p, b)),
            "announced": becomes(now.announced, p, lambda b: now.recorded(p, b)),
            "prior": becomes(
                now.prior, p, lambda v2, b: And(now.prior(p, v2, b), now.recorded(p, b))
            ),
            "since": becomes(now.since, p, lambda v3: v3 == v),
            "pinned": becomes(now.pinned, p, lambda f: now.kept(p, f)),
            "hears": becomes(now.hears, p, nothing),
            "heard": becomes(now.heard, p, nothing),
            "seen": becomes(now.seen, p, nothing),
            "seen_active": becomes(now.seen_active, p, nothing),
            "seen_knows": becomes(now.seen_knows, p, nothing),
            "seen_passed": becomes(now.seen_passed, p, nothing),
        },
    )
