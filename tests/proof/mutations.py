"""Faults planted into the steps: with each of them a promise is broken a few steps further, and the solver says how.

A story begins in a state of which all invariants hold, or where nothing has happened yet, and takes the steps that are named; who takes part,
and what was there before, is the solver's choice. Names are those of `tests/mutations` where the same fault is planted into the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from z3 import And, Implies, Not, Or, Xor

from tests.proof.logic import Effect, Formula, State
from tests.proof.protocol import all_counted, in_cut, leads, seen_to_have, touches
from tests.proof.runs import Plant

FALSE_ANNOUNCEMENT = "nothing below min time is open"
TAKEN_BACK = "what was told stays"
TAKEN_BACK_BY_A_RESTART = "what was told before stays"
JOINED = "publish accept commit receive report keep_pin send_whole report keep_pin hear_whole grant_front"
"""A front joins, both shards pin it, and its home grants it."""
LET_GO = """
publish/t=1 accept/t=1 commit/t=1 receive/s=2,t=1 receive/s=3,t=1
report/s=2,r=1 keep_pin/s=2 send_whole/w=1,r=1 report/s=3,r=2 keep_pin/s=3 send_whole/w=2,r=2
report/s=1,r=3 keep_pin/s=1 hear_whole/p=1,w=1 hear_whole/p=1,w=2 grant_front
publish/t=2 accept/t=2 commit/t=2 receive/s=2,t=2 receive/s=3,t=2 report/s=3,r=4 send_whole/w=3,r=4
publish/t=3 accept/t=3 commit/t=3 receive/s=2,t=3 receive/s=3,t=3 report/s=3,r=5 send_whole/w=4,r=5
report/s=1,r=6 send_whole/w=5,r=6 report/s=2,r=7 hear_whole/p=2,w=4 hear_whole/p=2,w=5 send_whole/w=6,r=7
crash/p=1 report/s=1,r=8 hear_whole/p=1,w=6 hear_whole/p=1,w=3 announce/p=1
"""
"""Three shards: the second lets go of what the others have applied, and the first, which has crashed, hears an old report of the third."""
HEARD = "report send_whole report hear_whole announce"
"""One shard hears the other, before anything else has happened, and announces something."""
TICK = "publish accept commit"
BOTH = f"{TICK} receive"
"""A tick that one shard has applied, or both."""
CAUGHT_UP = "report send hear report announce"
"""A shard hears from the other, and announces something."""
ALONE = "publish accept commit report keep_pin grant_front"
"""A front joins at the only shard that counts there."""
COUNTED = "bootstrap join count_in/p=1,s=2 count_in/p=2,s=2"
"""The second shard begins, and counts at both."""
GONE = "empty/h=2 depart/h=2 count_out/p=1,h=2"
"""The second shard leaves, and the first one counts it no more."""
BEGUN = f"begin_generation {JOINED}"
"""The last process has begun the generation, and then a front joins."""

SABOTAGES = ("touches-not-held", "announcement-said-before-logged", "smallest-pin-granted")
"""Mutations that can be planted into the system that is to be proven."""


@dataclass(frozen=True)
class Mutation:
    """A fault: the stage and the rule that it breaks, in a sentence how, the step that it is planted in, and the steps of its story."""

    name: str
    stage: str
    rule: int
    says: str
    step: str
    plant: Plant
    story: str
    breaks: str = FALSE_ANNOUNCEMENT
    restarted: bool = False
    """Whether its story begins with some in the generation before."""
    joining: int = 0
    """How many shards are not there when it begins."""
    sizes: Mapping[str, int] = field(default_factory=dict)


MUTATIONS: dict[str, Mutation] = {}


def mutation(
    stage: str,
    rule: int,
    step: str,
    story: str,
    breaks: str = FALSE_ANNOUNCEMENT,
    *,
    restarted: bool = False,
    joining: int = 0,
    **sizes: int,
) -> Callable[[Plant], Plant]:
    """A plant as a mutation by its name, with its docstring as what it breaks."""

    def take(plant: Plant) -> Plant:
        name = plant.__name__.replace("_", "-")
        says = (plant.__doc__ or "").strip()
        MUTATIONS[name] = Mutation(
            name, stage, rule, says, step, plant, story, breaks, restarted, joining, sizes
        )
        return plant

    return take


def without(effect: Effect, *conditions: str) -> Effect:
    """The step asks for less."""
    assert all(each in effect.when or each in effect.of_items for each in conditions)
    return replace(
        effect,
        when={name: formula for name, formula in effect.when.items() if name not in conditions},
        of_items={name: asked for name, asked in effect.of_items.items() if name not in conditions},
    )


def instead(effect: Effect, condition: str, formula: Formula) -> Effect:
    """The step asks for something else."""
    return replace(
        without(effect, condition), when={**without(effect, condition).when, condition: formula}
    )


def leaves_as_it_is(effect: Effect, relation: str) -> Effect:
    """The step does not change a relation."""
    return replace(
        effect, then={name: new for name, new in effect.then.items() if name != relation}
    )


# --- (a) rules 1 to 7 -----------------------------------------------------------------------------


@mutation(
    "a",
    6,
    "announce",
    f"{JOINED} {BOTH} report send hear {BOTH} {TICK} {CAUGHT_UP}",
    tick=5,
    report=5,
)
def published_rule(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """The published rule: of each shard counts the newest min time, by what it said of its cells and fronts, whose vector is at
    most the element-wise minimum of all."""
    p, news = given["p"], given["news"]
    accepted = now.universe.symbol("accepted_report", "report")

    def within(r: Any) -> Formula:
        return now.every(lambda t: Implies(now.says_applied(r, t), in_cut(now, p, t)))

    def was_heard(r: Any) -> Formula:
        return now.some(lambda r0: And(now.goes_by(p, r0), Or(r0 == r, now.newer(r0, r))))

    def newest(r: Any) -> Formula:
        later = now.every(lambda r0: Implies(And(now.newer(r0, r), was_heard(r0)), Not(within(r0))))
        return And(now.made(r), was_heard(r), within(r), later)

    rule = And(
        now.every(lambda s: now.some(lambda r: And(accepted(r), now.sender(r) == s))),
        now.every(lambda r: Implies(accepted(r), newest(r))),
        now.every(
            lambda r, b, i: Implies(
                And(accepted(r), news(b), now.owner(i) == now.sender(r), now.says_open(r, i)),
                Not(now.reaches(now.at(i), b)),
            )
        ),
        now.every(
            lambda r, b, f, a: Implies(
                And(accepted(r), news(b), leads(now, f, a, b)),
                And(
                    now.says_pinned(r, f),
                    Or(now.pin(now.sender(r), f, a), now.says_passed(r, f, a)),
                ),
            )
        ),
    )
    return without(
        instead(effect, "nothing open reaches it", rule), "nothing touched outside M reaches it"
    )


@mutation("a", 6, "announce", f"{JOINED} {BOTH} report send hear {TICK} report announce", report=4)
def touches_not_held(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """The newest lows of all shards are taken together, whatever was touched outside of M."""
    return without(effect, "nothing touched outside M reaches it")


@mutation("a", 6, "announce", f"{JOINED} {BOTH} {CAUGHT_UP}", report=4)
def low_of_the_own_shard_alone(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """What is open at other shards does not count."""
    p, news = given["p"], given["news"]
    own = now.every(
        lambda b, i: Implies(
            And(news(b), now.seen_open(p, i), now.owner(i) == p), Not(now.reaches(now.at(i), b))
        )
    )
    return instead(effect, "nothing open reaches it", own)


@mutation("a", 6, "announce", f"{JOINED} {TICK} report announce")
def greatest_promise(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """Of a front's promises at the shards the greatest counts."""
    p, news = given["p"], given["news"]
    greatest = now.every(
        lambda b, f, a, s: Implies(
            And(news(b), leads(now, f, a, b), seen_to_have(now, p, s, f)),
            And(
                now.every(lambda q: seen_to_have(now, p, q, f)),
                now.some(lambda q: Or(now.pin(q, f, a), now.seen_passed(p, q, f, a))),
            ),
        )
    )
    return instead(effect, "fronts that some shard has hold it", greatest)


