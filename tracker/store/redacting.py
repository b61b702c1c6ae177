"""Leaving passwords out of what people are shown."""

from __future__ import annotations

import re

_LOGIN = re.compile(r"(//[^/@\s:]*:)[^@\s]+@")
"""The password of an address: what stands between the user's name and the host."""
_OPTION = re.compile(r"(?i)([?&;][\w-]*(?:password|secret|token)[\w-]*=)[^&;\s'\"]+")
_SHOWN = r"\1***"


def redacted(text: str) -> str:
    """A text without the passwords of the addresses in it."""
    if "//" not in text:
        return text
    return _OPTION.sub(_SHOWN, _LOGIN.sub(_SHOWN + "@", text))
