"""Names of units that are written anew while shards hand names over."""

from __future__ import annotations

from tests.core.driver import Cluster
from tracker.core.log import RescaleShards
from tracker.core.model import PipelineSpec, Unit
from tracker.core.shard.names import UnitNames


def _keepers_differ(cluster: Cluster, name: str) -> bool:
    first = cluster.routing
    later = first.resized((0, 1, 2), {}, {})
    return first.names_keeper(name, 0) != later.names_keeper(name, 0)


def test_a_unit_that_is_written_anew_while_names_are_handed_over_is_found() -> None:
    """There are three shards from now on, of which the new one is to keep the names of a segment. Another one does not hear of that
    for a moment, so that nothing is handed over yet. A file is consumed meanwhile, and written anew at a later slot."""
    cluster = Cluster(2)
    cluster.join_shard()
    name = next(n for n in map("p{}".format, range(1000)) if _keepers_differ(cluster, n))
    spec = PipelineSpec(name, ("files",), fronts=("other",), open=True)
    cluster.register(spec)
    ids = (i for i in map(str, range(1000)) if _stays(cluster, name, i, 0))
    writer, reader = cluster.node(spec, next(ids)), cluster.node(spec, next(ids))
    writer.join_front("other")
    writer.commit(created=[(0, 5, 55)], units_created=[Unit(0, "latest", 5)])
    cluster.handle(0, RescaleShards("more", 3, False, ()))
    cluster.settle(lambda: cluster.processes[0].membership.table.version == 1)
    cluster.held = {(0, 1)}
    cluster.settle()
    for node in (writer, reader):
        node.attach()
    reader.commit(consumed=[(0, 5, 55)], units_consumed=[Unit(0, "latest", 5)])
    writer.commit(created=[(0, 9, 99)], units_created=[Unit(0, "latest", 9)])
    assert not cluster.processes[0].membership.is_done
    cluster.reconnect()
    cluster.settle()
    assert cluster.processes[0].membership.is_done
    assert cluster.processes[2].resolve_units(name, 0, ["latest"]) == [9]
    reader.commit(consumed=[(0, 9, 99)], units_consumed=[Unit(0, "latest", 9)])
    assert cluster.processes[2].resolve_units(name, 0, ["latest"]) == [None]


def _stays(cluster: Cluster, name: str, node: str, home: int) -> bool:
    first = cluster.routing
    return first.home(name, node) == home == first.resized((0, 1, 2), {}, {}).home(name, node)


def test_what_is_written_anew_is_found_also_where_its_consumption_is_handed_over() -> None:
    """The same, where the reader's home goes by the table before for longer: what it says of the first file comes to the new keeper by
    the one before."""
    names = UnitNames()
    names.add("latest", 9)
    names.remove("latest", 5, remember=True)
    names.take("latest", 5)
    assert names.slot("latest") == 9
    names.remove("latest", 9)
    assert (len(names), names.early) == (0, {})
