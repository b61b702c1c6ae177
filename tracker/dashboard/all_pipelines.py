"""All pipelines for those who look at the first page: one step a second for all of them, none when nobody asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial

import structlog

from tracker.client import Admin, LowmarkError, UnavailableError
from tracker.dashboard import answers
from tracker.view.overview import Overview, Row, counts
from tracker.view.pipelines import time_text

log = structlog.get_logger(__name__)

STEP_INTERVAL_S = 1.0
PAGE_ROWS = 50
"""Pipelines that a viewer is shown at a time."""
MAX_CHARTED_ROWS = 500
"""Of the rows that viewers were shown last, so many have their charts kept up to date."""
IDLE_S = 10.0
"""When nobody has asked for so long, nothing is asked any more."""


class AllPipelines:
    """Lives in one event loop; asks in threads of `asking`."""

    def __init__(self, make_admin: Callable[[], Admin], asking: Executor) -> None:
        self._make_admin, self._asking = make_admin, asking
        self._task: asyncio.Task[None] | None = None
        self._asked_s = 0.0
        self._shown: dict[str, None] = {}
        """By name, in the order in which they were shown last."""
        self._rows: list[Row] | None = None
        self._more, self._trouble = 0, ""
        self._news = asyncio.Condition()

    @property
    def is_following(self) -> bool:
        return self._task is not None and not self._task.done()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def page(
        self, search: str, offset: int, knows: Callable[[str], bool]
    ) -> answers.Pipelines:
        """The rows behind the first `offset` of those with a text in their names, the worst first, and how many there
        are. knows: which pipelines the viewer may see. Raises UnavailableError if the tracker has not been reached yet."""
        loop = asyncio.get_running_loop()
        self._asked_s = loop.time()
        if not self.is_following:
            self._rows, self._trouble = None, ""
            self._task = loop.create_task(self._follow())
        async with self._news:
            await self._news.wait_for(lambda: self._rows is not None or self._trouble)
        if self._rows is None:
            raise UnavailableError(self._trouble)
        rows = [row for row in self._rows if knows(row.name)]
        found = [row for row in rows if row.has(search)] if search else rows
        shown = found[offset : offset + PAGE_ROWS]
        self._note_shown([row.name for row in shown])
        return answers.Pipelines(
            pipelines=[
                answers.PipelineRow(
                    **row.json(), text=time_text(row.progress.min_time, row.info.spec)
                )
                for row in shown
            ],
            offset=offset,
            page_size=PAGE_ROWS,
            found=len(found),
            all=len(rows),
            states=counts(rows),
            # How many others there are is nothing to whoever may not see them.
            more=self._more if len(rows) == len(self._rows) else 0,
            trouble=self._trouble,
        )

    def _note_shown(self, names: Sequence[str]) -> None:
        for name in names:
            self._shown.pop(name, None)
            self._shown[name] = None
        for name in list(self._shown)[: len(self._shown) - MAX_CHARTED_ROWS]:
            del self._shown[name]

    async def _follow(self) -> None:
        try:
            with self._make_admin() as admin:
                await self._step_on(Overview(admin))
        except LowmarkError as error:  # its credentials, say
            await self._tell(str(error))

    async def _step_on(self, overview: Overview) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() - self._asked_s < IDLE_S:
            try:
                step = partial(overview.step, list(self._shown))
                self._rows = await loop.run_in_executor(self._asking, step)
                self._more, trouble = overview.more, overview.trouble
            except LowmarkError as error:
                trouble = str(error)
            except Exception:
                log.exception("overview_failed")
                trouble = "the look has failed; the process's log says why"
            await self._tell(trouble)
            await asyncio.sleep(STEP_INTERVAL_S)

    async def _tell(self, trouble: str) -> None:
        async with self._news:
            self._trouble = trouble
            self._news.notify_all()
