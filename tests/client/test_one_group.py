"""What is asked of the shards of one group of a deployment is done to no other one (docs/groups.md)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing

import pytest
from typer.testing import CliRunner

from tests.waits import HANG_S
from tracker.cli.app import app
from tracker.client import Admin, UnavailableError
from tracker.client.rescaling import Wish
from tracker.service.config import ServerConfig
from tracker.service.server import TrackerServer

WRONG_USAGE = 2


@asynccontextmanager
async def served(*directory: str) -> AsyncIterator[TrackerServer]:
    """A process of group 0, or of group 1 where the directory is elsewhere."""
    of = ServerConfig(0, ("127.0.0.1:0",), group=len(directory), directory=directory)
    server = TrackerServer(of)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def test_a_change_of_shards_goes_on_at_no_other_group_when_a_process_is_away() -> None:
    """Both are named, as the chart names them; a process of the first one is replaced while its shards change."""
    async with AsyncExitStack() as running:
        first = await running.enter_async_context(served())
        async with served(first.address) as second:
            both = (first.address, second.address)
            with closing(Admin(both, HANG_S)) as admin:
                await asyncio.to_thread(admin.rescale, 1)
                group = admin.group
            await running.aclose()
            with closing(Admin(both, 0.5)) as admin:  # expires
                admin.group = group
                with pytest.raises(UnavailableError):
                    await asyncio.to_thread(admin.ask_to_rescale, Wish(1), 0)


async def test_who_asks_a_process_of_another_group_is_sent_to_the_one_that_is_meant() -> None:
    async with served() as first, served(first.address) as second:
        with closing(Admin(second.address, HANG_S)) as admin:
            admin.group = 0
            routing = await asyncio.to_thread(admin.rescale, 1)
            assert [s.address for s in routing.shards] == [first.address]


@pytest.mark.parametrize("words", [["1"], ["--finish-upgrade"], ["--declare-lost", "0", "--yes"]])
async def test_whose_shards_are_to_change_is_said_where_there_are_several_groups(
    words: list[str],
) -> None:
    async with served() as first, served(first.address) as second:
        target = ["--target", second.address]
        said = await asyncio.to_thread(CliRunner().invoke, app, ["shards", *words, *target])
        assert said.exit_code == WRONG_USAGE and "--group" in said.output
        shown = await asyncio.to_thread(
            CliRunner().invoke, app, ["shards", "--group", "0", *target]
        )
        assert shown.exit_code == 0 and first.address in shown.output, shown.output


async def test_a_group_is_drained_by_whichever_process_is_asked() -> None:
    """It has heard that the group is cordoned, by the time that it looks what lives there."""
    async with served() as first, served(first.address) as second:
        for asked in (first, second):
            words = ["groups", "drain", "1", "--target", asked.address]
            said = await asyncio.to_thread(CliRunner().invoke, app, words)
            assert said.exit_code == 0 and "0 pipelines moved, 0 stay" in said.output, said.output
            undone = ["groups", "cordon", "1", "--undo", "--target", asked.address]
            assert (await asyncio.to_thread(CliRunner().invoke, app, undone)).exit_code == 0
