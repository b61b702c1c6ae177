"""Who may see what: the right that a token has over gRPC it has here, and without tokens everybody sees everything."""

from __future__ import annotations

from typing import Protocol

from tracker.dashboard.refusing import Refused
from tracker.dashboard.routes import Need


class Viewer(Protocol):
    """Whoever asks, by their token."""

    @property
    def name(self) -> str: ...
    def knows(self, pipeline: str) -> bool:
        """Whether it has any right to a pipeline."""
        ...

    def hears(self, pipeline: str) -> bool:
        """Whether it may hear of min time."""
        ...


class Unknown(Exception):
    """Of a request without a token that is known: why, and what to do."""


class Gate(Protocol):
    """Where tokens are judged."""

    def viewer(self, authorization: str) -> Viewer:
        """Who sends this header, as the file of tokens has it now. Raises Unknown."""
        ...


class _Everybody:
    """Where there are no tokens."""

    name = ""

    def knows(self, pipeline: str) -> bool:
        return True

    hears = knows

    def viewer(self, authorization: str) -> Viewer:
        return self


EVERYBODY = _Everybody()

_ASKS = (("www-authenticate", 'Basic realm="lowmark: the password is a token", charset="UTF-8"'),)
"""By which browsers ask for it, and send it from then on."""


def let_in(gate: Gate, authorization: str) -> Viewer:
    """Whoever makes a request. Raises Refused."""
    try:
        return gate.viewer(authorization)
    except Unknown as error:
        raise Refused(401, str(error), headers=_ASKS) from None


def check(viewer: Viewer, need: Need, pipeline: str) -> None:
    """Raises Refused for a viewer who may not see what is asked for."""
    may = {Need.ANY: lambda _: True, Need.LOOK: viewer.knows, Need.SUBSCRIBE: viewer.hears}
    if not may[need](pipeline):
        raise Refused(
            403,
            f"token {viewer.name!r} has not {need.value}: {pipeline[:60]!r}; ask whoever keeps the tracker's tokens for it",
        )
