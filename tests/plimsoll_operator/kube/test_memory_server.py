"""What only the API server in memory has: going back in time, a bounded history, seeds, garbage."""

import itertools
import json

import pytest

from plimsoll_operator.api_server import garbage_collection, store
from plimsoll_operator.api_server.discovery import document
from plimsoll_operator.api_server.kinds import shipped
from plimsoll_operator.api_server.server import MemoryApiServer, MemoryTransport
from plimsoll_operator.api_server.store import ObjectChange
from plimsoll_operator.kube.errors import NotFound, Rejected
from plimsoll_operator.kube.kube_api import HttpRequest, KubeApi, Object
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    CRDS,
    NAMESPACES,
    STATEFUL_SETS,
    TOPICS,
    VOLUME_CLAIMS,
)

STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture
def server() -> MemoryApiServer:
    uids = itertools.count(1)
    return MemoryApiServer(
        lambda: 1_800_000_000_000,
        lambda: f"uid-{next(uids)}",
        definitions=shipped(),
        namespaces=("kafka",),
    )


@pytest.fixture
def kube(server: MemoryApiServer) -> KubeApi:
    return KubeApi(MemoryTransport(server))


def config_map(name: str = "one", value: str = "1") -> Object:
    meta = {"name": name, "namespace": "kafka"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": value}}


def watch_since(version: str) -> HttpRequest:
    path = CONFIG_MAPS.path("kafka")
    return HttpRequest(method="GET", path=path, params={"resourceVersion": version})


def types(lines: list[bytes]) -> list[str]:
    return [json.loads(line)["type"] for line in lines]


async def test_restored_server_has_backup_and_its_revision(server: MemoryApiServer, kube: KubeApi):
    made = await kube.create(CONFIG_MAPS, config_map())
    backup = server.store.backup()
    stored = await kube.replace(CONFIG_MAPS, {**made, "data": {"a": "2"}})
    await kube.create(CONFIG_MAPS, config_map("two"))
    server.store.restore(backup)
    assert await kube.get(CONFIG_MAPS, "kafka", "one") == made
    again = await kube.replace(CONFIG_MAPS, {**made, "data": {"a": "3"}})
    assert again["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]
    with pytest.raises(NotFound):
        await kube.get(CONFIG_MAPS, "kafka", "two")


async def test_watch_ends_when_server_is_restored(server: MemoryApiServer):
    backup = server.store.backup()
    watch = server.watch(watch_since(str(server.store.revision)))
    woken: list[bool] = []
    watch.on_line = lambda: woken.append(watch.ended)
    server.store.restore(backup)
    assert woken == [True]
    assert watch.take() == []
    assert server.store.at_restore == []


async def test_watch_from_lost_version_waits_for_it(server: MemoryApiServer, kube: KubeApi):
    backup = server.store.backup()
    await kube.create(CONFIG_MAPS, config_map())
    lost = str(server.store.revision)
    server.store.restore(backup)
    watch = server.watch(watch_since(lost))
    made = await kube.create(CONFIG_MAPS, config_map())
    assert made["metadata"]["resourceVersion"] == lost
    assert watch.take() == []
    await kube.replace(CONFIG_MAPS, {**made, "data": {"a": "2"}})
    assert types(watch.take()) == ["MODIFIED"]


async def test_watch_from_before_history_must_list_again(server: MemoryApiServer):
    watch = server.watch(watch_since(str(store.FIRST_REVISION - 1)))
    assert json.loads(watch.take()[0])["object"]["reason"] == "Expired"


def test_history_is_bounded():
    server = MemoryApiServer(lambda: 0, lambda: "uid")
    before = str(server.store.revision)
    for turn in range(store.HISTORY_CHANGES + 1):
        server.seed(NAMESPACES, {"metadata": {"name": "default", "labels": {"a": str(turn)}}})
    assert types(server.watch(watch_since(before)).take()) == ["ERROR"]
    assert len(server.store.history) == store.HISTORY_CHANGES


async def test_closed_watch_leaves_no_observer(server: MemoryApiServer, kube: KubeApi):
    watch = server.watch(watch_since(""))
    await kube.create(CONFIG_MAPS, config_map())
    assert types(watch.take()) == ["ADDED"]
    watch.close()
    assert server.store.observers == []


async def test_observer_hears_of_a_write_before_its_writer(server: MemoryApiServer, kube: KubeApi):
    heard: list[tuple[str, str]] = []

    def hear(change: ObjectChange) -> None:
        heard.append((change.type, change.after.metadata["name"]))

    server.store.observers.append(hear)
    made = await kube.create(CONFIG_MAPS, config_map())
    await kube.replace(CONFIG_MAPS, {**made, "data": {}})
    await kube.delete(CONFIG_MAPS, "kafka", "one", uid=made["metadata"]["uid"])
    assert heard == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]


async def test_next_page_of_a_forgotten_list_is_expired(server: MemoryApiServer):
    path = CONFIG_MAPS.path("kafka")
    params = {"limit": "1", "continue": "1.1"}
    answer = server.handle(HttpRequest(method="GET", path=path, params=params))
    assert (answer.status, json.loads(answer.body)["reason"]) == (410, "Expired")


async def test_seeded_object_keeps_its_status_and_uid(server: MemoryApiServer, kube: KubeApi):
    meta = {"name": "orders", "namespace": "kafka", "uid": "mine"}
    server.seed(TOPICS, {"metadata": meta, "spec": {}, "status": {"partitions": 2}})
    found = await kube.get(TOPICS, "kafka", "orders")
    assert (found["metadata"]["uid"], found["status"]) == ("mine", {"partitions": 2})


async def test_namespace_goes_after_everything_in_it(server: MemoryApiServer, kube: KubeApi):
    await kube.create(CONFIG_MAPS, config_map())
    uid = (await kube.get(NAMESPACES, None, "kafka"))["metadata"]["uid"]
    server.handle(HttpRequest(method="DELETE", path=NAMESPACES.path(None, "kafka")))
    going = await kube.get(NAMESPACES, None, "kafka")
    assert (going["metadata"]["uid"], going["status"]["phase"]) == (uid, "Terminating")
    with pytest.raises(Rejected, match="because it is being terminated"):
        await kube.create(CONFIG_MAPS, config_map("late"))
    garbage_collection.collect(server)
    with pytest.raises(NotFound):
        await kube.get(NAMESPACES, None, "kafka")
    assert not server.store.table(server.store.resources[CONFIG_MAPS.path()])


async def test_definition_goes_with_all_its_objects(server: MemoryApiServer, kube: KubeApi):
    meta = {"name": "orders", "namespace": "kafka"}
    server.seed(TOPICS, {"metadata": meta, "spec": {}})
    path = CRDS.path(None, "topics.plimsoll.dev")
    server.handle(HttpRequest(method="DELETE", path=path))
    assert await kube.get(TOPICS, "kafka", "orders")
    garbage_collection.collect(server)
    for kind, namespace, name in ((TOPICS, "kafka", "orders"), (CRDS, None, "topics.plimsoll.dev")):
        with pytest.raises(NotFound):
            await kube.get(kind, namespace, name)


async def test_claim_is_protected_until_its_finalizer_is_taken(kube: KubeApi):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": "data", "namespace": "kafka"}
    made = await kube.create(VOLUME_CLAIMS, {"metadata": meta, "spec": spec})
    await kube.delete(VOLUME_CLAIMS, "kafka", "data", uid=made["metadata"]["uid"])
    going = await kube.get(VOLUME_CLAIMS, "kafka", "data")
    assert going["metadata"]["deletionTimestamp"]
    await kube.merge(VOLUME_CLAIMS, "kafka", "data", {"metadata": {"finalizers": []}})
    with pytest.raises(NotFound):
        await kube.get(VOLUME_CLAIMS, "kafka", "data")


async def test_claim_may_grow_and_change_nothing_else(kube: KubeApi):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": "data", "namespace": "kafka"}
    await kube.create(VOLUME_CLAIMS, {"metadata": meta, "spec": spec})
    more = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    assert await kube.merge(VOLUME_CLAIMS, "kafka", "data", more)
    with pytest.raises(Rejected, match="spec is immutable after creation"):
        await kube.merge(VOLUME_CLAIMS, "kafka", "data", {"spec": {"storageClassName": "x"}})


def test_discovery_names_every_kind_with_its_short_names(server: MemoryApiServer):
    served = list(server.store.resources.values())
    groups = document("/apis", served)
    assert groups is not None
    assert "plimsoll.dev" in [group["name"] for group in groups["groups"]]
    listed = document("/apis/plimsoll.dev/v1alpha1", served)
    assert listed is not None
    rows = {row["name"]: row for row in listed["resources"]}
    assert (rows["topics"]["shortNames"], "topics/status" in rows) == (("plt",), True)
    assert document("/api/v1/namespaces/kafka/pods", served) is None
    assert document("/apis/v1", served) is None


async def test_strategic_patch_merges_containers_by_name(server: MemoryApiServer, kube: KubeApi):
    template = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}}
    meta = {"name": "main", "namespace": "kafka"}
    await kube.create(STATEFUL_SETS, {"metadata": meta, "spec": {"template": template}})
    containers = [{"name": "b", "image": "2"}, {"name": "a", "$patch": "delete"}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    path = STATEFUL_SETS.path("kafka", "main")
    body = json.dumps(patch).encode()
    answer = server.handle(
        HttpRequest(method="PATCH", path=path, body=body, content_type=STRATEGIC)
    )
    left = json.loads(answer.body)["spec"]["template"]["spec"]["containers"]
    assert [(one["name"], one["image"]) for one in left] == [("b", "2")]
