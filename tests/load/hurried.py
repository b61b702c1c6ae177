"""The planted fault of `tests.load`: a test that asserts how fast it is, as none of ours may."""

import time


def test_a_core_is_there_at_once() -> None:
    began_s, computed_s = time.monotonic(), time.process_time()
    while time.process_time() < computed_s + 1:
        pass
    assert time.monotonic() < began_s + 1.5, "the machine was busy"
