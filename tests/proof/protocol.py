"""Rules 1 to 11 as a transition system: what is there, and each step that anything can take.

A *place* is a segment with a slot of it, and `reaches(a, b)` says that an item at place a can become one at b or at an
earlier slot of b's segment: the slot of a plus the shortest delay is at most that of b (rule 7). A min time t of a segment
announces all of its places below t. Of the graph and of the order of slots the proof needs no more than that every place
reaches itself, and whatever is reached by what it reaches; `test_places.py` holds `SegmentGraph` to that.

A *tick* stands for an entry of a home's log. What each tick creates, consumes and promises is fixed from the beginning,
and may be anything: a proof for all such contents is one for nodes that decide as they go. An item has one creator and one
consumer; one that is never consumed has a consumer that is never published. A cell is the set of items that it is a
checksum of: of what was applied once and not twice. (A checksum of XOR takes another set for the empty one with a chance of
2^-64.) A front is one joining of it (rule 8).

A *node* is an id. What an older incarnation of it hands over after a newer one has joined is *abandoned*, and so is what
an evicted or retired node does: no home takes it any more (rule 9). An eviction is a tick by which the node's fronts leave.
*Late* items come of nothing that counts: they are of abandoned ticks, or made of late items, or of what an operator has
written off (which is a tick that consumes it). Nothing is asked of them, and nothing is promised.

A pipeline is restarted again and again, and the system is of one *generation* of it, whichever: ticks are of it, or of one *before*
or *after*, by the key that they are of. Each process begins it when it does, and goes on to a later one when it does (rule 9).

*Slots and nodes move* between shards (rule 10), and which table a home split a tick by, or when a node moved, is never asked: where the
parts of an item go, and whose log has a tick, is the tick's and the item's own affair, and may be anything. An item is kept by one shard from its
creation to its consumption. A hand-over of cells is an entry by which a shard consumes items, and the other one, in the same step, creates others that go on for
them. Where the consumption of an item came to another shard than its creation, it may be the consumption that is handed over: the item that
goes on was consumed before it is created. A sum by XOR does not mind; so what goes on for what is ordered as the cells lie, and not by
time (`nearer`).

*Shards join* (rule 10): each begins at some moment with what another one knows, counts when it has joined, at each process as that hears of it, and may then
be given slots and nodes. Those that the tracker began with are there, and count everywhere, from the beginning. A shard that has joined and not *spoken*, which is to
announce something by itself, has announced what it began with, and somebody who has spoken had announced that before.

*Shards leave* (rule 10): one that owns nothing any more logs its last entry, which names what it has applied and announced; whoever applies that counts it no more,
and has its own M come as far first. What it had announced may be announced there by that, beyond what a front was pinned at before: such a front is granted behind it.

Left out: pipelines that change or end; that shards are lost; that one which has left, and still counts somewhere, takes a node's ticks out of their order where they
stand in two logs; vacant places; what one shard by itself tells ahead of the record; that a pipeline begins when its fronts have joined; limits.
Where the model lets more happen than the code does, this is said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from z3 import And, Implies, Not, Or, Xor

from tests.proof.logic import Effect, Formula, Relation, State, Step, Universe, Vocabulary

VOCABULARY = Vocabulary(
    fixed={
        # The world: items, ticks and what they do, places, fronts.
        "at": "item -> place", "creator": "item -> tick", "consumer": "item -> tick", "origin": "item -> tick",
        "owner": "item -> shard", "by": "tick -> node", "home": "tick -> shard", "reaches": "place place",
        "labelled": "item", "labeller": "item -> front", "parent": "item -> item", "is_hold": "item", "late": "item",
        "joins": "front -> tick", "leaves": "front -> tick", "feeds": "front place", "promises": "tick front place",
        "abandoned": "tick", "hands_over": "tick",
        "came_of": "item -> item", "last": "item -> item", "nearer": "item item", "done": "item -> tick", "before": "tick", "after": "tick",
        "base": "place", "granter": "front -> shard", "first": "place -> shard",
        # What reports say, and whole reports of them.
        "sender": "report -> shard", "follows": "report report", "says_applied": "report tick", "says_open": "report item",
        "says_passed": "report front place", "says_touched": "report tick", "says_pinned": "report front", "says_counted": "report shard",
        "opens": "report", "tells": "whole -> report", "repeats": "whole tick", "let_go": "whole tick",
    },
    changing={
        # Shards: which there are, which have joined, own slots, or were given up; whom each counts, and since when.
        "there": "shard", "joined": "shard", "owns": "shard", "given_up": "shard", "counts_in": "shard shard",
        "counted_first": "shard shard", "spoke": "shard", "welcome": "shard", "inside": "shard tick",
        # Shards that leave: which own nothing any more, which have logged their last, what that names (entries, places), who has applied that, and
        # which entries all such words that a process has applied name.
        "emptied": "shard", "left": "shard", "parting": "shard tick", "bequest": "shard place", "counts_out": "shard shard", "owed": "shard tick",
        # Generations: who has begun this one, who is in a later one, and what was told of the whole pipeline before.
        "began": "shard", "past": "shard", "told_before": "shard place", "known": "place",
        # Nodes: what is published, in which order, and how far fronts have promised.
        "published": "tick", "earlier": "tick tick", "promised": "front place",
        # Homes: what is accepted, and in which order.
        "accepted": "tick", "ahead": "tick tick", "granted": "front", "grant": "front place",
        # Shards: durable with their logs.
        "applied": "shard tick", "open": "item", "passed": "shard front place", "untold": "shard tick",
        "snapped": "shard tick", "pinned": "shard front", "pin": "shard front place", "kept": "shard front",
        # Reports: made, of the sender's present run, sent; and in which order.
        "made": "report", "latest": "shard report", "live": "report", "sent": "report", "newer": "report report",
        "posted": "whole",
        # What a process has heard of each shard.
        "heard": "shard shard", "goes_by": "shard report", "seen": "shard shard tick", "seen_open": "shard item",
        "seen_passed": "shard shard front place", "seen_counted": "shard shard shard", "touched": "shard shard tick", "needed": "shard tick",
        # What a process has announced: appended, durable, told.
        "announced": "shard place", "recorded": "shard place", "told": "shard place",
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


def counts(now: State, t: Any) -> Formula:
    """A tick is of this generation."""
    return And(Not(now.before(t)), Not(now.after(t)))


def takes_part(now: State, s: Any) -> Formula:
    """A process is in this generation."""
    return And(now.began(s), Not(now.past(s)))


def touches(now: State, t: Any, i: Any) -> Formula:
    return And(counts(now, t), Or(now.creator(i) == t, now.consumer(i) == t))


def consumed(now: State, i: Any, is_in: Callable[[Any], Formula]) -> Formula:
    """By a tick of this generation of which this is so."""
    return And(counts(now, now.consumer(i)), is_in(now.consumer(i)))


def durable(now: State, t: Any) -> Formula:
    """A tick is durable in its home's log, which is when the home has applied it."""
    return now.applied(now.home(t), t)


