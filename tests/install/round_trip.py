"""One item in and out, by what is installed where this file is run: `python round_trip.py TARGET PACKAGE==VERSION ...`.

It stands alone: nothing of the repository is there. Prints the moment that min time has passed.
"""

from __future__ import annotations

import sys
import warnings
from importlib.metadata import version
from pathlib import Path

warnings.simplefilter("error")  # of stubs that a library's version does not like, say

import lowmark  # noqa: E402
from lowmark import Admin, FileFront, PipelineSpec, Subscriber  # noqa: E402
from lowmark.nodes import Cells, NodeClient, TickContent, unit_name, unit_value  # noqa: E402

PIPELINE, WAIT_S = "installed", 60.0


def main(target: str, pins: list[str]) -> None:
    assert Path(lowmark.__file__).is_relative_to(sys.prefix), lowmark.__file__
    for name, wanted in (pin.split("==") for pin in pins):
        assert version(name) == wanted, f"{name} is {version(name)}"
    with Admin(target) as admin:
        admin.register(PipelineSpec(PIPELINE, ("read",), fronts=("front",)))
    with Subscriber(target, PIPELINE) as progress, NodeClient(target, PIPELINE, "worker") as worker:
        worker.join()
        front = FileFront(target, PIPELINE, "front", "read", Path.cwd() / "data", format="json")
        with front:
            file = front.write([{"order": 1}])
            assert file is not None
            assert not progress.wait_until(
                file.slot + 1, timeout_s=0.2
            )  # expires: it is open  # it is open
            item = (0, file.slot, unit_value(unit_name(str(file.path))), 1)
            worker.commit(TickContent(consumed=Cells.of([item]))).result(WAIT_S)
            assert progress.wait_until(file.slot + 1, timeout_s=WAIT_S)
        print(progress.min_time())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
