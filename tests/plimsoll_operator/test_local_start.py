"""A local cluster's start: what the operator finds when it begins."""

from __future__ import annotations

import logging
import uuid
from pathlib import Path

import pytest
from tests.plimsoll_operator.test_operator import parts_over

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_operator.api.labels import BROKER_ID
from plimsoll_operator.api.load import from_yaml
from plimsoll_operator.api_server.stateful_sets import listed
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.resources import Kind
from plimsoll_operator.local.broker_pods import BrokerPods
from plimsoll_operator.local.documents import Documents, gather, manifest
from plimsoll_operator.local.kept_objects import LocalObjects
from plimsoll_operator.local.layout import DirectoryLayout
from plimsoll_operator.local.ports import Ports
from plimsoll_operator.local.start import Start

OWN = uuid.UUID("11111111-2222-3333-4444-555555555555")
OTHER = uuid.UUID("99999999-2222-3333-4444-555555555555")
HEAD = "apiVersion: plimsoll.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\n"
CLUSTER = HEAD.format(kind="LogCluster", name="main") + (
    "spec: {brokers: {count: 3}, storage: {size: 1Gi}}\n---\n"
)
TOPIC = HEAD.format(kind="Topic", name="t") + "spec: {clusterRef: {name: main}}\n---\n"
MOVE = HEAD.format(kind="Reassignment", name="away") + (
    "spec: {clusterRef: {name: main}, moves: [{topic: t, awayFrom: [1]}]}\n---\n"
)
POD = {
    "metadata": {
        "name": "main-broker-0-0",
        "namespace": "default",
        "labels": {BROKER_ID: "0"},
    },
    "spec": {"containers": [{"name": "broker", "image": "b"}]},
}


def documents(text: str) -> Documents:
    found = gather(list(from_yaml(text)), None)
    assert isinstance(found, Documents)
    return found


class Directory:
    """One directory, started as often as it likes; `objects` are those of the latest start."""

    def __init__(self, root: Path) -> None:
        self.layout = DirectoryLayout(root)
        self.layout.prepare()
        self.objects = LocalObjects(self.layout)

    def start(self, text: str, *, applied: bool = True) -> None:
        self.objects = LocalObjects(self.layout)
        server = self.objects.server
        pods = BrokerPods(server, self.layout, lambda _: Ports(kafka=1, metrics=2), restart=True)
        image = ClusterImage(cluster_id=OWN)
        wanted = documents(text)
        Start(parts_over(server), self.objects, pods, wanted, image).prepare(OWN)
        if applied:
            for one in wanted.others:
                self.objects.apply(one)
        self.objects.save()

    def uids(self, kind: Kind) -> list[str]:
        return [stored.metadata["uid"] for stored in listed(self.objects.server, kind)]


@pytest.fixture
async def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


async def test_log_cluster_has_the_directorys_uid(directory: Directory) -> None:
    directory.start(CLUSTER)
    assert directory.uids(resources.LOG_CLUSTERS) == [str(OWN)]


async def test_log_cluster_of_other_id_is_replaced(
    directory: Directory,
) -> None:
    body = manifest(documents(CLUSTER).cluster)
    body["metadata"]["uid"] = str(OTHER)
    directory.objects.server.seed(resources.LOG_CLUSTERS, body)
    directory.objects.save()
    directory.start(CLUSTER)
    assert directory.uids(resources.LOG_CLUSTERS) == [str(OWN)]


async def test_allowed_namespaces_are_said_unenforced_locally(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    listener = "listeners: [{name: own, port: 19094, allowedNamespaces: {from: Same}}]"
    directory.start(CLUSTER)
    assert "allowedNamespaces" not in caplog.text
    directory.start(CLUSTER.replace("spec: {", f"spec: {{{listener}, "))
    assert "Listener own: allowedNamespaces has no effect in a local cluster" in caplog.text


async def test_rules_that_are_not_checked_locally_are_named(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    """What a local cluster takes may be refused by Kubernetes."""
    caplog.set_level(logging.INFO)
    directory.start(CLUSTER)
    assert "not against their CEL rules" in caplog.text


async def test_removed_reassignment_is_deleted_and_topic_stays(
    directory: Directory,
) -> None:
    directory.start(CLUSTER + TOPIC + MOVE)
    assert len(directory.uids(resources.REASSIGNMENTS)) == 1
    directory.start(CLUSTER)
    assert directory.uids(resources.REASSIGNMENTS) == []
    assert len(directory.uids(resources.TOPICS)) == 1


async def test_edited_reassignment_goes_before_the_operator_sees_it(directory: Directory) -> None:
    directory.start(CLUSTER + MOVE)
    directory.start(CLUSTER + MOVE.replace("[1]", "[2]"), applied=False)
    assert directory.uids(resources.REASSIGNMENTS) == []


async def test_pods_are_kept_unless_cluster_was_edited(directory: Directory) -> None:
    directory.start(CLUSTER)
    directory.objects.server.seed(resources.PODS, POD)
    directory.objects.save()
    directory.start(CLUSTER)
    assert len(directory.uids(resources.PODS)) == 1
    directory.start(CLUSTER.replace("count: 3", "count: 4"))
    assert directory.uids(resources.PODS) == []
