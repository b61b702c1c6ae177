"""What follows when records became durable here, or were confirmed by another shard (rule 3)."""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core.admission.nodes import Nodes
from tracker.core.replication.replication import Replication


@dataclass(slots=True, eq=False)
class Progress:
    """Lets go of what every shard has, and sends on. It keeps nothing."""

    _replication: Replication
    _nodes: Nodes

    def committed(self, now_ns: int) -> None:
        """Records became durable here."""
        self._replication.let_go()
        self._drop()
        self._replication.pump_all(now_ns)

    def confirmed(self, shard: int, now_ns: int) -> None:
        """Another shard has confirmed more, or asks for what it has missed: it has room again."""
        if self._replication.let_go() or self._replication.is_sent_to_newcomers:
            self._drop()
        self._replication.pump(shard, now_ns)

    def _drop(self) -> None:
        self._nodes.drop_closed(self._replication.confirmed_everywhere())
