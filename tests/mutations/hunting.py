"""python -m tests.mutations.hunting FIRST LAST: the first seed whose run breaks a promise.

It runs where a copy of the code is, with a fault in it or without. Only what the simulator's checkers
and the core's own invariants say counts as found; a fault must not be found by crashing. Prints one
line of JSON.
"""

from __future__ import annotations

import gc
import json
import signal
import sys
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

from tests.simulation.checkers import Failure
from tests.simulation.run import simulator_of
from tracker.core.process import LogLost

NOT_CODE = (NameError, ImportError, AttributeError, TypeError, SyntaxError)
"""Raised by code that never worked: no fault of the protocol, but of the mutation."""
SCHEDULE_LIMIT_S = 60
MOST_STUCK = 3
"""After so many schedules that do not end, nothing more is tried."""
_MOST_SAID = 500


class Stuck(BaseException):
    """A schedule has taken longer than SCHEDULE_LIMIT_S."""


@dataclass
class Piece:
    """What came of a range of seeds. `seed`: the first that broke a promise, -1 if none did; `kind`:
    the promise; `crashes`: by exception what ended schedules otherwise; `invalid`: why the mutation
    is none at all."""

    schedules: int = 0
    seed: int = -1
    kind: str = ""
    message: str = ""
    crashes: dict[str, int] = field(default_factory=dict)
    invalid: str = ""

    def crashed(self, how: str) -> None:
        self.crashes[how] = self.crashes.get(how, 0) + 1


def kind_of(error: BaseException) -> str:
    """The promise that an exception is the violation of; "" if it is none."""
    if isinstance(error, Failure):
        return error.kind
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    raised_in = Path(last).resolve().relative_to(Path.cwd().resolve()).as_posix()
    is_invariant = isinstance(error, AssertionError) and raised_in.startswith("tracker/core/")
    # A node that catches its home at breaking its word says so by a ValueError.
    is_nodes_word = type(error) is ValueError and raised_in == "tracker/core/home/window.py"
    return "broken" if is_invariant or is_nodes_word or isinstance(error, LogLost) else ""


def _line(error: BaseException) -> str:
    """The line that raised an exception, where it says nothing itself."""
    return str(traceback.extract_tb(error.__traceback__)[-1].line)


def _alarm(signum: int, frame: FrameType | None) -> None:
    raise Stuck


def hunt(seeds: range) -> Piece:
    """Runs the seeds until one breaks a promise."""
    piece = Piece()
    gc.freeze()
    gc.set_threshold(100_000)
    signal.signal(signal.SIGALRM, _alarm)
    for seed in seeds:
        piece.schedules += 1
        simulator = simulator_of(seed)
        signal.alarm(SCHEDULE_LIMIT_S)
        try:
            simulator.run()
        except Stuck:
            piece.crashed("Stuck")
            if piece.crashes["Stuck"] >= MOST_STUCK:
                piece.invalid = f"{MOST_STUCK} schedules took longer than {SCHEDULE_LIMIT_S} s"
                break
        except NOT_CODE as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            piece.invalid = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
            break
        except Exception as error:
            kind = kind_of(error)
            if kind:
                piece.seed, piece.kind = seed, kind
                piece.message = (str(error).removeprefix(f"{kind}: ") or _line(error))[:_MOST_SAID]
                break
            piece.crashed(type(error).__name__)
        finally:
            signal.alarm(0)
    return piece


def check_imports() -> None:
    """Nothing may come from elsewhere than from this copy. Raises ImportError."""
    here = Path.cwd().resolve()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        ours = name.split(".")[0] in ("tracker", "local_tracker", "tests") and file is not None
        if ours and not Path(str(file)).resolve().is_relative_to(here):
            raise ImportError(f"{name} comes from {file}, not from {here}")


def main(arguments: list[str]) -> None:
    check_imports()
    first, last = map(int, arguments)
    print(json.dumps(asdict(hunt(range(first, last)))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