def counted(now: State, p: Any, s: Any) -> Formula:
    """A shard counts for another one: it is that one itself, or has joined and not left, as that one has heard."""
    return Or(s == p, And(now.counts_in(p, s), Not(now.counts_out(p, s))))


def all_counted(now: State, p: Any, is_so: Relation) -> Formula:
    """Of every shard that counts for p this is so."""
    return now.every(lambda s: Implies(counted(now, p, s), is_so(s)))


def in_cut(now: State, p: Any, t: Any) -> Formula:
    """A tick is inside M, as p knows it: every shard that counts is known to have applied it; or it was inside before
    another one counted, and M never goes back (rule 6, `Vectors.add_shard`)."""
    return Or(now.inside(p, t), all_counted(now, p, lambda s: now.seen(p, s, t)))


def has_said(now: State, p: Any, b: Any) -> Formula:
    """A process has announced a place, or told of it in a generation before; or this one begins beyond it."""
    return Or(now.announced(p, b), now.told_before(p, b), now.base(b))


def has(now: State, s: Any, f: Any) -> Formula:
    """A front has joined at a shard, and has not left there."""
    return And(now.applied(s, now.joins(f)), Not(now.applied(s, now.leaves(f))))


def seen_to_have(now: State, p: Any, s: Any, f: Any) -> Formula:
    return And(now.seen(p, s, now.joins(f)), Not(now.seen(p, s, now.leaves(f))))


def leads(now: State, f: Any, a: Any, b: Any) -> Formula:
    """The front feeds a, which reaches b."""
    return And(now.feeds(f, a), now.reaches(a, b))


def adds(relation: Relation, *these: Any) -> Relation:
    """The relation, and it holds of these things."""
    return lambda *all_: Or(_are(all_, these), relation(*all_))


def _are(all_: tuple[Any, ...], these: tuple[Any, ...]) -> Formula:
    return And([one == other for one, other in zip(all_, these, strict=True)])


# --- what is taken for granted --------------------------------------------------------------------


def fixed_facts(now: State) -> dict[str, Formula]:
    """Of the graph, and of nodes' tables of what they do: nothing that a process has to see to."""
    return {
        "a place reaches itself": now.every(lambda a: now.reaches(a, a)),
        "what is reached by what a place reaches": now.every(
            lambda a, b, a2: Implies(And(now.reaches(a, b), now.reaches(b, a2)), now.reaches(a, a2))
        ),
        "an item begins where it was made": now.every(
            lambda i: And(
                Not(now.hands_over(now.origin(i))),
                Or(now.hands_over(now.creator(i)), now.origin(i) == now.creator(i)),
            )
        ),
        "and ends where it is consumed": now.every(
            lambda i: And(
                Not(now.hands_over(now.done(i))),
                Or(now.hands_over(now.consumer(i)), now.done(i) == now.consumer(i)),
            )
        ),
        "a hand-over does nothing else": now.every(
            lambda t, f, a: Implies(
                now.hands_over(t),
                And(now.joins(f) != t, now.leaves(f) != t, Not(now.promises(t, f, a))),
            )
        ),
        "an item consumed by its creator cancels out, and is none": now.every(
            lambda i: And(now.creator(i) != now.consumer(i), now.origin(i) != now.consumer(i))
        ),
        "what no home takes any more creates late items": now.every(
            lambda i: Implies(
                Or(now.abandoned(now.creator(i)), now.abandoned(now.origin(i))), now.late(i)
            )
        ),
        "what other generations create is late": now.every(
            lambda i: Or(now.late(i), And(counts(now, now.creator(i)), counts(now, now.origin(i))))
        ),
        "generations begin at a slot": now.every(
            lambda a, b: Implies(And(now.base(b), now.reaches(a, b)), now.base(a))
        ),
        "generations follow one another": now.every(
            lambda t: Not(And(now.before(t), now.after(t)))
        ),
        "fronts are of this generation": now.every(
            lambda f: And(counts(now, now.joins(f)), counts(now, now.leaves(f)))
        ),
        "and so are their promises": now.every(
            lambda t, f, a: Implies(now.promises(t, f, a), counts(now, t))
        ),
        "a hold is let go of by its node": now.every(
            lambda i: Implies(
                And(now.is_hold(i), Not(now.hands_over(now.consumer(i)))),
                now.by(now.origin(i)) == now.by(now.consumer(i)),
            )
        ),
        "a front leaves by a tick of its node": now.every(
            lambda f: now.by(now.joins(f)) == now.by(now.leaves(f))
        ),
    }


def goes_on(now: State, i: Any) -> Formula:
    """An item that a hand-over creates goes on for one that it consumes, nearer to where both began; and it, or one that goes on for
    it, is consumed in the end, if only by a tick that does not come."""
    j, last, m = now.came_of(i), now.last(i), now.creator(i)
    by_one_of_them = Or(now.home(m) == now.owner(i), now.home(m) == now.owner(j))
    handed_over = And(
        now.consumer(j) == m, now.nearer(j, i), _is_the_same(now, i, j),
        now.owner(i) != now.owner(j), by_one_of_them,
    )  # fmt: skip
    return Implies(
        Not(now.late(i)),
        And(
            Implies(now.hands_over(now.creator(i)), handed_over),
            And(now.consumer(last) == now.done(i), _is_the_same(now, i, last)),
        ),
    )


def _is_the_same(now: State, i: Any, j: Any) -> Formula:
    return And(
        now.at(j) == now.at(i), now.origin(j) == now.origin(i), now.done(j) == now.done(i), Not(now.late(j)),
    )  # fmt: skip


