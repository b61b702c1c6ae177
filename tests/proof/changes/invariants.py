"""What holds in every state that changes of a pipeline can lead to: promises first, then what makes them hold, from versions to announcements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from z3 import And, Implies, Not, Or

from tests.proof.changes.system import durable, in_cut, seen_to_have
from tests.proof.logic import Formula, Invariants, State

_SAID = Invariants()
INVARIANTS, PROMISES = _SAID.known, _SAID.promises
invariant, promise = _SAID.invariant, _SAID.promise


# --- promises -------------------------------------------------------------------------------------


@promise
def nothing_appears_below_min_time(now: State, p: Any, b: Any, i: Any) -> Formula:
    """Promise 1: an item that a front has published, or a home has taken, at a place that any process has announced, is consumed by a durable tick. As this holds in every state, and
    what was announced durably stays announced, none can appear there either."""
    there = And(Or(now.announced(p, b), now.said(b)), now.at(i) == b)
    return Implies(And(there, now.came(now.creator(i))), _is_done(now, i))


@promise
def nobody_is_too_late_along_edges_that_stay(now: State, p: Any, b: Any, i: Any) -> Formula:
    """Promise 5, for nodes that keep rule 1: nobody has announced a place to which an edge that no change touches leads from an item that is not consumed, so nothing that comes
    along it is refused for that."""
    there = And(now.came(now.creator(i)), Not(now.accepted(now.consumer(i))))
    below = Or(now.announced(p, b), now.heard(p, b), now.said(b))
    return Implies(And(there, now.lasts(now.at(i), b)), Not(below))


@promise
def what_is_announced_durably_stays(now: State, p: Any, b: Any) -> Formula:
    """Promise 4: what a process has announced durably, and so may have told anyone, stays announced, over every change and every crash."""
    return Implies(now.recorded(p, b), now.announced(p, b))


def _is_done(now: State, i: Any) -> Formula:
    u = now.consumer(i)
    return And(now.accepted(u), durable(now, u))


# --- versions -------------------------------------------------------------------------------------


@invariant
def homes_judge_by_one_version(now: State, h: Any, v: Any, v2: Any) -> Formula:
    """A home judges by one version, and durably by one that is no later."""
    return And(
        Implies(And(now.judges(h, v), now.judges(h, v2)), v == v2),
        Implies(And(now.keeps(h, v), now.keeps(h, v2)), v == v2),
        Implies(And(now.judges(h, v), now.keeps(h, v2)), Not(now.less(v, v2))),
    )


@invariant
def homes_judge_by_what_all_reckon_with(now: State, p: Any, h: Any, v: Any, t: Any) -> Formula:
    """Rule 12: by whatever version a home judges, or has judged a tick, every shard has applied that."""
    judged = Or(And(now.accepted(t), now.judged(t) == v), v == now.original())
    return Implies(Or(now.judges(h, v), now.keeps(h, v), judged), now.knows(p, v))


@invariant
def nobody_judges_by_what_is_over(now: State, p: Any, h: Any, v: Any, v2: Any) -> Formula:
    """Rule 12: edges that count no more at some process are of versions before that of any home, and before one that the process knows."""
    return And(
        Implies(And(now.over(v), Or(now.judges(h, v2), now.keeps(h, v2))), now.less(v, v2)),
        Implies(now.since(p, v2), now.knows(p, v2)),
        Implies(And(now.since(p, v2), now.less(v, v2)), now.over(v)),
    )


@invariant
def activations_are_behind_older_ticks(
    now: State, s: Any, h: Any, v: Any, v2: Any, t: Any
) -> Formula:
    """Rule 12: who has applied that a home judges by a version has applied all that it had judged by older ones, and it judges by no older one again."""
    older = And(now.accepted(t), now.home(t) == h, now.less(now.judged(t), v))
    return Implies(
        now.active(s, h, v),
        And(
            Implies(Or(now.judges(h, v2), now.keeps(h, v2)), Not(now.less(v2, v))),
            Implies(older, now.applied(s, t)),
        ),
    )


# --- ticks ----------------------------------------------------------------------------------------


@invariant
def ticks_come_in_an_order(now: State, t: Any, u: Any, u2: Any) -> Formula:
    """Ticks have come one after the other."""
    return And(
        Implies(now.earlier(t, u), And(now.came(t), now.came(u), Not(now.earlier(u, t)))),
        Implies(And(now.earlier(t, u), now.earlier(u, u2)), now.earlier(t, u2)),
        Implies(And(now.came(t), now.came(u)), Or(t == u, now.earlier(t, u), now.earlier(u, t))),
    )


@invariant
def homes_take_what_has_come(now: State, t: Any, u: Any) -> Formula:
    """Rule 2: what a home has taken has come, and of a front all that it had published before stands ahead of it; what is of no front comes when a home takes it."""
    before = And(now.labels(t), now.by(t) == now.by(u), now.earlier(t, u))
    return And(
        Implies(now.accepted(t), now.came(t)),
        Implies(And(now.came(t), Not(now.labels(t))), now.accepted(t)),
        Implies(And(now.labels(u), now.accepted(u), before), now.ahead(t, u)),
        Implies(now.ahead(t, u), And(now.accepted(t), now.accepted(u), now.home(t) == now.home(u))),
    )


@invariant
def ticks_are_judged_in_order(now: State, t: Any, v: Any) -> Formula:
    """Rule 12: a tick was judged by a version that is no later than the one by which its home judges; durably, where it is durable."""
    h = now.home(t)
    return And(
        Implies(And(now.accepted(t), now.judges(h, v)), Not(now.less(v, now.judged(t)))),
        Implies(And(durable(now, t), now.keeps(h, v)), Not(now.less(v, now.judged(t)))),
    )


@invariant
def taken_items_come_of_something(now: State, i: Any) -> Formula:
    """Rule 1: an item that no front labelled comes of one that its tick consumes, along an edge of the version by which that was judged."""
    t, parent = now.creator(i), now.parent(i)
    comes = And(
        now.consumer(parent) == t,
        now.leads(now.judged(t), now.at(parent), now.at(i)),
        now.earlier(now.creator(parent), t),
    )
    return Implies(And(now.accepted(t), Not(now.labels(t))), comes)


@invariant
def what_is_consumed_has_come(now: State, i: Any) -> Formula:
    """What is consumed was published by a front, or its creation is durable."""
    t, u = now.creator(i), now.consumer(i)
    is_there = And(now.came(t), Or(now.labels(t), durable(now, t)))
    return Implies(And(now.came(u), Not(now.labels(u))), And(is_there, now.earlier(t, u)))


@invariant
def nothing_is_applied_before_its_home_has_it(now: State, s: Any, t: Any) -> Formula:
    """Rule 3: what any shard has applied is durable in its home's log."""
    return Implies(now.applied(s, t), And(now.accepted(t), durable(now, t)))


