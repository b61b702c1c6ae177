"""Draws the shortest schedule by which the published rule announces too much: `python -m tests.docs.schedule`.

Two shards, a front and a worker. Every order in which the shards can take their ticks is tried, the shortest ones first, and
each report is heard at once. The rule does not state what becomes of a report that is not accepted when it is heard: it may be
kept until it is, or dropped. The first schedule that refutes the rule either way is drawn into docs/img/published-rule.svg, from what
the shards and rules of `tests.simulation.cut_rules` have answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import product

from scripts.summary import ROOT
from tests.simulation.cut_rules import (
    Combiner,
    CutRule,
    PublishedRule,
    ToyReport,
    ToyShard,
    ToyTick,
)

PICTURE = ROOT / "docs" / "img" / "published-rule.svg"
FRONT, WORKER = "front", "worker"
A, B = 0xA, 0xB
"""The ack values of two items; B is what becomes of A."""
SCRIPT = {
    FRONT: (ToyTick(FRONT, 1, ((0, A),), promise=2), ToyTick(FRONT, 2, promise=3)),
    WORKER: (ToyTick(WORKER, 1, ((0, A), (1, B))),),
}
SLOT_OF_B = 1
"""The lowest slot with an item, whatever the shards have heard: the worker has committed its tick, and nobody consumes B."""
SHARDS = (0, 1)
Delivery = tuple[str, int]
"""A node's next tick is applied by a shard, whose report is heard."""


class DroppingRule(Combiner):
    """The published rule, by which a report that is not accepted when it is heard is dropped."""

    def __init__(self, shards: int) -> None:
        super().__init__(shards)
        self.accepted = [0] * shards

    def hear(self, shard: int, report: ToyReport) -> int:
        self.latest[shard] = report
        cut = self.cut()
        if cut and all(report.vector[node] <= cut[node] for node in cut):
            self.accepted[shard] = report.min_time
        self.announced = max(self.announced, min(self.accepted))
        return self.announced


@dataclass(frozen=True)
class Heard:
    """What came of a delivery: the tick, the shard's cells and report, and what the listener makes of it by each rule."""

    tick: ToyTick
    shard: int
    cells: dict[int, int]
    report: ToyReport
    cut: dict[str, int]
    accepted: list[int]
    waits: int
    published: int
    dropping: int
    by_cut_rule: int


def told(schedule: tuple[Delivery, ...]) -> list[Heard]:
    """A schedule, step by step."""
    shards = [ToyShard(number, len(SHARDS), [*SCRIPT], [FRONT]) for number in SHARDS]
    published, dropping = PublishedRule(len(SHARDS)), DroppingRule(len(SHARDS))
    by_cut = CutRule(len(SHARDS))
    story = []
    for node, number in schedule:
        shard = shards[number]
        tick = SCRIPT[node][shard.vector[node]]
        report = shard.apply(tick)
        said = [rule.hear(number, report) for rule in (published, dropping, by_cut)]
        waits = sum(map(len, published.waiting))
        known = (dict(shard.cells), report, published.cut(), [*published.accepted], waits)
        story.append(Heard(tick, number, *known, *said))
    return story


def schedules(length: int) -> Iterator[tuple[Delivery, ...]]:
    """All orders of so many deliveries: of each node in its order, each tick once to each shard."""
    deliveries = [*product(SCRIPT, SHARDS)]
    for schedule in product(deliveries, repeat=length):
        if all(schedule.count(each) <= len(SCRIPT[each[0]]) for each in deliveries):
            yield schedule


def shortest() -> list[Heard]:
    """The first schedule of the fewest deliveries in which the published rule announces the slot of B, either way."""
    ticks = sum(map(len, SCRIPT.values()))
    for length in range(1, ticks * len(SHARDS) + 1):
        for schedule in schedules(length):
            story = told(schedule)
            if min(story[-1].published, story[-1].dropping) > SLOT_OF_B:
                return story
    raise AssertionError("no schedule refutes the published rule")


# --- the picture ----------------------------------------------------------------------------------

WIDTH, TOP, ROW = 980, 88, 70
AT = {FRONT: 56, WORKER: 148, 0: 262, 1: 406, "listener": 590}
STYLE = """
  .card { fill: #ffffff } .ink { fill: #0f172a } .soft { fill: #475569 } .wrong { fill: #b91c1c } .right { fill: #047857 }
  .life { stroke: #94a3b8 } .tick { stroke: #1d4ed8 } .report { stroke: #64748b } .head { fill: #f1f5f9; stroke: #334155 }
  .dot { fill: #1d4ed8 } .blue { fill: #1d4ed8 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0f172a } .ink { fill: #f1f5f9 } .soft { fill: #cbd5e1 } .wrong { fill: #fca5a5 } .right { fill: #6ee7b7 }
    .life { stroke: #64748b } .tick { stroke: #93c5fd } .report { stroke: #94a3b8 } .head { fill: #1e293b; stroke: #94a3b8 }
    .dot { fill: #93c5fd } .blue { fill: #93c5fd }
  }
"""


