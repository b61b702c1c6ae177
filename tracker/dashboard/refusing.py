"""Requests that are refused: the status, the code and the words, and how the tracker's own refusals become such."""

from __future__ import annotations

from tracker.core.model import RefusalCode
from tracker.dashboard.answers import Error
from tracker.errors import Code, LowmarkError, RefusedError
from tracker.http import Response

_CODES = {401: Code.INVALID_CREDENTIALS, 403: Code.INVALID_CREDENTIALS, 503: Code.UNAVAILABLE_ROOM}
_NOT_FOUND = (RefusalCode.UNKNOWN_PIPELINE, RefusalCode.UNKNOWN_SEGMENT)


class Refused(Exception):
    """A request that is not answered. message: what was refused, the value, the limit, what to do."""

    def __init__(
        self, status: int, message: str, code: str = "", headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers


def refused(status: int, message: str, *headers: tuple[str, str], code: str = "") -> Response:
    """The answer to a request that is refused. code: by its status where it is empty."""
    told = Error(code=code or _CODES.get(status, Code.INVALID_ARGUMENT), message=message)
    kind = [("content-type", "application/json"), ("cache-control", "no-store")]
    return Response(status, [*kind, *headers], told.model_dump_json().encode() + b"\n")


def refusal_of(error: Refused | LowmarkError) -> Response:
    """The answer where a request was refused, here or by the tracker, or the tracker does not answer."""
    if isinstance(error, Refused):
        return refused(error.status, str(error), *error.headers, code=error.code)
    status = 503
    if isinstance(error, RefusedError):
        status = 404 if error.refusal.code in _NOT_FOUND else 400
    return refused(status, str(error), code=error.code)
