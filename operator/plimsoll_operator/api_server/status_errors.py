"""The errors that the API server in memory answers: `Status` objects with the texts of a real one.

Source: k8s.io/apimachinery `pkg/api/errors`. Clients read the code, and people the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import Kind

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCause:
    """An error in one field of a request. `kubectl` prints it as one line."""

    field: str
    reason: str
    message: str


class StatusError(Exception):
    """A refusal of a request, raised before anything is changed. `status`: the HTTP status;
    `reason`: that of the Status object; `body`: the Status object."""

    def __init__(
        self, status: int, reason: str, message: str, details: Object | None = None
    ) -> None:
        # Unpickling in another process calls the class with these arguments.
        super().__init__(status, reason, message, details)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return self.message

    @property
    def body(self) -> Object:
        body: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.status,
        }
        return body if self.details is None else {**body, "details": self.details}


def qualified(kind: Kind) -> str:
    """Return the kind's plural with its API group, as in `topics.plimsoll.dev`; for a kind of the
    core group only the plural, as in `pods`."""
    group = kind.api_version.rpartition("/")[0]
    return f"{kind.plural}.{group}" if group else kind.plural


def details(kind: Kind, name: str) -> Object:
    group = kind.api_version.rpartition("/")[0]
    found: Object = {"name": name, "kind": kind.plural}
    return {**found, "group": group} if group else found


def not_found(kind: Kind, name: str) -> StatusError:
    text = f'{qualified(kind)} "{name}" not found'
    return StatusError(404, "NotFound", text, details(kind, name))


def no_such_path() -> StatusError:
    text = "the server could not find the requested resource"
    return StatusError(404, "NotFound", text, {})


def already_exists(kind: Kind, name: str) -> StatusError:
    text = f'{qualified(kind)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", text, details(kind, name))


def conflict(kind: Kind, name: str, why: str = MODIFIED) -> StatusError:
    text = f'Operation cannot be fulfilled on {qualified(kind)} "{name}": {why}'
    return StatusError(409, "Conflict", text, details(kind, name))


def by_kind(kind: Kind) -> str:
    """Return the kind's name with its API group, as in `Topic.plimsoll.dev`; for a kind of the core
    group only the name, as in `Pod`."""
    group = kind.api_version.rpartition("/")[0]
    return f"{kind.kind}.{group}" if group else kind.kind


def precondition_failed(kind: Kind, name: str, why: str) -> StatusError:
    """Return the error (409) for a DELETE that states a wrong uid or resourceVersion. As in a real
    API server, its text names the kind; the 409 of an update names the plural."""
    text = f'Operation cannot be fulfilled on {by_kind(kind)} "{name}": {why}'
    return StatusError(409, "Conflict", text, {**details(kind, name), "kind": kind.kind})


def not_typed(kind: Kind, namespace: str, name: str, why: str) -> StatusError:
    """Return the error for a server-side apply with values of wrong types. A real API server
    answers it with status 500."""
    what = f"{namespace}/{name}; {kind.api_version}, Kind={kind.kind}"
    return StatusError(500, "", f"failed to create typed patch object ({what}): {why}")


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def forbidden(kind: Kind, name: str, why: str) -> StatusError:
    text = f'{qualified(kind)} "{name}" is forbidden: {why}'
    return StatusError(403, "Forbidden", text, details(kind, name))


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def invalid(kind: Kind, name: str, causes: Sequence[StatusCause]) -> StatusError:
    """Return the error (422) that lists every invalid field of an object."""
    said = [f"{cause.field}: {cause.message}" for cause in causes]
    listed = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    text = f'{by_kind(kind)} "{name}" is invalid: {listed}'
    rows = [
        {"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes
    ]
    found = {**details(kind, name), "kind": kind.kind, "causes": rows}
    return StatusError(422, "Invalid", text, found)