def beginning(universe: Universe) -> State:
    """Nothing has happened in this generation. Some shards are there, and own all slots. Some may have begun the generation, where it is the first
    one. With the others there is left what was open in the generation before, and promised."""
    left = {
        name: universe.symbol(f"left_{name}", VOCABULARY.changing[name])
        for name in ("there", "began", "open", "passed")
    }
    first, fixed = left["there"], universe.fixed

    def began(s: Any) -> Formula:
        return And(first(s), left["began"](s))

    def waits(s: Any) -> Formula:
        return And(first(s), Not(left["began"](s)))

    def floor(p: Any, b: Any) -> Formula:
        return And(began(p), fixed["base"](b))

    return universe.beginning(
        there=first, joined=first, owns=first, spoke=first,
        counts_in=lambda s, p: And(first(s), first(p)),
        counted_first=lambda s, p: And(began(s), first(p)),
        began=began, announced=floor, recorded=floor,
        open=lambda i: And(waits(fixed["owner"](i)), left["open"](i)),
        passed=lambda s, f, a: And(waits(s), left["passed"](s, f, a)),
    )  # fmt: skip


# --- generations ----------------------------------------------------------------------------------


@step()
def begin_generation(now: State, s: Any) -> Effect:
    """Rule 9: a process begins the generation (`Generations.begin_generation`, `Pipeline.begin_generation`): it drops its cells and fronts,
    and all is announced below where the generation begins, and below what it has told of the whole pipeline before. In the code this is at the first
    entry of any log that is of the generation; here it is at any moment."""

    def floor(b: Any) -> Formula:
        return Or(now.base(b), now.told_before(s, b))

    return Effect(
        when={"it is in one before": And(now.there(s), Not(now.began(s)), Not(now.past(s)))},
        then={
            "began": adds(now.began, s),
            "counted_first": lambda p, q: Or(
                now.counted_first(p, q), And(p == s, now.counts_in(s, q))
            ),
            **_dropped(now, s),
            "announced": lambda p, b: Or(now.announced(p, b), And(p == s, floor(b))),
            "recorded": lambda p, b: Or(now.recorded(p, b), And(p == s, floor(b))),
        },
    )


def _dropped(now: State, s: Any) -> dict[str, Relation]:
    return {
        "open": lambda i: And(now.owner(i) != s, now.open(i)),
        "passed": lambda s2, f, a: And(s2 != s, now.passed(s2, f, a)),
    }


@step()
def begin_later_generation(now: State, s: Any) -> Effect:
    """Rule 9: a process begins a later generation, also one that has not begun this one (`Generations.begin_generation`). Of this one it has
    said what it has said; its cells and fronts are dropped, and what comes of this one is passed over."""
    return Effect(
        when={"it is in none that is later": And(now.there(s), Not(now.past(s)))},
        then={"past": adds(now.past, s), **_dropped(now, s)},
    )


@step(some="place")
def tell_before(now: State, p: Any, some: Relation) -> Effect:
    """Rule 9: a process that has not begun the generation goes on in the one before, and announces how far the whole pipeline is
    (`Reporter.publish`, `Pipeline.min_time`): any places, here, by what it has heard in that generation of all that own slots."""
    return Effect(
        when={
            "it is in one before": And(Not(now.began(p)), Not(now.past(p))),
            "it has joined": now.counts_in(p, p),
            "it has not left": Not(now.left(p)),
            "all counted it in that one": now.every(
                lambda h: Implies(
                    now.owns(h),
                    And(now.counts_in(h, p), Implies(now.began(h), now.counted_first(h, p))),
                )
            ),
            "a whole pipeline is at a slot": now.every(
                lambda a, b: Implies(And(some(b), now.reaches(a, b)), some(a))
            ),
            **_is_first(now, p, some),
        },
        then={
            "told_before": lambda p2, b: Or(now.told_before(p2, b), And(p2 == p, some(b))),
            **_becomes_known(now, some),
            "spoke": adds(now.spoke, p),
        },
    )


def _is_first(now: State, p: Any, some: Relation) -> dict[str, Formula]:
    """Of each place it was known from the beginning who would be the first to have announced it durably: nobody looks at that but the proof."""

    def is_new(b: Any) -> Formula:
        return And(some(b), Not(now.base(b)), Not(now.known(b)))

    return {
        "who is the first was known": now.every(lambda b: Implies(is_new(b), now.first(b) == p))
    }


def _becomes_known(now: State, some: Relation) -> dict[str, Relation]:
    return {"known": lambda b: Or(now.known(b), And(some(b), Not(now.base(b))))}


# --- nodes ----------------------------------------------------------------------------------------


@step()
def publish(now: State, t: Any) -> Effect:
    """Rule 1: a node takes a whole step, and what it does is durable with the node (`FrontCore` in fronts/core.py, `Spool.flush`, a
    query's checkpoint): it will hand over tick t and no other. What it consumes was published before; an item of a front is
    labelled by its grant and beyond its promises; any other one comes of an item that the same tick consumes, or of a hold of its
    node that is not let go of before (rule 11). That a promise is made by a later tick than the items below it is not
    asked: the same tick may have both."""
    return Effect(
        when={
            "it is new": Not(now.published(t)),
            "what it consumes or hands over was published": now.every(
                lambda i: Implies(
                    And(
                        Or(now.creator(i) == t, now.consumer(i) == t),
                        now.origin(i) != t,
                        Not(now.late(i)),
                    ),
                    now.published(now.origin(i)),
                )
            ),
            "its items are labelled as granted": now.every(
                lambda i: Implies(
                    And(now.origin(i) == t, now.labelled(i), Not(now.late(i))),
                    _may_label(now, i, t),
                )
            ),
            "it promises for fronts of its node": now.every(
                lambda f, a: Implies(now.promises(t, f, a), now.by(now.joins(f)) == now.by(t))
            ),
            "a front leaves once it has joined": now.every(
                lambda f: Implies(
                    now.leaves(f) == t, Or(now.joins(f) == t, now.published(now.joins(f)))
                )
            ),
        },
        of_items={
            "its other items come of what it consumes or holds": lambda i: _comes_of(now, i, t)
        },
        then={
            "published": adds(now.published, t),
            "earlier": lambda u, u2: Or(now.earlier(u, u2), And(u2 == t, now.published(u))),
            "promised": lambda f, a: Or(now.promised(f, a), now.promises(t, f, a)),
        },
    )


def _may_label(now: State, i: Any, t: Any) -> Formula:
    f, a = now.labeller(i), now.at(i)
    return And(
        now.by(now.joins(f)) == now.by(t), now.published(now.joins(f)), Not(now.published(now.leaves(f))),
        now.feeds(f, a), now.granted(f), Not(now.grant(f, a)), Not(now.promised(f, a)),
    )  # fmt: skip


