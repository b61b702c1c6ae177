"""What holds in every state that the steps can lead to: promises first, then what makes them hold, from the world to announcements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from z3 import And, Implies, Not, Or, Xor

from tests.proof.logic import Formula, Invariants, State
from tests.proof.protocol import (
    consumed,
    counted,
    counts,
    durable,
    has_said,
    has_slots,
    in_cut,
    is_member,
    leads,
    seen_to_have,
    takes_part,
    touches,
)

_SAID = Invariants()
INVARIANTS, PROMISES = _SAID.known, _SAID.promises
invariant, promise = _SAID.invariant, _SAID.promise


# --- promises -------------------------------------------------------------------------------------


@promise
def nothing_below_min_time_is_open(now: State, p: Any, b: Any, i: Any) -> Formula:
    """Promise 1: an item that is published, and not late, at a place that is announced, is consumed by a durable tick. As this
    holds in every state, and announced stays announced, none can appear there either."""
    there = And(now.announced(p, b), now.at(i) == b, now.published(now.origin(i)), Not(now.late(i)))
    return Implies(there, _is_done(now, i))


def _is_done(now: State, i: Any) -> Formula:
    u = now.done(i)
    return And(counts(now, u), now.published(u), durable(now, u))


@promise
def what_was_told_stays(now: State, p: Any, b: Any) -> Formula:
    """Promise 4: what anyone was told stays announced, over every crash."""
    return Implies(now.told(p, b), now.announced(p, b))


@promise
def what_was_told_before_stays(now: State, p: Any, b: Any, i: Any) -> Formula:
    """Promise 4: what a process has told of the whole pipeline in generations before, it has announced, durably, from the beginning of this one, and
    nothing of this one that is published lies there, but what is consumed by a durable tick."""
    there = And(now.at(i) == b, now.published(now.origin(i)), Not(now.late(i)))
    return Implies(
        now.told_before(p, b),
        And(Implies(now.began(p), now.recorded(p, b)), Implies(there, _is_done(now, i))),
    )


@promise
def nobody_comes_too_late(now: State, p: Any, b: Any, i: Any) -> Formula:
    """Promise 5, for nodes that keep rule 1: what they hand over lies below no min time that any process has announced, so it is
    neither refused for that nor late; and a cell below min time is empty, so a sweep finds nothing."""
    there = And(now.announced(p, b), now.at(i) == b, Not(now.late(i)))
    t, u = now.origin(i), now.consumer(i)
    handed_over = Or(
        And(now.published(t), Not(now.accepted(t))), And(now.published(u), Not(now.accepted(u)))
    )
    in_a_cell = And(takes_part(now, now.owner(i)), now.open(i))
    return Implies(And(there, now.published(t)), Not(Or(handed_over, in_a_cell)))


# --- the world ------------------------------------------------------------------------------------


@invariant
def publishing_has_an_order(now: State, t: Any, u: Any, u2: Any) -> Formula:
    """Published ticks were published one after the other."""
    return And(
        Implies(now.earlier(t, u), And(now.published(t), now.published(u), Not(now.earlier(u, t)))),
        Implies(And(now.earlier(t, u), now.earlier(u, u2)), now.earlier(t, u2)),
        Implies(
            And(now.published(t), now.published(u)),
            Or(t == u, now.earlier(t, u), now.earlier(u, t)),
        ),
    )


@invariant
def items_are_published_before_they_are_consumed(now: State, i: Any) -> Formula:
    """Whatever is consumed, or handed over, was there."""
    t, u, made = now.creator(i), now.consumer(i), now.origin(i)
    return Implies(
        Not(now.late(i)),
        And(
            Implies(now.published(t), Or(t == made, now.earlier(made, t))),
            Implies(now.published(u), now.earlier(made, u)),
        ),
    )


@invariant
def items_come_of_something(now: State, i: Any) -> Formula:
    """Rules 1 and 11: an item that no front labelled comes of one that reaches it, and that its tick consumes, or that its node holds until then or
    later."""
    t, parent = now.origin(i), now.parent(i)
    held = And(
        now.is_hold(parent),
        now.by(now.origin(parent)) == now.by(t),
        Not(now.earlier(now.consumer(parent), t)),
        Not(now.hands_over(now.consumer(parent))),
    )
    comes = And(
        Not(now.late(parent)),
        now.reaches(now.at(parent), now.at(i)),
        now.labeller(parent) == now.labeller(i),
        now.earlier(now.origin(parent), t),
        Or(now.consumer(parent) == t, held),
    )
    return Implies(And(now.published(t), Not(now.labelled(i)), Not(now.late(i))), comes)


@invariant
def labels_are_granted(now: State, i: Any) -> Formula:
    """Rule 8: a front labels where it feeds, from its grant on, between its joining and its leaving."""
    f, t = now.labeller(i), now.origin(i)
    return Implies(
        And(now.labelled(i), now.published(t), Not(now.late(i))),
        And(
            now.feeds(f, now.at(i)), now.granted(f), Not(now.grant(f, now.at(i))),
            now.by(now.joins(f)) == now.by(t), now.earlier(now.joins(f), t),
            Implies(now.published(now.leaves(f)), Or(t == now.leaves(f), now.earlier(t, now.leaves(f)))),
        ),
    )  # fmt: skip


@invariant
def promises_are_kept(now: State, t: Any, f: Any, a: Any, i: Any) -> Formula:
    """Rule 1: where a front has promised to label no more, all that it has labelled is of no later tick."""
    promised = And(now.published(t), now.promises(t, f, a))
    labelled = And(now.labelled(i), now.labeller(i) == f, now.at(i) == a, Not(now.late(i)))
    return Implies(
        promised,
        And(
            now.promised(f, a),
            now.by(now.joins(f)) == now.by(t),
            Implies(
                And(labelled, now.published(now.origin(i))),
                Or(now.origin(i) == t, now.earlier(now.origin(i), t)),
            ),
        ),
    )


# --- home logs and shards -------------------------------------------------------------------------


@invariant
def homes_take_what_is_published(now: State, t: Any) -> Formula:
    """A home accepts what nodes hand over."""
    return Implies(now.accepted(t), And(now.published(t), Not(now.abandoned(t))))


@invariant
def homes_keep_the_order_of_nodes(now: State, t: Any, u: Any) -> Formula:
    """Rule 2: an earlier tick of a node stands ahead in its home's log."""
    earlier = And(now.accepted(u), now.by(t) == now.by(u), now.earlier(t, u), Not(now.abandoned(t)))
    return Implies(earlier, now.ahead(t, u))


