"""A Verification runs once, when its topic serves, and shows what its driver reports."""

import base64
import dataclasses
import json
from typing import Any, ClassVar

import msgspec
import pytest
from tests.plimsoll_operator.builders import an_image, isr_changed, replay, with_topic
from tests.plimsoll_operator.terms import Scene

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.model import Endpoint
from plimsoll_operator.api.verification import Runner
from plimsoll_operator.kube.errors import Conflict, Rejected
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    JOBS,
    NETWORK_POLICIES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    VERIFICATIONS,
    Kind,
)
from plimsoll_operator.manifests.executors import ExecutorSize, executor_size
from plimsoll_operator.manifests.verification import SparkDriver, role
from plimsoll_operator.reconcile.verification import reconcile as verification
from plimsoll_operator.reconcile.verification.report_notes import note
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.status_writer import Target

KEY = ("kafka", "check")
READY = with_topic(an_image(), ((0, 1, 2),))
VERDICT = {
    "verdict": "Passed",
    "reason": "Passed",
    "message": "All checks passed.",
    "counts": {"sent": 10, "acked": 10, "read": 10, "failed": 0},
    "timing": {"startTime": "2026-11-20T15:00:00Z", "longestStallMilliseconds": 740.5},
    "examples": [],
}


def a_scene(image: Any = READY, spark_image: str = "s:1", **options: Any) -> Scene:
    scene = Scene(image)
    scene.term.options = type(scene.term.options)(
        identity="x", broker_image="b", controllers=("c:1",), spark_image=spark_image, **options
    )
    scene.objects.verifications.put(
        {
            "metadata": {"name": "check", "namespace": "kafka", "uid": "v1", "generation": 1},
            "spec": {
                "clusterRef": {"name": "main"},
                "topic": "orders",
                "produce": {"records": 10},
            },
        }
    )
    return scene


def report(scene: Scene, **files: Any) -> None:
    found = scene.kube.find(CONFIG_MAPS, "kafka", "check-report")
    data = {name.replace("_", "."): json.dumps(content) for name, content in files.items()}
    scene.kube.put(CONFIG_MAPS, {**found, "data": data})


async def step(scene: Scene) -> Any:
    await scene.run(verification.reconcile, KEY)
    return scene.term.shown.statuses[Target(VERIFICATIONS, *KEY)][1]


async def test_driver_starts_when_the_topic_serves():
    scene = a_scene()
    status = await step(scene)
    assert (status.phase, status.conditions[0].reason) == ("Pending", "DriverStarted")
    assert scene.made("jobs") == ["check-driver"]
    assert scene.made("roles") == ["check-driver"]


