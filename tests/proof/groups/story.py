"""A run of a pipeline that moves, as a story."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.proof.story import Told


class MovingStory(Told):
    """What happens to a pipeline that moves, and in which groups it goes on then."""

    happens = {
        "claim": "{at} claims the name once more, by {v2}",
        "turn": "the directory turns from {by} to {v}, of {other}",
        "leave_it_there": "the directory leaves the pipeline in {at}, by {v} instead of {by}",
        "begin_to_go": "{group} begins {m}: the pipeline, which is here by {by}, is to go to {other}",
        "begin_to_come": "{group} begins {m}: the pipeline is to come, as {l} says, by {by}",
        "come_to_rest": "in {group} it comes to rest",
        "write": "whoever drives {m} reads all of it, as {l}",
        "keep_known": "{group} keeps for {m} what {l} knows",
        "keep_cells": "{group} keeps for {m} the cells of {l}",
        "be_ready": "{group} has all of it",
        "look": "whoever drives {m}, of {group}, sees that the pipeline is in {at} by {v}",
        "stay": "{m} is over: {group} goes on by {v}",
        "leave": "{m} is over, as {v} seems to say: {group} lets go of the pipeline",
        "come": "{m} is over: {group} goes on with what it has kept, by {v}",
        "drop": "{m} is over: {group} drops what it has kept",
        "take_tick": "{g} takes {t}",
        "log_tick": "{t} is durable in {g}",
        "acknowledge": "{g} acknowledges {t}",
        "append_announcement": "{g} announces {b}",
        "record_announcement": "in {g} it is durable that {b} is announced",
        "tell_announcement": "{g} tells someone that {b} is announced",
        "restart_group": "{g} crashes, and comes back",
    }  # fmt: skip

    def _further(self, given: Mapping[str, Any]) -> dict[str, str]:
        now = self.run.now
        words: dict[str, str] = {}
        if "m" in given:
            m = given["m"]
            words |= {
                "group": self._said(now.of_group(m)),
                "other": self._said(now.other(m)),
                "by": self._said(now.by(m)),
            }
        if "v" in given:
            words["at"] = self._said(now.in_group(given["v"]))
        return words

    def _in_the_end(self) -> Iterator[str]:
        groups = self.universe.things["group"]
        there = [g for g in groups if self._is(self.run.now.has(g))]
        on = [g for g in there if not self._is(self.run.now.leaves(g))]
        yield f"The pipeline {self._listed({'is in': there, 'goes on in': on}, 'is nowhere')}."
