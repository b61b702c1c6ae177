"""One scrape: samples gathered by the names of the list, then written as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import ProcessCollector, generate_latest

from tracker.metrics.latencies import Latencies
from tracker.metrics.names import Family, Metric


class Families:
    """The families of one scrape, by name."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = {metric.name: metric for metric in metrics}
        self._families: dict[str, Family] = {}
        self._later: list[Callable[[Families], None]] = []

    def add_later(self, add: Callable[[Families], None]) -> None:
        """Samples that are worked out when the rest is rendered: not in the process's loop."""
        self._later.append(add)

    def add(self, name: str, value: float, *labels: str) -> None:
        """A sample of a counter or gauge."""
        family: Any = self._family(name)
        family.add_metric(labels, float(value))

    def add_latencies(self, name: str, latencies: Latencies, *labels: str) -> None:
        """A histogram."""
        family: Any = self._family(name)
        family.add_metric(labels, buckets=latencies.buckets(), sum_value=latencies.sum_s)

    def add_info(self, name: str, **labels: str) -> None:
        family: Any = self._family(name)
        family.add_metric((), labels)

    def _family(self, name: str) -> Family:
        if name not in self._families:
            self._families[name] = self._metrics[name].family()
        return self._families[name]

    def collect(self) -> Iterator[Family]:
        """In the order of the list."""
        while self._later:
            self._later.pop()(self)
        for name in self._metrics:
            if name in self._families:
                yield self._families[name]


class _All:
    """What is rendered: the families, and the operating system's view of the process."""

    def __init__(self, families: Families, labels: Mapping[str, str]) -> None:
        self._families, self._labels = families, labels

    def collect(self) -> Iterator[Any]:
        for family in (
            *self._families.collect(),
            *ProcessCollector("lowmark", registry=None).collect(),
        ):
            for sample in family.samples:
                sample.labels.update(self._labels)
            yield family


def render(families: Families, **labels: str) -> bytes:
    """The text that Prometheus reads. labels: of every sample."""
    return generate_latest(_All(families, labels))
