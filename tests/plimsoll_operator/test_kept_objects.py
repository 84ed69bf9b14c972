"""The objects of a local cluster between two starts: what is kept, and what files own of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from plimsoll_operator.api.labels import BROKER_ID
from plimsoll_operator.api.load import from_yaml
from plimsoll_operator.api_server.stateful_sets import found, listed
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import HttpRequest, Object
from plimsoll_operator.local.documents import Documents, gather
from plimsoll_operator.local.kept_objects import LocalObjects, NotApplied
from plimsoll_operator.local.layout import BadDirectory, DirectoryLayout
from plimsoll_operator.metalog.directory import write_whole

HEAD = "apiVersion: plimsoll.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\n"
TOPIC = HEAD.format(kind="Topic", name="t") + (
    "spec: {clusterRef: {name: main}, partitions: 3, config: {retention.ms: 5}}\n"
)
MERGE = "application/merge-patch+json"


def documents(text: str) -> Documents:
    gathered = gather(list(from_yaml(text)), None)
    assert isinstance(gathered, Documents)
    return gathered


def again(objects: LocalObjects) -> LocalObjects:
    objects.save()
    return LocalObjects(objects.layout)


def topic(objects: LocalObjects) -> Object:
    stored = found(objects.server, resources.TOPICS, "default", "t")
    assert stored is not None
    return stored.body


def patch(objects: LocalObjects, body: Object) -> None:
    path = resources.TOPICS.path("default", "t")
    request = HttpRequest(
        method="PATCH", path=path, body=msgspec.json.encode(body), content_type=MERGE
    )
    assert objects.server.handle(request).status == 200


@pytest.fixture
def objects(tmp_path: Path) -> LocalObjects:
    layout = DirectoryLayout(tmp_path)
    layout.prepare()
    return LocalObjects(layout)


async def test_object_in_file_keeps_the_uid_of_name(
    objects: LocalObjects,
) -> None:
    (wanted,) = documents(TOPIC).others
    objects.apply(wanted)
    restored = again(objects)
    assert topic(restored)["metadata"]["uid"] == wanted.metadata.uid
    assert restored.apply(wanted).metadata["generation"] == 1


async def test_kept_object_without_required_field_is_dropped(
    objects: LocalObjects, caplog: pytest.LogCaptureFixture
) -> None:
    objects.server.seed(resources.JOBS, {"metadata": {"name": "j", "namespace": "default"}})
    assert found(again(objects).server, resources.JOBS, "default", "j") is None
    assert "does not load Job j" in caplog.text


async def test_field_removed_from_file_is_removed_alone(
    objects: LocalObjects,
) -> None:
    (wanted,) = documents(TOPIC).others
    objects.apply(wanted)
    patch(objects, {"spec": {"minInSyncReplicas": 1}})
    restored = again(objects)
    (edited,) = documents(TOPIC.replace(", config: {retention.ms: 5}", "")).others
    restored.apply(edited)
    assert topic(restored)["spec"]["minInSyncReplicas"] == 1
    assert "config" not in topic(restored)["spec"]


async def test_object_with_changed_immutable_field_is_recreated(
    objects: LocalObjects,
) -> None:
    move = HEAD.format(kind="Reassignment", name="away") + (
        "spec: {clusterRef: {name: main}, moves: [{topic: t, awayFrom: [1]}]}\n"
    )
    (first,) = documents(move).others
    (second,) = documents(move.replace("[1]", "[2]")).others
    objects.apply(first)
    stored = again(objects).apply(second)
    assert stored.metadata["uid"] == second.metadata.uid != first.metadata.uid


async def test_object_against_the_schema_is_refused(
    objects: LocalObjects,
) -> None:
    (wanted,) = documents(TOPIC).others
    bad = msgspec.structs.replace(wanted, spec=msgspec.structs.replace(wanted.spec, partitions=0))
    with pytest.raises(NotApplied, match=r"Topic t: .*partitions"):
        objects.apply(bad)


async def test_pods_are_kept_without_stale_state(
    objects: LocalObjects,
) -> None:
    pod = {
        "metadata": {"name": "p", "namespace": "default", "uid": "kept"},
        "spec": {"containers": [{"name": "broker", "image": "b"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    objects.server.seed(resources.PODS, pod)
    (restored,) = listed(again(objects).server, resources.PODS)
    assert restored.metadata["uid"] == "kept"
    assert restored.body["status"] == {"phase": "Pending"}


@pytest.mark.parametrize(
    ("phase", "after"),
    [("Running", "Failed"), ("Pending", "Failed"), ("Succeeded", "Succeeded")],
)
async def test_pod_run_once_is_not_repeated(objects: LocalObjects, phase: str, after: str) -> None:
    pod = {
        "metadata": {"name": "driver", "namespace": "default", "uid": "kept"},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "driver", "image": "s"}]},
        "status": {"phase": phase},
    }
    objects.server.seed(resources.PODS, pod)
    (restored,) = listed(again(objects).server, resources.PODS)
    assert restored.body["status"]["phase"] == after


async def test_pods_of_brokers_are_dropped_and_others_stay(objects: LocalObjects) -> None:
    for name, own in (("broker", {BROKER_ID: "0"}), ("driver", {})):
        meta = {"name": name, "namespace": "default", "labels": own}
        objects.server.seed(resources.PODS, {"metadata": meta, "spec": {"containers": []}})
    objects.drop_brokers()
    assert [pod.key[1] for pod in listed(objects.server, resources.PODS)] == ["driver"]


async def test_leases_are_not_kept(objects: LocalObjects) -> None:
    lease = {"metadata": {"name": "l", "namespace": "default"}, "spec": {"holderIdentity": "me"}}
    objects.server.seed(resources.LEASES, lease)
    assert listed(again(objects).server, resources.LEASES) == []


async def test_spec_change_is_written_without_request(
    objects: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, written = asyncio.get_running_loop(), asyncio.Event()

    def write(path: Path, content: bytes, *, private: bool) -> None:
        write_whole(path, content, private=private)
        loop.call_soon_threadsafe(written.set)

    monkeypatch.setattr("plimsoll_operator.local.kept_objects.write_whole", write)
    saving = asyncio.ensure_future(objects.save_forever())
    (wanted,) = documents(TOPIC).others
    objects.apply(wanted)
    async with asyncio.timeout(30):
        await written.wait()
    saving.cancel()
    assert topic(LocalObjects(objects.layout))["spec"]["partitions"] == 3


async def test_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    layout = DirectoryLayout(tmp_path)
    layout.objects.write_text("[]")
    with pytest.raises(BadDirectory, match=r"objects\.json"):
        LocalObjects(layout)
