"""Doing something once for each complete period: what stands around `lowmark.Periods` and `lowmark.Runs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowmark import _face

if TYPE_CHECKING:
    from tracker.consumers import otel as otel
    from tracker.consumers.periods import signing as signing
    from tracker.consumers.periods.cut import Period as Period
    from tracker.consumers.periods.functions import Notificator as Notificator
    from tracker.consumers.periods.once import Action as Action
    from tracker.consumers.periods.runs import Run as Run
    from tracker.consumers.periods.webhook import Webhook as Webhook
    from tracker.files.local import write_durably as write_durably
else:
    __all__, __getattr__, __dir__ = _face.of(__name__)
