"""One request to an API server, and its answer as an object.

Called by the client and by readers of documents that are not resources; repeats nothing.
"""

from __future__ import annotations

import msgspec

from plimsoll_operator.kube.errors import Unavailable, answered
from plimsoll_operator.kube.port import HttpRequest, Object, Transport


async def call(transport: Transport, request: HttpRequest) -> tuple[Object, int | None]:
    """Return the answer's body and the server's time, None if not stated. Raises ApiError."""
    response = await transport.send(request)
    if response.status >= 400:
        raise answered(request.method, request.path, response.status, response.body)
    return decoded(response.body, request), response.server_ms


def decoded(text: bytes, request: HttpRequest) -> Object:
    """Decode an answer. Raises Unavailable if it is not a JSON object."""
    try:
        return dict(msgspec.json.decode(text))
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as failure:
        raise Unavailable(0, f"{request.method} {request.path}: no JSON object") from failure
