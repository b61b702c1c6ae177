"""What keeps somebody from going on, logged once for as long as it is the same."""

from __future__ import annotations

import logging
from collections.abc import Container

log = logging.getLogger("lowmark.front")


class Troubles:
    """By what each is about, such as the name of a file or of a partition. For one thread."""

    def __init__(self) -> None:
        self._logged: dict[str, str] = {}

    def __contains__(self, about: str) -> bool:
        return about in self._logged

    def report(self, about: str, message: str) -> None:
        if self._logged.get(about) != message:
            self._logged[about] = message
            log.warning("%s", message)

    def over(self, about: str) -> None:
        """It goes on; what keeps it from then on is logged anew."""
        self._logged.pop(about, None)

    def keep(self, abouts: Container[str]) -> None:
        """Forgets all but these."""
        self._logged = {about: said for about, said in self._logged.items() if about in abouts}
