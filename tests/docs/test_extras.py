"""What the README says that each machine needs is all that it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.waits import HANG_S

PLAIN = "__future__", "grpc", "google", "numpy"
WORKER = "__future__", "numpy"
OURS = "lowmark", "tracker", "local_tracker", "fronts", "acker"

PROGRAM = """
import sys

ALLOWED = set({allowed!r}) | set(sys.stdlib_module_names)

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ALLOWED:
            raise ModuleNotFoundError("not installed here: " + name, name=name)

sys.meta_path.insert(0, Missing())
{statement}
"""


@pytest.mark.parametrize(
    ("statements", "installed"),
    [
        (["import lowmark"], ()),
        (
            [
                "from local_tracker import acks",
                "from lowmark import acks, PipelineSpec",
                "from lowmark.nodes import Cells, unit_value",
                "from lowmark.spark import note_commit",
            ],
            WORKER,
        ),
        (
            [
                "from tracker.client import NodeClient, Subscriber, AsyncSubscriber, Admin",
                "import local_tracker.agent.main",
                "from lowmark.nodes import NodeClient",
                "from lowmark import Subscriber, AsyncSubscriber, Admin, history",
                "from lowmark import FileFront, RangeFront, Periods, Runs",
                "from lowmark.fronts import Front, FileGroup, PartitionGroup",
                "from lowmark.periods import Webhook, Notificator",
                "from lowmark.barrier import ReorderBuffer",
            ],
            PLAIN,
        ),
    ],
)
def test_it_imports_where_nothing_more_is_installed(
    statements: list[str], installed: tuple[str, ...]
) -> None:
    # typing_extensions comes with gRPC; the generated stubs need nothing else.
    allowed = [*installed, *OURS, "typing_extensions"]
    statement = "\n".join(statements)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(allowed=allowed, statement=statement)],
        capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_command_line_says_what_to_install() -> None:
    program = PROGRAM.format(
        allowed=[*PLAIN, *OURS], statement="import tracker.cli; tracker.cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.returncode != 0
    assert "pip install 'lowmark[server]'" in done.stderr


def test_periods_are_listed_and_followed_without_what_marks_and_telemetry_need() -> None:
    program = (
        "import sys\n"
        "for name in ('deltalake', 'pyiceberg', 'pyarrow', 'sqlalchemy', 'fsspec', 'opentelemetry', 'openlineage'):\n"
        "    sys.modules[name] = None\n"
        "import tracker.cli.periods, tracker.cli.otlp\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 0, done.stderr
