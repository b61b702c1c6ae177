"""What protobuf's versions say differently of a message's fields."""

from __future__ import annotations

from typing import Any


def is_repeated(field: Any) -> bool:
    """Whether a field, by its descriptor, holds several values. Before protobuf 6 its label alone says so, which
    later versions warn of, or have not any more."""
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)
