"""A Verification with a source audits what there is: its driver starts without a topic of its own,
and its findings are shown with brokers."""

import json
from typing import Any

import msgspec
from tests.plimsoll_operator.test_verification_handler import a_scene, report, step

from plimsoll_operator.kube.resources import CONFIG_MAPS, JOBS, NETWORK_POLICIES, SECRETS
from plimsoll_spark.audit_settings import AuditSettings, MirrorOf

FOUND = {
    "topic": "orders",
    "partition": 0,
    "offset": 6,
    "lastOffset": 8,
    "kind": "unreadable",
    "brokers": [1],
    "detail": "its CRC is wrong",
}
VERDICT = {
    "verdict": "Violated",
    "reason": "ReplicaUnreadable",
    "message": "a batch cannot be read",
    "counts": {"read": 10},
    "timing": {"startTime": "2026-11-20T15:00:00Z"},
    "examples": [FOUND],
    "audited": {"topics": 1, "partitions": 3, "replicas": 9, "bytes": 100},
}


def an_audit(**source: Any) -> Any:
    scene = a_scene()
    scene.objects.verifications.put(
        {
            "metadata": {"name": "check", "namespace": "kafka", "uid": "v1", "generation": 1},
            "spec": {
                "clusterRef": {"name": "main"},
                "source": {"existingTopics": {"matchPattern": "orders.*"}, **source},
            },
        }
    )
    return scene


def config(scene: Any) -> AuditSettings:
    data = scene.kube.find(CONFIG_MAPS, "kafka", "check-config")["data"]["verification.json"]
    return msgspec.json.decode(data, type=AuditSettings)


async def test_audit_starts_without_topic_of_its_own() -> None:
    scene = an_audit(bytesPerSecond="50Mi")
    status = await step(scene)
    assert (status.phase, status.conditions[0].reason) == ("Pending", "DriverStarted")
    assert scene.kube.find(JOBS, "kafka", "check-driver")
    asked = config(scene)
    assert asked.source.existing_topics.match_pattern == "orders.*"
    assert (asked.source.reads, asked.source.bytes_per_second) == ("Disk", 50 * 2**20)
    assert "topic" not in json.dumps(msgspec.to_builtins(asked.report))


MIRROR = {"bootstrap": "kafka.other:9092", "secret": "mirror", "prefix": "there."}


async def test_audit_waits_for_secret_of_mirrored_cluster() -> None:
    scene = an_audit(mirrorOf=MIRROR)
    (waits,) = (await step(scene)).conditions
    assert (waits.reason, scene.made("jobs")) == ("MirrorNotReady", [])
    assert "Secret mirror with the key librdkafka.conf does not exist" in waits.message


async def test_audit_of_mirror_mounts_login_alone() -> None:
    scene = an_audit(mirrorOf=MIRROR)
    secret = {"metadata": {"name": "mirror", "namespace": "kafka"}}
    scene.kube.put(SECRETS, {**secret, "data": {"librdkafka.conf": "eA==", "other": "eA=="}})
    await step(scene)
    asked = config(scene)
    assert asked.source.mirror_of == MirrorOf(
        bootstrap="kafka.other:9092", has_login=True, prefix="there."
    )
    assert asked.checks[-1] == "MirrorEqual"
    pod = scene.kube.find(JOBS, "kafka", "check-driver")["spec"]["template"]["spec"]
    (mounted,) = (one["secret"] for one in pod["volumes"] if one["name"] == "mirror-login")
    assert [item["key"] for item in mounted["items"]] == ["librdkafka.conf", "ca.crt"]
    (container,) = pod["containers"]
    at = container["args"].index("--mirror-login") + 1
    paths = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert paths["mirror-login"] == container["args"][at]
    policy = scene.kube.find(NETWORK_POLICIES, "kafka", "check-driver")
    assert {"ports": [{"protocol": "TCP", "port": 1, "endPort": 65_535}]} in policy["spec"][
        "egress"
    ]


async def test_names_of_other_topics_stay_secret() -> None:
    scene = an_audit()
    topics = scene.term.image.topics
    (topic_id,) = topics
    once = topics.set(topic_id, msgspec.structs.replace(topics[topic_id], compacted=True))
    scene.term.controller.image = msgspec.structs.replace(scene.term.image, topics=once)
    scene.objects.verifications.put(
        {
            "metadata": {"name": "check", "namespace": "kafka", "uid": "v1", "generation": 1},
            "spec": {
                "clusterRef": {"name": "main"},
                "source": {"existingTopics": {"matchPattern": "other"}},
            },
        }
    )
    await step(scene)
    assert '"orders' not in json.dumps(scene.kube.find(CONFIG_MAPS, "kafka", "check-config"))
    asked = config(scene).source.existing_topics
    assert asked.treated_as_compacted(["orders", "payments"]) == {"orders"}


async def test_findings_are_shown_with_brokers() -> None:
    scene = an_audit()
    await step(scene)
    report(scene, verdict_json=VERDICT)
    status = await step(scene)
    (example,) = status.evidence.examples
    assert (example.offset, example.last_offset, example.brokers) == (6, 8, (1,))
    assert (status.verdict, status.audited.replicas) == ("Violated", 9)


async def test_progress_of_audit_speaks_of_replicas() -> None:
    scene = an_audit()
    await step(scene)
    report(scene, progress_json={"phase": "Verifying", "counts": {"read": 5}})
    status = await step(scene)
    assert "replicas are read" in status.conditions[0].message
