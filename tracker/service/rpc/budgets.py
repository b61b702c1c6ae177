"""What a token may take of the segments and nodes of a process: a part of what all may take together.

What counts is what it may register, or commit to, whoever did so: that needs no record, and is the same after a
restart. A token that may do so for every pipeline has no part, but what its entry gives it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tracker.core.model import PipelineSpec, RefusalCode, Refused
from tracker.core.process import Process, ProcessConfig
from tracker.service.rpc.access import TOKEN
from tracker.service.rpc.tokens import Right, Token

PART = 2
"""A token whose entry does not say has one in so many of the segments, and of the nodes, of a process."""
_DOES = {Right.REGISTER: "register", Right.COMMIT: "commit to"}


class Budgets:
    """Judges what callers are about to add."""

    def __init__(self, process: Process, config: ProcessConfig) -> None:
        self._process, self._config = process, config
        self._registering: dict[object, tuple[str, int]] = {}
        """By call: the pipeline that is being registered or changed, and how many segments it has when that is done."""

    @contextmanager
    def registers(self, spec: PipelineSpec, *, change: bool) -> Iterator[None]:
        """While a pipeline is being registered, or changed: what it gets counts from now on. Raises Refused(FULL)."""
        known = {p.name: p.segments for p in self._process.pipelines()}
        there = {name: len(segments) for name, segments in known.items()}
        for name, count in self._registering.values():
            there[name] = max(count, there.get(name, 0))
        has = known.get(spec.name, ())
        new = 0 if has and not change else len({*spec.segments}.difference(has))
        more = len(has) + new - there.get(spec.name, 0)
        token = TOKEN.get()
        if token is not None and more > 0:
            most = self._most(token, Right.REGISTER, token.max_segments, self._config.max_segments)
            _check(token, Right.REGISTER, there, more, most, "segments", f"pipeline {spec.name!r}")
        call = object()
        self._registering[call] = spec.name, len(has) + new
        try:
            yield
        finally:
            del self._registering[call]

    def check_join(self, pipeline: str, node_id: str) -> None:
        """Raises Refused(FULL) where a node that is not there yet would be one too many."""
        token = TOKEN.get()
        if token is None or self._process.is_at_home(pipeline, node_id):
            return
        most = self._most(token, Right.COMMIT, token.max_nodes, self._config.max_nodes)
        whose = f"pipeline {pipeline!r}: node {node_id[:60]!r}"
        _check(token, Right.COMMIT, self._process.nodes_at_home(), 1, most, "nodes", whose)

    def _most(self, token: Token, right: Right, own: int | None, of_process: int) -> int:
        if own is not None:
            return own
        return of_process if token.may_everywhere(right) else of_process // PART


def _check(
    token: Token, right: Right, there: Mapping[str, int], more: int, most: int, what: str, whose: str
) -> None:  # fmt: skip
    """there: what all have, by pipeline. Raises Refused(FULL)."""
    if sum(there.values()) + more <= most:
        return  # as nearly always, and without a look at who may what
    own = sum(count for name, count in there.items() if token.may(right, name))
    if own + more > most:
        raise Refused(
            RefusalCode.FULL,
            f"{whose}: the pipelines that token {token.name!r} may {_DOES[right]} have {own} {what} here, and {more} "
            f"more would pass its limit max_{what} of {most}; let go of some, or ask whoever keeps the tracker's "
            "tokens for more",
        )
