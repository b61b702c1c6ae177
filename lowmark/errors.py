"""What is raised, beside `lowmark.LowmarkError`, and its codes: docs/errors.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowmark import _face

if TYPE_CHECKING:
    from tracker.errors import ClosedError as ClosedError
    from tracker.errors import Code as Code
    from tracker.errors import FencedError as FencedError
    from tracker.errors import FilesError as FilesError
    from tracker.errors import HandOverError as HandOverError
    from tracker.errors import InvalidError as InvalidError
    from tracker.errors import LateError as LateError
    from tracker.errors import NotPublishedError as NotPublishedError
    from tracker.errors import RefusedError as RefusedError
    from tracker.errors import StateError as StateError
    from tracker.errors import TrackingError as TrackingError
    from tracker.errors import UnavailableError as UnavailableError
else:
    __all__, __getattr__, __dir__ = _face.of(__name__)