def _comes_of(now: State, i: Any, t: Any) -> Formula:
    parent = now.parent(i)
    holds = And(
        now.is_hold(parent), now.by(now.origin(parent)) == now.by(t), now.published(now.origin(parent)),
        Not(now.published(now.consumer(parent))), Not(now.hands_over(now.consumer(parent))),
    )  # fmt: skip
    comes = And(
        Not(now.late(parent)), now.reaches(now.at(parent), now.at(i)), Or(now.consumer(parent) == t, holds),
        now.labeller(parent) == now.labeller(i),
    )  # fmt: skip
    return Implies(And(now.origin(i) == t, Not(now.labelled(i)), Not(now.late(i))), comes)


# --- homes ----------------------------------------------------------------------------------------


@step()
def accept(now: State, t: Any) -> Effect:
    """Rules 2 and 3: the node's home takes its next tick as an entry of its log, not durable yet (`Sessions.submit`,
    `Journal.append_home`). A node hands over again what it has not been told is durable, so a tick that a crash of the home has lost comes
    again. Where the node has moved (rule 10, `HandOver.take_nodes`), its new home takes it up when every shard has applied what the one before had logged of it
    (`Homes.all_adopted`, which goes by what it has heard). A hand-over of cells is an entry of the giver's own log, which nobody hands over to it
    (`HandOver.give_cells`)."""
    return Effect(
        when={
            "it was handed over": now.published(t),
            "it is not there": Not(now.accepted(t)),
            "its home and owners have slots by a table": And(
                has_slots(now, now.home(t)),
                now.every(lambda i: Implies(touches(now, t, i), has_slots(now, now.owner(i)))),
            ),
            "its key is the node's newest": Not(now.abandoned(t)),
            "its node's earlier ones are": now.every(
                lambda u: Implies(_is_earlier(now, u, t), Or(now.accepted(u), now.abandoned(u)))
            ),
            "and everywhere, if they are in another log": now.every(
                lambda u, s: Implies(
                    And(_is_earlier(now, u, t), now.home(u) != now.home(t), is_member(now, s)),
                    Or(now.applied(s, u), now.abandoned(u)),
                )
            ),
        },
        then={
            "accepted": adds(now.accepted, t),
            "ahead": lambda u, u2: Or(
                now.ahead(u, u2),
                And(
                    u2 == t, now.accepted(u), Or(now.home(u) == now.home(t), now.by(u) == now.by(t))
                ),
            ),
        },
    )


def _is_earlier(now: State, u: Any, t: Any) -> Formula:
    return And(now.by(u) == now.by(t), now.earlier(u, t))


def _applied(now: State, s: Any, t: Any, passed_over: Relation) -> dict[str, Relation]:
    """A shard applies an entry (`ShardPipeline.apply_tick`, and `apply_at_once` where it is one of a run), but what its home has moved to
    the late ledger. One of another generation than its own it passes over, and counts."""
    effective = And(counts(now, t), takes_part(now, s))

    def turned(i: Any) -> Formula:
        own = And(now.owner(i) == s, touches(now, t, i), Not(passed_over(i)))
        return Xor(now.open(i), And(effective, own))

    return {
        "applied": adds(now.applied, s, t),
        "untold": adds(now.untold, s, t),
        "open": turned,
        "passed": lambda s2, f, a: Or(
            now.passed(s2, f, a), And(effective, s2 == s, now.promises(t, f, a))
        ),
    }


def _late_alone(now: State, passed_over: Relation) -> Formula:
    return now.every(lambda i: Implies(passed_over(i), now.late(i)))


def _may_apply(now: State, s: Any, t: Any, passed_over: Relation) -> dict[str, Formula]:
    in_order = now.every(lambda u: Implies(now.ahead(u, t), now.applied(s, u)))
    return {
        "it is not applied": Not(now.applied(s, t)),
        "all ahead of it are": in_order,
        "its generation has begun": And(
            Implies(counts(now, t), Or(now.began(s), now.past(s))),
            Implies(now.after(t), now.past(s)),
        ),
        "what is passed over is late": _late_alone(now, passed_over),
    }


@step(passed_over="item")
def commit(now: State, s: Any, t: Any, passed_over: Relation) -> Effect:
    """Rule 3: an entry is durable in its home's log, and the home applies its own part (`LogApplier.commit`). Entries become durable
    in their order; one by one here, many at once in the code."""
    return Effect(
        when={
            "it is accepted": And(now.accepted(t), s == now.home(t)),
            **_may_apply(now, s, t, passed_over),
        },
        then=_applied(now, s, t, passed_over),
    )


@step(passed_over="item")
def receive(now: State, s: Any, t: Any, passed_over: Relation) -> Effect:
    """Rules 2 and 3: another shard takes an entry of a home's log, which is durable there, and applies its part (`Receiver._take_entries`,
    `LogApplier.apply`). Frames may be lost, repeated and overtaken: a home sends any entry, at any time, as often as need be. What is
    appended here and not durable has no effect, and is no step."""
    return Effect(
        when={
            "it is durable at its home": And(durable(now, t), now.there(s), s != now.home(t)),
            **_may_apply(now, s, t, passed_over),
        },
        then=_applied(now, s, t, passed_over),
    )


@step()
def sweep(now: State, s: Any, p: Any, b: Any) -> Effect:
    """Rule 1: a shard that has heard of an announcement empties its cell at that place into the late ledger (`Pipeline.new_sweeps`,
    `ShardPipeline.sweep`)."""
    return Effect(
        when={
            "it is announced": now.recorded(p, b),
            "it is in the generation": takes_part(now, s),
        },
        then={"open": lambda i: And(now.open(i), Not(And(now.owner(i) == s, now.at(i) == b)))},
    )


@step(given="place")
def grant_front(now: State, p: Any, f: Any, given: Relation) -> Effect:
    """Rule 8: the home grants a front when every shard that counts is seen to have pinned it: from the largest pin on, and that is durable
    (`Pipeline.new_grants`, `FrontsGranted`). A larger grant would do, and so would one by another shard that owns slots: its node may have moved."""
    return Effect(
        when={
            "it is in the generation": takes_part(now, p),
            "it is a home": And(has_slots(now, p), now.granter(f) == p),
            "it is not granted": Not(now.granted(f)),
            "every shard has pinned it": all_counted(now, p, lambda s: seen_to_have(now, p, s, f)),
            "its own pin is durable": now.kept(p, f),
            **_grants_no_less(now, p, f, given),
        },
        then={
            "granted": adds(now.granted, f),
            "grant": lambda f2, a: Or(now.grant(f2, a), And(f2 == f, given(a))),
        },
    )


