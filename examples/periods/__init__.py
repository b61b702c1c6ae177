"""Markers for each hour, while everything that is involved is killed.

`python -m examples.periods` replays nine hours of one front in a few seconds each: a real tracker, a shop,
and a `lowmark periods follow` that writes `_SUCCESS` files into the hours' folders. Between the hours it
kills one or the other, or all of them, and looks: is each hour's marker there once it is complete, none before, and each
with the key that it should have? In the end the tracker is asked when each hour was complete.
"""