def picture(story: list[Heard]) -> str:
    """A message sequence diagram of a schedule."""
    bottom = TOP + ROW * len(story)
    height = bottom + 66
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="Helvetica, Arial, sans-serif" '
        'font-size="14" role="img" aria-labelledby="title desc">',
        '<title id="title">The published rule announces a slot that still has an item</title>',
        f'<desc id="desc">{escape(_in_words(story))}</desc>',
        f"<style>{STYLE}</style>",
        "<defs>" + "".join(map(_arrow_head, ("tick", "report"))) + "</defs>",
        f'<rect class="card" width="{WIDTH}" height="{height}"/>',
        *_heads(bottom),
    ]
    for row, heard in enumerate(story):
        parts += _step(TOP + 22 + ROW * row, heard)
    parts += _under_way(story, bottom)
    parts += _legend(bottom + 32)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _heads(bottom: int) -> list[str]:
    said: dict[str | int, tuple[str, str]] = {
        FRONT: ("front", "F"), WORKER: ("worker", "W"), 0: ("shard 0", "keeps slot 0"), 1: ("shard 1", "keeps slot 1"),
        "listener": ("listener", "combines reports"),
    }  # fmt: skip
    parts = []
    for who, (name, what) in said.items():
        x, half = AT[who], 40 if who in SCRIPT else 62
        parts += [
            f'<line class="life" x1="{x}" y1="64" x2="{x}" y2="{bottom}" stroke-dasharray="4 4"/>',
            f'<rect class="head" x="{x - half}" y="20" width="{2 * half}" height="46" rx="4"/>',
            _text(x, 39, name, "ink", "middle", bold=True),
            _text(x, 57, what, "soft", "middle", 13),
        ]
    return [*parts, _text(666, 39, "what the listener makes of the reports", "ink", bold=True)]


def _step(y: int, heard: Heard) -> list[str]:
    node, x = heard.tick.node, AT[heard.shard]
    cells = ", ".join(f"{_item(value)} at slot {slot}" for slot, value in heard.cells.items())
    report = f"{_vector(heard.report.vector)}: {heard.report.min_time}"
    vector = _vector(heard.cut) if heard.cut else "?"
    accepted = " and ".join(map(str, heard.accepted))
    waiting = f", {heard.waits} waiting" if heard.waits else ""
    wrong = heard.published > SLOT_OF_B
    return [
        _arrow("tick", AT[node], x, y),
        _text(AT[node] + 8, y - 6, _name(heard.tick), "blue", bold=True),
        f'<circle class="dot" cx="{x}" cy="{y}" r="4"/>',
        _text(x + 8, y + 4, cells or "no item", "soft", size=13),
        _arrow("report", x, AT["listener"], y + 24),
        _text(AT["listener"] - 20, y + 18, report, "ink", "end", 13),
        _text(606, y + 10, f"M = {vector}, accepted: {accepted}{waiting}", "soft", size=13),
        _text(
            606,
            y + 29,
            f"announces {heard.published}" + (", and B is at slot 1" if wrong else ""),
            "wrong" if wrong else "ink",
            bold=True,
        ),
        _text(
            606 + (272 if wrong else 110), y + 29, f"cut rule: {heard.by_cut_rule}", "right", size=13
        ),
    ]  # fmt: skip


def _under_way(story: list[Heard], y: int) -> list[str]:
    """Ticks that have not arrived at a shard."""
    arrived = {(heard.tick, heard.shard) for heard in story}
    parts = []
    for tick, shard in product((t for ticks in SCRIPT.values() for t in ticks), SHARDS):
        if (tick, shard) not in arrived:
            x = AT[tick.node]
            parts += [
                f'<line class="tick" x1="{x}" y1="{y}" x2="{AT[shard] - 60}" y2="{y}" stroke-width="1.5" stroke-dasharray="3 5"/>',
                _text(x + 8, y - 6, _name(tick), "blue", bold=True),
                _text(AT[shard] - 52, y + 4, f"still under way to shard {shard}", "soft", size=13),
            ]
    return parts


def _legend(y: int) -> list[str]:
    return [
        _text(20, y, "F1 creates item A at slot 0 and promises nothing below 2.  F2 promises nothing below 3.  "
              "W1 consumes A and creates B at slot 1, in one step.", "ink", size=13),
        _text(20, y + 20, "A report is (ticks of F, ticks of W): the shard's own min time.  M is the least of the latest vectors.  "
              "Accepted: of shard 0 and of shard 1.", "soft", size=13),
    ]  # fmt: skip


def _in_words(story: list[Heard]) -> str:
    steps = [
        f"shard {heard.shard} applies {_name(heard.tick)} and reports {_vector(heard.report.vector)}: "
        f"{heard.report.min_time}; the published rule announces {heard.published}, the cut rule {heard.by_cut_rule}"
        for heard in story
    ]
    return ". ".join(steps) + ". Item B is at slot 1."


def _name(tick: ToyTick) -> str:
    return f"{tick.node[0].upper()}{tick.number}"


def _item(value: int) -> str:
    return {A: "A", B: "B"}.get(value, "A and B")


def _vector(vector: dict[str, int]) -> str:
    return f"({', '.join(str(vector[node]) for node in SCRIPT)})"


def _text(
    x: float, y: float, said: str, kind: str, anchor: str = "start", size: int = 14, bold: bool = False
) -> str:  # fmt: skip
    weight = ' font-weight="bold"' if bold else ""
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}"{weight}>{escape(said)}</text>'


def _arrow(kind: str, x1: int, x2: int, y: int) -> str:
    end = x2 - 5 if x2 > x1 else x2 + 5
    return f'<line class="{kind}" x1="{x1}" y1="{y}" x2="{end}" y2="{y}" stroke-width="1.8" marker-end="url(#{kind})"/>'


def _arrow_head(kind: str) -> str:
    return (
        f'<marker id="{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path class="{kind}" d="M1 1 9 5 1 9" fill="none" stroke-width="2"/></marker>'
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(shortest()))
    print(f"{PICTURE.relative_to(ROOT)}: {len(shortest())} deliveries")
