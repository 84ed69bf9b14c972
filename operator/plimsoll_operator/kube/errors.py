"""Errors that the API server answers.

Certain answers (`NotFound`, `Conflict`, `Rejected`) prove that nothing was changed. `Unavailable`
proves nothing: the request may or may not have been executed.
"""

from __future__ import annotations

import json

REPLY = " answered: "
"""Separates the request from its answer in an error's message."""


class ApiError(Exception):
    """An answer that is not a success; `status` is HTTP's, 0 without an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    @property
    def reply(self) -> str:
        """Return the API server's text without the request."""
        return self.message.rsplit(REPLY, 1)[-1].strip().rstrip(".")


class NotFound(ApiError):
    """404: no such object, or no such kind."""


class Conflict(ApiError):
    """409: the object differs from what the caller last saw, or it exists already."""


class Rejected(ApiError):
    """Any other 4xx: final for this request."""


class Unavailable(ApiError):
    """Timeout, lost connection, 429 or 5xx: the outcome is unknown, and the fault is not the
    request's."""


_BY_STATUS: dict[int, type[ApiError]] = {
    404: NotFound,
    409: Conflict,
    429: Unavailable,
}


def error(status: int, message: str) -> ApiError:
    return _BY_STATUS.get(status, Rejected if status < 500 else Unavailable)(status, message)


def answered(method: str, path: str, status: int, body: bytes) -> ApiError:
    """Return the error for an answer: its status, the request, and the API server's own
    sentence."""
    return error(status, f"{method} {path}{REPLY}{status_message(body)}")


def status_message(body: bytes) -> str:
    """Return the message of an answered Status, or the beginning of any other body."""
    try:
        return str(json.loads(body).get("message", ""))
    except (ValueError, AttributeError):
        return body[:200].decode(errors="replace")
