"""A Flink job that notes when its watermark passes what; run by a Python that has apache-flink, not by ours.

    python flink_job.py DIRECTORY NOTES

Reads the files that appear in DIRECTORY: lines that are moments, in milliseconds. When the watermark has
passed a moment, a line with it and the clock's seconds is added to NOTES. Runs until it is ended.
"""

# mypy: disable-error-code="import-not-found,misc"
from __future__ import annotations

import sys
import time
from typing import Any

from pyflink.common import Duration, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat

LOOK_EVERY_MS = 20


class Moments(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


class Noting(KeyedProcessFunction):
    def __init__(self, notes: str) -> None:
        self._notes = notes

    def process_element(self, value: Any, ctx: Any) -> list[Any]:
        ctx.timer_service().register_event_time_timer(int(value))
        return []

    def on_timer(self, timestamp: int, ctx: Any) -> list[Any]:
        with open(self._notes, "a") as notes:
            notes.write(f"{timestamp} {time.time()}\n")
        return []


def main(directory: str, notes: str) -> None:
    environment = StreamExecutionEnvironment.get_execution_environment()
    environment.set_python_executable(sys.executable)
    environment.set_parallelism(1)
    environment.get_config().set_auto_watermark_interval(LOOK_EVERY_MS)
    source = (
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), directory)
        .monitor_continuously(Duration.of_millis(LOOK_EVERY_MS))
        .build()
    )
    stream = environment.from_source(source, WatermarkStrategy.no_watermarks(), "files")
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Moments())
    timed = stream.assign_timestamps_and_watermarks(strategy)
    timed.key_by(lambda _: 0, key_type=Types.INT()).process(Noting(notes))
    environment.execute("lowmark-bench")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
