"""How unknown fields in a request body are treated: rejected, reported as warnings, or ignored.

A client behind a socket chooses by the parameter `fieldValidation` (`kubectl apply` sends Strict);
the default is a warning. The operator's own requests do not pass here. Only custom resources are
checked. Server-side apply is not checked here, since it never accepts an unknown field. Called by
`serving`, before the request is carried out.

Source: Kubernetes' "Server Side Field Validation", and apiserver `pkg/endpoints/handlers`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from plimsoll_operator.api_server.kinds import Resource
from plimsoll_operator.api_server.schema_validation import unknown_fields
from plimsoll_operator.api_server.server import BODY_BYTES_MAX, MemoryApiServer
from plimsoll_operator.api_server.status_errors import StatusError, bad_request
from plimsoll_operator.api_server.writes import MERGE
from plimsoll_operator.kube.kube_api import HttpRequest, Object

FIELDS_MAX = 20
PATH_LENGTH_MAX = 200
"""Bounds on the warnings of one response: number of unknown fields, and characters of each name.
Clients choose the names, which go into a response header."""
METADATA = frozenset(
    {
        "annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp",
        "finalizers", "generateName", "generation", "labels", "managedFields", "name", "namespace",
        "ownerReferences", "resourceVersion", "selfLink", "uid",
    }
)  # fmt: skip


def unknown(server: MemoryApiServer, request: HttpRequest) -> list[str]:
    """Return a warning for each unknown field in the request's body, at most `FIELDS_MAX`. Return
    [] if there is none, or nothing is to be checked: the client asked for Ignore, the kind is built
    in, or the body is too large or no JSON object. Raises `StatusError` instead of returning
    warnings if the client asked for Strict, or if the path is unknown."""
    directive = request.params.get("fieldValidation") or "Warn"
    patched = request.method == "PATCH"
    media = request.content_type.partition(";")[0]
    if request.method not in ("POST", "PUT", "PATCH") or directive == "Ignore":
        return []
    if (patched and media != MERGE) or len(request.body) > BODY_BYTES_MAX:
        return []
    resource = server.target(request.path).resource
    body = _body(request)
    if resource.schema is None or body is None:
        return []
    paths = islice(_fields(resource, body), FIELDS_MAX)
    found = [f'unknown field "{path[:PATH_LENGTH_MAX]}"' for path in paths]
    if not found or directive != "Strict":
        return found
    why = f"strict decoding error: {', '.join(found)}"
    if patched:
        text = f'"" is invalid: patch: Invalid value: {json.dumps(json.dumps(body))}: {why}'
        raise StatusError(422, "Invalid", text)
    kind, version = resource.kind.kind, resource.kind.api_version.rpartition("/")[2]
    raise bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def _body(request: HttpRequest) -> Object | None:
    """Return the decoded body. Return None if it is not a JSON object: the server reports that when
    it carries out the request."""
    try:
        body = msgspec.json.decode(request.body)
    except msgspec.DecodeError:
        return None
    return body if isinstance(body, dict) else None


def _fields(resource: Resource, body: Object) -> Iterator[str]:
    assert resource.schema is not None
    known: dict[str, Any] = {"apiVersion": {}, "kind": {}}
    known |= resource.schema["properties"] | {
        "metadata": {"properties": dict.fromkeys(METADATA, _ANY)}
    }
    yield from unknown_fields(body, {**resource.schema, "properties": known}, "")


_ANY: Object = {"x-kubernetes-preserve-unknown-fields": True}