async def test_operators_options_reach_the_driver():
    scene = a_scene()
    scene.term.options = dataclasses.replace(
        scene.term.options, image_pull_secrets=("pull",), set_user=False
    )
    await step(scene)
    pod = scene.kube.find(JOBS, "kafka", "check-driver")["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert "runAsUser" not in pod["securityContext"]


def with_executors(scene: Scene, **runner: Any) -> None:
    scene.objects.verifications.put(
        {
            "metadata": {"name": "check", "namespace": "kafka", "uid": "v1", "generation": 1},
            "spec": {
                "clusterRef": {"name": "main"},
                "topic": "orders",
                "produce": {"records": 10},
                "runner": {"executors": 2, **runner},
            },
        }
    )


async def test_right_to_make_executors_ends_with_run():
    scene = a_scene()
    with_executors(scene)
    await step(scene)

    def resources() -> list[str]:
        rules = scene.kube.find(ROLES, "kafka", "check-driver")["rules"]
        return [resource for rule in rules for resource in rule["resources"]]

    assert resources() == ["configmaps", "pods"]
    secret = scene.kube.find(SECRETS, "kafka", "check-rpc")
    await step(scene)
    assert scene.kube.find(SECRETS, "kafka", "check-rpc") == secret, "the first one counts"
    report(scene, verdict_json=VERDICT)
    assert (await step(scene)).verdict == "Passed"
    assert resources() == ["configmaps"]


async def test_operator_that_cannot_grant_pods_says_so():
    scene = a_scene()
    with_executors(scene)
    denied = "roles is forbidden: attempting to grant RBAC permissions not currently held"
    scene.kube.fail = [None, None, None, Rejected(403, f"POST roles answered: {denied}")]
    status = await step(scene)
    assert (status.phase, status.conditions[0].reason) == ("Pending", "ExecutorsForbidden")
    assert "verification.executors=true" in status.conditions[0].message
    assert status.conditions[0].message.endswith(denied)
    assert scene.made("jobs") == []
    assert (await step(scene)).conditions[0].reason == "DriverStarted"


@pytest.mark.parametrize(("memory", "starts"), [("895Mi", False), ("896Mi", True)])
async def test_executors_too_small_for_spark_fail(memory: str, starts: bool):
    scene = a_scene()
    with_executors(scene, executorResources={"limits": {"memory": memory}})
    status = await step(scene)
    assert (scene.made("jobs") == ["check-driver"]) is starts
    if not starts:
        assert status.conditions[0].reason == "ExecutorsTooSmall"
        assert "set 896Mi or more" in status.conditions[0].message


@pytest.mark.parametrize(
    ("limits", "size"),
    [
        ({"memory": "1Gi"}, (1, 512, 512)),
        ({"cpu": "8", "memory": "1Gi"}, (1, 512, 512)),
        ({"cpu": "2", "memory": "2Gi"}, (2, 768, 1280)),
        ({"cpu": "8", "memory": "2Gi"}, (5, 768, 1280)),
        ({"cpu": "8"}, (1, 512, 512)),
        ({"cpu": "64", "memory": "16Gi"}, (8, 6144, 10240)),
        ({}, (1, 512, 512)),
    ],
    ids=str,
)
def test_executor_has_no_more_tasks_than_memory(limits: dict[str, str], size: tuple[int, ...]):
    """Its pod always has a limit, of heap and overhead together."""
    runner = msgspec.convert({"executorResources": {"limits": limits}}, Runner)
    found = executor_size(runner)
    assert isinstance(found, ExecutorSize)
    assert (found.cores, found.heap_mib, found.overhead_mib) == size


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (an_image(), "TopicNotFound"),
        (replay(READY, isr_changed(0, (), leader=None, leader_epoch_step=1)), "TopicNotServing"),
    ],
)
async def test_driver_waits_for_its_topic(image, reason):
    scene = a_scene(image)
    assert (await step(scene)).conditions[0].reason == reason
    assert scene.made("jobs") == []


async def test_verification_without_image_says_how_to_get():
    status = await step(a_scene(spark_image=""))
    assert status.conditions[0].reason == "VerificationDisabled"
    assert "verification.enabled" in status.conditions[0].message


async def test_progress_is_shown():
    scene = a_scene()
    await step(scene)
    report(scene, progress_json={"phase": "Verifying", "counts": {"sent": 5, "acked": 4}})
    status = await step(scene)
    assert (status.phase, status.counts.acked, status.verdict) == ("Verifying", 4, "")


async def test_verifying_phase_shows_its_deadline():
    scene = a_scene()
    await step(scene)
    report(scene, progress_json={"phase": "Verifying", "counts": {}})
    message = (await step(scene)).conditions[0].message
    assert "verify.timeoutSeconds (600)" in message
    assert "kubectl logs job/check-driver" in message


async def test_driver_without_verdict_names_its_output():
    output = "the newest /data/logs/{job}-*.log"
    scene = a_scene(driver_output=output)
    await step(scene)
    job = scene.kube.find(JOBS, "kafka", "check-driver")
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}
    scene.kube.put(JOBS, {**job, "status": failed})
    status = await step(scene)
    assert status.conditions[0].reason == "DriverFailed"
    assert status.conditions[0].message.endswith("see the newest /data/logs/check-driver-*.log")


def add(scene: Scene, name: str, made: str, **more: Any) -> None:
    """Another Verification of the same topic."""
    meta = {"namespace": "kafka", "generation": 1, "creationTimestamp": made}
    spec = {"clusterRef": {"name": "main"}, "topic": "orders", "produce": {"records": 10}}
    body = {"metadata": {**meta, "name": name, "uid": name}, "spec": spec, **more}
    scene.objects.verifications.put(body)