@invariant
def logs_are_of_one_home(now: State, s: Any, t: Any, u: Any) -> Formula:
    """What stands ahead of an entry is accepted, and not behind it: by the same home, or it is applied everywhere."""
    both = And(now.accepted(t), now.accepted(u), Not(now.ahead(u, t)))
    known = Or(now.home(t) == now.home(u), Not(is_member(now, s)), now.applied(s, t))
    return Implies(now.ahead(t, u), And(both, known))


@invariant
def nothing_is_applied_before_it_is_durable(now: State, s: Any, t: Any) -> Formula:
    """Rule 3: what any shard has applied is durable in its home's log."""
    return Implies(now.applied(s, t), And(now.accepted(t), durable(now, t)))


@invariant
def shards_apply_prefixes(now: State, s: Any, t: Any, u: Any) -> Formula:
    """Rule 2: of each home's log a shard has applied a prefix."""
    return Implies(And(now.applied(s, u), now.ahead(t, u)), now.applied(s, t))


@invariant
def cells_hold_what_was_applied_once(now: State, i: Any) -> Formula:
    """Rule 4: an item is in its cell if its owner, in this generation, has applied its creation or its consumption, and not both."""
    s = now.owner(i)
    is_applied = partial(now.applied, s)
    once = Xor(is_applied(now.creator(i)), consumed(now, i, is_applied))
    return Implies(And(takes_part(now, s), Not(now.late(i))), now.open(i) == once)


@invariant
def promises_come_behind_items(now: State, s: Any, f: Any, a: Any, i: Any) -> Formula:
    """A shard that knows of a promise has applied all that the front has labelled there."""
    knows = And(now.began(s), now.passed(s, f, a))
    return Implies(knows, _all_of(now, f, a, i, lambda t: now.applied(s, t)))


