"""Errors of a request to the API server, by what they prove.

`NotFound`, `Conflict` and `Rejected` prove that the request changed nothing. `Unavailable` proves
nothing: the request may or may not have been executed.
"""

from __future__ import annotations

import json

REPLY = " answered: "
"""Text in an error's message between the request and the API server's answer."""


class ApiError(Exception):
    """A request failed. `status`: the HTTP status, 0 if no answer came; `message`: the request and
    the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    @property
    def reply(self) -> str:
        """Return the part of the message that the API server sent, without the description of the
        request."""
        return self.message.rsplit(REPLY, 1)[-1].strip().rstrip(".")


class NotFound(ApiError):
    """Status 404: the object does not exist, or the API server does not know its kind."""


class Conflict(ApiError):
    """Status 409: the object has another resourceVersion or uid than the request stated, or a
    created object exists already."""


class Rejected(ApiError):
    """A status from 400 to 499 other than 404, 409 and 429: the same request would fail again."""


class Unavailable(ApiError):
    """Timeout, lost connection, or status 429 or 5xx: the request may or may not have been
    executed. The same request may succeed later."""


_BY_STATUS: dict[int, type[ApiError]] = {
    404: NotFound,
    409: Conflict,
    429: Unavailable,
}


def error(status: int, message: str) -> ApiError:
    return _BY_STATUS.get(status, Rejected if status < 500 else Unavailable)(status, message)


def answered(method: str, path: str, status: int, body: bytes) -> ApiError:
    """Return the error for an answer with a status from 400 on. Its message names the request and
    quotes the API server."""
    return error(
        status, f"the request {method} {path} failed; the API server{REPLY}{status_message(body)}"
    )


def status_message(body: bytes) -> str:
    """Return the `message` of the Status object in `body`, or the first 200 bytes of a body that is
    not JSON."""
    try:
        return str(json.loads(body).get("message", ""))
    except (ValueError, AttributeError):
        return body[:200].decode(errors="replace")
