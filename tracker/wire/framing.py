"""Messages of Protocol Buffers put together from parts that are bytes already.

A message that holds what has come as bytes need not be built, filled and written: its fields stand one behind
the other, and a part of it is its length and its bytes. What is written so is what the library would write.
"""

from __future__ import annotations

from google.protobuf.message import Message

_SEVEN_BITS = 0x7F
_MORE_FOLLOW = 0x80
_OF_LENGTH = 2
"""How fields are marked that begin with their length: parts."""
_SHORT = [bytes((number,)) for number in range(_MORE_FOLLOW)]


def number_bytes(number: int) -> bytes:
    """A number that is not negative, seven bits a byte, the lowest first."""
    if number < _MORE_FOLLOW:
        return _SHORT[number]
    if number < 1 << 14:
        return bytes((number & _SEVEN_BITS | _MORE_FOLLOW, number >> 7))
    written = bytearray()
    while number >= _MORE_FOLLOW:
        written.append(number & _SEVEN_BITS | _MORE_FOLLOW)
        number >>= 7
    written.append(number)
    return bytes(written)


def mark_of(message: type[Message], field: str) -> bytes:
    """What stands before a field of a message: of a number, or of the length of a part."""
    described = message.DESCRIPTOR.fields_by_name[field]
    return number_bytes(
        described.number << 3 | (0 if described.message_type is None else _OF_LENGTH)
    )