def _all_of(now: State, f: Any, a: Any, i: Any, is_in: Callable[[Any], Formula]) -> Formula:
    labelled = And(now.labelled(i), now.labeller(i) == f, now.at(i) == a, Not(now.late(i)))
    published = And(labelled, now.published(now.origin(i)))
    return And(now.promised(f, a), Implies(published, is_in(now.origin(i))))


# --- generations ----------------------------------------------------------------------------------


@invariant
def ticks_begin_generations(now: State, s: Any, t: Any) -> Formula:
    """Rule 9: whoever has applied a tick of this generation has begun it, or is in a later one."""
    return Implies(And(now.applied(s, t), counts(now, t)), Or(now.began(s), now.past(s)))


@invariant
def what_there_is_comes_of_a_granted_front(now: State, i: Any) -> Formula:
    """Rule 9: an item of this generation, or what it came of, was labelled by a front that was granted in it."""
    return Implies(
        And(now.published(now.origin(i)), Not(now.late(i))), now.granted(now.labeller(i))
    )


@invariant
def who_has_not_begun_says_nothing(now: State, s: Any, b: Any, f: Any) -> Formula:
    """Rule 9: who has not begun this generation has pinned nothing in it, and announced nothing."""
    return Implies(Or(now.announced(s, b), now.recorded(s, b), now.pinned(s, f)), now.began(s))


# --- reports --------------------------------------------------------------------------------------


@invariant
def reports_say_prefixes(now: State, r: Any, t: Any, u: Any) -> Formula:
    """Rule 5: a report's vector is of what its sender has applied, and a prefix of each log."""
    says = And(now.made(r), now.says_applied(r, u))
    return Implies(
        says,
        And(
            now.applied(now.sender(r), u),
            Implies(now.ahead(t, u), now.says_applied(r, t)),
        ),
    )


@invariant
def reports_are_of_one_moment(now: State, r: Any, i: Any) -> Formula:
    """Rule 5: what a report says is open fits its vector."""
    says_applied = partial(now.says_applied, r)
    xor = Xor(says_applied(now.creator(i)), consumed(now, i, says_applied))
    own = And(now.made(r), now.owner(i) == now.sender(r), Not(now.late(i)))
    return Implies(own, now.says_open(r, i) == xor)


@invariant
def reported_promises_come_behind_items(now: State, r: Any, f: Any, a: Any, i: Any) -> Formula:
    """So do the promises of a report."""
    says = And(now.made(r), now.says_passed(r, f, a))
    return Implies(says, _all_of(now, f, a, i, lambda t: now.says_applied(r, t)))


@invariant
def reports_have_an_order(now: State, r: Any, r0: Any, t: Any, q: Any) -> Formula:
    """A newer report of a shard says no less is applied, and no fewer shards count."""
    newer = And(now.made(r), now.made(r0), now.sender(r) == now.sender(r0))
    more = Implies(now.says_applied(r0, t), now.says_applied(r, t))
    as_many = Implies(now.says_counted(r0, q), now.says_counted(r, q))
    return Implies(now.newer(r, r0), And(newer, more, as_many))


@invariant
def reports_tell_what_was_touched(now: State, r: Any, r0: Any, t: Any) -> Formula:
    """Rule 5: a report tells what was touched since the one that it follows, or it is the first, and tells all."""
    follows = And(now.made(r), now.follows(r0, r))
    newer = And(now.made(r0), now.newer(r, r0))
    told = Implies(now.says_applied(r, t), Or(now.says_applied(r0, t), now.says_touched(r, t)))
    first = And(now.made(r), now.opens(r), counts(now, t), now.says_applied(r, t))
    return And(Implies(follows, And(newer, told)), Implies(first, now.says_touched(r, t)))


@invariant
def latest_reports_are_ones_own(now: State, s: Any, r: Any, t: Any) -> Formula:
    """A shard goes by its own latest report, and what it has applied since is still to be told."""
    own = And(now.made(r), now.live(r), now.sender(r) == s, now.goes_by(s, r))
    since = Implies(now.applied(s, t), Or(now.says_applied(r, t), now.untold(s, t)))
    return And(
        Implies(now.latest(s, r), And(own, since)),
        Implies(And(now.goes_by(s, r), now.sender(r) == s), now.latest(s, r)),
    )


