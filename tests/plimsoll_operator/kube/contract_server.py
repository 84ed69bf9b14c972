"""An API server under test, whichever it is, and the objects that its contract is tried with."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from plimsoll_operator.kube.errors import NotFound
from plimsoll_operator.kube.kube_api import (
    METADATA,
    HttpRequest,
    HttpResponse,
    KubeApi,
    Object,
    Transport,
)
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    LEASES,
    SERVICES,
    STATEFUL_SETS,
    TOPICS,
    Kind,
)

MODIFIED = "the object has been modified; please apply your changes to the latest version"
APPLY = "application/apply-patch+yaml"
ELSEWHERE = "another-manager"


@dataclass
class ContractServer:
    """An API server under test, and a namespace in it that no other test uses."""

    transport: Transport
    namespace: str
    control: Callable[[], None] = field(default=lambda: None)
    """Lets the controllers beside the server do what they have to do."""
    topics: Kind = TOPICS
    """Under another group where an operator is at work that would look after Topics."""

    @property
    def kube(self) -> KubeApi:
        return KubeApi(self.transport)

    async def send(self, method: str, path: str, body: Object | None = None, **more: Any) -> Any:
        """One request; its answer as it is."""
        encoded = b"" if body is None else json.dumps(body).encode()
        return await self.transport.send(
            HttpRequest(method=method, path=path, body=encoded, **more)
        )

    async def until_gone(self, kind: Kind, name: str) -> None:
        async with asyncio.timeout(60):
            while True:
                self.control()
                try:
                    await self.kube.get(kind, self.namespace, name)
                except NotFound:
                    return
                await asyncio.sleep(0.05)

    def config_map(self, name: str = "one", **more: Any) -> Object:
        return self._object(CONFIG_MAPS, name, {"data": {"a": "1"}}, more)

    def topic(self, name: str = "orders", **spec: Any) -> Object:
        body = {"spec": {"clusterRef": {"name": "main"}, "partitions": 3, **spec}}
        return self._object(self.topics, name, body, {})

    def stateful_set(self, name: str = "main") -> Object:
        labels = {"app": name}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "broker", "image": "plimsoll/none"}]},
        }
        spec = {
            "replicas": 0,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": template,
            "updateStrategy": {"type": "OnDelete"},
        }
        return self._object(STATEFUL_SETS, name, {"spec": spec}, {})

    def service(self, *ports: int) -> Object:
        rows = [{"name": f"p{port}", "port": port} for port in ports]
        spec = {"selector": {"app": "x"}, "ports": rows}
        return self._object(SERVICES, "main", {"spec": spec}, {})

    def _object(self, kind: Kind, name: str, body: Object, metadata: Object) -> Object:
        what = {"apiVersion": kind.api_version, "kind": kind.kind}
        return {**what, "metadata": {"name": name, "namespace": self.namespace, **metadata}, **body}

    async def apply_as(
        self, manager: str, kind: Kind, body: Object, *, force: bool = False
    ) -> HttpResponse:
        params = {"fieldManager": manager, **({"force": "true"} if force else {})}
        path = kind.path(self.namespace, body["metadata"]["name"])
        found = await self.send("PATCH", path, body, content_type=APPLY, params=params)
        assert isinstance(found, HttpResponse)
        return found


def version(body: Object) -> str:
    return str(body["metadata"]["resourceVersion"])


def changed(body: Object, **fields: Any) -> Object:
    return {**body, **fields}


def lease(api: ContractServer) -> Object:
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": "main", "namespace": api.namespace},
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": 15},
    }


def pod(api: ContractServer) -> Object:
    """No node takes it."""
    container = {"name": "broker", "image": "plimsoll/none", "securityContext": RESTRICTED}
    spec = {
        "containers": [container],
        "nodeSelector": {"plimsoll.dev/no": "node"},
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    meta = {"name": "far", "namespace": api.namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def event(api: ContractServer, name: str, reason: str) -> Object:
    involved = {"kind": "StatefulSet", "name": "main", "namespace": api.namespace, "uid": "u"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": api.namespace},
        "involvedObject": involved,
        "reason": reason,
        "message": "no",
        "type": "Warning",
    }


def condition(type_: str) -> Object:
    return {
        "type": type_,
        "status": "True",
        "reason": "Because",
        "message": "so",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def labelled(body: Object, labels: dict[str, str]) -> Object:
    return {**body, "metadata": {**body["metadata"], "labels": labels}}


def watch_request(api: ContractServer, version_: str, more: dict[str, str]) -> HttpRequest:
    params = {"watch": "1", "resourceVersion": version_, "timeoutSeconds": "1", **more}
    path = CONFIG_MAPS.path(api.namespace)
    return HttpRequest(method="GET", path=path, params=params, accept=METADATA)


@asynccontextmanager
async def watching(
    api: ContractServer, version_: str, *, label: str = "", field: str = ""
) -> AsyncIterator[AsyncIterator[bytes]]:
    more = {"timeoutSeconds": "60"}
    if label:
        more["labelSelector"] = label
    if field:
        more["fieldSelector"] = field
    lines = api.transport.watch(watch_request(api, version_, more))
    try:
        yield lines
    finally:
        await lines.aclose()


async def next_types(lines: AsyncIterator[bytes], count: int) -> list[str]:
    async with asyncio.timeout(30):
        return [str(json.loads(await anext(lines))["type"]) for _ in range(count)]
