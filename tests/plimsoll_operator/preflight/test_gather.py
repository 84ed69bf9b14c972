"""Preflight against an API server in memory: what it reads, and that it leaves nothing behind."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.plimsoll_operator.preflight.reviewing import ReviewingTransport, a_server

from plimsoll_operator.api import labels
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import HttpRequest, HttpResponse, KubeApi
from plimsoll_operator.preflight import gather
from plimsoll_operator.preflight.checklist import BEFORE, CHECKS, verdicts
from plimsoll_operator.preflight.facts import Appends, NotRead, Verdict, Webhooks, Wishes
from plimsoll_operator.preflight.gather import APPEND_NAME, APPENDS, Gatherer
from plimsoll_operator.preflight.rights import READ_NODES, VERIFICATION, needed

VALUES = frozenset({READ_NODES, VERIFICATION})


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server in memory answers at once, however long that takes on a busy machine."""
    monkeypatch.setattr(gather, "time", SimpleNamespace(monotonic=lambda: 0.0))


class Scene:
    def __init__(
        self, *, installed: bool = True, wishes: Wishes | None = None, **transport: Any
    ) -> None:
        self.server = a_server(installed=installed)
        self.transport = ReviewingTransport(self.server, **transport)
        self.wishes = wishes or Wishes(namespace="kafka", values=VALUES)
        kube = KubeApi(self.transport)
        self.gatherer = Gatherer(kube, self.transport, self.wishes)
        self.seed_class()

    def seed_class(self) -> None:
        meta = {"name": "std", "annotations": {labels.DEFAULT_CLASS: "true"}}
        body = {"metadata": meta, "volumeBindingMode": "WaitForFirstConsumer"}
        self.server.seed(resources.STORAGE_CLASSES, {**body, "allowVolumeExpansion": True})

    def seed_operator(self, ready: int) -> None:
        own = {labels.NAME: "plimsoll", labels.COMPONENT: "operator"}
        meta = {"name": "plimsoll", "namespace": "kafka", "labels": own}
        status = {"readyReplicas": ready} if ready else {}
        body = {"metadata": meta, "spec": {"replicas": 2}, "status": status}
        self.server.seed(resources.DEPLOYMENTS, body)

    async def run(self, *checks: str) -> dict[str, Verdict]:
        found = await verdicts(self.gatherer, self.wishes, checks or BEFORE)
        return {one.check: one for one in found}

    def names(self, kind: resources.Kind) -> list[str]:
        rows = self.server.handle(HttpRequest(method="GET", path=kind.path("kafka"))).body.decode()
        return [APPEND_NAME] if APPEND_NAME in rows else []


@pytest.mark.parametrize("installed", [False, True], ids=["before", "after"])
async def test_good_kubernetes_passes_every_check_and_keeps_nothing(installed: bool):
    scene = Scene(installed=installed)
    found = await scene.run()
    assert list(found) == list(BEFORE)
    assert {one.result for one in found.values()} == {"ok"}, found
    written = resources.METADATA_BATCHES if installed else resources.CONFIG_MAPS
    assert f"{APPENDS} writes of one {written.kind}" in found["api-latency"].message
    assert scene.transport.requests.count(f"PUT {written.path('kafka', APPEND_NAME)}") == 99
    assert scene.names(written) == []


async def test_rights_are_checked_in_every_watched_namespace():
    wishes = Wishes(namespace="system", watched=("kafka", "shop"), values=VALUES)
    scene = Scene(wishes=wishes, denied={"patch topics"})
    verdict = (await scene.run("rights"))["rights"]
    assert "patch topics.plimsoll.dev/status in namespace kafka" in verdict.message
    assert "patch topics.plimsoll.dev/status in namespace shop" in verdict.message
    for cluster, namespaces in ((True, [""]), (False, ["kafka", "shop"])):
        wanted = {
            (one.verb, one.resource, namespace)
            for one in needed(VALUES, cluster=cluster)
            for namespace in namespaces
        }
        asked = {
            (one["verb"], "/".join(filter(None, (one["resource"], one.get("subresource")))),
             one.get("namespace", ""))
            for one in scene.transport.reviews
        }  # fmt: skip
        assert wanted <= asked


async def test_cluster_wide_rights_are_checked_without_namespace():
    scene = Scene()
    assert (await scene.run("rights"))["rights"].result == "ok"
    assert {one.get("namespace", "") for one in scene.transport.reviews} == {""}


async def test_log_is_left_without_right_to_delete():
    scene = Scene(denied={"delete metadatabatches"})
    found = await scene.gatherer.appends()
    assert isinstance(found, Appends)
    assert found.kind == "ConfigMap"
    assert not [one for one in scene.transport.requests if "metadatabatches" in one]


async def test_missing_namespace_is_a_warning():
    scene = Scene(wishes=Wishes(namespace="nowhere"))
    verdict = (await scene.run("api-latency"))["api-latency"]
    assert verdict.result == "warning"
    assert "create the namespace first" in verdict.message