@invariant
def live_reports_rest_on_touches(now: State, r: Any, t: Any, f: Any) -> Formula:
    """What a shard has reported in this run, it holds as touched itself, or it waits for M; and its pins are there."""
    s = now.sender(r)
    return Implies(
        now.live(r),
        And(
            now.made(r),
            Implies(now.says_applied(r, t), now.seen(s, s, t)),
            Implies(now.says_pinned(r, f), now.pinned(s, f)),
        ),
    )


@invariant
def reports_name_pins(now: State, r: Any, f: Any) -> Formula:
    """Rule 8: in a report every front is pinned."""
    there = And(now.says_applied(r, now.joins(f)), Not(now.says_applied(r, now.leaves(f))))
    return Implies(And(now.made(r), there), now.says_pinned(r, f))


@invariant
def what_is_sent_rests_on_durable_pins(now: State, r: Any, w: Any, f: Any) -> Formula:
    """Rule 8: what others hear of pins is durable."""
    pins = Implies(now.says_pinned(r, f), now.kept(now.sender(r), f))
    return And(
        Implies(now.sent(r), And(now.made(r), pins)),
        Implies(And(now.posted(w), now.tells(w) == r), And(now.made(r), pins)),
    )


@invariant
def whole_reports_say_what_they_leave_out(now: State, w: Any, t: Any) -> Formula:
    """Rule 5: of what is applied a whole report repeats the touches, or it says that they were let go of."""
    says = And(now.posted(w), counts(now, t), now.says_applied(now.tells(w), t))
    return Implies(says, Or(now.let_go(w, t), now.repeats(w, t)))


# --- what a process has heard ---------------------------------------------------------------------


@invariant
def views_are_reports(now: State, p: Any, r: Any, r0: Any, t: Any, q: Any) -> Formula:
    """A process goes by one report of each shard."""
    one = Implies(And(now.goes_by(p, r0), now.sender(r0) == now.sender(r)), r0 == r)
    s = now.sender(r)
    says = now.seen(p, s, t) == now.says_applied(r, t)
    counted_there = now.seen_counted(p, s, q) == now.says_counted(r, q)
    return Implies(now.goes_by(p, r), And(now.made(r), one, says, counted_there))


@invariant
def views_are_prefixes(now: State, p: Any, s: Any, t: Any, u: Any) -> Formula:
    """What a process knows a shard to have applied is that, and a prefix of each log."""
    seen = And(now.heard(p, s), now.applied(s, u), Implies(now.ahead(t, u), now.seen(p, s, t)))
    return Implies(now.seen(p, s, u), seen)


@invariant
def views_are_of_one_moment(now: State, p: Any, i: Any) -> Formula:
    """What a process knows to be open at a shard fits the vector that it knows of it."""
    s = now.owner(i)
    is_seen = partial(now.seen, p, s)
    xor = Xor(is_seen(now.creator(i)), consumed(now, i, is_seen))
    return Implies(And(now.heard(p, s), Not(now.late(i))), now.seen_open(p, i) == xor)


@invariant
def seen_promises_come_behind_items(now: State, p: Any, s: Any, f: Any, a: Any, i: Any) -> Formula:
    """So do the promises that it knows of."""
    seen = now.seen_passed(p, s, f, a)
    return Implies(seen, _all_of(now, f, a, i, lambda t: now.seen(p, s, t)))


@invariant
def touches_are_held(now: State, p: Any, s: Any, t: Any) -> Formula:
    """Rule 6: what a process knows a shard to have applied it holds as touched, or its M must reach that first."""
    seen = And(counts(now, t), now.seen(p, s, t))
    return Implies(seen, Or(now.touched(p, s, t), now.needed(p, t)))


@invariant
def what_is_not_told_is_kept(now: State, s: Any, t: Any) -> Formula:
    """Rule 5: what a shard has applied it has reported, has still to tell, or has let go of before a crash."""
    told = Or(now.seen(s, s, t), now.untold(s, t), now.needed(s, t))
    return Implies(now.applied(s, t), told)


# --- fronts ---------------------------------------------------------------------------------------


@invariant
def pins_are_of_fronts_that_joined(now: State, s: Any, f: Any) -> Formula:
    """Rule 8: a shard that has pinned a front has applied its joining, and goes by that."""
    joined = now.joins(f)
    return And(
        Implies(now.kept(s, f), now.pinned(s, f)),
        Implies(
            now.pinned(s, f),
            And(now.applied(s, joined), Implies(now.heard(s, s), now.seen(s, s, joined))),
        ),
    )


