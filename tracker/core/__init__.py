"""The protocol: pure state machines over plain data; events and `now` go in, effects come out.

Nothing here reads a clock, draws a random number, does I/O, or knows asyncio or protobuf. The same
code runs in production (`tracker.service`) and in the simulator (`tests.simulation`).
"""