async def test_verifications_of_one_topic_run_in_turn():
    scene = a_scene()
    add(scene, "later", "2026-11-22T00:00:02Z")
    add(scene, "earlier", "2026-11-22T00:00:01Z")
    scene.objects.verifications.drop(KEY)
    later, earlier = ("kafka", "later"), ("kafka", "earlier")
    for key in (later, earlier, later):
        await scene.run(verification.reconcile, key)
    assert scene.made("jobs") == ["earlier-driver"]
    (waits,) = scene.term.shown.statuses[Target(VERIFICATIONS, *later)][1].conditions
    assert waits.reason == "TopicBusy"
    assert "Verification earlier" in waits.message
    meta = scene.kube.find(CONFIG_MAPS, "kafka", "earlier-report")
    scene.kube.put(CONFIG_MAPS, {**meta, "data": {"verdict.json": json.dumps(VERDICT)}})
    for key in (earlier, later):
        await scene.run(verification.reconcile, key)
    assert scene.made("jobs") == ["earlier-driver", "later-driver"]


async def test_previously_completed_verification_blocks_nothing():
    scene = a_scene()
    ended = {"type": "Complete", "status": "True", "reason": "Passed", "message": "x"}
    add(scene, "earlier", "", status={"conditions": [ended]})
    scene.objects.verifications.drop(KEY)
    add(scene, "later", "2026-11-22T00:00:02Z")
    await scene.run(verification.reconcile, ("kafka", "later"))
    assert scene.made("jobs") == ["later-driver"]


@pytest.mark.parametrize(("rate", "starts"), [(9, False), (10, True)])
async def test_impossible_rate_fails_before_a_pod(rate: int, starts: bool):
    scene = a_scene()
    meta = {"name": "check", "namespace": "kafka", "uid": "v1", "generation": 1}
    spec = {
        "clusterRef": {"name": "main"},
        "topic": "orders",
        "produce": {"records": 1_000, "recordsPerSecond": rate},
        "verify": {"timeoutSeconds": 100},
        "deadlineSeconds": 200,
    }
    scene.objects.verifications.put({"metadata": meta, "spec": spec})
    status = await step(scene)
    assert (scene.made("jobs") == ["check-driver"]) is starts
    if not starts:
        assert (status.phase, status.verdict) == ("Failed", "Inconclusive")
        assert "1000 records at 9 per second take 111 s" in status.conditions[0].message


async def test_verdict_is_final():
    scene = a_scene()
    await step(scene)
    report(scene, verdict_json=VERDICT)
    scene.kube.drop(JOBS, "kafka", "check-driver")
    status = await step(scene)
    assert (status.phase, status.verdict) == ("Completed", "Passed")
    assert {c.type: c.status for c in status.conditions} == {"Complete": "True", "Ready": "True"}
    assert status.timing.longest_stall_milliseconds == 740.5
    assert scene.made("jobs") == []


async def test_violation_completes_the_run_and_fails_it():
    scene = a_scene()
    await step(scene)
    report(scene, verdict_json=VERDICT | {"verdict": "Violated", "reason": "RecordsLost"})
    status = await step(scene)
    assert (status.phase, status.verdict) == ("Completed", "Violated")
    assert [(c.type, c.reason) for c in status.conditions if c.status == "True"] == [
        ("Failed", "RecordsLost")
    ]


async def test_every_fate_that_the_driver_counted_is_shown():
    scene = a_scene()
    await step(scene)
    fates = {"failed": 1, "misplaced": 2, "mismatched": 3, "expired": 4, "foreign": 5}
    verdict = VERDICT | {"verdict": "Violated", "reason": "RecordsChanged"}
    report(scene, verdict_json=verdict | {"counts": VERDICT["counts"] | fates})
    status = await step(scene)
    shown = msgspec.to_builtins(status.counts)
    assert {name: shown[name] for name in fates} == fates


async def test_verdict_is_reported_once():
    scene, told = a_scene(), []
    scene.effects.tell = told.append
    await step(scene)
    report(scene, verdict_json=VERDICT | {"verdict": "Violated", "reason": "RecordsLost"})
    await step(scene)
    await step(scene)
    (event,) = told
    assert (event.reason, event.warning) == ("VerificationViolated", True)
    assert (event.about.kind, event.about.name) == ("Verification", "check")


async def test_driver_that_dies_without_a_word_is_inconclusive():
    scene = a_scene()
    await step(scene)
    job = scene.kube.find(JOBS, "kafka", "check-driver")
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}
    scene.kube.put(JOBS, {**job, "status": failed})
    status = await step(scene)
    assert (status.phase, status.verdict) == ("Failed", "Inconclusive")
    ended = scene.kube.find(CONFIG_MAPS, "kafka", "check-report")["data"]
    assert ended == {"ended": "DriverFailed"}, "no driver may report any more"