@invariant
def prefixes_are_applied(now: State, p: Any, s: Any, r: Any, t: Any, u: Any) -> Formula:
    """Rule 2: of each home's log a shard has applied a prefix, and so say reports, and so it is seen."""
    ahead = now.ahead(t, u)
    said = And(now.made(r), now.says_applied(r, u))
    return And(
        Implies(And(now.applied(s, u), ahead), now.applied(s, t)),
        Implies(said, now.applied(now.sender(r), u)),
        Implies(And(said, ahead), now.says_applied(r, t)),
        Implies(now.seen(p, s, u), now.applied(s, u)),
        Implies(And(now.seen(p, s, u), ahead), now.seen(p, s, t)),
    )


@invariant
def reported_activations_are_behind_ticks(
    now: State, p: Any, s: Any, h: Any, v: Any, t: Any, r: Any
) -> Formula:
    """Rules 5 and 12: a report that says that a home judges by a version says of all ticks before that that they are applied."""
    older = And(now.accepted(t), now.home(t) == h, now.less(now.judged(t), v))
    return And(
        Implies(
            And(now.made(r), now.says_active(r, h, v)),
            And(now.active(now.sender(r), h, v), Implies(older, now.says_applied(r, t))),
        ),
        Implies(
            now.seen_active(p, s, h, v),
            And(now.active(s, h, v), Implies(older, now.seen(p, s, t))),
        ),
    )


# --- fronts ---------------------------------------------------------------------------------------


@invariant
def fronts_label_what_they_feed(now: State, i: Any) -> Formula:
    """Rule 8: what a front has labelled lies where it feeds, and where it was granted."""
    f, a = now.labeller(i), now.at(i)
    labelled = And(now.labels(now.creator(i)), now.came(now.creator(i)))
    granted = Or(now.old(f), And(now.granted(f), Not(now.grant(f, a))))
    return Implies(labelled, And(now.feeds(f, a), granted))


@invariant
def fronts_join_where_there_is_something(now: State, f: Any, a: Any) -> Formula:
    """Rules 8 and 12: a front joins where there is something, by the version by which that was judged."""
    joined = And(Not(now.old(f)), now.accepted(now.joins(f)), now.feeds(f, a))
    return Implies(joined, now.has(now.judged(now.joins(f)), a))


