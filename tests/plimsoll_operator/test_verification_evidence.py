"""A Verification's evidence: its place, a driver that died, and records that cannot fit."""

import json
from typing import Any

import msgspec
import pytest
from tests.plimsoll_operator.terms import Scene
from tests.plimsoll_operator.test_verification_handler import KEY, READY, VERDICT, report, step

from plimsoll_core.controller.kernel.volatile_state import Contact
from plimsoll_core.messages.brokers import BrokerFigures
from plimsoll_operator.api.evidence import S3
from plimsoll_operator.api.labels import CLUSTER
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import CONFIG_MAPS, JOBS, PODS, SECRETS, VOLUME_CLAIMS

CLAIM = {"persistentVolumeClaim": "proofs"}
BUCKET = {"s3": {"bucket": "proofs", "endpoint": "http://s3.store:9000", "secret": "bucket"}}
UID = "0123456789ab"


def a_scene(evidence: Object | None = None, **produce: Any) -> Scene:
    scene = Scene(READY)
    scene.term.options = type(scene.term.options)(
        identity="x", broker_image="b", controllers=("c:1",), spark_image="s:1"
    )
    spec = {
        "clusterRef": {"name": "main"},
        "topic": "orders",
        "produce": {"records": 10} | produce,
    }
    if evidence is not None:
        spec["evidence"] = evidence
    meta = {"name": "check", "namespace": "kafka", "uid": UID, "generation": 1}
    scene.objects.verifications.put({"metadata": meta, "spec": spec})
    return scene


def add_claim(scene: Scene) -> None:
    scene.kube.put(VOLUME_CLAIMS, {"metadata": {"name": "proofs", "namespace": "kafka"}})


def job_of(scene: Scene) -> Object:
    return scene.kube.find(JOBS, "kafka", "check-driver")


async def test_driver_waits_for_evidence_claim() -> None:
    scene = a_scene(CLAIM)
    (waits,) = (await step(scene)).conditions
    assert (waits.reason, scene.made("jobs")) == ("EvidenceNotReady", [])
    assert "PersistentVolumeClaim proofs does not exist" in waits.message
    add_claim(scene)
    await step(scene)
    assert scene.made("jobs") == ["check-driver"]


async def test_volume_of_a_broker_is_no_evidence_claim() -> None:
    scene = a_scene({"persistentVolumeClaim": "data-main-broker-0-0"})
    meta = {"name": "data-main-broker-0-0", "namespace": "kafka", "labels": {CLUSTER: "main"}}
    scene.kube.put(VOLUME_CLAIMS, {"metadata": meta})
    status = await step(scene)
    assert (status.phase, status.conditions[0].reason) == ("Failed", "InvalidSpec")
    assert "belongs to LogCluster main" in status.conditions[0].message
    assert scene.made("jobs") == []


async def test_driver_waits_for_keys_of_the_bucket() -> None:
    scene = a_scene(BUCKET)
    assert "Secret bucket does not exist" in (await step(scene)).conditions[0].message
    secret = {"metadata": {"name": "bucket", "namespace": "kafka"}}
    scene.kube.put(SECRETS, {**secret, "data": {"AWS_ACCESS_KEY_ID": "eA=="}})
    assert "no key AWS_SECRET_ACCESS_KEY" in (await step(scene)).conditions[0].message


async def test_claim_is_mounted_and_driver_has_successor() -> None:
    scene = a_scene(CLAIM)
    add_claim(scene)
    await step(scene)
    spec = job_of(scene)["spec"]
    assert spec["backoffLimit"] == 1
    pod = spec["template"]["spec"]
    assert {"name": "evidence", "persistentVolumeClaim": {"claimName": "proofs"}} in pod["volumes"]
    (container,) = pod["containers"]
    at = container["args"].index("--evidence")
    mounted = {one["name"]: one for one in container["volumeMounts"]}
    assert mounted["evidence"] == {"name": "evidence", "mountPath": container["args"][at + 1]}
    config = scene.kube.find(CONFIG_MAPS, "kafka", "check-config")["data"]["verification.json"]
    assert json.loads(config)["evidence"] == CLAIM | {"run": "check-01234567", "attempts": 2}


async def test_only_bucket_keys_of_the_secret_are_mounted() -> None:
    scene = a_scene(BUCKET)
    data = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "others"), "eA==")
    secret = {"metadata": {"name": "bucket", "namespace": "kafka"}, "data": data}
    scene.kube.put(SECRETS, secret)
    await step(scene)
    volumes = job_of(scene)["spec"]["template"]["spec"]["volumes"]
    (mounted,) = (one["secret"] for one in volumes if one["name"] == "bucket-login")
    assert [item["key"] for item in mounted["items"]] == [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "ca.crt",
    ]
    config = scene.kube.find(CONFIG_MAPS, "kafka", "check-config")["data"]["verification.json"]
    assert "secret" not in json.loads(config)["evidence"]["s3"]


BAD_PORTS = ["https://h:99999", "https://h:0", "https://h:abc", "https://h:", "https://[::1"]


