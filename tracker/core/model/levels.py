"""Feature levels: by which of them a tracker records and sends, all processes alike (rule 10).

A level stands for all that processes record and send by it, and each release speaks the levels from `OLDEST_LEVEL` to
`NEWEST_LEVEL`. What is new in a release has a level above those of the release before. Processes use it when the
sequencer has logged that level (`FeatureLevelRaised`), which it does when an operator asks for it and every process speaks
it: until then any of them can be replaced by one of the release before. A store carries the level of what is in it, as
the number of its format (`tracker.store.format`): a release that does not speak it refuses the store. While no release
has been made that records by a level, what it stands for may still grow; stores that have that level already stay readable.
"""

from __future__ import annotations

OLDEST_LEVEL = 1
"""The lowest level that this release speaks: that of releases that state none. Homes tell their entries one by one."""
RUNS = 2
"""From this level on homes tell ticks that follow one another as runs (`TickRun`)."""
LOSSES = 2
"""From this level on shards can be declared lost. The declaration raises it, where all that are left speak it: finishing an
upgrade would wait for those that are lost."""
MOVES = 2
"""From this level on pipelines move between groups."""
NEWEST_LEVEL = RUNS
"""The highest level that this release speaks, by which a tracker that it begins records from its first record on."""