def _grants_no_less(now: State, p: Any, f: Any, given: Relation) -> dict[str, Formula]:
    """Than what those have announced that count for a home, and those that have left."""
    return {
        "from the largest pin on": now.every(
            lambda s, a: Implies(And(counted(now, p, s), now.pin(s, f, a)), given(a))
        ),
        "and behind what those that have left had announced": now.every(
            lambda s, a: Implies(
                And(now.counts_out(p, s), now.feeds(f, a), now.bequest(s, a)), given(a)
            )
        ),
    }


# --- reports --------------------------------------------------------------------------------------


@step(pins="front place")
def report(now: State, s: Any, r: Any, pins: Relation) -> Effect:
    """Rules 5 and 8: a shard says what it is at this moment, and goes by that itself (`Reporter.refresh`, `ShardPipeline.take_report`). What
    its ticks touched since the report before is told along. (Reports of processes that are in a generation before tell nothing of this one.) In the same moment it pins the fronts that it has not pinned: behind
    all that it has announced (`Pipeline.new_pins`), which is behind what it has announced of the segment that the front feeds, since whatever leads to an
    announced place is announced."""
    fresh = _fresh_pin(now, s)
    return Effect(
        when={
            "the report is new": And(Not(now.made(r)), now.sender(r) == s),
            "it is in the generation": takes_part(now, s),
            "it says what is applied": now.every(
                lambda t: now.says_applied(r, t) == now.applied(s, t)
            ),
            "it says what is open": now.every(
                lambda i: Implies(now.owner(i) == s, now.says_open(r, i) == now.open(i))
            ),
            "it says what is promised": now.every(
                lambda f, a: now.says_passed(r, f, a) == now.passed(s, f, a)
            ),
            "it tells what was touched": now.every(
                lambda t: now.says_touched(r, t) == now.untold(s, t)
            ),
            "it says which shards count": now.every(
                lambda q: now.says_counted(r, q) == now.counts_in(s, q)
            ),
            "it says which fronts are pinned": now.every(
                lambda f: now.says_pinned(r, f) == Or(now.pinned(s, f), fresh(s, f))
            ),
            "it follows the one before": now.every(
                lambda r0: Implies(now.follows(r0, r), now.latest(s, r0))
            ),
            "or is the first, and tells all": now.every(
                lambda t: Implies(
                    And(now.opens(r), counts(now, t), now.applied(s, t)), now.untold(s, t)
                )
            ),
            "pins are behind what was announced": now.every(
                lambda f, a: pins(f, a) == And(now.feeds(f, a), now.announced(s, a))
            ),
        },
        then={
            "made": adds(now.made, r),
            "live": adds(now.live, r),
            "newer": lambda r1, r2: Or(
                now.newer(r1, r2), And(r1 == r, now.made(r2), now.sender(r2) == s)
            ),
            "latest": lambda s2, r2: Or(And(s2 == s, r2 == r), And(s2 != s, now.latest(s2, r2))),
            "untold": lambda s2, t: And(s2 != s, now.untold(s2, t)),
            "pinned": lambda s2, f: Or(now.pinned(s2, f), fresh(s2, f)),
            "pin": lambda s2, f, a: Or(
                And(fresh(s2, f), pins(f, a)), And(Not(fresh(s2, f)), now.pin(s2, f, a))
            ),
            **_goes_by(now, s, r, lambda t: now.untold(s, t)),
        },
    )


def _fresh_pin(now: State, s: Any) -> Relation:
    return lambda s2, f: And(s2 == s, has(now, s, f), Not(now.pinned(s, f)))


def _goes_by(now: State, p: Any, r: Any, touched: Relation) -> dict[str, Relation]:
    """A process goes by a report from here on, and holds what it tells of touched places (`Combiner.take`, `Vectors.take`)."""
    s = now.sender(r)

    def mine(p2: Any, s2: Any, new: Formula, old: Formula) -> Formula:
        return Or(And(p2 == p, s2 == s, new), And(Not(And(p2 == p, s2 == s)), old))

    return {
        "heard": adds(now.heard, p, s),
        "goes_by": lambda p2, r2: mine(p2, now.sender(r2), r2 == r, now.goes_by(p2, r2)),
        "seen": lambda p2, s2, t: mine(p2, s2, now.says_applied(r, t), now.seen(p2, s2, t)),
        "seen_open": lambda p2, i: mine(
            p2, now.owner(i), now.says_open(r, i), now.seen_open(p2, i)
        ),
        "seen_passed": lambda p2, s2, f, a: mine(
            p2, s2, now.says_passed(r, f, a), now.seen_passed(p2, s2, f, a)
        ),
        "seen_counted": lambda p2, s2, q: mine(
            p2, s2, now.says_counted(r, q), now.seen_counted(p2, s2, q)
        ),
        "touched": lambda p2, s2, t: Or(now.touched(p2, s2, t), And(p2 == p, s2 == s, touched(t))),
    }


@step()
def keep_pin(now: State, s: Any, f: Any) -> Effect:
    """Rule 8: a pin is durable (`Pinned`), and a crash does not undo it. What it is behind was appended before."""
    return Effect(
        when={
            "it is pinned": now.pinned(s, f),
            "it is in the generation": takes_part(now, s),
            "what it is behind is durable": now.every(
                lambda a: Implies(now.pin(s, f, a), now.recorded(s, a))
            ),
        },
        then={"kept": adds(now.kept, s, f)},
    )


def _may_go_out(now: State, r: Any) -> dict[str, Formula]:
    return {
        "it is of this run of its sender": now.live(r),
        "its pins are durable": now.every(
            lambda f: Implies(now.says_pinned(r, f), now.kept(now.sender(r), f))
        ),
    }


@step()
def send(now: State, r: Any) -> Effect:
    """Rules 5 and 8: a report goes out once the pins that it rests on are durable (`Reporter.committed`). It may arrive anywhere, at any
    time, often or never."""
    return Effect(when=_may_go_out(now, r), then={"sent": adds(now.sent, r)})


