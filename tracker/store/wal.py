"""SQLite's write-ahead log, read before SQLite does: whether anything in it is damaged.

SQLite takes the frames of its log up to the first that is not right, and drops all behind it without a
word: that is how a process leaves a log that was killed while it wrote. What such a process cannot leave is
a commit with another one upon it: each commit is synced before the next begins. So where a frame that is not
right is followed by frames of the same log that continue each other over the end of a commit, what is
dropped was committed. What was damaged in the very last commit looks like half a write; that is for the
mark to tell (`tracker.store.mark`).

The checksum of a frame goes on from that of the frame before, and is linear: what a frame adds to it is
known without the one before, so all frames of a large log are looked at together.
"""

from __future__ import annotations

import struct
import sys
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

_HEADER = struct.Struct(">8I")
"""Magic, version, bytes of a page, number of the checkpoint, two salts, two halves of the checksum."""
_SUMMED_HEADER_BYTES = 24
_FRAME_HEADER_BYTES = 24
_SUMMED_FRAME_HEADER_BYTES = 8
_WORDS = {0x377F0682: "<u4", 0x377F0683: ">u4"}
"""The byte order of the words that are summed, by the magic number."""
_PAGE_BYTES = 4096
"""The page size that counts where a header cannot be read: SQLite's default, which this store keeps."""
_FRAMES_AT_A_TIME = 512
_LOOKS = 10
_LOOK_AGAIN_S = 0.05

Words = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Damage:
    """Where a log is not right first, in bytes from its begin, how long it is, and how many commits are
    behind that place, at least."""

    at: int
    size: int
    commits_behind: int

    def __str__(self) -> str:
        return (
            f"damaged at byte {self.at} of {self.size}, with at least {self.commits_behind} commits there "
            "and behind it"
        )


def find_damage(path: Path) -> Damage | None:
    """What is damaged in a write-ahead log that hides commits; None if nothing is, or there is none. One
    that somebody writes meanwhile is seen half, so nothing counts before it was seen twice alike."""
    before: object = None
    for _ in range(_LOOKS):
        try:
            state = path.stat()
            found = _look(path)
        except FileNotFoundError:
            return None
        if found is None:
            return None
        seen = (found, state.st_ino, state.st_mtime_ns)
        if seen == before:
            return found
        before = seen
        time.sleep(_LOOK_AGAIN_S)
    return None  # who writes it all the time has it open, and reads it otherwise


def has_frames(path: Path) -> bool:
    """Whether anything has ever been written to a log."""
    try:
        with path.open("rb") as file:
            return any(file.read(_HEADER.size))
    except FileNotFoundError:
        return False


def _look(path: Path) -> Damage | None:
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            return None
        magic, _, page_bytes, _, *salts, first, second = _HEADER.unpack(head)
        words = _WORDS.get(magic, "<u4" if sys.byteorder == "little" else ">u4")
        summed = np.frombuffer(head[:_SUMMED_HEADER_BYTES], words).astype(np.uint32)
        own = _added(summed.reshape(1, -1))[0]
        right = magic in _WORDS and own.tolist() == [first, second]
        if not right:
            page_bytes = _PAGE_BYTES
        frames = _Frames(file, page_bytes, words)
    return frames.damage(salts if right else None, own)


class _Frames:
    """The frames of a log: which salts each has, whether it ends a commit, which checksum is in it, and
    what it adds to that of the frame before."""

    def __init__(self, file: BinaryIO, page_bytes: int, words: str) -> None:
        """Reads a file from the first frame on."""
        self._bytes = _FRAME_HEADER_BYTES + page_bytes
        self._pairs = (_SUMMED_FRAME_HEADER_BYTES + page_bytes) // 8
        heads, added = [np.empty((0, 6), np.uint32)], [np.empty((0, 2), np.uint32)]
        while chunk := file.read(_FRAMES_AT_A_TIME * self._bytes):
            count = len(chunk) // self._bytes
            frames = np.frombuffer(chunk, np.uint8, count * self._bytes).reshape(count, -1)
            head = np.ascontiguousarray(frames[:, :_FRAME_HEADER_BYTES])
            heads.append(head.view(">u4").astype(np.uint32))
            summed = np.hstack(
                (frames[:, :_SUMMED_FRAME_HEADER_BYTES], frames[:, _FRAME_HEADER_BYTES:])
            )
            added.append(_added(np.ascontiguousarray(summed).view(words).astype(np.uint32)))
        head = np.concatenate(heads)
        self._ends_commit, self._salts, self._sums = head[:, 1] != 0, head[:, 2:4], head[:, 4:6]
        self._added = np.concatenate(added)

    def damage(self, salts: list[int] | None, header_sum: Words) -> Damage | None:
        """What is damaged; `salts`: of the log, None where its header is damaged."""
        count = len(self._sums)
        if not count:
            return None
        before: Words = np.concatenate((header_sum.reshape(1, 2), self._sums[:-1]))
        continues = (_after(before, self._pairs) + self._added == self._sums).all(axis=1)
        if salts is None:
            continues[0] = False
            continues[1:] &= (self._salts[1:] == self._salts[:-1]).all(axis=1)
        else:
            continues &= (self._salts == np.array(salts, np.uint32)).all(axis=1)
        wrong = np.flatnonzero(~continues)
        if not len(wrong):
            return None
        first = int(wrong[0])
        upon_commit = np.flatnonzero(continues[first + 1 :] & self._ends_commit[first:-1])
        if not len(upon_commit):
            return None
        at = 0 if salts is None else _HEADER.size + first * self._bytes
        return Damage(at, _HEADER.size + count * self._bytes, len(upon_commit))


@lru_cache(maxsize=8)
def _powers(pairs: int) -> tuple[Words, Words, Words]:
    """Of the step (a, b) -> (a + b, a + 2 b), from the power `pairs` down to 0: each is the matrix
    ((x, y), (y, z)), modulo 2**32."""
    rows = [(1, 0, 1)]
    for _ in range(pairs):
        x, y, z = rows[-1]
        rows.append(((x + y) % 2**32, (y + z) % 2**32, (y + 2 * z) % 2**32))
    x, y, z = np.array(rows[::-1], np.uint64).astype(np.uint32).T
    return x, y, z


def _added(summed: Words) -> Words:
    """What each row of words adds to a checksum: two halves."""
    first, both = summed[:, 0::2], summed[:, 0::2] + summed[:, 1::2]
    x, y, z = (power[1:] for power in _powers(first.shape[1]))
    return np.stack(
        (
            (first * x + both * y).sum(axis=1, dtype=np.uint32),
            (first * y + both * z).sum(axis=1, dtype=np.uint32),
        ),
        axis=1,
    )


def _after(sums: Words, pairs: int) -> Words:
    """What checksums become by so many pairs of words that are zero."""
    x, y, z = (power[0] for power in _powers(pairs))
    first, second = sums[:, 0], sums[:, 1]
    return np.stack((first * x + second * y, first * y + second * z), axis=1)