async def test_verdict_of_the_last_moment_counts():
    """The driver publishes it after the operator has read the report."""
    scene = a_scene()
    await step(scene)
    job = scene.kube.find(JOBS, "kafka", "check-driver")
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}
    scene.kube.put(JOBS, {**job, "status": failed})
    merge = scene.kube.merge

    async def late(*place: Any) -> Any:
        report(scene, verdict_json=VERDICT)
        return await merge(*place)

    scene.kube.merge = late
    with pytest.raises(Retry):
        await step(scene)
    assert (await step(scene)).verdict == "Passed"


@pytest.mark.parametrize("change", [{"uid": "another"}, {"annotations": {"later": "yes"}}])
async def test_paused_operator_notes_nothing_late(change: dict[str, Any]):
    """Its note is about a report that another Verification has, or that has changed."""
    scene = a_scene()
    await step(scene)
    read = scene.kube.find(CONFIG_MAPS, "kafka", "check-report")
    scene.kube.put(CONFIG_MAPS, {**read, "metadata": {**read["metadata"], **change}})
    with pytest.raises(Conflict):
        await note(scene.kube, read, "compacted", "yes")


async def test_paused_operator_gives_no_right_back():
    """It goes on to create the driver after the run has ended."""
    scene = a_scene()
    with_executors(scene)
    await step(scene)
    report(scene, verdict_json=VERDICT)
    await step(scene)
    ended = scene.kube.find(ROLES, "kafka", "check-driver")
    spec = scene.objects.verifications.get(KEY)
    paused = SparkDriver(verification=spec, image="s:1", image_pull_policy="Always")
    await verification._make(scene.term, paused, role(paused))
    assert scene.kube.find(ROLES, "kafka", "check-driver") == ended


def bare(kind: Kind, name: str, **more: Any) -> dict[str, Any]:
    """Somebody's object, which nobody owns."""
    meta = {"name": name, "namespace": "kafka", "uid": "theirs"}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **more}


@pytest.mark.parametrize(
    ("kind", "name", "parts"),
    [
        (SERVICE_ACCOUNTS, "check-driver", {"automountServiceAccountToken": True}),
        (ROLES, "check-driver", {"rules": [{"apiGroups": ["x"], "resources": ["y"]}]}),
        (ROLE_BINDINGS, "check-driver", {"subjects": [{"kind": "User", "name": "alice"}]}),
        (CONFIG_MAPS, "check-config", {"data": {"mine": "1"}}),
        (CONFIG_MAPS, "check-report", {"data": {"verdict.json": json.dumps(VERDICT)}}),
        (NETWORK_POLICIES, "check-driver", {"spec": {"policyTypes": ["Egress"]}}),
        (JOBS, "check-driver", {"spec": {"backoffLimit": 3}}),
    ],
    ids=lambda one: one.kind if isinstance(one, Kind) else "",
)
async def test_foreign_objects_are_no_driver(kind: Kind, name: str, parts: dict[str, Any]) -> None:
    """Who may write Verifications may have no right to Roles, or to run as that account."""
    scene = a_scene()
    scene.kube.put(kind, bare(kind, name, **parts))
    theirs = scene.kube.find(kind, "kafka", name)
    status = await step(scene)
    assert (status.phase, status.conditions[0].reason) == ("Pending", "NameTaken")
    assert f"{kind.kind} {name} exists and does not belong to this" in status.conditions[0].message
    assert scene.kube.find(kind, "kafka", name) == theirs
    assert [one for one in scene.made("jobs") if kind is not JOBS] == []
    await scene.kube.delete(kind, "kafka", name, uid=theirs["metadata"]["uid"])
    assert (await step(scene)).conditions[0].reason == "DriverStarted"


async def test_half_made_driver_is_completed() -> None:
    scene = a_scene()
    await step(scene)
    job = scene.kube.find(JOBS, "kafka", "check-driver")
    await scene.kube.delete(JOBS, "kafka", "check-driver", uid=job["metadata"]["uid"])
    config = scene.kube.find(CONFIG_MAPS, "kafka", "check-config")
    scene.kube.put(CONFIG_MAPS, {**config, "data": {"verification.json": "{}"}})
    assert (await step(scene)).conditions[0].reason == "DriverStarted"
    assert scene.kube.find(CONFIG_MAPS, "kafka", "check-config")["data"] == config["data"]