@invariant
def fronts_are_seen_pinned(now: State, p: Any, s: Any, f: Any) -> Formula:
    """A front that a shard is seen to have is pinned there, for good as far as others know."""
    pinned = And(now.pinned(s, f), Or(p == s, now.kept(s, f)))
    return Implies(seen_to_have(now, p, s, f), pinned)


def _labels_no_more(now: State, s: Any, f: Any, a: Any, i: Any) -> Formula:
    """A front will label nothing at a place: it is granted more, has promised so, or has left; and what it has labelled there a shard waits for."""
    ended = Or(now.promised(f, a), now.published(now.leaves(f)))
    return Or(now.grant(f, a), And(ended, _owes_what_was_labelled(now, s, f, a, i)))


@invariant
def grants_are_the_largest_pins(now: State, s: Any, f: Any, a: Any, i: Any) -> Formula:
    """Rule 8: a front is granted nothing that any shard has pinned it beyond, but where it will never label anything."""
    pinned = And(now.granted(f), now.pinned(s, f), now.pin(s, f, a))
    return Implies(pinned, _labels_no_more(now, s, f, a, i))


@invariant
def nor_what_a_shard_would_pin_it_beyond(now: State, s: Any, f: Any, a: Any, i: Any) -> Formula:
    """Rule 8: and nothing beyond which a shard would pin it that has yet to hear of it."""
    not_pinned = And(now.granted(f), Not(now.pinned(s, f)), now.feeds(f, a), has_said(now, s, a))
    return Implies(not_pinned, Or(_labels_no_more(now, s, f, a, i), now.applied(s, now.leaves(f))))


@invariant
def pins_beyond_grants_come_behind_items(
    now: State, p: Any, f: Any, a: Any, r: Any, i: Any, w: Any
) -> Formula:
    """Rule 8: where a shard has pinned a front beyond its grant, since another one had announced that, it had applied what the front had labelled there
    and is its own to keep."""
    s = now.owner(i)
    beyond = And(now.pinned(s, f), now.pin(s, f, a), Not(now.grant(f, a)))
    labelled = And(
        now.labelled(i),
        now.labeller(i) == f,
        now.at(i) == a,
        Not(now.late(i)),
        now.published(now.origin(i)),
    )
    said = And(
        now.says_pinned(r, f),
        now.sender(r) == s,
        Or(now.live(r), now.sent(r), And(now.posted(w), now.tells(w) == r)),
    )
    return Implies(
        And(beyond, labelled),
        And(
            Implies(said, now.says_applied(r, now.creator(i))),
            Implies(seen_to_have(now, p, s, f), now.seen(p, s, now.creator(i))),
        ),
    )


@invariant
def grants_are_of_homes(now: State, f: Any, a: Any) -> Formula:
    """Rule 8: whoever has granted a front has owned slots, has begun the generation, has applied its joining, and pinned it for good, at no more than
    the grant; where it leaves, its last entry names the joining."""
    h = now.granter(f)
    there = And(now.owns(h), now.began(h), now.applied(h, now.joins(f)))
    pinned = And(now.kept(h, f), Implies(now.pin(h, f, a), now.grant(f, a)))
    named = Implies(now.left(h), now.parting(h, now.joins(f)))
    return Implies(now.granted(f), And(there, pinned, named))


@invariant
def pins_are_behind_what_was_announced(now: State, s: Any, f: Any, a: Any, i: Any) -> Formula:
    """Rule 8: a pin is behind what its shard has announced, durably if it is durable itself; and what is announced durably beyond a pin rests on a
    durable one, or was announced by one that has left, as which its shard waits for what the front has labelled there."""
    behind = And(now.feeds(f, a), now.announced(s, a), Implies(now.kept(s, f), now.recorded(s, a)))
    beyond = And(now.pinned(s, f), now.feeds(f, a), now.recorded(s, a), Not(now.pin(s, f, a)))
    return And(
        Implies(And(now.pinned(s, f), now.pin(s, f, a)), behind),
        Implies(beyond, Or(now.kept(s, f), _owes_what_was_labelled(now, s, f, a, i))),
    )


