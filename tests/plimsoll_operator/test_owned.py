"""Children that another client deleted or changed are noticed, reconciled and restored."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from tests.plimsoll_operator.builders import an_image, replay
from tests.plimsoll_operator.terms import Scene
from tests.plimsoll_operator.test_cluster_handler import committing
from tests.plimsoll_operator.transports import transport_to

from plimsoll_core.cluster.records import UserDeclared
from plimsoll_core.security.state import DeclaredUser, UserObject
from plimsoll_operator.api import labels
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.kube.resources import (
    DISRUPTION_BUDGETS,
    METADATA_BATCHES,
    NAMESPACES,
    SERVICES,
    STATEFUL_SETS,
    Kind,
)
from plimsoll_operator.kube.seen_objects import Objects
from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.options import OperatorOptions
from plimsoll_operator.process.child_watches import OwnedWatches, SeenChildren
from plimsoll_operator.process_clocks import monotonic_ms, wall_ms
from plimsoll_operator.reconcile.cluster import reconcile as cluster
from plimsoll_operator.reconcile.reconcile_term import Task, Work
from plimsoll_operator.status.events import Occurrence

WAIT_S = 30


def an_item(name: str = "main-brokers", version: int = 1, **more: Any) -> dict[str, Any]:
    meta = {
        "name": name,
        "namespace": "kafka",
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "labels": {labels.CLUSTER: "main"},
        **more,
    }
    return {"metadata": meta}


def listed(kind: Kind, *items: dict[str, Any]) -> SeenChildren:
    seen = SeenChildren(kind)
    seen.list(items)
    return seen


def test_first_list_reports_nothing_and_later_differences():
    seen = listed(SERVICES, an_item("a"), an_item("b"))
    assert seen.changed == []
    seen.list((an_item("a", 2), an_item("c")))
    assert sorted(seen.changed) == [
        (("kafka", "a"), "main", False),
        (("kafka", "b"), "main", True),
        (("kafka", "c"), "main", False),
    ]


def test_stateful_set_status_is_no_change():
    seen = listed(STATEFUL_SETS, an_item("x", 1, generation=1))
    seen.event("MODIFIED", an_item("x", 2, generation=1))
    assert seen.changed == []
    seen.event("MODIFIED", an_item("x", 3, generation=2))
    assert seen.changed == [(("kafka", "x"), "main", False)]


def test_deleted_batch_is_a_change_written_not():
    seen = listed(METADATA_BATCHES, an_item("x"))
    seen.event("MODIFIED", an_item("x", 2))
    assert seen.changed == []
    seen.event("DELETED", an_item("x", 3))
    assert seen.changed == [(("kafka", "x"), "main", True)]


# --- over the wire -------------------------------------------------------------------------------


class Watched:
    """An API server that lists one object of each kind and then tells one change."""

    def __init__(self, kind: Kind, change: dict[str, Any]) -> None:
        self.kind, self.change = kind, change
        self.selectors: set[str | None] = set()
        self.accepts: set[str] = set()
        self.over = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        mine = request.path.endswith(f"/{self.kind.plural}")
        self.accepts.add(request.headers["Accept"])
        if "watch" not in request.query:
            if mine:
                self.selectors.add(request.query.get("labelSelector"))
            items = [an_item(self.change["object"]["metadata"]["name"])] if mine else []
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        response = web.StreamResponse()
        await response.prepare(request)
        if mine:
            await response.write(json.dumps(self.change).encode() + b"\n")
        await self.over.wait()
        return response


class Offers:
    """Stands in for the clusters."""

    def __init__(self) -> None:
        self.works: asyncio.Queue[Work] = asyncio.Queue()
        self.delays_ms: dict[Work, int] = {}

    def offer(self, _: tuple[str, str], work: Work, after_ms: int = 0) -> None:
        self.delays_ms[work] = after_ms
        self.works.put_nowait(work)


@asynccontextmanager
async def watching(server: Watched, objects: Objects, leaders: Any = None) -> AsyncIterator[Offers]:
    app = web.Application()
    app.router.add_get("/{tail:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    transport = transport_to(f"http://{host}:{port}", connections=0)
    kube = KubeApi(transport)
    none: Any = None
    parts = Parts(
        options=OperatorOptions(identity="x", broker_image="b:1", controllers=("c:1",)),
        kube=kube,
        lease_kube=kube,
        status_kube=kube,
        watch_kube=kube,
        metadata_log=none,
        objects=objects,
        server=none,
        metrics=none,
        now_ms=wall_ms,
        monotonic_ms=monotonic_ms,
    )
    parts.leaders.update(leaders or {})
    offers = Offers()
    task = asyncio.create_task(OwnedWatches(parts, offers).run())  # type: ignore[arg-type]
    try:
        yield offers
    finally:
        task.cancel()
        await asyncio.wait([task])
        server.over.set()
        await transport.close()
        await runner.cleanup()


@pytest.mark.parametrize(
    ("kind", "task"),
    [
        (STATEFUL_SETS, Task.CLUSTER),
        (DISRUPTION_BUDGETS, Task.CLUSTER),
        (METADATA_BATCHES, Task.LOG),
    ],
    ids=lambda value: str(getattr(value, "plural", "")),
)
async def test_deleted_child_is_looked_at_at_once(kind: Kind, task: Task):
    server = Watched(kind, {"type": "DELETED", "object": an_item(version=2)})
    async with watching(server, Objects()) as offers, asyncio.timeout(WAIT_S):
        work = await offers.works.get()
        assert work == Work(task, ("kafka", "main"))
    # Many objects of a log go together, and one Event tells of them.
    assert (offers.delays_ms[work] > 0) == (task is Task.LOG)
    assert server.selectors == {labels.CLUSTER}
    assert all("PartialObjectMetadata" in one for one in server.accepts), "no content is asked for"


async def test_namespace_label_change_requeues_its_topics_only():
    objects = Objects()
    for name, namespace in (("a", "team"), ("b", "other"), ("c", "kafka")):
        spec = {"clusterRef": {"name": "main", "namespace": "kafka"}}
        meta = {"name": name, "namespace": namespace, "uid": name}
        objects.topics.put({"metadata": meta, "spec": spec})
    change = an_item("team", 2, namespace="", labels={"new": "label"})
    server = Watched(NAMESPACES, {"type": "MODIFIED", "object": change})
    async with watching(server, objects) as offers, asyncio.timeout(WAIT_S):
        assert await offers.works.get() == Work(Task.TOPIC, ("team", "a"))
        assert offers.works.empty()


async def test_terminating_namespace_requeues_users_with_deleted_objects():
    row = DeclaredUser(object=UserObject(namespace="team", name="a", uid="u"), user_name="team.a")
    term = SimpleNamespace(image=replay(an_image(), UserDeclared(cause="t", user=row)))
    change = an_item("team", 1, namespace="", deletionTimestamp="2026-01-01T00:00:00Z")
    server = Watched(NAMESPACES, {"type": "MODIFIED", "object": change})
    leaders: Any = {("kafka", "main"): SimpleNamespace(term=term)}
    async with watching(server, Objects(), leaders) as offers, asyncio.timeout(WAIT_S):
        assert await offers.works.get() == Work(Task.USER, ("team", "a"))
        assert offers.works.empty()


# --- made again ----------------------------------------------------------------------------------


async def a_scene() -> tuple[Scene, list[Occurrence]]:
    scene = Scene(an_image(()))
    committing(scene)
    events: list[Occurrence] = []
    scene.effects.tell = events.append
    await scene.run(cluster.reconcile)
    await scene.run(cluster.reconcile)
    assert events == []
    return scene, events


async def test_deleted_child_is_recreated_with_event():
    scene, events = await a_scene()
    scene.kube.drop(SERVICES, "kafka", "main-bootstrap")
    scene.kube.drop(STATEFUL_SETS, "kafka", "main-broker-1")
    await scene.run(cluster.reconcile)
    assert [(e.reason, e.message) for e in events] == [
        ("Restored", f"{what} was deleted by another client; the operator restored it.")
        for what in ("Service main-bootstrap", "StatefulSet main-broker-1")
    ]


async def test_changed_child_is_restored_with_event():
    scene, events = await a_scene()
    found = scene.kube.find(SERVICES, "kafka", "main-bootstrap")
    right = found["spec"]
    scene.kube.put(SERVICES, {**found, "spec": {**right, "selector": {"app": "other"}}})
    await scene.run(cluster.reconcile)
    assert scene.kube.find(SERVICES, "kafka", "main-bootstrap")["spec"] == right
    assert "Service main-bootstrap was changed" in events[0].message


async def test_stateful_set_without_labels_gets_them_back():
    scene, events = await a_scene()
    found = scene.kube.find(STATEFUL_SETS, "kafka", "main-broker-1")
    right = found["metadata"]["labels"]
    bare = {**found["metadata"], "labels": {"theirs": "1"}}
    scene.kube.put(STATEFUL_SETS, {**found, "metadata": bare})
    await scene.run(cluster.reconcile)
    shown = scene.kube.find(STATEFUL_SETS, "kafka", "main-broker-1")["metadata"]["labels"]
    assert shown == {**right, "theirs": "1"}
    assert "lost labels" in events[0].message
