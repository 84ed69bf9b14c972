"""Objects that Kubernetes refuses, and with which the controllers in memory cannot work."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from plimsoll_operator.api_server import jobs
from plimsoll_operator.api_server.kinds import shipped
from plimsoll_operator.api_server.kubelets import RuntimeState, Workloads
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.kube.kube_api import HttpRequest, Object
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    JOBS,
    PODS,
    STATEFUL_SETS,
    TOPICS,
    VOLUME_CLAIMS,
    Kind,
)

CONTAINERS = [{"name": "a", "image": "b"}]
WHOLE = {"template": {"spec": {"containers": CONTAINERS}}}


class Running:
    """A runtime in which every pod runs at once."""

    def place(self, pod: Object) -> str:
        return "node"

    def start(self, pod: Object) -> None: ...

    def stop(self, pod: Object, grace_seconds: int) -> None: ...

    def state(self, pod: Object) -> RuntimeState:
        return RuntimeState(phase="Running", ready=True)

    def has_ended(self, pod: Object) -> bool:
        return True


class Server(MemoryApiServer):
    def __init__(self) -> None:
        numbers = itertools.count()
        super().__init__(
            lambda: 1_700_000_000_000, lambda: f"uid-{next(numbers)}", definitions=shipped()
        )

    def post(self, kind: Kind, name: str = "x", **body: Any) -> tuple[int, Object]:
        meta = {"name": name, **body.pop("metadata", {})}
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **body}
        request = HttpRequest(
            method="POST", path=kind.path("default"), body=json.dumps(whole).encode()
        )
        answer = self.handle(request)
        return answer.status, json.loads(answer.body)

    def control(self) -> None:
        jobs.reconcile(self)
        Workloads(self, Running()).reconcile()


def a_pod(**spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": CONTAINERS, **spec}}


@pytest.mark.parametrize(
    ("kind", "body", "field"),
    [
        (JOBS, {}, "spec.template.spec"),
        (JOBS, {"spec": {"template": {}}}, "spec.template.spec"),
        (JOBS, {"spec": {**WHOLE, "backoffLimit": "3"}}, "spec.backoffLimit"),
        (STATEFUL_SETS, {"spec": {"replicas": 1}}, "spec.template.spec"),
        (STATEFUL_SETS, {"spec": {**WHOLE, "replicas": "1"}}, "spec.replicas"),
        (
            STATEFUL_SETS,
            {"spec": {**WHOLE, "volumeClaimTemplates": [{"metadata": {"name": "data"}}]}},
            "spec.volumeClaimTemplates[0].spec.resources.requests.storage",
        ),
        (PODS, {"spec": {"containers": [{"name": "a"}]}}, "spec.containers[0].image"),
        (
            PODS,
            a_pod(volumes=[{"name": "v", "persistentVolumeClaim": {}}]),
            "spec.volumes[0].persistentVolumeClaim.claimName",
        ),
        (VOLUME_CLAIMS, {"spec": {}}, "spec.resources.requests.storage"),
        (
            CONFIG_MAPS,
            {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]}},
            "metadata.ownerReferences[0].uid",
        ),
        (TOPICS, {"metadata": {"finalizers": "x"}}, "metadata.finalizers"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_object_without_a_required_field_is_invalid(
    kind: Kind, body: dict[str, Any], field: str
) -> None:
    """It ended a local cluster, at each start anew."""
    server = Server()
    status, told = server.post(kind, **body)
    assert status == 422
    assert field in [cause["field"] for cause in told["details"]["causes"]]
    server.control()


def test_pod_under_another_name_ends_no_controller() -> None:
    server = Server()
    _, made = server.post(STATEFUL_SETS, "set", spec={**WHOLE, "replicas": 1})
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "set"}
    owners = [{**owner, "uid": made["metadata"]["uid"], "controller": True}]
    assert server.post(PODS, "stray", metadata={"ownerReferences": owners}, **a_pod())[0] == 201
    server.control()
    names = {pod.key[1] for pod in server.store.listed(server.store.resources[PODS.path()], None)}
    assert names == {"set-0", "stray"}
