"""Takes the steps of a run in the system, each by its conditions as the proof has them, and compares where that leads with what the code is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.proof.bridge import compiled
from tests.proof.bridge.compiled import things_of
from tests.proof.bridge.ledger import SLOTS, Item, Ledger, Place, Tick
from tests.proof.bridge.look import Look, Part, Vector
from tests.proof.bridge.recorder import Moment, Recorder, Reported, Taken, Whole
from tests.proof.protocol import VOCABULARY
from tracker.core.log import TouchedRun
from tracker.core.model.slots import FOREVER, LOWEST_SLOT


class NotAllowed(Exception):
    """A step of the code is none of the system, or leads elsewhere."""


class Replay:
    """The state of the system, as a run goes on. planted: steps instead of those of the protocol."""

    def __init__(self, recorder: Recorder, shards: int, *, planted: Mapping[str, compiled.AskedStep] | None = None) -> None:  # fmt: skip
        self.recorder, self.ledger = recorder, recorder.world.ledger
        self.planted = planted or {}
        self.taken: Counter[str] = Counter()
        self.ticks = {tick.name: tick for tick in self.ledger.ticks}
        self.fronts = {front.name: front for front in self.ledger.fronts}
        self.facts: dict[str, Any] = {name: set() for name in (*VOCABULARY.fixed, *VOCABULARY.changing)}  # fmt: skip
        self.facts |= _world(self.ledger, recorder, shards)
        there = {*range(shards)}
        everyone = {(one, other) for one in there for other in there}
        self.facts |= {
            "there": there, "joined": {*there}, "owns": {*there}, "spoke": {*there}, "began": {*there},
            "counts_in": everyone, "counted_first": {*everyone},
        }  # fmt: skip

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
        """Invariants that do not hold now."""
        return [f"{name}: {found}" for name, ask in compiled.asked_invariants().items() if (found := ask(self.facts)) is not None]  # fmt: skip

    # --- steps ----------------------------------------------------------------------------------

    def _take(self, taken: Taken) -> None:
        for things, sets in self._ways(taken):
            self._step(taken.step, things, sets)

    def _step(self, name: str, things: dict[str, Any], sets: dict[str, set[Any]]) -> None:
        asked = self.planted.get(name) or compiled.asked_step(name)
        facts = {**self.facts, **asked.given({**things, **sets})}
        missing = _missing(asked, facts)
        if missing is not None:
            wider = compiled.asked_wider(name)
            if wider is None or _missing(wider, facts) is not None:
                raise NotAllowed(f"{name} {things} is not allowed: {missing}")
            asked = wider
        self.facts |= {relation: ask(facts) for relation, ask in asked.then.items()}
        self.taken[asked.name] += 1

    def _ways(self, taken: Taken) -> Iterator[tuple[dict[str, Any], dict[str, set[Any]]]]:
        """What takes part in a step, with its sets; none where nothing of it is left to be done."""
        things, said, facts = taken.things, taken.said, self.facts
        match taken.step:
            case "commit" | "receive":
                yield things, {"passed_over": self._passed_over(things["t"])}
            case "keep_pin":
                if (things["s"], things["f"]) not in facts["kept"]:
                    yield things, {}
            case "accept":
                self._late[things["t"]] = said
                yield things, {}
            case "announce" | "record":
                relation, name = ("announced", "news") if taken.step == "announce" else ("recorded", "some")  # fmt: skip
                news = {b for b in self._below(said) if (things["p"], b) not in facts[relation]}
                if news:
                    yield things, {name: news}
            case "tell":
                for b in self._below(said):
                    if (things["p"], b) not in facts["told"]:
                        yield {**things, "b": b}, {}
            case "snapshot":
                yield things, {"some": {t for _, t in self._entries(said)}}
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

    @property
    def _late(self) -> dict[str, set[str]]:
        if not hasattr(self, "_late_items"):
            self._late_items: dict[str, set[str]] = {}
        return self._late_items

    def _passed_over(self, t: str) -> set[str]:
        return self._late.get(t, set())

    def _below(self, min_times: Any) -> list[Place]:
        """The places that min times announce."""
        return [(segment, slot) for segment, end in min_times for slot in range(max(0, min(end, SLOTS)))]  # fmt: skip

    def _swept(self, s: int, segment: int, below: int) -> list[Item]:
        return [
            i for i in self.ledger.items
            if i.name in self.facts["open"] and self.facts["owner"][i.name] == s
            and i.place[0] == segment and i.place[1] < below
        ]  # fmt: skip

    def _entries(self, vector: Vector) -> Iterator[tuple[int, str]]:
        """The ticks that a vector says are applied."""
        for (home, number), tick in self.recorder.logs.items():
            if number <= vector.get(home, 0):
                yield home, tick.name

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
        facts["says_counted"] |= {(r, q) for q in said.vector}
        if said.follows is not None:
            facts["follows"].add((said.follows, r))
        counted = {t for s2, t in facts["applied"] if s2 == s}
        if said.first and counted <= untold:
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
        facts["let_go"] |= {(w, t) for _, t in self._entries(said.cut)}
        applied = [t for r2, t in facts["says_applied"] if r2 == r]
        facts["repeats"] |= {
            (w, t) for t in applied
            if (w, t) not in facts["let_go"] and self._is_told(s, t, said.runs, {})
        }  # fmt: skip

    # --- what the code is -----------------------------------------------------------------------

    def _compare(self, look: Look) -> None:
        """Raises NotAllowed where a process is not what the steps so far have made of it."""
        p, facts = look.shard, self.facts
        self._same("applied", {t for _, t in self._entries(look.applied)}, _of(facts["applied"], p))
        cut = {t for t in facts[things_of("tick")] if _in_cut(facts, p, t)}
        applied = _of(facts["applied"], p)
        self._same("M", {t for _, t in self._entries(look.cut)}, cut)
        self._same(
            "what M has come to, or must",
            {t for _, t in self._entries(look.let_go_by)},
            cut | _of(facts["needed"], p),
        )
        for s, vector in look.vectors.items():
            self._same(f"the vector of shard {s}", {t for _, t in self._entries(vector)}, {t for p2, s2, t in facts["seen"] if (p2, s2) == (p, s)})  # fmt: skip
        if look.part is not None:
            self._compare_part(p, look.part, applied, cut)

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
        there = {f.name for f in self.ledger.fronts if f.joins.name in applied and facts["leaves"][f.name] not in applied}  # fmt: skip
        known = {self.recorder.front(*id_).name: id_ for id_ in part.pins}
        self._same("fronts", {*known}, there)
        for name, id_ in known.items():
            pin, promised = part.pins[id_]
            self._same(f"whether {name} is pinned", pin is not None, (p, name) in facts["pinned"])
            if pin is not None:
                self._same(f"the pin of {name}", min(max(pin, 0), SLOTS), self._pin(p, name))
            self._same(f"the promise of {name}", max(0, promised or 0), self._promise("passed", name, p))
        for id_, slot in part.granted:
            name = self.recorder.front(*id_).name
            given = {a[1] for f, a in facts["grant"] if f == name}
            is_granted = name in facts["granted"] and given == {*range(max(0, min(slot, SLOTS)))}
            self._same(f"the grant of {name}", True, is_granted)
        for s in part.views:
            self._compare_view(p, s, part)
        self._compare_touched(p, part, cut)

    def _cells(self, s: int) -> dict[Place, int]:
        """The checksums of what is open."""
        cells: Counter[Place] = Counter()
        for item in self.ledger.items:
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
        if p != s or (p, s) in facts["heard"]:  # of itself, a process that comes back takes up what its snapshot has
            self._same(f"whether shard {s} is heard", True, (p, s) in facts["heard"])
            cells: Counter[Place] = Counter()
            for item in self.ledger.items:
                if (p, item.name) in facts["seen_open"] and facts["owner"][item.name] == s:
                    cells[item.place] ^= item.value
            lows: dict[int, tuple[int, int]] = {}
            for segment in range(self.ledger.graph.size):
                slots = [slot for (u, slot), value in cells.items() if u == segment and value]
                lows[segment] = min(slots, default=FOREVER), len(slots)
            told = {u: view.lows.get(u, (FOREVER, 0)) for u in lows}
            self._same(f"what is open at shard {s}", told, lows)
            seen = {t for p2, s2, t in facts["seen"] if (p2, s2) == (p, s)}
            there = {f.name for f in self.ledger.fronts if f.joins.name in seen and facts["leaves"][f.name] not in seen}  # fmt: skip
            known = {self.recorder.front(*id_).name: each for id_, each in view.fronts.items()}
            self._same(f"fronts of shard {s}", {*known}, there)
            for name, each in known.items():
                pin = self._pin(s, name)
                self._same(f"the pin of {name} at shard {s}", min(max(each.pin, 0), SLOTS), pin)
                promised = max(pin, self._promise("seen_passed", name, p, s))
                self._same(f"the promise of {name} at shard {s}", max(0, each.heartbeat), promised)

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


def _never(node: str) -> str:
    return f"what {node} never does"


def _world(ledger: Ledger, recorder: Recorder, shards: int) -> dict[str, Any]:
    """All things of each sort, and what is fixed of them."""
    names = [f.name for f in ledger.fronts]
    nodes = dict.fromkeys(tick.node for tick in ledger.ticks)
    never = {_never(node): Tick(_never(node), node) for node in nodes}
    ticks = {tick.name: tick for tick in ledger.ticks} | never
    items, places = {item.name: item for item in ledger.items}, ledger.places
    consumer = {i.name: i.consumer.name if i.consumer else _never(i.creator.node) for i in ledger.items}  # fmt: skip
    creator = {i.name: i.creator.name for i in ledger.items}
    routing = recorder.world.first_table
    name = ledger.spec.name
    return {
        things_of("shard"): [*range(shards)], things_of("node"): [*nodes], things_of("front"): names,
        things_of("tick"): [*ticks], things_of("item"): [*items], things_of("place"): places,
        things_of("report"): [*recorder.reports], things_of("whole"): [*recorder.wholes],
        "at": {i.name: i.place for i in ledger.items}, "creator": creator, "origin": creator,
        "consumer": consumer, "done": consumer, "owner": {i.name: int(routing.owner(i.place[1], name)) for i in ledger.items},
        "by": {t.name: t.node for t in ticks.values()}, "home": {t.name: t.home for t in ticks.values()},
        "reaches": {(a, b) for a in places for b in places if ledger.reaches(a, b)},
        "labelled": {i.name for i in ledger.items if i.labelled},
        "labeller": {i.name: i.labeller.name for i in ledger.items},
        "parent": {i.name: i.parent.name if i.parent else i.name for i in ledger.items},
        "is_hold": {i.name for i in ledger.items if i.hold is not None},
        "joins": {f.name: f.joins.name for f in ledger.fronts},
        "leaves": {f.name: f.leaves.name if f.leaves else _never(f.node) for f in ledger.fronts},
        "feeds": {(f.name, a) for f in ledger.fronts for a in places if a[0] == f.segment},
        "promises": {(t.name, f.name, (f.segment, slot)) for t in ledger.ticks for f, end in t.promises for slot in range(min(end, SLOTS))},
        "came_of": {i: i for i in items}, "last": {i: i for i in items},
        "granter": {f: recorder.granters.get(f, 0) for f in names},
        "first": _first(ledger, recorder), "sender": dict(recorder.reports), "tells": dict(recorder.wholes),
    }  # fmt: skip


def _first(ledger: Ledger, recorder: Recorder) -> dict[Place, int]:
    """By place who is the first to announce it durably."""
    first: dict[Place, int] = {}
    for moment in recorder.moments:
        for taken in moment.steps:
            if taken.step == "record":
                for segment, end in taken.said:
                    for slot in range(max(0, min(end, SLOTS))):
                        first.setdefault((segment, slot), taken.things["p"])
    return {place: first.get(place, 0) for place in ledger.places}


__all__ = ["LOWEST_SLOT", "NotAllowed", "Replay"]
