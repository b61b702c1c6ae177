"""A graph like a road map: many edges between neighbours, and so long ways that many rounds are needed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SEED = 19
UNREACHED = -1

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Graph:
    """The neighbours of vertex v are `targets[begins[v]:begins[v + 1]]`; each edge is there in both directions."""

    begins: Numbers
    targets: Numbers

    @property
    def vertices(self) -> int:
        return len(self.begins) - 1

    def neighbours(self, vertices: Numbers) -> Numbers:
        """Of all of these together, each once, in ascending order."""
        parts = [self.targets[self.begins[v] : self.begins[v + 1]] for v in vertices.tolist()]
        return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)

    def save(self, path: Path) -> None:
        np.savez(path, begins=self.begins, targets=self.targets)

    @classmethod
    def load(cls, path: Path) -> Graph:
        with np.load(path) as saved:
            return cls(saved["begins"], saved["targets"])


def random_graph(vertices: int, edges: int) -> Graph:
    """Vertices on a ring, edges between such as lie within a fiftieth of it, by chance; the same whenever it is
    asked for."""
    rng = np.random.default_rng(SEED)
    ends = rng.integers(0, vertices, edges)
    others = (ends + rng.integers(1, max(2, vertices // 50), edges)) % vertices
    sources, targets = np.concatenate([ends, others]), np.concatenate([others, ends])
    order = np.lexsort((targets, sources))
    begins = np.searchsorted(sources[order], np.arange(vertices + 1))
    return Graph(begins, targets[order])


def distances(graph: Graph, start: int) -> Numbers:
    """How many edges away each vertex is from one, a vertex at a time; UNREACHED where there is no way."""
    found = np.full(graph.vertices, UNREACHED, np.int64)
    found[start] = 0
    queue = deque([start])
    while queue:
        vertex = queue.popleft()
        for neighbour in graph.targets[graph.begins[vertex] : graph.begins[vertex + 1]].tolist():
            if found[neighbour] == UNREACHED:
                found[neighbour] = found[vertex] + 1
                queue.append(neighbour)
    return found