async def test_report_of_an_earlier_verification_is_waited_out():
    scene = a_scene()
    meta = {
        "name": "check-report",
        "namespace": "kafka",
        "ownerReferences": [{"kind": "Verification", "name": "check", "uid": "an-earlier-uid"}],
    }
    scene.kube.put(CONFIG_MAPS, {"metadata": meta, "data": {"verdict.json": json.dumps(VERDICT)}})
    with pytest.raises(Retry, match="deleted Verification"):
        await scene.run(verification.reconcile, KEY)


class TestALogin:
    USER: ClassVar[dict[str, Any]] = {
        "metadata": {"name": "checker", "namespace": "kafka", "uid": "u1", "generation": 1},
        "spec": {"clusterRef": {"name": "main"}, "authentication": {"scram": {}}},
    }
    LISTENER = Listener(
        name="secured", port=9094, tls_version_min="1.2", authentication=("ScramSha512",)
    )

    def scene(self, *, user: bool = True, opened: bool = True) -> Scene:
        image = msgspec.structs.replace(READY, listeners=(self.LISTENER,))
        if opened:
            own = Endpoint(name="secured", host="b", port=9094)
            brokers = {
                id_: msgspec.structs.replace(broker, endpoints=(*broker.endpoints, own))
                for id_, broker in image.brokers.items()
            }
            image = msgspec.structs.replace(image, brokers=brokers)
        scene = a_scene(image)
        spec = {
            "clusterRef": {"name": "main"},
            "topic": "orders",
            "produce": {"records": 10},
            "user": "checker",
        }
        metadata = {"name": "check", "namespace": "kafka", "uid": "v1", "generation": 1}
        scene.objects.verifications.put({"metadata": metadata, "spec": spec})
        if user:
            scene.objects.users.put(self.USER)
        return scene

    @pytest.mark.parametrize(
        ("user", "opened", "reason"),
        [
            (False, True, "UserNotFound"),
            (True, False, "ListenerMissing"),
            (True, True, "UserNotReady"),
        ],
    )
    async def test_driver_waits_until_it_can_log_in(
        self, user: bool, opened: bool, reason: str
    ) -> None:
        scene = self.scene(user=user, opened=opened)
        status = await step(scene)
        assert (status.phase, status.conditions[0].reason) == ("Pending", reason)
        assert scene.made("jobs") == []

    async def test_secret_that_no_policy_sees_is_not_mounted(self) -> None:
        """The chart's policy asks if the author may get `checker-kafka`."""
        scene = self.scene()
        user = {**self.USER, "spec": {**self.USER["spec"], "secretName": "of-another"}}
        scene.objects.users.put(user)
        meta = {"name": "of-another", "namespace": "kafka"}
        data = {"java.properties": "", "librdkafka.conf": "", "bootstrap.servers": "Yg=="}
        scene.kube.put(SECRETS, {"metadata": meta, "data": data})
        status = await step(scene)
        assert (status.phase, status.conditions[0].reason) == ("Pending", "UserNotReady")
        assert "keeps its login in Secret of-another" in status.conditions[0].message
        assert scene.made("jobs") == []

    async def test_driver_finds_user_secret_and_listener(
        self,
    ) -> None:
        scene = self.scene()
        meta = {"name": "checker-kafka", "namespace": "kafka"}
        # As it is before a broker has the listener open.
        data = {"java.properties": "", "librdkafka.conf": "", "bootstrap.servers": ""}
        scene.kube.put(SECRETS, {"metadata": meta, "data": data})
        assert (await step(scene)).conditions[0].reason == "UserNotReady"
        data["bootstrap.servers"] = base64.b64encode(b"b:9094").decode()
        scene.kube.put(SECRETS, {"metadata": meta, "data": data})
        status = await step(scene)
        assert status.conditions[0].reason == "DriverStarted"
        pod = scene.kube.find(JOBS, "kafka", "check-driver")["spec"]["template"]["spec"]
        assert {"name": "login", "secret": {"secretName": "checker-kafka"}} in pod["volumes"]
        (container,) = pod["containers"]
        assert container["args"][-2:] == ["--login", "/etc/plimsoll-login"]
        config = scene.kube.find(CONFIG_MAPS, "kafka", "check-config")["data"]
        found = json.loads(config["verification.json"])
        assert found["bootstrap"] == "b:9094,b:9094,b:9094"
