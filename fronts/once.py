"""What is started once: a front, or a member of a group of them. Another run of it is another object."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from tracker.client.closing import Closing
from tracker.errors import Code, StateError


class StartedOnce:
    """Has a start that may succeed once."""

    _has_begun = False
    _beginning = threading.Lock()
    """Of all of them, held for a moment."""

    @contextmanager
    def _once(self) -> Iterator[None]:
        """Around a start. Raises StateError, with nothing changed, where there was one, or one is under way in another thread; after
        one that has failed there may be another."""
        with self._beginning:
            if self._has_begun:
                raise StateError(
                    f"this {type(self).__name__} has been started already, and one object is one run: make another one to "
                    "start again",
                    Code.STATE_ORDER,
                )
            self._has_begun = True
        try:
            yield
        except BaseException:
            self._has_begun = False
            raise


class Starting(StartedOnce, Closing):
    """One that a `with` block starts, unless that was done before."""

    @abstractmethod
    def start(self, *args: Any, **kwargs: Any) -> Self: ...

    def __enter__(self) -> Self:
        return self if self._has_begun else self.start()