@step()
def send_whole(now: State, w: Any, r: Any) -> Effect:
    """Rule 5: all that was reported so far, put together for whom a report is missing (`Reporter.send_whole_report`): without the touches
    that the sender has let go of, but with its M, by which it did (`StableCut.let_go_by`). Letting go of less would do."""
    s = now.sender(r)
    return Effect(
        when={
            "it is new": And(Not(now.posted(w)), now.tells(w) == r),
            **_may_go_out(now, r),
            "what it lets go of is inside M": now.every(
                lambda t: Implies(now.let_go(w, t), Or(now.needed(s, t), in_cut(now, s, t)))
            ),
            "it says what must be heard first": now.every(
                lambda t: Implies(now.needed(s, t), now.let_go(w, t))
            ),
            "it repeats all other touches": now.every(
                lambda t: Implies(
                    And(now.touched(s, s, t), Not(now.let_go(w, t))), now.repeats(w, t)
                )
            ),
        },
        then={"posted": adds(now.posted, w)},
    )


@step()
def hear(now: State, p: Any, r: Any, r0: Any) -> Effect:
    """Rule 5: a process takes, of a shard that counts, the report that follows the last one which it took, or the first of a generation, which tells all of it
    (`Reporter.take_report`, `Pipeline.begin_generation`). Others it passes over, and those of a generation that is not its own."""
    return Effect(
        when={
            "it was sent": And(now.sent(r), counted(now, p, now.sender(r)), now.sender(r) != p),
            "it is in the generation": takes_part(now, p),
            "it is the next": Or(
                And(now.goes_by(p, r0), now.follows(r0, r)),
                And(now.opens(r), Not(now.heard(p, now.sender(r)))),
            ),
        },
        then=_goes_by(now, p, r, lambda t: now.says_touched(r, t)),
    )


@step()
def hear_whole(now: State, p: Any, w: Any, r: Any, r0: Any) -> Effect:
    """Rule 5: a process takes a whole report that is not older than what it goes by, by epoch and number (`Receiver.take_frame`,
    `Reporter.take_report`), and announces nothing until its own M is as far as the sender's was (`StableCut.need`)."""
    return Effect(
        when={
            "it was sent": And(
                now.posted(w),
                now.tells(w) == r,
                counted(now, p, now.sender(r)),
                now.sender(r) != p,
            ),
            "it is in the generation": takes_part(now, p),
            "it is not older": Or(
                And(now.goes_by(p, r0), Or(r0 == r, now.newer(r, r0))),
                Not(now.heard(p, now.sender(r))),
            ),
        },
        then={
            **_goes_by(now, p, r, lambda t: now.repeats(w, t)),
            "needed": lambda p2, t: Or(now.needed(p2, t), And(p2 == p, now.let_go(w, t))),
        },
    )


# --- announcements --------------------------------------------------------------------------------


@step(news="place")
def announce(now: State, p: Any, news: Relation) -> Effect:
    """Rules 6 to 8: a process announces places (appended, not durable) by the cut rule (`Combiner.allowed_min_times`, `SegmentGraph.min_times`,
    `StableCut.is_reached`): nothing that reaches one of them is open at a shard, or was touched outside of M, or can be
    labelled by a front. It has joined, and M has come as far as the word of that (rule 10, `Rescaling._count_shard`)."""
    return Effect(
        when={
            "it is in the generation": takes_part(now, p),
            "it has joined": now.counts_in(p, p),
            "it has not left": Not(now.left(p)),
            "every shard was heard": all_counted(now, p, lambda s: now.heard(p, s)),
            "and counts it": _is_welcome(now, p),
            "M is as far as others have let go": now.every(
                lambda t: Implies(now.needed(p, t), in_cut(now, p, t))
            ),
            "what leads there is announced": now.every(
                lambda a, b: Implies(
                    And(news(b), now.reaches(a, b)), Or(news(a), now.announced(p, a))
                )
            ),
            "nothing open reaches it": now.every(
                lambda b, i: Implies(
                    And(news(b), now.seen_open(p, i)), Not(now.reaches(now.at(i), b))
                )
            ),
            "nothing touched outside M reaches it": now.every(
                lambda b, i, t: Implies(
                    And(
                        news(b), touches(now, t, i), now.touched(p, now.owner(i), t),
                        now.reaches(now.at(i), b),
                    ),
                    in_cut(now, p, t),
                )
            ),
            "fronts that some shard has hold it": now.every(
                lambda b, f, a, s, q: Implies(
                    And(news(b), leads(now, f, a, b), counted(now, p, q), seen_to_have(now, p, s, f)),
                    And(seen_to_have(now, p, q, f), Or(now.pin(q, f, a), now.seen_passed(p, q, f, a))),
                )
            ),
            "fronts that have left outside M hold it": now.every(
                lambda b, f, a, s: Implies(
                    And(news(b), leads(now, f, a, b), now.touched(p, s, now.leaves(f))),
                    Or(in_cut(now, p, now.leaves(f)), And(now.pinned(s, f), now.pin(s, f, a))),
                )
            ),
        },
        then={
            "announced": lambda p2, b: Or(now.announced(p2, b), And(p2 == p, news(b))),
            "spoke": adds(now.spoke, p),
        },
    )  # fmt: skip


def _is_welcome(now: State, p: Any) -> Formula:
    """Every shard that counts is known to count p, or was, before further ones counted."""
    return Or(now.welcome(p), all_counted(now, p, lambda s: now.seen_counted(p, s, p)))


@step(some="place")
def record(now: State, p: Any, some: Relation) -> Effect:
    """Rule 8: announcements are durable (`Announcement`, `Reporter.publish`), each as a whole. A pin that is not behind what is announced was
    appended before it, and is durable as well."""
    return Effect(
        when={
            "they were appended": now.every(lambda b: Implies(some(b), now.announced(p, b))),
            "what leads there is durable": now.every(
                lambda a, b: Implies(
                    And(some(b), now.reaches(a, b)), Or(some(a), now.recorded(p, a))
                )
            ),
            "and pins from before": now.every(
                lambda f, a: Implies(
                    And(some(a), now.feeds(f, a), now.pinned(p, f), Not(now.pin(p, f, a))),
                    now.kept(p, f),
                )
            ),
            "it is in the generation": takes_part(now, p),
            **_is_first(now, p, some),
        },
        then={
            "recorded": lambda p2, b: Or(now.recorded(p2, b), And(p2 == p, some(b))),
            **_becomes_known(now, some),
        },
    )


@step()
def tell(now: State, p: Any, b: Any) -> Effect:
    """Rule 8: a subscriber or another process hears what is durable (`Reporter.publish`, `Announced`)."""
    return Effect(when={"it is durable": now.recorded(p, b)}, then={"told": adds(now.told, p, b)})


