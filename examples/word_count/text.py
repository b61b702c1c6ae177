"""Real text that ships with Python: the language's reference, as `help()` shows it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pydoc_data.topics import topics  # type: ignore[import-untyped,unused-ignore]

_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


def lines() -> list[str]:
    """The lines of the reference, topic by topic."""
    return [line for topic in sorted(topics) for line in topics[topic].splitlines()]


def words(line: str) -> list[str]:
    """The words of a line, in lower case."""
    return _WORD.findall(line.lower())


def counted(text: Iterable[str]) -> Counter[str]:
    """How often each word occurs: what the pipeline must come to."""
    return Counter(word for line in text for word in words(line))
