"""What follows when records became durable here, or were confirmed by another shard (rules 3, 9)."""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core.admission.confirmations import Confirmations
from tracker.core.admission.nodes import Nodes
from tracker.core.replication.replication import Replication


@dataclass(slots=True, eq=False)
class Progress:
    """Lets go of what every shard has, answers who waited for it, and sends on. It keeps nothing."""

    _replication: Replication
    _nodes: Nodes
    _confirmations: Confirmations

    def after(self, now_ns: int) -> None:
        """To be called after either."""
        everywhere = self._replication.confirmed_everywhere()
        self._replication.let_go()
        self._nodes.drop_closed(everywhere)
        self._confirmations.tell(everywhere)
        for shard in self._replication.links:
            self._replication.pump(shard, now_ns)
