"""The bridge from the code to the proof: every step that the core takes in random runs has to be one that `protocol.py` allows.

A run is of the core that ships (`world.py`, on the processes of `tests/core/driver.py`): one to three shards, and one or two that join, fronts and workers that
publish before they hand over (`nodes.py`), stores that lag, frames that are lost, repeated and overtaken, processes and nodes that die and come back,
snapshots, a restart, a front that is retired. After each event `recorder.py` tells by what was appended, sent, made durable and taken which steps that were.
`replay.py` takes them in the system: every condition has to hold, and where they lead has to be what the process then is (`look.py`). A step of the code that is
none shows as a condition that does not hold, or as a state that no step explains. Conditions, changes and invariants are the formulas that the
solvers get, turned into Python (`compiled.py`). What is fixed in the system, as who consumes an item, is known when the run is over (`ledger.py`).

What is compared behind each event, at its process, in the generation of the pipeline that the system is of:

- *as it is*: `applied`; `open`, by the checksum of each cell; `announced`, `recorded`; `pinned`, `pin` and `passed` of fronts that are there, and which those are;
  of each shard that was heard `seen`, `seen_open` (the lowest slot, and how many cells are open), `seen_passed` with `pin` (a report has the larger of
  both), and the fronts; M (`seen`, `inside`, `counts_in`); how far M has come or must (`needed`); `began` and `past`;
- *no more than in the system*: `heard`, since a shard may be heard before the pipeline is there, and `granted`, which a home forgets of fronts that have left;
- *no less*: `touched`: in the code a run of entries is held as a whole until all of it is inside M. What a report or a whole report tells (`says_touched`,
  `repeats`) is read from what was sent: all places that a tick touches are to be covered by a run; with shards that join, `needed`, since M must come as
  far as the word of a joining, too;
- *by their steps alone*: `published`, `earlier`, `promised` (what nodes decide); `accepted`, `ahead` (entries as they are appended); `untold`, `snapped`, `kept`;
  `made`, `latest`, `live`, `newer`, `goes_by`, `sent`, `posted`; `told`, `told_before`; `there`, `joined`, `given_up`, `spoke`, `welcome`, `counted_first`, `known`.

Where the code has states that the system has no name for: an entry that is accepted, lost with a crash, and never handed over again, since its node is gone, is passed over
by the bridge, as nobody hears of it; what is appended and is neither an entry, a pin nor an announcement; frames and reports that wait (but see
`wider.py`); one shard by itself tells what it announces ahead of the record, which the bridge takes for durable, and then recovery has to find it again;
a process in another generation than the system's, of which `applied` alone is compared, and, in one before, how far it says that the whole pipeline is.

Not in these runs: what the system leaves out (changes, moves, deletion, completion, vacant places, shards that leave or are lost), and of what it has
`give_slots` with hand-overs of cells and nodes that move, and cells that an operator writes off.
"""
