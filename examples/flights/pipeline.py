"""The pipeline as it is registered, and where its processes keep what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from examples.flights.data import AIRPORTS, DAY_NS, YEAR_BEGIN_NS
from lowmark import Edge, PipelineSpec

NAME = "flights"

SPEC = PipelineSpec(
    name=NAME,
    segments=("parse", "enrich", "aggregate", "dead_letters"),
    edges=(Edge("parse", "enrich"), Edge("enrich", "aggregate"), Edge("parse", "dead_letters")),
    fronts=AIRPORTS,
    # The replay packs six days into a second: slots of a day are to it what 10 ms are elsewhere.
    slack_ns=DAY_NS,
    start_slot=YEAR_BEGIN_NS // DAY_NS,
)

QUERIES = ("parse", "enrich", "aggregate")


@dataclass(frozen=True, slots=True)
class Places:
    """Directories of a run, below `root`."""

    root: Path

    @property
    def raw(self) -> Path:
        """What the airports publish."""
        return self.root / "raw"

    @property
    def parsed(self) -> Path:
        return self.root / "parsed"

    @property
    def enriched(self) -> Path:
        return self.root / "enriched"

    @property
    def totals(self) -> Path:
        """What the last query writes."""
        return self.root / "totals"

    @property
    def malformed(self) -> Path:
        """The side output of the first query."""
        return self.root / "malformed"

    @property
    def dead_letters(self) -> Path:
        """The ledger of the dead-letter node."""
        return self.root / "dead-letters.jsonl"

    @property
    def topics(self) -> Path:
        """Who labels which offsets of topics, and under which slots."""
        return self.root / "topics"

    @property
    def reads(self) -> Path:
        """What readers of the result have counted."""
        return self.root / "reads.jsonl"

    @property
    def store(self) -> Path:
        return self.root / "tracker"

    @property
    def histories(self) -> Path:
        return self.root / "history"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def checkpoint(self, query: str) -> Path:
        return self.root / "checkpoints" / query

    def make(self) -> None:
        """Creates the directories that readers and writers expect."""
        for place in (
            self.raw, self.parsed, self.enriched, self.totals, self.malformed, self.store,
            self.histories, self.logs,
        ):  # fmt: skip
            place.mkdir(parents=True, exist_ok=True)
