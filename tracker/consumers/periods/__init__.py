"""What is done once for each stretch of time that is complete.

Everything here is made of four parts, and each is known to those above it alone:

- `cut` says how time is cut into periods; `due` which of them are complete, from a position and min time alone.
- `position` is the slot below which a consumer has done everything, in a durable record.
- `once` is the one interface of what is done for a period, and of how it is found done after a crash: an `Action`.
- `follow` is the engine: it waits, asks each action whether the period is done, does it, and moves the position behind
  it. `runs` is the same for a job that takes all that has become complete since its last run.

The rest are small adapters. Actions: `folders`, `delta`, `iceberg`, `openlineage`, `webhook`. For schedulers, which
keep the position themselves: `releases`, `partitions`, `made`. `functions` runs functions at times of the program's own choice.
"""

from __future__ import annotations
