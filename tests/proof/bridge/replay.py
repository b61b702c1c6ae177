"""Takes the steps of a run in the system, each by its conditions as the proof has them, and compares where that leads with what the code is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.proof.bridge import compiled
from tests.proof.bridge.compiled import things_of
from tests.proof.bridge.ledger import SLOTS, Item, Place, Tick
from tests.proof.bridge.look import Look, Part, Vector
from tests.proof.bridge.recorder import Moment, Recorder, Reported, Taken, Whole
from tests.proof.bridge.wider import BROKEN_OUTSIDE
from tests.proof.protocol import VOCABULARY
from tracker.core.log import TouchedRun
from tracker.core.model.slots import FOREVER


class NotAllowed(Exception):
    """A step of the code is none of the system, or leads elsewhere."""


class Replay:
    """The state of the system, as a run goes on. planted: steps instead of those of the protocol."""

    def __init__(
        self, recorder: Recorder, shards: int, generation: int = 0, *, planted: Mapping[str, compiled.AskedStep] | None = None,
    ) -> None:  # fmt: skip
        """generation: which one of the pipeline the system is of."""
        self.recorder, self.ledger, self.generation = recorder, recorder.world.ledger, generation
        self.planted = planted or {}
        self.taken: Counter[str] = Counter()
        self.ticks = {tick.name: tick for tick in self.ledger.ticks}
        self.items = [i for i in self.ledger.items if i.creator.generation == generation]
        self.fronts = {f.name: f for f in self.ledger.fronts if f.joins.generation == generation}
        self._late: dict[str, set[str]] = {}
        """By tick the items of which its home has moved the consumption to the late ledger."""
        self._durable = {s: [0] * self.ledger.graph.size for s in range(shards)}
        """By shard the min times that it has announced durably in generations before."""
        self._durable |= {s: [0] * self.ledger.graph.size for s in recorder.newcomers}
        self.facts: dict[str, Any] = {
            name: {} if "->" in kind else set() for name, kind in VOCABULARY.fixed.items()
        }
        self.facts |= self._world(shards)
        left = {"left_there": {*range(shards)}, "left_open": set(), "left_passed": set()}
        left["left_began"] = {*range(shards)} if generation == 0 else set()
        before = {**self.facts, **left}
        self.facts |= {name: ask(before) for name, ask in compiled.asked_beginning().items()}

    # --- the whole run --------------------------------------------------------------------------

    def moments(self) -> Iterator[Moment]:
        """Each moment, when its steps are taken. Raises NotAllowed."""
        for number, moment in enumerate(self.recorder.moments):
            try:
                for taken in moment.steps:
                    self._take(taken)
                if moment.look is not None:
                    self._compare(moment.look)
            except NotAllowed as found:
                raise NotAllowed(f"moment {number}, {_where(moment)}: {found}") from None
            yield moment

    def broken_facts(self) -> list[str]:
        """What the proof takes for granted, and is not so."""
        return [f"{name}: {found}" for name, ask in compiled.asked_facts().items() if (found := ask(self.facts)) is not None]  # fmt: skip

    def broken_invariants(self) -> list[str]:
        """Invariants that do not hold now, but for those that steps outside of the proof have broken."""
        broken = {name for step in BROKEN_OUTSIDE if self.taken[step] for name in BROKEN_OUTSIDE[step]}  # fmt: skip
        return [
            f"{name}: {found}"
            for name, ask in compiled.asked_invariants().items()
            if name not in broken and (found := ask(self.facts)) is not None
        ]

    # --- steps ----------------------------------------------------------------------------------

    def _take(self, taken: Taken) -> None:
        match taken.step:
            case "begin" if taken.generation == self.generation:
                self._step("begin_generation", taken.things, {})
            case "begin" if taken.generation > self.generation:
                self._step("begin_later_generation", taken.things, {})
            case "record" if taken.generation < self.generation:
                self._told_before(taken.things["p"], taken.said)
            case name if name in _OF_ANY or self._takes_part(taken):
                for things, sets in self._ways(taken):
                    self._step(name, things, sets)

    def _takes_part(self, taken: Taken) -> bool:
        """Whether a step is of the generation, and of a process that is in it."""
        facts, things = self.facts, taken.things
        if "r" in things and taken.step != "report":
            is_of_it = things["r"] in facts["made"]
        else:
            is_of_it = taken.generation == self.generation
        p = things.get("p", things.get("s"))
        is_past = p in facts["past"] and taken.step != "keep_pin"
        return is_of_it and (p is None or (p in facts["began"] and not is_past))

    def _told_before(self, p: int, said: Any) -> None:
        """In a generation before, a process has announced how far the whole pipeline is."""
        durable = self._durable[p]
        for segment, slot in said:
            durable[segment] = max(slot, durable[segment])
        some = {b for b in self.ledger.places if b[1] < min(durable)}
        if any((p, b) not in self.facts["told_before"] for b in some):
            self._step("tell_before", {"p": p}, {"some": some})

    def _step(self, name: str, things: dict[str, Any], sets: dict[str, set[Any]]) -> None:
        asked = self.planted.get(name) or compiled.asked_step(name)
        facts = {**self.facts, **asked.given({**things, **sets})}
        missing = _missing(asked, facts)
        if missing is not None:
            wider = [w for w in compiled.asked_wider(name) if _missing(w, facts) is None]
            if not wider:
                raise NotAllowed(f"{name} {things} is not allowed: {missing}")
            asked = wider[0]
        self.facts |= {relation: ask(facts) for relation, ask in asked.then.items()}
        self.taken[asked.name] += 1

    def _ways(self, taken: Taken) -> Iterator[tuple[dict[str, Any], dict[str, set[Any]]]]:
        """What takes part in a step, with its sets; none where nothing of it is left to be done."""
        things, said, facts = taken.things, taken.said, self.facts
        match taken.step:
            case "commit" | "receive":
                yield things, {"passed_over": self._passed_over(things["t"])}
            case "keep_pin":
                pin = things["s"], things["f"]
                if pin in facts["pinned"] and pin not in facts["kept"]:
                    yield things, {}
            case "accept":
                self._late[things["t"]] = said
                if things["t"] not in facts["abandoned"]:
                    yield things, {}  # else a crash takes it back, before anybody hears of it
            case "announce" | "record":
                relation, name = ("announced", "news") if taken.step == "announce" else ("recorded", "some")  # fmt: skip
                news = {b for b in self._below(said) if (things["p"], b) not in facts[relation]}
                if news:
                    yield things, {name: news}
            case "tell":
                for b in self._below(said):
                    if (things["p"], b) not in facts["told"]:
                        yield {**things, "b": b}, {}
            case "bootstrap":
                yield things, {"let_go": self._let_go(things["q"], said)}
            case "join" | "give_up":
                if things["s"] not in facts["joined" if taken.step == "join" else "given_up"]:
                    yield things, {}
            case "snapshot":
                yield things, {"some": self._let_go(things["p"], said)}
            case "report":
                self._write_report(things["s"], things["r"], said)
                yield things, {"pins": self._pins(things["s"], said)}
            case "send_whole":
                self._write_whole(things["w"], things["r"], said)
                yield things, {}
            case "grant_front":
                front = self.fronts[things["f"]]
                left = (things["p"], facts["leaves"][front.name]) in facts["applied"]
                if not left:  # else it is passed over, as `LogApplier._take_grant` does
                    given = {a for a in self.ledger.places if a[0] == front.segment and a[1] < said}
                    yield things, {"given": given}
            case "sweep":
                for b in {i.place for i in self._swept(things["s"], *said)}:
                    p = next(p for p in facts[things_of("shard")] if (p, b) in facts["recorded"])
                    yield {**things, "p": p, "b": b}, {}
            case _:
                yield things, {}

    def _passed_over(self, t: str) -> set[str]:
        return self._late.get(t, set())

    def _below(self, min_times: Any) -> list[Place]:
        """The places that min times announce."""
        return [(segment, slot) for segment, end in min_times for slot in range(_slot(end))]  # fmt: skip

    def _swept(self, s: int, segment: int, below: int) -> list[Item]:
        return [
            i for i in self.items
            if i.name in self.facts["open"] and self.facts["owner"][i.name] == s
            and i.place[0] == segment and i.place[1] < below
        ]  # fmt: skip

    def _entries(self, vector: Vector) -> Iterator[tuple[int, str]]:
        """The ticks that a vector says are applied."""
        for (home, number), tick in self.recorder.logs.items():
            if number <= vector.get(home, 0):
                yield home, tick.name

    def _let_go(self, p: int, said: Vector) -> set[str]:
        """What is let go of by an M, as far as the system has it that M has come, or must. Of generations before, and of later ones, it knows less than
        the code; and by the code M must come as far as the word that a shard has joined, of which it lets nothing go."""
        facts = self.facts
        return {
            t for _, t in self._entries(said)
            if (p, t) in facts["needed"] or _in_cut(facts, p, t)
        }  # fmt: skip

    # --- what reports say -----------------------------------------------------------------------

    def _write_report(self, s: int, r: str, said: Reported) -> None:
        facts = self.facts
        applied = {t for _, t in self._entries(said.vector)}
        facts["says_applied"] |= {(r, t) for t in applied}
        facts["says_open"] |= {(r, i) for i in facts["open"] if facts["owner"][i] == s}
        facts["says_passed"] |= {(r, f, a) for s2, f, a in facts["passed"] if s2 == s}
        untold = {t for s2, t in facts["untold"] if s2 == s}
        facts["says_touched"] |= {(r, t) for t in untold if self._is_told(s, t, said.runs, said.settled)}  # fmt: skip
        gone = {f for s2, f in facts["pinned"] if s2 == s and self._has_left(s, f)}
        facts["says_pinned"] |= {(r, f) for f in said.fronts | gone}
        facts["says_counted"] |= {(r, q) for q in said.counted}
        follows = said.follows if said.follows in facts["made"] else None
        if follows is not None:
            facts["follows"].add((follows, r))
        counted = {t for s2, t in facts["applied"] if s2 == s and t not in facts["before"]}
        if follows is None and counted <= untold:
            facts["opens"].add(r)

    def _has_left(self, s: int, f: str) -> bool:
        return (s, self.facts["leaves"][f]) in self.facts["applied"]

    def _pins(self, s: int, said: Reported) -> set[tuple[str, Place]]:
        """Where the fronts are pinned that are pinned now; of others the system asks the same, and nobody goes by it."""
        facts, pins = self.facts, set()
        for name, front in self.fronts.items():
            for a in self.ledger.places:
                if name in said.pins:
                    is_pinned = a[0] == front.segment and a[1] < said.pins[name]
                else:
                    is_pinned = a[0] == front.segment and (s, a) in facts["announced"]
                if is_pinned:
                    pins.add((name, a))
        return pins

    def _is_told(self, s: int, t: str, runs: tuple[TouchedRun, ...], settled: Vector) -> bool:
        """Whether runs, or M, cover all that an entry has touched at a shard: no slot of that lies below what they say."""
        home, number = self.recorder.numbers[t]
        if number <= settled.get(home, 0):
            return True
        lows = dict[int, int]()
        for run in runs:
            if run.home == home and run.last >= number:
                for segment, slot in run.touched:
                    lows[segment] = min(slot, lows.get(segment, FOREVER))
        return all(lows.get(segment, FOREVER) <= slot for segment, slot in self._touched_at(s, t))

    def _touched_at(self, s: int, t: str) -> Iterator[Place]:
        """What an entry touches at a shard: the places of items there, and the pins of fronts that leave by it."""
        tick, passed_over = self.ticks[t], self._passed_over(t)
        if tick.generation != self.generation:
            return
        for item in tick.items:
            if self.facts["owner"][item.name] == s and item.name not in passed_over:
                yield item.place
        for front in tick.leaves:
            if (s, front.name) in self.facts["pinned"]:
                yield front.segment, self._pin(s, front.name)

    def _pin(self, s: int, f: str) -> int:
        """The lowest slot that a pin does not rule out."""
        segment, pin = self.fronts[f].segment, self.facts["pin"]
        return next((t for t in range(SLOTS) if (s, f, (segment, t)) not in pin), SLOTS)

    def _write_whole(self, w: str, r: str, said: Whole) -> None:
        facts, s = self.facts, self.recorder.reports[r]
        facts["let_go"] |= {(w, t) for t in self._let_go(s, said.cut)}
        applied = [t for r2, t in facts["says_applied"] if r2 == r]
        facts["repeats"] |= {
            (w, t) for t in applied
            if (w, t) not in facts["let_go"] and self._is_told(s, t, said.runs, {})
        }  # fmt: skip

    def _world(self, shards: int) -> dict[str, Any]:
        """All things of each sort, and what is fixed of them."""
        ledger, recorder, generation = self.ledger, self.recorder, self.generation
        nodes = dict.fromkeys(map(_who, ledger.ticks))
        never = {_never(node): node for node in nodes}
        ticks, places = (
            {**self.ticks, **{name: Tick(name, node, generation) for name, node in never.items()}},
            ledger.places,
        )
        items, fronts, routing = self.items, self.fronts.values(), recorder.world.first_table
        consumer = {i.name: i.consumer.name if i.consumer else _never(_who(i.creator)) for i in items}  # fmt: skip
        creator, itself = {i.name: i.creator.name for i in items}, {i.name: i.name for i in items}
        return {
            things_of("shard"): sorted({*range(shards), *recorder.newcomers}), things_of("node"): [*nodes], things_of("front"): [*self.fronts],
            things_of("tick"): [*ticks], things_of("item"): [*itself], things_of("place"): places,
            things_of("report"): [*recorder.reports], things_of("whole"): [*recorder.wholes],
            "at": {i.name: i.place for i in items}, "creator": creator, "origin": creator,
            "consumer": consumer, "done": consumer, "came_of": itself, "last": itself,
            "owner": {i.name: int(routing.owner(i.place[1], ledger.spec.name)) for i in items},
            "by": {t.name: _who(t) for t in self.ticks.values()} | never, "home": {t.name: t.home for t in ticks.values()},
            "before": {t.name for t in ticks.values() if t.generation < generation},
            "after": {t.name for t in ticks.values() if t.generation > generation},
            "base": {a for a in places if generation and a[1] < recorder.begins_at[generation]},
            "abandoned": self._abandoned(), "late": self._late_items(),
            "reaches": {(a, b) for a in places for b in places if ledger.reaches(a, b)},
            "labelled": {i.name for i in items if i.labelled},
            "labeller": {i.name: i.labeller.name for i in items},
            "parent": {i.name: i.parent.name if i.parent else i.name for i in items},
            "is_hold": {i.name for i in items if i.hold is not None},
            "joins": {f.name: f.joins.name for f in fronts},
            "leaves": {f.name: f.leaves.name if f.leaves else _never(_who(f.joins)) for f in fronts},
            "feeds": {(f.name, a) for f in fronts for a in places if a[0] == f.segment},
            "promises": {
                (t.name, f.name, (f.segment, slot))
                for t in ledger.ticks if t.generation == generation
                for f, end in t.promises for slot in range(min(end, SLOTS))
            },
            "granter": {f: recorder.granters.get(f, 0) for f in self.fronts},
            "first": self._first(), "sender": dict(recorder.reports), "tells": dict(recorder.wholes),
        }  # fmt: skip

    def _abandoned(self) -> set[str]:
        """What a node that is gone has published, and no home has."""
        logged = {tick.name for tick in self.recorder.logs.values()}
        gone = {node.id for node in self.recorder.world.nodes.values() if node.gone}
        return {tick.name for tick in self.ledger.ticks if tick.node in gone and tick.name not in logged}  # fmt: skip

    def _late_items(self) -> set[str]:
        """What comes of that. Items follow on what they are made of."""
        abandoned, late = self._abandoned(), set[str]()
        for item in self.items:
            if item.creator.name in abandoned or (item.parent and item.parent.name in late):
                late.add(item.name)
        return late

    def _first(self) -> dict[Place, int]:
        """By place who is the first to announce it durably, in this generation, or as how far the whole pipeline is in one before."""
        first: dict[Place, int] = {}
        durable: dict[int, list[int]] = {}
        for moment in self.recorder.moments:
            for taken in moment.steps:
                if taken.step == "record" and taken.generation <= self.generation:
                    p, said = taken.things["p"], dict(taken.said)
                    if taken.generation < self.generation:
                        lows = durable.setdefault(p, [0] * self.ledger.graph.size)
                        for segment, slot in said.items():
                            lows[segment] = max(slot, lows[segment])
                        said = dict.fromkeys(range(len(lows)), min(lows))
                    for place in self._below(said.items()):
                        first.setdefault(place, p)
        return {place: first.get(place, 0) for place in self.ledger.places}

    # --- what the code is -----------------------------------------------------------------------

    def _compare(self, look: Look) -> None:
        """Raises NotAllowed where a process is not what the steps so far have made of it."""
        p, facts = look.shard, self.facts
        applied = _of(facts["applied"], p)
        self._same("applied", {t for _, t in self._entries(look.applied)}, applied)
        part = look.part
        if part is None or not self._is_in_it(p, part):
            return
        for s, vector in look.vectors.items():
            if part.views[s].heard and (p, s) in facts["heard"]:
                self._same(f"the vector of shard {s}", {t for _, t in self._entries(vector)}, {t for p2, s2, t in facts["seen"] if (p2, s2) == (p, s)})  # fmt: skip
        cut = {t for t in facts[things_of("tick")] if _in_cut(facts, p, t)}
        if all((p, s) in facts["heard"] for s in look.vectors):
            counted = {t.name for t in self.ledger.ticks if t.generation == self.generation}
            known = {t for _, t in self._entries(look.cut)}
            self._same("M", known & counted, cut & counted)
            come = {t for _, t in self._entries(look.let_go_by)}
            must = (cut | _of(facts["needed"], p)) & counted
            if self.recorder.newcomers:
                come &= must  # as far as the word that a shard has joined M must come, too
            self._same("what M has come to, or must", come & counted, must)
        self._compare_part(p, part, applied, cut)

    def _is_in_it(self, p: int, part: Part) -> bool:
        """Whether a process is in the generation; the code and the system have to agree."""
        is_in = p in self.facts["began"] and p not in self.facts["past"]
        self._same("whether it is in the generation", part.generation == self.generation, is_in)
        return is_in

    def _same(self, what: str, code: Any, system: Any) -> None:
        if code != system:
            if isinstance(code, (set, frozenset)) and isinstance(system, (set, frozenset)):
                code, system = f"more: {sorted(map(str, code - system))}", f"more: {sorted(map(str, system - code))}"  # fmt: skip
            raise NotAllowed(f"no step explains {what}: in the code {code}, in the system {system}")

    def _compare_part(self, p: int, part: Part, applied: set[str], cut: set[str]) -> None:
        facts = self.facts
        self._same("what is announced", {*self._below(enumerate(part.announced))}, _of(facts["announced"], p))  # fmt: skip
        durable = {*self._below(enumerate(part.durable))} | {*self._below(part.told.items())}
        self._same("what is announced durably", durable, _of(facts["recorded"], p))
        self._same("cells", part.cells, self._cells(p))
        there = {f.name for f in self.fronts.values() if f.joins.name in applied and facts["leaves"][f.name] not in applied}  # fmt: skip
        known = {self.recorder.front(*id_).name: id_ for id_ in part.pins}
        self._same("fronts", {*known}, there)
        for name, id_ in known.items():
            pin, promised = part.pins[id_]
            self._same(f"whether {name} is pinned", pin is not None, (p, name) in facts["pinned"])
            if pin is not None:
                self._same(f"the pin of {name}", _slot(pin), self._pin(p, name))
            self._same(
                f"the promise of {name}", _slot(promised or 0), self._promise("passed", name, p)
            )
        for id_, slot in part.granted:
            name = self.recorder.front(*id_).name
            given = {a[1] for f, a in facts["grant"] if f == name}
            is_granted = name in facts["granted"] and given == {*range(_slot(slot))}
            self._same(f"the grant of {name}", True, is_granted)
        for s in part.views:
            self._compare_view(p, s, part)
        self._compare_touched(p, part, cut)

    def _cells(self, s: int) -> dict[Place, int]:
        """The checksums of what is open."""
        cells: Counter[Place] = Counter()
        for item in self.items:
            if item.name in self.facts["open"] and self.facts["owner"][item.name] == s:
                cells[item.place] ^= item.value
        return {place: value for place, value in cells.items() if value}

    def _promise(self, relation: str, f: str, *whose: int) -> int:
        """The lowest slot that is not ruled out by a promise."""
        segment, passed = self.fronts[f].segment, self.facts[relation]
        return next((t for t in range(SLOTS) if (*whose, f, (segment, t)) not in passed), SLOTS)

    def _compare_view(self, p: int, s: int, part: Part) -> None:
        """What is known of a shard. Where the code has heard less of the pipeline than of its shard, it announces nothing: that is less."""
        facts, view = self.facts, part.views[s]
        if not view.heard:
            return
        if (
            p != s or (p, s) in facts["heard"]
        ):  # of itself, a process that comes back takes up what its snapshot has
            self._same(f"whether shard {s} is heard", True, (p, s) in facts["heard"])
            cells: Counter[Place] = Counter()
            for item in self.items:
                if (p, item.name) in facts["seen_open"] and facts["owner"][item.name] == s:
                    cells[item.place] ^= item.value
            lows: dict[int, tuple[int, int]] = {}
            for segment in range(self.ledger.graph.size):
                slots = [slot for (u, slot), value in cells.items() if u == segment and value]
                lows[segment] = min(slots, default=FOREVER), len(slots)
            told = {u: view.lows.get(u, (FOREVER, 0)) for u in lows}
            self._same(f"what is open at shard {s}", told, lows)
            seen = {t for p2, s2, t in facts["seen"] if (p2, s2) == (p, s)}
            there = {f.name for f in self.fronts.values() if f.joins.name in seen and facts["leaves"][f.name] not in seen}  # fmt: skip
            known = {self.recorder.front(*id_).name: each for id_, each in view.fronts.items()}
            self._same(f"fronts of shard {s}", {*known}, there)
            for name, each in known.items():
                pin = self._pin(s, name)
                self._same(f"the pin of {name} at shard {s}", _slot(each.pin), pin)
                promised = max(pin, self._promise("seen_passed", name, p, s))
                self._same(f"the promise of {name} at shard {s}", _slot(each.heartbeat), promised)

    def _compare_touched(self, p: int, part: Part, cut: set[str]) -> None:
        """What is held as touched outside of M: in the code a run is held as a whole, which is no less."""
        lows: dict[int, int] = {}
        for p2, s, t in self.facts["touched"]:
            if p2 == p and t not in cut:
                for segment, slot in self._touched_at(s, t):
                    lows[segment] = min(slot, lows.get(segment, FOREVER))
        for segment, slot in lows.items():
            held = part.touched[segment]
            if held is None or held > slot:
                raise NotAllowed(f"slot {slot} of segment {segment} was touched outside of M, and the code holds {held}")  # fmt: skip


def _slot(slot: int) -> int:
    """A slot as far as there are places."""
    return max(0, min(slot, SLOTS))


def _missing(asked: compiled.AskedStep, facts: compiled.Facts) -> str | None:
    """A condition of a step that is not met, and of what."""
    for condition, ask in asked.when.items():
        if (found := ask(facts)) is not None:
            return f"{condition!r} is false of {found}"
    return None


def _of(relation: set[tuple[Any, ...]], first: Any) -> set[Any]:
    """What a relation of two things has of one."""
    return {other for one, other in relation if one == first}


def _in_cut(facts: Mapping[str, Any], p: int, t: str) -> bool:
    counted = {s for p2, s in facts["counts_in"] if p2 == p} | {p}
    return (p, t) in facts["inside"] or all((p, s, t) in facts["seen"] for s in counted)


def _where(moment: Moment) -> str:
    return moment.what if moment.shard < 0 else f"shard {moment.shard}, {moment.what}"


def _who(tick: Tick) -> str:
    """In each generation a node is another one: what it was to hand over in the one before is given up, also where a home had accepted it, and has lost
    it by a crash."""
    return f"{tick.node}, in generation {tick.generation}"


def _never(node: str) -> str:
    return f"what {node} never does"


_OF_ANY = (
    "publish",
    "accept",
    "commit",
    "receive",
    "snapshot",
    "crash",
    "bootstrap",
    "join",
    "count_in",
    "give_up",
)
"""Steps that a process may take in whatever generation it is."""
