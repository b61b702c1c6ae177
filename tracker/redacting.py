"""Leaving secrets out of what people are shown: of texts with addresses in them, and of the URLs of receivers."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_LOGIN = re.compile(r"(//[^/@\s:]*:)\S+@")
"""The password of an address: what stands between the user's name and the host, whatever is in it."""
_OPTION = re.compile(r"(?i)([?&;][\w-]*(?:password|secret|token)[\w-]*=)[^&;\s'\"]+")
_SHOWN = r"\1***"


def redacted(text: str) -> str:
    """A text without the passwords of the addresses in it."""
    if "//" not in text:
        return text
    return _OPTION.sub(_SHOWN, _LOGIN.sub(_SHOWN + "@", text))


def shown_url(url: str) -> str:
    """A receiver's URL without its login and its query, of which any part may be secret. Raises ValueError where it
    is no URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
