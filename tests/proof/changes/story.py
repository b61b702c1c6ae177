"""A run of a pipeline that changes, as a story."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import z3

from tests.proof.changes.system import VOCABULARY
from tests.proof.runs import Run
from tests.proof.story import Told


class ChangingStory(Told):
    """What happens to a pipeline that changes, and along which edges its items have come."""

    happens = {
        "decide_change": "the registrar decides that the pipeline becomes {v}",
        "apply_change": "{s} hears of {v}{begins}",
        "activate": "{h} judges by {v}{begins}",
        "log_activation": "it is durable that {h} judges by {v}",
        "receive_activation": "{s} applies that {h} judges by {v}",
        "let_go": "{p} lets go of the edges from before {v}",
        "put_out": "a front of {by} publishes {t}, which {does}",
        "judge_labels": "{home} takes {t} of {by}",
        "judge": "{home} takes {t} of {by}, by {judged}: it {does}",
        "log_judged": "{t} is durable at its home, {home}, which applies it",
        "pass_on": "{s} receives {t}, and applies it",
        "grant_by_pins": "{h} grants {f}, and rules out {given}",
        "make_report": "{s} makes {r}: {says}",
        "send_report": "{r} goes out",
        "take_report": "{p} takes {r} of {sender}",
        "announce_by_edges": "{p} announces {news}, by the edges from {v} on",
        "record_all": "all that {p} has announced is durable",
        "fail": "{p} crashes, and comes back",
    }

    def __init__(self, run: Run, solver: z3.Solver) -> None:
        super().__init__(run, solver)
        versions, less = self.universe.things["version"], run.now.less
        before = lambda v: sum(self._is(less(v2, v)) for v2 in versions)  # noqa: E731
        self._numbers["version"] = sorted(versions, key=before)

    def _world(self) -> Iterator[str]:
        """Which edges there are by each version, from one place to another."""
        now = self.run.now
        for v in self._numbers["version"]:
            ways = [
                f"{self._said(a)} to {self._said(b)}"
                for v2, a, b in self._members(now.leads, VOCABULARY.fixed["leads"])
                if v2.eq(v) and not a.eq(b)
            ]
            yield f"By {self._said(v)} edges lead from {', from '.join(ways) or 'nowhere'}."

    def _further(self, given: Mapping[str, Any]) -> dict[str, str]:
        now = self.run.now
        words: dict[str, str] = {}
        for new in ("new", "adopts"):
            if new in given:
                told = self._members(given[new], "place")
                said = ", ".join(self._said(b) for (b,) in told)
                words["begins"] = f", and announces {said} for that" if said else ""
        if "t" in given:
            t = given["t"]
            words |= {
                "by": self._said(now.by(t)),
                "home": self._said(now.home(t)),
                "judged": self._said(now.judged(t)),
                "does": self._does(t),
            }
        if "r" in given:
            words["sender"] = self._said(now.sender(given["r"]))
            words["says"] = self._says(given["r"])
        return words

    def _does(self, t: Any) -> str:
        now = self.run.now
        items, fronts = self.universe.things["item"], self.universe.things["front"]
        consumes = [i for i in items if self._is(now.consumer(i) == t)]
        creates = [
            f"{self._said(i)} at {self._said(now.at(i))}"
            for i in items
            if self._is(now.creator(i) == t)
        ]
        joins = [f for f in fronts if self._is(z3.And(z3.Not(now.old(f)), now.joins(f) == t))]
        said = self._listed({"consumes": consumes, "joins": joins}, "")
        made = f"creates {', '.join(creates)}" if creates else ""
        return "; ".join(filter(None, (said, made))) or "is empty"

    def _says(self, r: Any) -> str:
        def about(name: str) -> list[Any]:
            rows = self._members(self.universe.fixed[name], VOCABULARY.fixed[name])
            return [row[-1] for row in rows if row[0].eq(self.model.eval(r, True))]

        says = {
            "reckons with": about("says_knows"),
            "has applied": about("says_applied"),
            "has announced": about("says_announced"),
        }
        return self._listed(says, "nothing has happened")