@mutation("a", 5, "announce", f"{JOINED} publish crash announce")
def announced_before_caught_up(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A process announces before it has heard every shard."""
    return without(effect, "every shard was heard", "and counts it")


@mutation("a", 7, "announce", f"{JOINED} {BOTH} {CAUGHT_UP} publish", report=4)
def no_graph(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """What is open in one segment does not hold the segments that it leads to."""
    p, news = given["p"], given["news"]
    alone = now.every(lambda b, i: Implies(And(news(b), now.seen_open(p, i)), now.at(i) != b))
    return without(
        instead(effect, "nothing open reaches it", alone), "what leads there is announced"
    )


@mutation("a", 5, "hear_whole", LET_GO, shard=3, report=8, whole=6)
def cut_of_whole_reports_passed_over(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A whole report is gone by before one's own M is as far as its sender's was."""
    return leaves_as_it_is(effect, "needed")


@mutation(
    "a",
    5,
    "hear_whole",
    f"{JOINED} {BOTH} report send_whole {BOTH} report send_whole hear_whole report hear_whole announce",
    report=5,
    whole=3,
)
def older_whole_reports_taken(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A whole report is taken that is older than what was heard; M does not go back."""
    seen = effect.then["seen"]
    known = lambda p, s, t: Or(now.seen(p, s, t), seen(p, s, t))  # noqa: E731
    return without(replace(effect, then={**effect.then, "seen": known}), "it is not older")


@mutation("a", 5, "hear", f"{JOINED} {BOTH} {TICK} report {CAUGHT_UP}", report=5)
def reports_skipped(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A report is taken, and one before it is missing."""
    return without(effect, "it is the next")


@mutation(
    "a",
    5,
    "crash",
    f"{JOINED} {BOTH} {TICK} crash report send_whole hear_whole report announce",
    report=4,
    whole=2,
)
def touches_forgotten_by_a_restart(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A process that comes back has forgotten what it touched beyond M."""
    p = given["p"]
    return replace(
        effect, then={**effect.then, "untold": lambda s, t: And(s != p, now.untold(s, t))}
    )


@mutation("a", 2, "receive", f"{JOINED} {BOTH} receive {CAUGHT_UP}", report=4)
def entries_applied_again(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """An entry that comes twice is applied twice."""
    return without(effect, "it is not applied")


@mutation("a", 2, "receive", f"{JOINED} {TICK} {BOTH} {CAUGHT_UP}", report=4)
def entries_skipped(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """An entry is applied, and one ahead of it is missing."""
    return without(effect, "all ahead of it are")


@mutation("a", 1, "publish", f"{JOINED} {BOTH} {CAUGHT_UP} publish", report=4)
def created_out_of_nothing(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A node creates what comes of nothing that it consumes or holds."""
    return without(effect, "its other items come of what it consumes or holds")


@mutation("a", 3, "tell", f"{HEARD} tell crash", breaks=TAKEN_BACK)
def announcement_said_before_logged(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A min time is told before its record is durable."""
    return instead(effect, "it is durable", now.announced(given["p"], given["b"]))


@mutation("a", 3, "crash", f"{HEARD} record tell crash", breaks=TAKEN_BACK)
def announcements_forgotten_by_a_restart(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A process that comes back has forgotten what it has announced."""
    p = given["p"]
    return replace(
        effect, then={**effect.then, "announced": lambda p2, b: And(p2 != p, now.announced(p2, b))}
    )


# --- (b) fronts that join, leave, are pinned and granted ------------------------------------------


@mutation("b", 8, "grant_front", f"{HEARD} record {JOINED} publish", report=4, whole=2)
def smallest_pin_granted(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A front is granted the smallest pin."""
    f, gives = given["f"], given["given"]
    p = given["p"]
    smallest = now.every(
        lambda a: Implies(all_counted(now, p, lambda s: now.pin(s, f, a)), gives(a))
    )
    return instead(effect, "from the largest pin on", smallest)


@mutation("b", 8, "grant_front", f"{HEARD} {TICK} report keep_pin grant_front publish")
def pin_of_one_shard_granted(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A front is granted before every shard has pinned it."""
    return without(effect, "every shard has pinned it")


@mutation(
    "b",
    8,
    "announce",
    f"report send_whole hear_whole {JOINED} {BOTH} report announce",
    report=4,
    whole=2,
)
def front_missing_at_a_shard_left_out(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A shard that has not heard of a front is left out of the minimum."""
    p, news = given["p"], given["news"]
    settled = now.every(
        lambda b, f, a, q: Implies(
            And(news(b), leads(now, f, a, b), seen_to_have(now, p, q, f)),
            Or(now.pin(q, f, a), now.seen_passed(p, q, f, a)),
        )
    )
    return instead(effect, "fronts that some shard has hold it", settled)


@mutation(
    "b",
    8,
    "announce",
    f"report send_whole hear_whole {JOINED} {BOTH} report announce",
    report=4,
    whole=2,
)
def leaving_does_not_touch(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A front that has left at one shard is forgotten, though others may know less."""
    return without(effect, "fronts that have left outside M hold it")


@mutation("b", 8, "announce", f"{HEARD} record {JOINED} publish publish", report=4, whole=2)
def pinned_by_the_fed_segment_alone(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A front is pinned by what was announced of its own segment, whatever was announced of those behind it."""
    return without(effect, "what leads there is announced")


@mutation("b", 8, "report", f"{HEARD} {JOINED} publish", report=4, whole=2)
def pinned_by_what_was_said(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A front is pinned by the min times that have been said, not by those that are in the log and will be."""
    s, pins = given["s"], given["pins"]
    said = now.every(lambda f, a: pins(f, a) == And(now.feeds(f, a), now.recorded(s, a)))
    return instead(effect, "pins are behind what was announced", said)


@mutation(
    "b",
    8,
    "crash",
    f"{JOINED} crash report send_whole hear_whole {TICK} report announce",
    report=4,
    whole=2,
)
def pins_computed_anew(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A process that comes back pins fronts anew, and further than before."""
    p = given["p"]
    further = lambda s, f, a: Or(now.pin(s, f, a), And(s == p, now.feeds(f, a)))  # noqa: E731
    return replace(effect, then={**effect.then, "pin": further})


@mutation("b", 8, "publish", f"{JOINED} {BOTH} {CAUGHT_UP} publish", report=4)
def labelled_below_a_promise(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A front labels below what it was granted or has promised."""
    t = given["t"]
    fed = now.every(
        lambda i: Implies(
            And(now.origin(i) == t, now.labelled(i)), now.feeds(now.labeller(i), now.at(i))
        )
    )
    return instead(effect, "its items are labelled as granted", fed)


# --- (c) holds, keys that end, and what is late ---------------------------------------------------


@mutation("c", 11, "publish", f"{JOINED} {BOTH} {BOTH} {CAUGHT_UP} publish", report=4, tick=5)
def created_of_a_hold_let_go(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A node creates of a hold that it has let go of."""
    return _of_any_hold(now, effect, lambda hold: now.by(now.origin(hold)) == now.by(given["t"]))


@mutation("c", 11, "publish", f"{JOINED} {BOTH} publish {BOTH} {CAUGHT_UP}", report=4, tick=5)
def hold_of_another_node(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A node creates of what another node holds."""
    return _of_any_hold(now, effect, lambda hold: Not(now.published(now.consumer(hold))))


def _of_any_hold(now: State, effect: Effect, asked: Callable[[Any], Formula]) -> Effect:
    """What no front has labelled may come of holds of which this is so."""
    (name,) = effect.of_items

    def comes_of(i: Any) -> Formula:
        hold = now.parent(i)
        there = And(now.is_hold(hold), now.published(now.origin(hold)), Not(now.late(hold)))
        return Or(
            effect.of_items[name](i), And(there, now.reaches(now.at(hold), now.at(i)), asked(hold))
        )

    return replace(effect, of_items={name: comes_of})


@mutation("c", 9, "accept", f"{JOINED} publish publish accept commit receive {CAUGHT_UP}", report=4)
def key_closed_before_its_last_tick(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A home lets a front leave ahead of ticks of its node that it takes later."""
    return without(effect, "its node's earlier ones are")


@mutation("c", 1, "sweep", f"{JOINED} {BOTH} sweep {CAUGHT_UP}", report=4)
def swept_too_far(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A shard empties a cell that nobody has announced."""
    return without(effect, "it is announced")


@mutation("c", 1, "commit", f"{JOINED} {BOTH} {CAUGHT_UP}", report=4)
def taken_for_late(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A home moves to the late ledger what is not late."""
    return without(effect, "what is passed over is late")


# --- (c) generations ------------------------------------------------------------------------------


@mutation(
    "c",
    9,
    "begin_generation",
    "tell_before begin_generation",
    TAKEN_BACK_BY_A_RESTART,
    restarted=True,
)
def begun_below_what_was_told(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A process begins a generation where it was told to, though it has told more of the whole pipeline."""
    s = given["s"]
    there = lambda p, b: Or(now.announced(p, b), And(p == s, now.base(b)))  # noqa: E731
    return replace(effect, then={**effect.then, "announced": there, "recorded": there})


@mutation("c", 9, "begin_generation", f"{BEGUN} {BOTH} {CAUGHT_UP}", report=4, restarted=True)
def cells_kept_by_a_restart(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A process that begins a generation keeps its cells, where the same item is open: its front makes it again."""
    return leaves_as_it_is(effect, "open")


@mutation(
    "c",
    9,
    "begin_generation",
    f"begin_generation {BEGUN} {CAUGHT_UP} publish",
    report=4,
    restarted=True,
)
def promises_kept_by_a_restart(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A process that begins a generation keeps what a front of that name has promised before."""
    return leaves_as_it_is(effect, "passed")


@mutation("c", 9, "commit", f"{JOINED} {BOTH} {TICK} {CAUGHT_UP}", report=4)
def ticks_of_before_taken(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A process applies what a node of the generation before has consumed, which the others pass over."""
    s, t, passed_over = given["s"], given["t"], given["passed_over"]

    def turned(i: Any) -> Formula:
        mine = And(now.owner(i) == s, Or(now.creator(i) == t, now.consumer(i) == t))
        return Xor(now.open(i), And(mine, Not(passed_over(i))))

    return replace(effect, then={**effect.then, "open": turned})


@mutation("c", 9, "report", f"{JOINED} {BOTH} begin_later_generation {CAUGHT_UP}", report=4)
def reports_of_a_later_generation_taken(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """What a process reports that has begun the next generation, and dropped its cells, is taken for its word on this one."""
    return without(effect, "it is in the generation")


# --- (d) slots and nodes that move ----------------------------------------------------------------


@mutation("d", 10, "announce", f"{JOINED} {BOTH} {TICK} {CAUGHT_UP}", report=4)
def hand_overs_do_not_touch(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """What a shard hands over to another one is not held until both are known to have gone by it."""
    p, news = given["p"], given["news"]
    held = now.every(
        lambda b, i, t: Implies(
            And(
                news(b), touches(now, t, i), Not(now.hands_over(t)), now.touched(p, now.owner(i), t),
                now.reaches(now.at(i), b),
            ),
            in_cut(now, p, t),
        )
    )  # fmt: skip
    return instead(effect, "nothing touched outside M reaches it", held)


@mutation("d", 10, "accept", f"{JOINED} {BOTH} publish accept crash {CAUGHT_UP}", report=4)
def cells_given_before_it_is_logged(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A shard lets go of its cells when it hands them over, and not when that is durable."""
    t = given["t"]

    def still_there(i: Any) -> Formula:
        return And(now.open(i), Not(And(now.hands_over(t), now.consumer(i) == t)))

    return replace(effect, then={**effect.then, "open": still_there})


@mutation("d", 10, "receive", f"{JOINED} {BOTH} {BOTH} {CAUGHT_UP}", report=4)
def cells_not_taken(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A shard goes by a hand-over, and does not take the cells."""
    s, t, turned = given["s"], given["t"], effect.then["open"]

    def without_taking(i: Any) -> Formula:
        taken = And(now.hands_over(t), now.creator(i) == t, now.owner(i) == s)
        return Or(And(taken, now.open(i)), And(Not(taken), turned(i)))

    return replace(effect, then={**effect.then, "open": without_taking})


@mutation("d", 10, "accept", f"{JOINED} {TICK} {TICK} receive {CAUGHT_UP}", report=4)
def node_taken_up_too_early(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A node is taken up at its new home before every shard has applied what the home before had logged of it."""
    then = dict(effect.then)
    t = given["t"]
    then["ahead"] = lambda u, u2: Or(
        now.ahead(u, u2), And(u2 == t, now.accepted(u), now.home(u) == now.home(t))
    )
    return without(replace(effect, then=then), "and everywhere, if they are in another log")


# --- (d) shards that join -------------------------------------------------------------------------


@mutation("d", 10, "announce", f"bootstrap {HEARD} {ALONE} publish", joining=1)
def newcomer_announces_before_it_counts(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A shard that is only bootstrapping announces."""
    return without(effect, "it has joined", "and counts it")


@mutation(
    "d", 10, "announce", f"bootstrap join count_in/p=2,s=2 {HEARD} {ALONE} publish", joining=1
)
def newcomer_announces_before_all_count_it(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A shard that has joined announces before it has heard from every other one that counts it."""
    return without(effect, "and counts it")


@mutation("d", 8, "grant_front", f"{COUNTED} {HEARD} {ALONE} publish", joining=1)
def newcomers_not_asked_for_pins(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A front is granted when the shards have pinned it that own slots: one that has joined may have announced more."""
    p, f, gives = given["p"], given["f"], given["given"]
    pinned = now.every(lambda s: Implies(now.owns(s), seen_to_have(now, p, s, f)))
    largest = now.every(lambda s, a: Implies(And(now.owns(s), now.pin(s, f, a)), gives(a)))
    asked = instead(effect, "every shard has pinned it", pinned)
    return instead(asked, "from the largest pin on", largest)


@mutation(
    "d",
    10,
    "give_slots",
    f"bootstrap join count_in/p=2,s=2 give_slots {ALONE} {BOTH} report announce",
    joining=1,
)
def slots_given_before_all_count(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A shard is given slots before all others have heard that it has joined."""
    return without(effect, "all count all")


@mutation(
    "d",
    10,
    "bootstrap",
    f"report announce publish accept commit report bootstrap crash report keep_pin grant_front join count_in/p=1,s=2 "
    f"count_in/p=2,s=2 give_slots {TICK} report send_whole report hear_whole announce",
    joining=1,
    report=5,
)
def pins_taken_over_that_may_be_lost(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A shard begins with a pin that is not durable where it comes from: that one loses it, and pins the front anew, lower."""
    s, q = given["s"], given["q"]
    then = {**effect.then, "kept": lambda p, f: Or(now.kept(p, f), And(p == s, now.pinned(q, f)))}
    return without(replace(effect, then=then), "its pins are durable")


# --- (d) shards that leave ------------------------------------------------------------------------


@mutation("d", 10, "empty", f"{JOINED} {BOTH} {GONE} report announce", report=4)
def leaves_with_what_is_open(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A shard leaves before it has handed over what is open."""
    return without(effect, "nothing is open there")


@mutation("d", 10, "empty", f"{JOINED} {TICK} {GONE} report announce", report=4)
def leaves_before_its_parts_have_come(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A shard leaves before it has applied all that was split by the tables before."""
    return without(effect, "it has applied all that has parts for it")


@mutation(
    "d",
    10,
    "count_out",
    """
publish/t=1 accept/t=1 commit/t=1 receive/s=2,t=1 receive/s=3,t=1
report/s=2,r=1 keep_pin/s=2 send_whole/w=1,r=1 report/s=3,r=2 keep_pin/s=3 send_whole/w=2,r=2
report/s=1,r=3 keep_pin/s=1 hear_whole/p=1,w=1 hear_whole/p=1,w=2 grant_front
publish/t=2 accept/t=2 commit/t=2 receive/s=2,t=2 receive/s=3,t=2 report/s=3,r=4 send_whole/w=3,r=4 hear_whole/p=1,w=3
publish/t=3 accept/t=3 commit/s=3,t=3 receive/s=2,t=3
empty/h=2 depart/h=2 count_out/p=1,h=2 report/s=1,r=5 announce/p=1
""",
    shard=3,
    report=5,
    whole=3,
)
def last_entries_not_waited_for(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """Whoever counts a shard no more announces at once, and not when its own M has come as far as what that one had applied."""
    return leaves_as_it_is(leaves_as_it_is(effect, "needed"), "owed")


@mutation("d", 8, "grant_front", f"{HEARD} record {GONE} {ALONE} publish", report=4)
def what_leavers_announced_not_granted_behind(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A front is granted behind the pins of those that are there, whatever one that has left had announced."""
    return without(effect, "and behind what those that have left had announced")


@mutation(
    "d",
    10,
    "announce",
    f"report/s=1 send_whole report/s=2 hear_whole/p=2 {GONE} {ALONE} publish announce/p=2",
    report=4,
)
def announces_after_its_last_entry(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A shard that has left goes on to announce, by what it had heard before."""
    return without(effect, "it has not left")