def _labelled(now: State, f: Any, a: Any, i: Any) -> Formula:
    t = now.creator(i)
    return And(now.labels(t), now.labeller(i) == f, now.at(i) == a, now.came(t))


@invariant
def fronts_keep_promises(now: State, t: Any, f: Any, a: Any, i: Any) -> Formula:
    """Rule 1: where a front has promised to label no more, all that it has labelled is of no later tick."""
    promised = And(now.came(t), now.promises(t, f, a))
    no_later = Or(now.creator(i) == t, now.earlier(now.creator(i), t))
    return Implies(promised, And(now.promised(f, a), Implies(_labelled(now, f, a, i), no_later)))


@invariant
def promises_are_applied_behind_items(
    now: State, p: Any, s: Any, f: Any, a: Any, i: Any, r: Any
) -> Formula:
    """A shard that knows of a promise has applied all that the front has labelled there, and so say reports, and so it is seen."""

    def behind(is_in: Callable[[Any], Formula]) -> Formula:
        return And(now.promised(f, a), Implies(_labelled(now, f, a, i), is_in(now.creator(i))))

    said = And(now.made(r), now.says_passed(r, f, a))
    return And(
        Implies(now.passed(s, f, a), behind(lambda t: now.applied(s, t))),
        Implies(said, behind(lambda t: now.says_applied(r, t))),
        Implies(now.seen_passed(p, s, f, a), behind(lambda t: now.seen(p, s, t))),
    )


@invariant
def pins_are_of_fronts_that_have_joined(now: State, p: Any, s: Any, f: Any, r: Any) -> Formula:
    """Rule 8: a shard that has pinned a front has applied its joining, and goes by that; and one that is seen to have the front has pinned it, durably as far as others know."""
    joined = now.joins(f)
    said = And(Not(now.old(f)), now.says_applied(r, joined))
    return And(
        Implies(now.kept(s, f), now.pinned(s, f)),
        Implies(
            now.pinned(s, f),
            And(Not(now.old(f)), now.applied(s, joined), Implies(now.hears(s, s), now.seen(s, s, joined))),
        ),
        Implies(And(now.sent(r), said), now.kept(now.sender(r), f)),
        Implies(seen_to_have(now, p, s, f), And(now.pinned(s, f), Or(p == s, now.kept(s, f)))),
        Implies(now.seen(p, s, joined), now.hears(p, s)),
    )  # fmt: skip


@invariant
def grants_are_behind_all_pins(now: State, s: Any, f: Any, a: Any) -> Formula:
    """Rule 8: a front that is granted is pinned everywhere, durably, and granted nothing that any shard has pinned it beyond."""
    pinned = And(now.kept(s, f), Implies(now.pin(s, f, a), now.grant(f, a)))
    return Implies(now.granted(f), pinned)


def _gets_no_labels(now: State, f: Any, b: Any, is_pinned: Formula) -> Formula:
    """A front labels nothing at a place any more; or it has no grant yet, and is pinned so that it will not."""
    waits = And(Not(now.granted(f)), Not(now.old(f)))
    return Or(now.promised(f, b), And(now.granted(f), now.grant(f, b)), And(waits, is_pinned))


@invariant
def announced_places_get_no_labels(now: State, p: Any, f: Any, b: Any) -> Formula:
    """Rules 7 and 8: where a front feeds what a process has announced, it has promised to label no more, or is granted more; or it has no grant, and the process
    has pinned it behind that, or will, if nobody has announced it durably."""
    pinned = Or(now.said(b), Implies(now.pinned(p, f), now.pin(p, f, b)))
    there = And(now.announced(p, b), now.feeds(f, b))
    return Implies(there, _gets_no_labels(now, f, b, pinned))


@invariant
def nor_do_those_announced_durably(now: State, f: Any, b: Any) -> Formula:
    """Rules 7 and 8: where that is durable, some shard that has announced it durably has pinned the front behind it, or will."""
    pinned = now.some(
        lambda s: And(now.recorded(s, b), Implies(now.pinned(s, f), now.pin(s, f, b)))
    )
    there = And(now.said(b), now.feeds(f, b))
    return Implies(there, _gets_no_labels(now, f, b, pinned))


# --- what was announced, by when ------------------------------------------------------------------


@invariant
def what_is_durable_is_announced(now: State, p: Any, h: Any, b: Any, v: Any) -> Formula:
    """Rule 8: what is announced durably was said, and what an activation rests on is announced, and so is what is prior to a version."""
    return And(
        Implies(now.recorded(p, b), now.said(b)),
        Implies(now.rests_on(h, b), now.announced(h, b)),
        Implies(now.prior(p, v, b), And(now.announced(p, b), now.knows(p, v))),
    )


