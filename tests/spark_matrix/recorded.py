"""The command line, with its ticks in a history: `python -m tests.spark_matrix.recorded FILE -- ...`."""

from __future__ import annotations

import sys

from examples.history import Recorder
from tests.spark_matrix.recording import recording
from tracker.cli import main

if __name__ == "__main__":
    history, dashes, *arguments = sys.argv[1:]
    assert dashes == "--"
    recorder = Recorder(history)
    sys.argv = ["lowmark", *arguments]
    with recording(lambda _: recorder):
        main()
