"""Contributions are staged together, each once, and refused one by one."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from local_tracker.agent import staging as staging_module
from local_tracker.agent.staging import Stager
from local_tracker.worker.protocol import Deadline, HandedOver
from tests.local_tracker.fakes import FakeUplink, one_cell
from tests.waits import HANG_S, until
from tracker.core.model import Cells, StagedContribution
from tracker.errors import Code, HandOverError


def contribution(operator: str = "op", attempt: int = 0, item: int = 1) -> StagedContribution:
    return StagedContribution(
        "q", "r", 3, 0, operator, 1, 0, attempt, one_cell(0, 5, item), Cells.empty()
    )


def stage(stager: Stager, *parts: tuple[str, StagedContribution], node_id: str = "n") -> None:
    stager.stage(node_id, [HandedOver(nonce, c) for nonce, c in parts], Deadline(HANG_S))


class Threads:
    """Calls in threads of their own; `join` gives what each raised."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self.errors: dict[str, BaseException | None] = {}

    def stage(self, stager: Stager, nonce: str, c: StagedContribution) -> None:
        def run() -> None:
            try:
                stage(stager, (nonce, c))
                self.errors[nonce] = None
            except BaseException as error:
                self.errors[nonce] = error

        thread = threading.Thread(target=run)
        thread.start()
        self._threads.append(thread)

    def join(self) -> dict[str, BaseException | None]:
        for thread in self._threads:
            thread.join(HANG_S)
        return self.errors


def together(
    stager: Stager, uplink: FakeUplink, parts: Sequence[tuple[str, StagedContribution]]
) -> dict[str, BaseException | None]:
    """Hands parts over while another call is on its way, so that they wait together."""
    reached, opened = threading.Event(), threading.Event()
    usual = uplink.before_stage

    def hold(handed: Sequence[HandedOver]) -> None:
        uplink.before_stage = usual
        reached.set()
        assert opened.wait(HANG_S)

    uplink.before_stage = hold
    threads = Threads()
    threads.stage(stager, "first", contribution("first"))
    assert reached.wait(HANG_S)
    for nonce, part in parts:
        threads.stage(stager, nonce, part)
    waiting = stager._lanes["n"].waiting
    until(lambda: len(waiting) >= len(parts))
    opened.set()
    return threads.join()


@pytest.fixture
def uplink() -> FakeUplink:
    return FakeUplink()


@pytest.fixture
def stager(uplink: FakeUplink) -> Stager:
    return Stager(uplink)


def test_it_is_durable_on_return(stager: Stager, uplink: FakeUplink) -> None:
    stage(stager, ("x", contribution()))
    assert [h.contribution.operator for h in uplink.staged.values()] == ["op"]


def test_tasks_that_end_together_share_a_call(stager: Stager, uplink: FakeUplink) -> None:
    errors = together(stager, uplink, [(str(n), contribution(attempt=n)) for n in range(5)])
    assert set(errors.values()) == {None}
    assert uplink.stage_calls == [1, 5]


def test_a_call_has_limits(
    stager: Stager, uplink: FakeUplink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_module, "MAX_CELLS_PER_CALL", 2)
    errors = together(stager, uplink, [(str(n), contribution(attempt=n)) for n in range(5)])
    assert set(errors.values()) == {None}
    assert uplink.stage_calls == [1, 2, 2, 1]


def test_only_the_one_that_deserves_it_is_refused(stager: Stager, uplink: FakeUplink) -> None:
    def refuse(handed: Sequence[HandedOver]) -> None:
        if any(h.contribution.operator == "bad" for h in handed):
            raise HandOverError("operator 'bad' is beyond the horizon", Code.REFUSED_BEYOND_HORIZON)

    uplink.before_stage = refuse
    errors = together(
        stager, uplink, [(name, contribution(name)) for name in ("one", "bad", "two")]
    )
    assert errors["one"] is None and errors["two"] is None
    assert "beyond the horizon" in str(errors["bad"])
    assert len(uplink.staged) == 3


def test_an_unreachable_tracker_fails_all_who_wait(stager: Stager, uplink: FakeUplink) -> None:
    def away(handed: Sequence[HandedOver]) -> None:
        raise HandOverError("no route to the tracker", Code.HAND_OVER_UNREACHABLE)

    uplink.before_stage = away
    errors = together(stager, uplink, [("x", contribution("x")), ("y", contribution("y"))])
    assert "no route" in str(errors["x"]) and "no route" in str(errors["y"])


def test_a_second_hand_over_of_one_operator_in_one_attempt_is_refused_by_name(
    stager: Stager,
) -> None:
    """Also where its contents are the same: it saw the rows twice, or other rows of the same sum."""
    stage(stager, ("x", contribution()))
    with pytest.raises(
        HandOverError, match="'op' handed over twice in one task attempt"
    ) as refused:
        stage(stager, ("y", contribution()))
    assert refused.value.code == "refused.conflict"


def test_a_repeated_hand_over_is_not_a_second_one(stager: Stager, uplink: FakeUplink) -> None:
    stage(stager, ("x", contribution()))
    stage(stager, ("x", contribution()))
    assert len(uplink.staged) == 1


def test_attempts_operators_and_nodes_are_told_apart(stager: Stager, uplink: FakeUplink) -> None:
    stage(stager, ("1", contribution()))
    stage(stager, ("2", contribution(attempt=1)))
    stage(stager, ("3", contribution("other")))
    stage(stager, ("4", contribution()), node_id="m")
    assert len(uplink.staged) == 4


def test_nodes_are_limited(stager: Stager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_module, "MAX_NODES", 1)
    stage(stager, ("1", contribution()))
    with pytest.raises(HandOverError, match="for 1 nodes, the limit"):
        stage(stager, ("2", contribution("x")), node_id="m")
