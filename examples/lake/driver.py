"""The Spark side of the demo over tables: one driver with the three tracked queries, and a reader of what they
write.

    python -m examples.lake.driver TARGET ROOT

As `examples.flights.driver`; runs where Spark knows the tables.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from examples.flights.data import AIRPORTS, flights_of
from examples.flights.driver import NICENESS, run_queries
from examples.flights.pipeline import NAME, Places
from examples.flights.witness import WitnessedQuery
from examples.history import Recorder
from examples.lake.logs import DeltaLog, IcebergLog, TopicSource
from examples.lake.queries import start_queries
from examples.lake.reader import QuarterReader
from examples.lake.records import partition_of
from examples.lake.site import ENRICHED, Site
from examples.sessions import make_session
from lowmark import Tracked


def witnessed(site: Site) -> list[WitnessedQuery]:
    """The queries as the witness sees them."""
    topic = TopicSource({partition_of(name): flights_of(name) for name in AIRPORTS})
    parsed = DeltaLog(site.objects("parsed"))
    enriched = IcebergLog(site.objects("warehouse/" + "/".join(ENRICHED.split(".")[1:])))

    def checkpoint(query: str) -> Path:
        return site.objects(site.checkpoint(query))

    return [
        WitnessedQuery("parse", checkpoint("parse"), topic, {"enrich": parsed}),
        WitnessedQuery("enrich", checkpoint("enrich"), parsed, {"aggregate": enriched}),
        WitnessedQuery("aggregate", checkpoint("aggregate"), enriched),
    ]


def main(target: str, root: str) -> int:
    """Runs the queries until standard input is closed; 1 if one of them has ended by itself."""
    places = Places(Path(root))
    site = Site.read(places.root)
    watched = witnessed(site)
    os.nice(NICENESS)
    spark = make_session("flights in tables", places.root, site.spark_settings(places.root))
    tracked = Tracked(spark, target, NAME, topics=str(places.topics))
    recorder = Recorder(places.histories / "driver.jsonl")
    with QuarterReader(spark, target, places.reads):
        status = run_queries(
            spark, tracked, lambda: start_queries(spark, tracked, places, site), watched, recorder
        )
    spark.stop()
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