# --- crashes --------------------------------------------------------------------------------------


@step(some="tick")
def snapshot(now: State, p: Any, some: Relation) -> Effect:
    """Rule 6: a snapshot takes the log's place: touches inside M, as far as it has ever come, are not in it (`snapshot_pipeline`, `StableCut.let_go_by`).
    Having more of them would do."""
    return Effect(
        when={
            "what it lets go of is inside M": now.every(
                lambda t: Implies(some(t), Or(now.needed(p, t), in_cut(now, p, t)))
            )
        },
        then={"snapped": lambda p2, t: Or(And(p2 == p, some(t)), And(p2 != p, now.snapped(p2, t)))},
    )


@step()
def crash(now: State, p: Any) -> Effect:
    """Rules 3 and 6: a process dies at any moment, and comes back with what is durable (`Recovery.recover`): cells, promises, durable pins and
    announcements, and as touched all that it has applied beyond the M of its snapshot, which its own M must reach
    again. Gone is what was accepted and not durable, and all that was heard."""

    def stays(t: Any) -> Formula:
        return And(now.accepted(t), Or(now.home(t) != p, now.applied(p, t)))

    return Effect(
        when={},
        then={
            "accepted": stays,
            "ahead": lambda t, u: And(now.ahead(t, u), stays(t), stays(u)),
            "untold": lambda s, t: Or(
                And(s == p, now.applied(p, t), Not(now.snapped(p, t))),
                And(s != p, now.untold(s, t)),
            ),
            "latest": lambda s, r: And(s != p, now.latest(s, r)),
            "live": lambda r: And(now.live(r), now.sender(r) != p),
            "heard": lambda p2, s: And(p2 != p, now.heard(p2, s)),
            "goes_by": lambda p2, r: And(p2 != p, now.goes_by(p2, r)),
            "seen": lambda p2, s, t: And(p2 != p, now.seen(p2, s, t)),
            "seen_open": lambda p2, i: And(p2 != p, now.seen_open(p2, i)),
            "seen_passed": lambda p2, s, f, a: And(p2 != p, now.seen_passed(p2, s, f, a)),
            "seen_counted": lambda p2, s, q: And(p2 != p, now.seen_counted(p2, s, q)),
            "inside": lambda p2, t: And(p2 != p, now.inside(p2, t)),
            "welcome": lambda p2: And(p2 != p, now.welcome(p2)),
            "touched": lambda p2, s, t: And(p2 != p, now.touched(p2, s, t)),
            "needed": lambda p2, t: Or(
                And(p2 == p, Or(now.snapped(p, t), now.owed(p, t))),
                And(p2 != p, now.needed(p2, t)),
            ),
            "pinned": lambda s, f: And(now.pinned(s, f), Or(s != p, now.kept(p, f))),
            "announced": lambda p2, b: Or(
                And(p2 == p, now.recorded(p, b)), And(p2 != p, now.announced(p2, b))
            ),
        },
    )


# --- shards that join -----------------------------------------------------------------------------


@step(let_go="tick")
def bootstrap(now: State, s: Any, q: Any, let_go: Relation) -> Effect:
    """Rule 10: a shard begins with what some other one knows, all of it durable there, and nothing that is that one's own
    (`Recovery.bootstrap_snapshot`, `snapshot_pipeline`): what is applied, promises, pins, announcements, the shards. What that one's M has come
    to is what its own has to come to first."""

    def same(relation: Relation) -> Relation:
        return lambda p, *all_: Or(relation(p, *all_), And(p == s, relation(q, *all_)))

    return Effect(
        when={
            "it is new": Not(now.there(s)),
            "the other one has joined, and not left": And(now.counts_in(q, q), Not(now.left(q))),
            "its pins are durable": now.every(lambda f: Implies(now.pinned(q, f), now.kept(q, f))),
            "what is let go of is inside M": now.every(
                lambda t: Implies(let_go(t), Or(now.needed(q, t), in_cut(now, q, t)))
            ),
            "it says what must be heard first": now.every(
                lambda t: Implies(now.needed(q, t), let_go(t))
            ),
        },
        then={
            "there": adds(now.there, s),
            "counts_in": same(now.counts_in),
            "counts_out": same(now.counts_out),
            "owed": same(now.owed),
            "began": same(now.began),
            "past": same(now.past),
            "told_before": same(now.told_before),
            "applied": same(now.applied),
            "passed": same(now.passed),
            "pinned": same(now.pinned),
            "kept": same(now.kept),
            "pin": lambda p, f, a: Or(And(p != s, now.pin(p, f, a)), And(p == s, now.pin(q, f, a))),
            "recorded": same(now.recorded),
            "announced": lambda p, b: Or(now.announced(p, b), And(p == s, now.recorded(q, b))),
            "untold": lambda p, t: Or(
                now.untold(p, t), And(p == s, now.applied(q, t), Not(let_go(t)))
            ),
            "needed": lambda p, t: Or(now.needed(p, t), And(p == s, let_go(t))),
            "snapped": lambda p, t: Or(now.snapped(p, t), And(p == s, let_go(t))),
        },
    )


@step()
def join(now: State, s: Any) -> Effect:
    """Rule 10: the sequencer has heard from a shard that begins, and logs that it has joined (`ShardJoined`)."""
    return Effect(
        when={"it has begun": And(now.there(s), Not(now.joined(s)), Not(now.given_up(s)))},
        then={"joined": adds(now.joined, s)},
    )


@step()
def give_up(now: State, s: Any) -> Effect:
    """Rule 10: the sequencer has not heard from a shard that begins, and logs that it does not join (`ShardRemoved`), under that number."""
    return Effect(
        when={"it has not joined": Not(now.joined(s))}, then={"given_up": adds(now.given_up, s)}
    )


@step()
def count_in(now: State, p: Any, s: Any) -> Effect:
    """Rule 10: a process applies that a shard has joined, itself perhaps, and counts it from here on (`Rescaling._count_shard`). M stays
    where it is (`Vectors.add_shard`)."""
    return Effect(
        when={
            "it is logged": And(now.joined(s), now.there(p)),
            "it did not count before": Not(now.counts_in(p, s)),
        },
        then={
            "counts_in": adds(now.counts_in, p, s),
            "inside": lambda p2, t: Or(now.inside(p2, t), And(p2 == p, in_cut(now, p, t))),
            "welcome": lambda p2: Or(
                now.welcome(p2), And(p2 == p, now.counts_in(p, p), _is_welcome(now, p))
            ),
        },
    )


