"""`python -m examples.word_count`: ends with `word_count: OK ...` if every word was counted once."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from examples.word_count.run import count_words
from examples.word_count.text import counted, lines

SHOWN = 5


def main() -> int:
    """Counts, compares, and returns the exit code."""
    began_s = time.monotonic()
    text = lines()
    with tempfile.TemporaryDirectory(prefix="lowmark-words-") as root:
        counts = count_words(text, Path(root))
    expected = counted(text)
    wrong = [word for word in expected | counts.words if expected[word] != counts.words[word]]
    for word in wrong[:SHOWN]:
        print(f"{word!r} was counted {counts.words[word]} times, it occurs {expected[word]} times")
    ok = not wrong and counts.open_items == 0 and bool(expected)
    print(
        f"word_count: {'OK' if ok else 'FAILED'} words={counts.words.total()} "
        f"distinct={len(counts.words)} files={counts.files} batches={counts.batches} "
        f"open_items={counts.open_items} seconds={time.monotonic() - began_s:.0f}"
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
