"""Ack values: the 64-bit names of items that are XORed into checksums.

They look random and are not: every value is a keyed hash of where the item comes from, so that
processing an item again gives the values it gave before, and a retried task cancels nothing it
should not. A root's value comes from (front, batch number, ordinal), a child's from (parent's value,
operator, ordinal), a unit's from its name, an offset's from (partition, offset). No value is zero,
since zero would leave no trace.

Numbers are mixed by two rounds of SplitMix64's finaliser, a bijection of 64-bit words in which each
input bit flips each output bit with probability near 1/2; strings are hashed by BLAKE2b first.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import ArrayLike, NDArray

_WORD = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_PERSON = b"lowmark.v1"


@lru_cache(maxsize=4096)
def string_key(text: str) -> int:
    """The 64-bit key of a name (of an operator, front, partition or unit); never 0."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8, person=_PERSON).digest()) or _GOLDEN


def unit_value(name: str) -> int:
    """The ack value of a unit that is an item as a whole, by its name."""
    digest = blake2b(name.encode(), digest_size=8, person=_PERSON, salt=b"unit").digest()
    return int.from_bytes(digest) or _GOLDEN


def hold_value(node_id: str, name: str, incarnation: int, number: int) -> int:
    """The ack value of the item by which a node holds time since a tick of its own: no other tick has this
    incarnation and number, so no other item this value."""
    parent = child_value(string_key(node_id), "hold", string_key(name))
    return child_value(child_value(parent, "incarnation", incarnation), "tick", number)


def root_value(front: str, batch: int, ordinal: int) -> int:
    """The ack value of item `ordinal` (from 0) of a front's published batch (from 0)."""
    return child_value(child_value(string_key(front), "batch", batch), "item", ordinal)


def root_values(front: str, batch: int, ordinals: ArrayLike) -> NDArray[np.uint64]:
    """`root_value` for an int64 array of ordinals; a uint64 array of that shape."""
    parent = child_value(string_key(front), "batch", batch)
    ordinal_array = np.asarray(ordinals, np.int64)
    return child_values(np.full(ordinal_array.shape, parent, np.uint64), "item", ordinal_array)


def child_value(parent: int, operator: str, ordinal: int) -> int:
    """The ack value of an operator's output `ordinal` (from 0, any int64) for an input's value."""
    word = _mix((ordinal * _GOLDEN + string_key(operator)) & _WORD)
    return _mix(_mix(parent ^ word)) or _GOLDEN


def child_values(parents: ArrayLike, operator: str, ordinals: ArrayLike) -> NDArray[np.uint64]:
    """`child_value` elementwise: uint64 parents and int64 ordinals, broadcast; a uint64 array."""
    with np.errstate(over="ignore"):
        words = np.asarray(ordinals, np.int64).astype(np.uint64) * np.uint64(_GOLDEN)
        words = _mix_array(words + np.uint64(string_key(operator)))
        values = _mix_array(_mix_array(np.asarray(parents, np.uint64) ^ words))
    return np.where(values == 0, np.uint64(_GOLDEN), values)


def offset_value(partition: str, offset: int) -> int:
    """`h(offset)` of a partition of an ordered source; see `range_value`."""
    return child_value(string_key(partition), "offset", offset)


def range_value(partition: str, begin: int, end: int) -> int:
    """The XOR of the ack values `h(o) ^ h(o+1)` of the offsets begin <= o < end: it telescopes to
    `h(begin) ^ h(end)`, so ranges cancel against any other cutting of the same offsets."""
    if begin == end:
        return 0
    return offset_value(partition, begin) ^ offset_value(partition, end)


def _mix(word: int) -> int:
    word = (word + _GOLDEN) & _WORD
    word = ((word ^ (word >> 30)) * _FIRST) & _WORD
    word = ((word ^ (word >> 27)) * _SECOND) & _WORD
    return word ^ (word >> 31)


def _mix_array(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = words + np.uint64(_GOLDEN)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(_FIRST)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(_SECOND)
    return words ^ (words >> np.uint64(31))