def _owes_what_was_labelled(now: State, s: Any, f: Any, a: Any, i: Any) -> Formula:
    """What a front has labelled at a place a shard waits for, by the last word of one that has left."""
    labelled = And(now.labelled(i), now.labeller(i) == f, now.at(i) == a, Not(now.late(i)))
    owed = And(now.owed(s, now.creator(i)), now.owed(s, now.origin(i)))
    return Implies(And(labelled, now.published(now.origin(i))), owed)


# --- shards that join -----------------------------------------------------------------------------


@invariant
def who_is_not_there_does_nothing(
    now: State, s: Any, t: Any, f: Any, r: Any, b: Any, i: Any
) -> Formula:
    """Rule 10: a shard that has not begun knows nothing."""
    does = Or(
        now.began(s), now.past(s), now.applied(s, t), now.untold(s, t), now.kept(s, f), now.told_before(s, b), now.spoke(s),
        now.seen(s, s, t), now.heard(s, s), now.latest(s, r), And(now.made(r), now.sender(r) == s), now.inside(s, t), now.welcome(s),
        now.passed(s, f, b), And(now.open(i), now.owner(i) == s),
    )  # fmt: skip
    return Implies(does, now.there(s))


@invariant
def shards_join_before_they_count(now: State, p: Any, s: Any) -> Formula:
    """Rule 10: who counts a shard is there, and that one has joined, so it is there as well."""
    return And(
        Implies(now.counts_in(p, s), And(now.there(p), now.joined(s))),
        Implies(now.counts_out(p, s), And(now.counts_in(p, s), now.left(s), p != s)),
        Implies(now.joined(s), And(now.there(s), Not(now.given_up(s)))),
        Implies(now.heard(p, s), counted(now, p, s)),
        Implies(Or(now.spoke(p), now.welcome(p)), now.counts_in(p, p)),
    )


@invariant
def owners_count_everywhere(now: State, p: Any, h: Any) -> Formula:
    """Rule 10: a shard that owns slots counts at each one that there is; and it counts each that has announced something, or may."""
    may = Or(now.spoke(p), And(now.welcome(p), Not(now.left(p))))
    return Implies(
        now.owns(h),
        And(
            now.joined(h),
            Implies(is_member(now, p), now.counts_in(p, h)),
            Implies(may, Or(now.counts_in(h, p), now.counts_out(p, h))),
        ),
    )


@invariant
def entries_are_of_owners(now: State, t: Any, i: Any) -> Formula:
    """Rule 10: what is logged is of a home that has slots, and touches the items of owners."""
    owned = Implies(touches(now, t, i), now.owns(now.owner(i)))
    return Implies(now.accepted(t), And(now.owns(now.home(t)), owned))


@invariant
def reports_say_who_counts(now: State, p: Any, s: Any, q: Any, r: Any) -> Formula:
    """Rule 10: who counts at a shard, by what it has reported, does."""
    says = And(now.made(r), now.sender(r) == s, now.says_counted(r, q))
    seen = now.seen_counted(p, s, q)
    return And(Implies(Or(says, seen), now.counts_in(s, q)), Implies(seen, now.heard(p, s)))


@invariant
def grants_wait_for_whom_their_shard_counts(now: State, p: Any, s: Any, f: Any, r: Any) -> Formula:
    """Rule 8: a front that a shard has granted is pinned by each that counted there before, durably: so by each that counted when it reported what
    does not have the front yet."""
    h, joined = now.granter(f), now.joins(f)
    before = And(
        now.made(r), now.sender(r) == h, now.says_counted(r, s), Not(now.says_applied(r, joined))
    )
    seen_before = And(now.seen_counted(p, h, s), Not(now.seen(p, h, joined)))
    welcome = And(
        now.welcome(s),
        Not(now.left(s)),
        Not(now.seen_counted(s, h, s)),
        Not(now.counts_out(s, h)),
    )
    known = Or(before, seen_before, welcome, now.counted_first(h, s))
    return And(
        Implies(now.counted_first(h, s), now.counts_in(h, s)),
        Implies(And(now.granted(f), known), Or(now.kept(s, f), now.counts_out(h, s))),
    )