@pytest.mark.parametrize("endpoint", [*BAD_PORTS, "https://", "https://a b", "ftp://h"])
async def test_endpoint_that_is_no_url_is_invalid(endpoint: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="endpoint"):
        msgspec.convert({"bucket": "proofs", "endpoint": endpoint, "secret": "s"}, S3)


@pytest.mark.parametrize(
    "endpoint", ["http://h:9000", "https://s3_x.store:65535", "https://[fd00::1]:1", "https://h"]
)
async def test_endpoint_with_host_and_port_is_valid(endpoint: str) -> None:
    found = msgspec.convert({"bucket": "proofs", "endpoint": endpoint, "secret": "s"}, S3)
    assert found.endpoint == endpoint


async def test_endpoint_with_a_false_address_fails() -> None:
    scene = a_scene({"s3": BUCKET["s3"] | {"endpoint": "https://[::1::]:9000"}})
    status = await step(scene)
    assert (status.phase, status.conditions[0].reason) == ("Failed", "InvalidSpec")
    assert "spec.evidence.s3.endpoint https://[::1::]:9000 is not" in status.conditions[0].message
    assert scene.made("jobs") == []


async def test_driver_without_evidence_has_no_successor() -> None:
    scene = a_scene()
    await step(scene)
    assert job_of(scene)["spec"]["backoffLimit"] == 0


def end_pod(scene: Scene, state: Object) -> None:
    """The driver's only pod ended, and so did its Job."""
    meta = {"name": "p", "namespace": "kafka", "labels": {"job-name": "check-driver"}}
    container = {"name": "driver", "state": {"terminated": state}}
    status = {"phase": "Failed", "containerStatuses": [container]}
    labels = {**meta["labels"], "batch.kubernetes.io/job-name": "check-driver"}
    scene.kube.put(PODS, {"metadata": {**meta, "labels": labels}, "status": status})
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}
    scene.kube.put(JOBS, {**job_of(scene), "status": failed})


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"exitCode": 137, "reason": "OOMKilled"}, "OutOfMemory"),
        ({"exitCode": 137, "reason": "Error"}, "OutOfMemory"),
        ({"exitCode": 3, "reason": "Error"}, "DriverFailed"),
    ],
)
async def test_dead_driver_is_explained_by_its_pod(state: Object, reason: str) -> None:
    scene = a_scene(CLAIM)
    add_claim(scene)
    await step(scene)
    end_pod(scene, state)
    status = await step(scene)
    failed = next(one for one in status.conditions if one.type == "Failed")
    assert (status.verdict, failed.reason) == ("Inconclusive", reason)
    assert "evidence.resume: check-01234567" in failed.message


async def test_kept_evidence_is_shown_with_its_examples() -> None:
    scene = a_scene(CLAIM)
    add_claim(scene)
    await step(scene)
    example = {"topic": "orders", "partition": 1, "offset": 7, "kind": "lost"}
    named = {"key": "k3", "producer": 1, "sequence": 99}
    kept = {"run": "check-01234567", "place": "PersistentVolumeClaim proofs", "missing": None}
    verdict = VERDICT | {"verdict": "Violated", "examples": [example | named], "evidence": kept}
    report(scene, verdict_json=verdict)
    shown = (await step(scene)).evidence
    assert (shown.run, shown.place, shown.missing) == (kept["run"], kept["place"], None)
    assert (shown.examples[0].key, shown.examples[0].sequence) == ("k3", 99)


def report_disks(scene: Scene, free: int) -> None:
    for number, broker in scene.term.image.brokers.items():
        scene.controller.soft.contacts[number] = Contact(
            broker_epoch=broker.broker_epoch,
            last_ms=scene.controller.now_ms,
            figures=BrokerFigures(disk_free_bytes=free, disk_bytes=2 * free),
        )


async def test_records_beyond_the_volumes_are_refused() -> None:
    scene = a_scene(records=1_000_000_000, recordBytes=1_000_000)
    report_disks(scene, 5 * 2**30)
    status = await step(scene)
    failed = next(one for one in status.conditions if one.type == "Failed")
    assert (status.phase, failed.reason, scene.made("jobs")) == ("Failed", "CannotFit", [])
    assert "1000000000 records of 1000000 bytes take" in failed.message
    assert "5120 MiB free" in failed.message


@pytest.mark.parametrize("free", [0, 2**30], ids=["unknown disks", "room enough"])
async def test_records_that_may_fit_are_written(free: int) -> None:
    scene = a_scene(records=100_000)
    if free:
        report_disks(scene, free)
    await step(scene)
    assert scene.made("jobs") == ["check-driver"]


async def test_resumed_run_needs_no_room() -> None:
    scene = a_scene(CLAIM | {"resume": "old-1"}, records=1_000_000_000, recordBytes=1_000_000)
    report_disks(scene, 2**30)
    add_claim(scene)
    await step(scene)
    assert scene.made("jobs") == ["check-driver"]


def test_handlers_key_is_that_of_these_objects() -> None:
    assert KEY == ("kafka", "check")
