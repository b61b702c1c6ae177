"""What a person's own tests are made of: a tracker in memory, a clock and fronts that the test moves, and assertions.

`lowmark.testing` offers it, and pytest finds the fixtures by themselves.
"""