@invariant
def what_newcomers_say_another_one_has_said(now: State, p: Any, b: Any) -> Formula:
    """Rule 10: a shard that has not spoken yet has announced what another one has, durably, that had spoken."""
    q = now.first(b)
    said = Or(now.recorded(p, b), now.told_before(p, b))
    return And(
        Implies(And(now.announced(p, b), Not(now.spoke(p))), now.recorded(p, b)),
        Implies(said, Or(now.base(b), now.known(b))),
        Implies(now.known(b), And(now.spoke(q), Or(now.recorded(q, b), now.told_before(q, b)))),
        Implies(And(now.known(b), now.left(q)), now.bequest(q, b)),
    )


@invariant
def where_a_generation_begins_is_announced(now: State, p: Any, b: Any) -> Formula:
    """Rule 9: who has begun the generation has announced, durably, all below where it begins, and what it has told before."""
    told = Or(now.base(b), now.told_before(p, b))
    return Implies(And(now.began(p), told), now.recorded(p, b))


@invariant
def what_was_inside_stays(now: State, p: Any, t: Any, u: Any, i: Any) -> Formula:
    """Rule 10: what was inside M when a further shard counted is a prefix of each log, and has no part for that one."""
    there = Or(now.counts_out(p, now.owner(i)), now.seen(p, now.owner(i), t))
    return Implies(
        And(now.inside(p, t), is_member(now, p)),
        And(
            now.seen(p, p, t),
            Implies(touches(now, t, i), there),
            Implies(now.ahead(u, t), now.inside(p, u)),
        ),
    )


# --- shards that leave ----------------------------------------------------------------------------


@invariant
def who_owns_nothing_has_applied_its_parts(now: State, h: Any, t: Any, i: Any) -> Formula:
    """Rule 10: a shard that owns nothing any more has applied all that has a part for it, and nothing is open there; what it had logged is durable."""
    parts = And(now.accepted(t), touches(now, t, i), now.owner(i) == h)
    return Implies(
        now.emptied(h),
        And(
            now.owns(h),
            Implies(parts, now.applied(h, t)),
            Implies(And(now.accepted(t), now.home(t) == h), durable(now, t)),
            Implies(now.owner(i) == h, Not(now.open(i))),
        ),
    )


@invariant
def who_leaves_owns_nothing(now: State, h: Any, b: Any, t: Any, i: Any) -> Formula:
    """Rule 10: a shard that has left owns nothing; what it had announced is durable, and its last entry names all that had a part for it."""
    parts = And(now.applied(h, t), touches(now, t, i), now.owner(i) == h)
    return And(
        Implies(
            now.left(h),
            And(
                now.joined(h),
                Not(has_slots(now, h)),
                Implies(now.announced(h, b), now.recorded(h, b)),
                Implies(parts, now.parting(h, t)),
            ),
        ),
        Implies(now.parting(h, t), And(now.left(h), Or(now.applied(h, t), now.owed(h, t)))),
    )


@invariant
def what_reaches_an_announced_place_is_applied(now: State, p: Any, b: Any, i: Any) -> Formula:
    """Rules 7 and 10: whoever has announced a place has applied all that reaches it, or waits for it by the last word of one that has left and had announced
    the place; and that word names all that reaches what it had announced."""
    there = And(now.reaches(now.at(i), b), now.published(now.origin(i)), Not(now.late(i)))
    t, u = now.creator(i), now.origin(i)
    known = And(Or(now.applied(p, t), now.owed(p, t)), Or(now.applied(p, u), now.owed(p, u)))
    named = And(now.parting(p, t), now.parting(p, u))
    return Implies(
        there, And(Implies(has_said(now, p, b), known), Implies(now.bequest(p, b), named))
    )


@invariant
def nothing_is_bequeathed_but_what_was_announced(now: State, h: Any, b: Any, a: Any) -> Formula:
    """Rule 10: with whoever leads there."""
    said = Or(now.base(b), now.recorded(h, b), now.told_before(h, b))
    return Implies(
        now.bequest(h, b),
        And(said, now.left(h), Implies(now.reaches(a, b), now.bequest(h, a))),
    )


