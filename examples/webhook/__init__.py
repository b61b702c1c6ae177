"""Each hour posted to a URL, once it is complete, while everything that is involved is killed.

`python -m examples.webhook` replays eight hours of one front: a real tracker, a shop, `lowmark periods
follow`, and a receiver that checks signatures and writes what it takes to a file. The receiver first says
that it is not ready; between the hours one or the other is killed, or all of them, the receiver also right
after it has taken an hour and before it has answered. In the end each hour must have been taken once by its
id, in order, and none before it was complete.
"""
