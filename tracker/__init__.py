"""Lowmark's tracker: up to which moment has everything that came in been completely processed?

`tracker.core` holds the protocol as pure state machines (standard library and NumPy only);
`tracker.store` keeps what they decide; `tracker.service` speaks gRPC around them;
`tracker.client` is what other programs import. `tracker.embedded()` starts a whole tracker inside a
test or a notebook. Importing this package imports none of them, so that it is cheap on an executor.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# PySpark starts its JVM by a fork behind which Python runs on. Where calls are under way, gRPC's own handlers for a fork may
# abort that process (JAVA_GATEWAY_EXITED). gRPC reads this as it begins; nothing here uses it over a fork.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if TYPE_CHECKING:
    from tracker.client.embedded import EmbeddedTracker, embedded

__version__ = "0.1.0"
__part_of__ = "lowmark"
__all__ = ["EmbeddedTracker", "embedded"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from tracker.client import embedded as module

        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
