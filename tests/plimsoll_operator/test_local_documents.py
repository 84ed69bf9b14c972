"""The files of a local cluster as objects: which cluster they are of, and which object each is."""

from __future__ import annotations

from plimsoll_core.errors import Refusal
from plimsoll_operator.api.load import from_yaml
from plimsoll_operator.local.documents import (
    Documents,
    gather,
    ignored,
    local_cluster,
    manifest,
    stranger,
)

HEAD = "apiVersion: plimsoll.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\n"
CLUSTER = HEAD.format(kind="LogCluster", name="main") + (
    "spec: {brokers: {count: 3}, storage: {size: 1Gi}, version: '0.1', racks: {policy: Required}}\n"
)
TOPIC = HEAD.format(kind="Topic", name="t") + "spec: {clusterRef: {name: main}, partitions: 3}\n"
MOVE = HEAD.format(kind="Reassignment", name="away") + (
    "spec: {clusterRef: {name: other}, moves: [{topic: t, awayFrom: [1]}]}\n"
)


def gathered(*texts: str, brokers: int | None = None) -> Documents:
    found = gather([one for text in texts for one in from_yaml(text)], brokers)
    assert isinstance(found, Documents), found
    return found


def uids(documents: Documents) -> list[str]:
    return [one.metadata.uid for one in documents.others]


def test_files_without_log_cluster_use_default() -> None:
    found = gathered(MOVE, TOPIC)
    assert found.cluster.key == ("default", "main")
    assert {one.cluster_key for one in found.others} == {found.cluster.key}
    assert [type(one).__name__ for one in found.others] == ["Topic", "Reassignment"]
    assert stranger(found) == ""


def test_schedule_of_files_keeps_its_uid() -> None:
    """Its Verifications stay its own when the file is edited."""
    head = HEAD.format(kind="VerificationSchedule", name="nightly")
    text = head + (
        "spec: {schedule: '0 2 * * *', template: {clusterRef: {name: other}, topic: t, "
        "allowExisting: true, produce: {records: 1}}}\n"
    )
    found, edited = gathered(TOPIC, text), gathered(TOPIC, text.replace("0 2", "0 3"))
    assert [type(one).__name__ for one in found.others] == ["Topic", "VerificationSchedule"]
    assert found.others[1].cluster_key == ("default", "main"), "there is no other LogCluster"
    assert uids(found) == uids(edited)


def test_topic_of_other_log_cluster_is_named() -> None:
    other = TOPIC.replace("name: main", "name: other")
    found = gathered(CLUSTER, other)
    assert stranger(found) == (
        "Topic t names LogCluster default/other, which is not in the files; the files hold "
        "default/main."
    )


def test_documents_with_two_log_clusters_are_refused() -> None:
    texts = CLUSTER, CLUSTER.replace("name: main", "name: second")
    refused = gather([one for text in texts for one in from_yaml(text)], None)
    assert isinstance(refused, Refusal)
    assert "main, second" in refused.message


def test_count_of_the_command_line_wins() -> None:
    assert gathered(CLUSTER, brokers=5).cluster.count == 5


def test_edited_move_is_another_object() -> None:
    first = gathered(CLUSTER, TOPIC, MOVE)
    grown = TOPIC.replace("partitions: 3", "partitions: 6")
    again = gathered(CLUSTER, grown, MOVE.replace("[1]", "[2]"))
    assert uids(first)[0] == uids(again)[0]
    assert uids(first)[1] != uids(again)[1]


def test_uids_are_those_of_earlier_releases() -> None:
    """Topics and moves in a directory are known by them."""
    assert uids(gathered(CLUSTER, TOPIC, MOVE)) == [
        "b313e1c0-b953-516f-994c-2c51e774b083",
        "c43326ee-43b6-5af8-b606-53da56f57364",
    ]


def test_racks_and_versions_mean_nothing_on_one_machine() -> None:
    body = manifest(local_cluster(gathered(CLUSTER).cluster))
    # Nothing leaves the machine: brokers and the operator talk in plaintext, unless it is stated.
    assert body["spec"] == {
        "brokers": {"count": 3},
        "storage": {"size": "1Gi"},
        "racks": {"policy": "Ignored"},
        "certificates": {"internal": {"mode": "Off"}},
    }


POOLS = "spec: {storage: {size: 1Gi}, pools: [{name: a, firstId: 0, brokers: 1}]}\n"


def test_number_of_brokers_is_refused_beside_pools() -> None:
    pooled = HEAD.format(kind="LogCluster", name="main") + POOLS
    assert gathered(pooled).cluster.count == 1
    refused = gather(list(from_yaml(pooled)), 3)
    assert isinstance(refused, Refusal)
    assert "leave out --brokers" in refused.message


def test_ignored_pod_templates_are_named() -> None:
    pooled = HEAD.format(kind="LogCluster", name="main") + POOLS
    assert ignored(gathered(pooled).cluster) == ""
    stated = pooled.replace("brokers: 1", "brokers: 1, template: {metadata: {labels: {a: b}}}")
    assert ignored(gathered(stated).cluster).startswith("The pod templates of pools[a] are ignored")