@invariant
def reports_say_what_was_prior(now: State, p: Any, s: Any, r: Any, v: Any, b: Any) -> Formula:
    """Rule 12: a report by which a shard reckons with a version says all that it had announced before; and who has heard that has heard all of that."""
    said = And(now.made(r), now.says_knows(r, v))
    seen = now.seen_knows(p, s, v)
    return And(
        Implies(said, now.knows(now.sender(r), v)),
        Implies(And(said, now.prior(now.sender(r), v, b)), now.says_announced(r, b)),
        Implies(seen, now.knows(s, v)),
        Implies(And(seen, now.prior(s, v, b)), now.heard(p, b)),
    )


@invariant
def what_is_heard_is_durable(now: State, p: Any, r: Any, b: Any) -> Formula:
    """Rules 8 and 12: what others hear of announcements is durable."""
    return And(
        Implies(now.sent(r), now.made(r)),
        Implies(And(now.sent(r), now.says_announced(r, b)), now.said(b)),
        Implies(now.heard(p, b), Or(now.said(b), now.announced(p, b))),
    )


@invariant
def early_is_what_someone_had_announced(now: State, v: Any, b: Any) -> Formula:
    """What is early for a version some shard has announced, durably, and did before it had heard of the version, or it has still to hear of it."""
    return Implies(
        now.early(v, b),
        now.some(lambda s: And(now.recorded(s, b), Implies(now.knows(s, v), now.prior(s, v, b)))),
    )


@invariant
def later_announcements_reckon_with_edges(now: State, p: Any, v: Any, a: Any, b: Any) -> Formula:
    """Rule 12: where an edge of a version that is not over leads to an announced place, what it leads from is announced too; or that was announced before
    the version was known."""
    leads = And(now.leads(v, a, b), Not(now.over(v)))
    from_there = Or(now.said(a), now.early(v, b))
    return And(
        Implies(
            And(leads, now.announced(p, b), now.knows(p, v)),
            Or(from_there, now.announced(p, a), now.prior(p, v, b)),
        ),
        Implies(And(leads, now.said(b)), from_there),
    )


@invariant
def announcements_reckon_with_edges_that_stay(now: State, p: Any, a: Any, b: Any) -> Formula:
    """Rule 7: where an edge of all versions leads to an announced place, what it leads from is announced."""
    return Implies(
        now.lasts(a, b),
        And(
            Implies(now.announced(p, b), Or(now.said(a), now.announced(p, a))),
            Implies(now.said(b), now.said(a)),
        ),
    )


@invariant
def who_judges_knows_what_was_announced(
    now: State, p: Any, h: Any, v: Any, a: Any, b: Any
) -> Formula:
    """Rule 12: where an edge of the version by which a home judges leads to an announced place, what it leads from is announced, or the home has announced the place itself."""
    leads = And(now.leads(v, a, b), now.judges(h, v))
    known = Or(now.said(a), now.rests_on(h, a), now.rests_on(h, b))
    return And(
        Implies(And(leads, now.announced(p, b)), Or(known, now.announced(p, a))),
        Implies(And(leads, now.said(b)), known),
    )


@invariant
def and_when_it_comes_back(now: State, p: Any, h: Any, v: Any, a: Any, b: Any) -> Formula:
    """Rule 12: so it is by the version that it judges by durably, with what it has announced durably."""
    leads = And(now.leads(v, a, b), now.keeps(h, v))
    known = Or(now.said(a), now.recorded(h, b))
    return And(
        Implies(And(leads, now.announced(p, b)), Or(known, now.announced(p, a))),
        Implies(And(leads, now.said(b)), known),
    )


# --- why the cut rule is right ---------------------------------------------------------------------


def is_inside(now: State, given: Mapping[str, Any], _: Any, i: Any) -> Formula:
    """Lemma for `announce_by_edges`: whatever was taken, and lies at a place that is announced now, was created inside M. By induction over the order in which ticks were taken: what a front
    labelled is inside by its promises; what came along an edge that counts comes of an item that was taken before, lies among the places that are announced, too, and so was created inside
    M, and as it is not open at M, consumed; and what came along an edge that counts no more is ahead of an activation, which is inside."""
    there = And(given["news"](now.at(i)), now.came(now.creator(i)))
    return Implies(there, in_cut(now, given["p"], now.creator(i)))


def was_taken_before(now: State, j: Any, i: Any) -> Formula:
    return now.earlier(now.creator(j), now.creator(i))