async def test_object_of_earlier_run_is_reused_and_deleted():
    scene = Scene(installed=False)
    meta = {"name": APPEND_NAME, "namespace": "kafka"}
    scene.server.seed(resources.CONFIG_MAPS, {"metadata": meta})
    found = await scene.gatherer.appends()
    assert isinstance(found, Appends)
    assert (len(found.milliseconds), found.stopped, found.left) == (APPENDS, "", "")
    assert scene.names(resources.CONFIG_MAPS) == []


async def test_two_runs_at_once_are_told_apart(monkeypatch: pytest.MonkeyPatch):
    scene = Scene(installed=False)
    send = scene.transport.send

    async def meddling(request: HttpRequest) -> HttpResponse:
        if request.method == "PUT":
            meta = {"name": APPEND_NAME, "namespace": "kafka"}
            scene.server.seed(resources.CONFIG_MAPS, {"metadata": meta, "data": {"by": "another"}})
        return await send(request)

    monkeypatch.setattr(scene.transport, "send", meddling)
    verdict = (await scene.run("api-latency"))["api-latency"]
    assert verdict.result == "failed"
    assert "another preflight" in verdict.message


async def test_writes_stop_when_their_time_is_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gather, "APPENDS_SECONDS_MAX", -1.0)
    scene = Scene(installed=False)
    found = await scene.gatherer.appends()
    assert isinstance(found, Appends)
    assert found.stopped
    assert len(found.milliseconds) == 1
    assert scene.names(resources.CONFIG_MAPS) == []


async def test_refusing_api_server_warns_and_silent_fails():
    refusing = Scene(forbidden=("/apis/storage.k8s.io",))
    verdict = (await refusing.run("storage-class"))["storage-class"]
    assert verdict.result == "warning"
    assert "administrator's kubeconfig" in verdict.message
    silent = Scene(broken=("/",))
    found = await silent.run(*CHECKS)
    assert {one.result for one in found.values()} == {"failed"}
    assert isinstance(await silent.gatherer.permissions(), NotRead)


async def test_api_server_without_flow_schemas_fails():
    assert (await Scene(flow_schemas=False).run())["priority-and-fairness"].result == "failed"


async def test_webhooks_are_read_with_kubernetes_defaults():
    scene = Scene()
    rule = {"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}
    ignoring = {"name": "ignored.example", "failurePolicy": "Ignore", "rules": [rule]}
    body = {
        "metadata": {"name": "policy"},
        "webhooks": [{"name": "check.example", "rules": [rule]}, ignoring],
    }
    scene.server.seed(resources.VALIDATING_WEBHOOKS, body)
    facts = await scene.gatherer.webhooks()
    assert isinstance(facts, Webhooks)
    assert [one.name for one in facts.failing] == ["check.example"]
    assert set(facts.namespaces) == {"kafka"}, "kube-system is Kubernetes' own"
    verdict = (await scene.run("webhooks"))["webhooks"]
    assert verdict.result == "warning"
    assert "pods in kafka" in verdict.message


async def test_namespace_selector_keeps_a_webhook_away():
    scene = Scene()
    expression = {"key": labels.NAMESPACE_NAME, "operator": "NotIn", "values": ["kafka"]}
    hook = {
        "name": "check.example",
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "operations": ["*"]}],
        "namespaceSelector": {"matchExpressions": [expression]},
    }
    scene.server.seed(resources.MUTATING_WEBHOOKS, {"metadata": {"name": "m"}, "webhooks": [hook]})
    assert (await scene.run("webhooks"))["webhooks"].result == "ok"


@pytest.mark.parametrize(("ready", "result"), [(2, "ok"), (1, "warning"), (0, "failed")])
async def test_installed_release_is_looked_at(ready: int, result: str):
    scene = Scene()
    scene.seed_operator(ready)
    found = await scene.run("kinds-served", "operator-ready")
    assert [one.result for one in found.values()] == ["ok", result]
    bare = await Scene(installed=False).run("kinds-served", "operator-ready")
    assert {one.result for one in bare.values()} == {"failed"}


async def test_interrupted_run_deletes_its_object():
    scene = Scene(installed=False)
    send = scene.transport.send
    running: list[asyncio.Task[Any]] = []

    async def interrupted(request: HttpRequest) -> HttpResponse:
        if request.method == "PUT":
            running[0].cancel()
            await asyncio.sleep(0)
        return await send(request)

    scene.transport.send = interrupted  # type: ignore[method-assign]
    running.append(asyncio.ensure_future(scene.gatherer.appends()))
    await asyncio.wait(running)
    assert running[0].cancelled()
    assert scene.names(resources.CONFIG_MAPS) == []
    assert any(one.startswith("DELETE") for one in scene.transport.requests)
