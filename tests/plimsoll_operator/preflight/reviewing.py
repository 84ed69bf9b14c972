"""An API server in memory with what preflight asks besides: rights, versions, classes, webhooks."""

import itertools
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from plimsoll_operator.api_server.discovery import document
from plimsoll_operator.api_server.kinds import Resource, shipped
from plimsoll_operator.api_server.server import MemoryApiServer, MemoryTransport
from plimsoll_operator.kube.errors import Unavailable, answered
from plimsoll_operator.kube.kube_api import HttpRequest, HttpResponse, Object
from plimsoll_operator.kube.resources import (
    ACCESS_REVIEWS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    STORAGE_CLASSES,
    VALIDATING_WEBHOOKS,
)

MORE = (STORAGE_CLASSES, VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS, DEPLOYMENTS)
FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"


def a_server(*, installed: bool) -> MemoryApiServer:
    """With the namespace `kafka`; `installed`: the CRDs are there."""
    uids = itertools.count(1)
    server = MemoryApiServer(
        lambda: 1_800_000_000_000,
        lambda: f"uid-{next(uids)}",
        definitions=shipped() if installed else (),
        namespaces=("kafka", "kube-system"),
    )
    server.store.serve(Resource(kind=kind) for kind in MORE)
    return server


@dataclass
class ReviewingTransport:
    """`Transport`; `denied`: what a SelfSubjectAccessReview refuses, as `verb resource`; `broken`:
    prefixes of paths without an answer, `forbidden`: those that get 403."""

    server: MemoryApiServer
    denied: set[str] = field(default_factory=set)
    broken: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    flow_schemas: bool = True
    # Attributes of every review, and `METHOD path` of every other request.
    reviews: list[Object] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    async def send(self, request: HttpRequest) -> HttpResponse:
        if request.path.startswith(self.broken or ("nothing",)):
            raise Unavailable(0, f"{request.method} {request.path}: lost")
        if request.path.startswith(self.forbidden or ("nothing",)):
            body = json.dumps({"message": "forbidden by the test"}).encode()
            return HttpResponse(status=403, body=body)
        if request.path == ACCESS_REVIEWS.path():
            return self._review(json.loads(request.body))
        self.requests.append(f"{request.method} {request.path}")
        if request.path == FLOW and self.flow_schemas:
            return HttpResponse(status=200, body=b"{}")
        found = document(request.path, self.server.store.resources.values())
        if request.method == "GET" and found is not None:
            return HttpResponse(status=200, body=json.dumps(found).encode())
        return await MemoryTransport(self.server).send(request)

    def _review(self, body: dict[str, Any]) -> HttpResponse:
        asked = body["spec"]["resourceAttributes"]
        self.reviews.append(asked)
        allowed = f"{asked['verb']} {asked['resource']}" not in self.denied
        answer = body | {"status": {"allowed": allowed}}
        return HttpResponse(status=201, body=json.dumps(answer).encode())

    async def watch(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        raise answered("GET", request.path, 405, b"{}")
        yield b""

    async def close(self) -> None:
        """Nothing is open."""
