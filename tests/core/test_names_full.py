"""A table of names that is full refuses, whichever shard keeps it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.driver import Cluster, content
from tests.core.test_limits import SPEC
from tracker.core.log import SubmitTick, TickRefused
from tracker.core.model import RefusalCode, Unit


@pytest.mark.parametrize("at_keeper", [True, False], ids=["at its home", "at another shard"])
def test_a_full_table_of_names_refuses_wherever_it_is_kept(at_keeper: bool) -> None:
    spec = replace(SPEC, max_open_cells=1_000, horizon_slots=100_000, max_nodes=9)
    cluster = Cluster(2)
    cluster.register(spec)
    keeper = cluster.routing.names_keeper("p", 0)
    home = keeper if at_keeper else 1 - keeper
    front = cluster.front(spec, next(cluster.ids_at(home)), promise=100, f=0)
    codes = []
    for n in range(20):
        unit = Unit(0, f"file-{n}", 200 + n)
        tick = content(created=[(0, unit.slot, n + 1)], units_created=[unit])
        effects = cluster.handle(front.home, SubmitTick(front.session, front.last + 1, tick))
        refusals = [e.refusal.code for e in effects if isinstance(e, TickRefused)]
        front.last += not refusals
        codes += refusals
        cluster.settle()
    assert len(cluster.pipeline(keeper).shard.names(0)) <= spec.max_open_units
    assert set(codes) == {RefusalCode.FULL}
