"""`python -m examples.word_count [--partitions N]`: ends with `word_count: OK ...` if every word was
counted once. With N, the state gets so many partitions when half of the text is counted, while the rest
comes in."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from examples.word_count.run import count_words
from examples.word_count.text import counted, lines

SHOWN = 5


def main(arguments: list[str]) -> int:
    """Counts, compares, and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.word_count")
    parser.add_argument("--partitions", type=int, help="of the state, from half of the text on")
    partitions = parser.parse_args(arguments).partitions
    began_s = time.monotonic()
    text = lines()
    with tempfile.TemporaryDirectory(prefix="lowmark-words-") as root:
        counts = count_words(text, Path(root), partitions)
    expected = counted(text)
    wrong = [word for word in expected | counts.words if expected[word] != counts.words[word]]
    for word in wrong[:SHOWN]:
        print(f"{word!r} was counted {counts.words[word]} times, it occurs {expected[word]} times")
    ok = not wrong and counts.open_items == 0 and bool(expected)
    if (done := counts.rescaled) is not None:
        print(
            f"state partitions: {done.from_partitions} -> {done.to_partitions}, as batch {done.batch}; "
            f"the query was away for {done.pause_s:.1f} s, {done.repartition_s:.1f} s of them Spark's "
            "repartitioning"
        )
    print(
        f"word_count: {'OK' if ok else 'FAILED'} words={counts.words.total()} "
        f"distinct={len(counts.words)} files={counts.files} batches={counts.batches} "
        f"open_items={counts.open_items} seconds={time.monotonic() - began_s:.0f}"
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
