"""The one list of rights: what the operator does is in it, and the chart's file is made from it."""

import asyncio
import dataclasses
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import yaml
from tests.plimsoll_operator.test_operator import Scene, parts_over

from plimsoll_operator.api_server.kinds import shipped
from plimsoll_operator.api_server.server import MemoryApiServer, MemoryTransport
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.errors import Rejected
from plimsoll_operator.kube.kube_api import APPLY, HttpRequest, HttpResponse, KubeApi
from plimsoll_operator.metalog.kubernetes_log import KubernetesLog
from plimsoll_operator.preflight.rights import (
    READ_NODES,
    RIGHTS,
    VERIFICATION,
    Permission,
    needed,
    render,
)
from plimsoll_operator.process.object_watches import ObjectWatches
from plimsoll_operator.process.operator import Operator
from plimsoll_operator.process_clocks import wall_ms

ROOT = Path(__file__).resolve().parents[3]
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
VALUES = (READ_NODES, VERIFICATION)


class RightsTransport(MemoryTransport):
    """Answers 403 as a real API server does to an account with the chart's roles.

    `namespaces`: with a Role in each; none: a ClusterRole."""

    def __init__(self, server: MemoryApiServer, namespaces: tuple[str, ...]) -> None:
        super().__init__(server)
        self._namespaces = namespaces
        # What was asked without a right to it.
        self.denied: list[str] = []
        self.used: set[Permission] = set()

    async def send(self, request: HttpRequest) -> HttpResponse:
        self._check(request, VERBS.get(request.method, ""))
        return await super().send(request)

    async def watch(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        self._check(request, "watch")
        async for line in super().watch(request):
            yield line

    def _check(self, request: HttpRequest, verb: str) -> None:
        target = self.server.target(request.path)
        kind = target.resource.kind
        plural = kind.plural + ("/status" if target.status else "")
        verbs = [verb or ("get" if target.name else "list")]
        if request.content_type == APPLY and not target.status:
            verbs.append("create")  # as it may have to
        for one in verbs:
            asked = Permission(group=kind.api_version.rpartition("/")[0], resource=plural, verb=one)
            named = dataclasses.replace(asked, name=target.name or "")
            held = {asked, named} & {*needed(VALUES, cluster=not kind.namespaced)}
            reached = not kind.namespaced or not self._namespaces
            if not held or not (reached or target.namespace in self._namespaces):
                self.denied.append(f"{asked} in {target.namespace}")
                raise Rejected(403, f"{request.method} {request.path} answered: forbidden")
            self.used |= held


class NarrowScene(Scene):
    """An operator with the chart's rights; its users' objects are watched by kopf elsewhere, here
    by another account."""

    def __init__(self, namespaces: tuple[str, ...]) -> None:
        self.server = MemoryApiServer(
            wall_ms, lambda: str(uuid.uuid4()), definitions=shipped(), namespaces=("kafka", "shop")
        )
        self.transport = RightsTransport(self.server, namespaces)
        narrow = KubeApi(self.transport)
        wide = parts_over(self.server)
        self.parts = dataclasses.replace(
            wide,
            options=dataclasses.replace(wide.options, namespaces=namespaces),
            lease_kube=narrow,
            status_kube=narrow,
            watch_kube=narrow,
            metadata_log=lambda key, cluster: KubernetesLog(self.transport, *key, cluster),
        )
        user = self.parts.kube
        self.operator = Operator(self.parts, lambda receiver: ObjectWatches(user, receiver))
        self._changed = asyncio.Event()
        self.server.store.observers.append(lambda _: self._changed.set())


@pytest.mark.parametrize("namespaces", [(), ("kafka",)], ids=["everywhere", "one namespace"])
async def test_operator_roles_hold_every_needed_right(namespaces: tuple[str, ...]):
    scene = NarrowScene(namespaces)
    running = await scene.run()
    scene.parts.kube = KubeApi(scene.transport)
    brokers = {f"main-broker-{number}" for number in range(3)}
    await scene.until(lambda: brokers <= set(scene.names(resources.STATEFUL_SETS)))
    used = {(one.verb, one.resource) for one in scene.transport.used}
    assert {("watch", "statefulsets"), ("list", "namespaces"), ("create", "leases")} <= used
    await scene.end(running)
    assert scene.transport.denied == []


def test_charts_file_is_made_from_the_list():
    path = ROOT / "helm/plimsoll/files/rights.yaml"
    command = "python -m plimsoll_operator.preflight.rights helm/plimsoll/files/rights.yaml"
    assert path.read_text() == render(), f"run: {command}"
    assert len([*yaml.safe_load(render())["namespaced"], *yaml.safe_load(render())["cluster"]]) == (
        len(RIGHTS)
    )


def test_command_takes_no_option_for_a_file(tmp_path: Path):
    command = [sys.executable, "-m", "plimsoll_operator.preflight.rights"]
    for option, code in (("--help", 0), ("--nosuch", 2)):
        done = subprocess.run([*command, option], cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == code
    assert list(tmp_path.iterdir()) == []


def test_cluster_wide_grants_are_read_only():
    of_cluster = {kind.plural for kind in vars(resources).values()
                  if isinstance(kind, resources.Kind) and not kind.namespaced}  # fmt: skip
    for right in RIGHTS:
        assert right.cluster == bool(right.urls or {*right.resources} & of_cluster), right
        reviews = {"tokenreviews", "subjectaccessreviews"}  # questions, which nobody stores
        if right.cluster and not {*right.resources} <= reviews:
            assert {*right.verbs} <= {"get", "list", "watch"}