def is_one(now: State, s: Any) -> Formula:
    """A shard that is there, and was not given up before it joined."""
    return And(now.there(s), Not(now.given_up(s)))


def is_member(now: State, s: Any) -> Formula:
    """One that has not left."""
    return And(is_one(now, s), Not(now.left(s)))


def has_slots(now: State, s: Any) -> Formula:
    """A shard owns slots by a table that some home may still go by."""
    return And(now.owns(s), Not(now.emptied(s)))


@step()
def give_slots(now: State, h: Any) -> Effect:
    """Rule 10: a table gives slots and nodes to a shard that had none (`RoutingChanged`, `Rescaling._next_table`). Each shard has logged the highest slot that it
    knows of (`SlotBounds`), behind the word of all that have joined; and none is about to join. By which table each home goes, and when, is not
    asked: what any home logs from here on may have parts for the shard."""
    return Effect(
        when={
            "it has none": And(now.joined(h), Not(now.owns(h)), Not(now.left(h))),
            "none is about to join": now.every(lambda s: Implies(is_one(now, s), now.joined(s))),
            "all count all": now.every(
                lambda p, s: Implies(And(is_member(now, p), now.joined(s)), now.counts_in(p, s))
            ),
        },
        then={
            "owns": adds(now.owns, h),
            "counted_first": lambda p, q: Or(
                now.counted_first(p, q), And(p == h, now.counts_in(h, q))
            ),
        },
    )


# --- shards that leave ----------------------------------------------------------------------------


@step()
def empty(now: State, h: Any) -> Effect:
    """Rule 10: a shard owns nothing any more (`HandoverFinished`): every home goes by a table in which it has no slots, it has applied all that was
    split by the tables before (`RoutingActivated`), and what was open is handed over. The slots that it had drained are
    somebody else's in the same way."""
    return Effect(
        when={
            "it had some": has_slots(now, h),
            "its nodes have moved": now.every(
                lambda t: Implies(And(now.accepted(t), now.home(t) == h), durable(now, t))
            ),
            "it has applied all that has parts for it": now.every(
                lambda t, i: Implies(
                    And(now.accepted(t), touches(now, t, i), now.owner(i) == h), now.applied(h, t)
                )
            ),
            "nothing is open there": now.every(lambda i: Not(And(now.owner(i) == h, now.open(i)))),
        },
        then={"emptied": adds(now.emptied, h)},
    )


@step()
def depart(now: State, h: Any) -> Effect:
    """Rule 10: a shard logs its last entry (`ShardLeft`), with what it has applied and announced. Whatever it had appended is durable with it. It may have
    announced nothing for some time by then (`ShardLeaving`). Among what it has applied are the last entries of those that have left before, so what these
    name is named as well."""
    return Effect(
        when={
            "it owns nothing": Or(now.emptied(h), Not(now.owns(h))),
            "it counts": And(now.counts_in(h, h), Not(now.left(h))),
            "what it announced is durable": now.every(
                lambda b: Implies(now.announced(h, b), now.recorded(h, b))
            ),
        },
        then={
            "left": adds(now.left, h),
            "parting": lambda s, t: Or(
                now.parting(s, t), And(s == h, Or(now.applied(h, t), now.owed(h, t)))
            ),
            "bequest": lambda s, b: Or(now.bequest(s, b), And(s == h, has_said(now, h, b))),
        },
    )


@step(some="place")
def count_out(now: State, p: Any, h: Any, some: Relation) -> Effect:
    """Rule 10: a process applies a shard's last entry, counts it no more, and announces nothing before its own M has come as far as what the shard had
    applied (`Rescaling._part_from`). It has announced from here on what the shard had, or some of that (`HandOver.take_summaries`, which leaves
    out what is complete)."""
    return Effect(
        when={
            "it is logged": And(now.left(h), now.there(p), p != h),
            "it has counted": And(now.counts_in(p, h), Not(now.counts_out(p, h))),
            "what is ahead of it is applied": now.every(
                lambda t: Implies(And(now.accepted(t), now.home(t) == h), now.applied(p, t))
            ),
            "it is in no generation before the shard's": And(
                Implies(now.began(h), Or(now.began(p), now.past(p))),
                Implies(now.past(h), now.past(p)),
            ),
            "the shard had announced it": now.every(lambda b: Implies(some(b), now.bequest(h, b))),
            "with what leads there": now.every(
                lambda a, b: Implies(And(some(b), now.reaches(a, b)), some(a))
            ),
        },
        then={
            "counts_out": adds(now.counts_out, p, h),
            "needed": lambda p2, t: Or(now.needed(p2, t), And(p2 == p, now.parting(h, t))),
            "owed": lambda p2, t: Or(now.owed(p2, t), And(p2 == p, now.parting(h, t))),
            "announced": lambda p2, b: Or(
                now.announced(p2, b), And(p2 == p, takes_part(now, p), some(b))
            ),
            "recorded": lambda p2, b: Or(
                now.recorded(p2, b), And(p2 == p, takes_part(now, p), some(b))
            ),
            "told_before": lambda p2, b: Or(
                now.told_before(p2, b), And(p2 == p, Not(now.began(p)), Not(now.past(p)), some(b))
            ),
            **_forgets(now, p, h),
        },
    )


def _forgets(now: State, p: Any, h: Any) -> dict[str, Relation]:
    """What a process had heard of a shard is gone (`Combiner.remove_shard`, `Vectors.remove_shard`)."""

    def stays(p2: Any, s: Any, said: Formula) -> Formula:
        return And(Not(And(p2 == p, s == h)), said)

    return {
        "heard": lambda p2, s: stays(p2, s, now.heard(p2, s)),
        "goes_by": lambda p2, r: stays(p2, now.sender(r), now.goes_by(p2, r)),
        "seen": lambda p2, s, t: stays(p2, s, now.seen(p2, s, t)),
        "seen_open": lambda p2, i: stays(p2, now.owner(i), now.seen_open(p2, i)),
        "seen_passed": lambda p2, s, f, a: stays(p2, s, now.seen_passed(p2, s, f, a)),
        "seen_counted": lambda p2, s, q: stays(p2, s, now.seen_counted(p2, s, q)),
        "touched": lambda p2, s, t: stays(p2, s, now.touched(p2, s, t)),
    }