@invariant
def what_leavers_kept_is_done(now: State, p: Any, h: Any, i: Any) -> Formula:
    """Rule 10: what a shard that has left had in its cells was consumed there, as its last entry says."""
    consumed_there = consumed(now, i, partial(now.parting, h))
    own = And(now.owner(i) == h, Not(now.late(i)), now.parting(h, now.creator(i)))
    known = Or(Not(now.past(h)), And(now.counts_out(p, h), Not(now.past(p))))
    return Implies(And(own, counts(now, now.creator(i)), known), consumed_there)


@invariant
def who_has_left_is_waited_for(now: State, p: Any, h: Any, t: Any) -> Formula:
    """Rule 10: who counts a shard no more has applied its log, and has heard nothing of it since; its own M must come as far as the shard's last
    entry says, which names what is durable."""
    is_durable = And(now.accepted(t), durable(now, t))
    told = And(now.needed(p, t), is_durable)
    last = And(Implies(now.owed(p, t), told), Implies(now.parting(p, t), is_durable))
    counted_out = Implies(
        now.counts_out(p, h),
        And(
            Not(now.heard(p, h)),
            Implies(now.parting(h, t), And(now.needed(p, t), now.owed(p, t))),
            Implies(And(now.accepted(t), now.home(t) == h), now.applied(p, t)),
        ),
    )
    return And(last, counted_out)


# --- announcements --------------------------------------------------------------------------------


@invariant
def what_leads_to_an_announced_place_is_announced(now: State, p: Any, a: Any, b: Any) -> Formula:
    """Rule 7: durably as well, and in generations before."""
    of_them = (now.announced, now.recorded, now.told_before)
    return And([Implies(And(told(p, b), now.reaches(a, b)), told(p, a)) for told in of_them])


@invariant
def what_reaches_an_announced_place_is_done(now: State, p: Any, b: Any, i: Any) -> Formula:
    """Rule 7: an item that is published and reaches an announced place was created and consumed, and its owner has applied that."""
    reaches = And(
        has_said(now, p, b),
        now.reaches(now.at(i), b),
        now.published(now.origin(i)),
        Not(now.late(i)),
    )
    is_applied = partial(now.applied, now.owner(i))
    created = And(durable(now, now.origin(i)), is_applied(now.creator(i)))
    return Implies(reaches, And(created, consumed(now, i, is_applied)))


@invariant
def no_front_can_label_what_reaches_it(now: State, p: Any, b: Any, f: Any, a: Any) -> Formula:
    """Rules 7 and 8: where a front feeds what reaches an announced place, it has promised, left, or is granted more; or it has no grant, and this
    process no pin below, unless another one was the first to announce that."""
    other = And(now.known(b), now.first(b) != p)
    pinned = Implies(now.pinned(p, f), Or(now.pin(p, f, a), other))
    return Implies(
        And(has_said(now, p, b), leads(now, f, a, b)),
        Or(
            now.promised(f, a),
            now.published(now.leaves(f)),
            And(now.granted(f), now.grant(f, a)),
            And(Not(now.granted(f)), pinned),
        ),
    )


@invariant
def what_is_told_is_durable(now: State, p: Any, b: Any) -> Formula:
    """Rule 8: nothing is told that a crash could take back."""
    return And(
        Implies(now.told(p, b), now.recorded(p, b)),
        Implies(now.recorded(p, b), now.announced(p, b)),
    )


# --- why the cut rule is right ---------------------------------------------------------------------


def is_inside_the_cut(now: State, given: Mapping[str, Any], b: Any, i: Any) -> Formula:
    """Lemma for `announce`: whatever is published and reaches a place that is announced now was created inside M. By induction over the order in
    which ticks were published: what a front labelled is inside by its promises, and any other item comes of one that was published
    before, reaches the place as well, and so was created inside; as it is not open at M, its consumer is inside too, and with that what comes of it."""
    p, news = given["p"], given["news"]
    reaches = And(
        news(b), now.reaches(now.at(i), b), now.published(now.origin(i)), Not(now.late(i))
    )
    return Implies(reaches, And(in_cut(now, p, now.origin(i)), in_cut(now, p, now.creator(i))))


def was_made_before(now: State, j: Any, i: Any) -> Formula:
    """An item began before another one, or is nearer to where both did."""
    t, u = now.origin(j), now.origin(i)
    return Or(now.earlier(t, u), And(t == u, now.nearer(j, i)))
