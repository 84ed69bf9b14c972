"""Restarts are carried out as granted: one pod by its uid, one template, and nothing else."""

from contextlib import suppress
from typing import Any

import pytest
from tests.plimsoll_operator.builders import replay
from tests.plimsoll_operator.rolling import NEW, OLD, Cluster, a_cluster, declare

from plimsoll_core.cluster.records import RestartGranted
from plimsoll_core.messages.brokers import WithdrawRestart
from plimsoll_operator.api.labels import BROKER_ID
from plimsoll_operator.kube.errors import Conflict, Rejected, Unavailable
from plimsoll_operator.kube.resources import LOG_CLUSTERS, PODS, STATEFUL_SETS
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.restarts import reconcile as restarts
from plimsoll_operator.reconcile.shared.broker_rolls import rolls_condition, rolls_of
from plimsoll_operator.reconcile.shared.pinned_choices import manifest_context
from plimsoll_operator.reconcile.work_queue import Retry


@pytest.fixture
async def three() -> Cluster:
    return await a_cluster((0, 1, 2))


async def test_broker_is_not_restarted_without_a_change(three: Cluster):
    three.kube.calls.clear()
    await three.look()
    assert [c for c in three.kube.calls if c[0] in ("replace", "delete", "force")] == []
    assert rolls_of(three.scene.term).rolling is None


async def test_new_image_reaches_one_broker_after_the_other(three: Cluster):
    declare(three, **NEW)
    order = []
    for _ in range(3):
        await three.look()
        (gone,) = three.start_pods()
        order.append(gone)
        assert [three.runs(b) for b in range(3)].count("broker:new") == len(order)
        await three.look()
        assert three.start_pods() == [], "no other broker restarts before it is back"
        three.take_part(gone)
        await three.tick()
    await three.look()
    assert order == [0, 1, 2]
    assert rolls_of(three.scene.term).rolling is None
    assert [three.image.brokers[b].revision for b in range(3)] == [three.image.proven_revision] * 3


async def test_template_is_written_inside_the_grant_only(three: Cluster):
    """Another pod that is drained meanwhile comes back with what it ran."""
    declare(three, **NEW)
    await three.look()
    images = [three.template(b)["spec"]["containers"][0]["image"] for b in range(3)]
    assert images == ["broker:new", "broker:old", "broker:old"]


async def test_changed_config_reaches_no_pod_that_merely_restarts(three: Cluster):
    declare(three, **OLD, config={"log.retention.hours": 1})
    await three.look()
    assert len(three.scene.made("configmaps")) == 2

    def mounts(broker: int) -> str:
        return str(three.template(broker)["spec"]["volumes"][0]["configMap"]["name"])

    assert len({mounts(0), mounts(1)}) == 2
    assert mounts(1) == mounts(2)
    for _ in range(3):
        three.take_part(*three.start_pods())
        await three.tick()
        await three.look()
    assert three.scene.made("configmaps") == [mounts(0)], "the old one is deleted once it is unused"


async def test_broker_without_stateful_set_label_is_restarted(three: Cluster):
    """An edited label ends no term."""
    found = three.kube.find(STATEFUL_SETS, "kafka", "main-broker-0")
    found["metadata"]["labels"][BROKER_ID] = "zero"
    three.kube.put(STATEFUL_SETS, found)
    await three.scene.run(restarts.reconcile)
    declare(three, **NEW)
    await three.look()
    assert three.start_pods() == [0]


async def test_invalid_config_rolls_nothing(three: Cluster):
    declare(three, **NEW, config={"log.retention.houres": 1})
    await three.look()
    assert three.start_pods() == []
    assert not three.image.grants


async def test_bad_image_stops_after_one_broker(three: Cluster):
    declare(three, image="broker:bad")
    await three.look()
    assert three.start_pods() == [0]
    three.stop(0)
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    statuses = [{"name": "broker", "state": {"waiting": waiting}}]
    three.kube.put(PODS, {**three.pod(0), "status": {"containerStatuses": statuses}})
    for _ in range(3):
        await three.tick()
        await three.look()
    assert [three.runs(b) for b in (1, 2)] == ["broker:old"] * 2
    assert {(b, reason) for b, reason, _ in three.blocked} == {
        (1, "FirstOfItsRevision"),
        (2, "FirstOfItsRevision"),
    }
    rolling = rolls_of(three.scene.term).rolling
    assert rolling is not None
    found = rolls_condition(rolling)
    assert (found.status, found.reason) == ("True", "RollingBrokers")
    assert "Broker 0 is being restarted (ImagePullBackOff: no such image)" in found.message


async def test_corrected_spec_replaces_the_stuck_pod(three: Cluster):
    declare(three, image="broker:bad")
    await three.look()
    three.start_pods()
    three.stop(0)
    declare(three, **NEW)
    await three.look()
    assert three.start_pods() == [0]
    assert three.runs(0) == "broker:new"
    three.take_part(0)
    await three.tick()
    await three.look()
    assert three.start_pods() == [1]


async def test_revert_restarts_only_the_changed_broker(three: Cluster):
    declare(three, **NEW)
    await three.look()
    three.take_part(*three.start_pods())
    await three.tick()
    declare(three, **OLD)
    await three.look()
    assert three.start_pods() == [0]
    three.take_part(0)
    await three.tick()
    await three.look()
    assert [three.runs(b) for b in range(3)] == ["broker:old"] * 3
    assert rolls_of(three.scene.term).rolling is None


async def test_disjoint_brokers_go_together_after_the_first():
    six = await a_cluster((0, 1, 2), (3, 4, 5))
    declare(six, **NEW)
    await six.look()
    six.take_part(*six.start_pods())
    await six.tick()
    await six.look()
    assert six.start_pods() == [1, 3]
    assert {row[1] for row in six.blocked} == {"AnotherBrokerIsAway"}


async def test_restart_at_margin_names_its_condition(three: Cluster):
    three.stop(2)
    told: list[Any] = []
    three.scene.effects.tell = told.append
    declare(three, **NEW)
    await three.look()
    assert three.start_pods() == [2], "who is fenced already may go: it is free"
    until = "broker 2 rejoins the ISR of orders-0"
    assert three.blocked == [(b, "WouldDropBelowMinISR", until) for b in (0, 1)]
    assert "RestartBlocked" in [event.reason for event in told]


async def test_blocked_restart_names_partition_and_resumes():
    two = await a_cluster((0, 1), maintenance={"exposedTopics": "Block"})
    two.deciding.settings = two.deciding.settings.__class__(exposed_topics="Block")
    declare(two, **NEW, maintenance={"exposedTopics": "Block"})
    await two.look()
    assert two.start_pods() == []
    (row, _) = two.scene.term.shown.blocked["Restart"]
    assert (row.topic, row.partition, row.reason) == ("orders", 0, "ExposedTopic")
    two.deciding.settings = two.deciding.settings.__class__()
    await two.look()
    assert two.start_pods() == [0]


async def test_annotation_of_the_owner_restarts_all(three: Cluster):
    body = three.kube.find(LOG_CLUSTERS, "kafka", "main")
    body["metadata"]["annotations"] = {"plimsoll.dev/restart": "2026-11-21"}
    three.scene.objects.clusters.put(body)
    await three.look()
    assert three.start_pods() == [0]
    assert three.pod(0)["metadata"]["annotations"]["plimsoll.dev/restart"] == "2026-11-21"


# --- frozen and deposed operators --------------------------------------------------------------


async def test_successor_finishes_what_was_granted(three: Cluster):
    declare(three, **NEW)
    three.kube.refuse["replace"] = Conflict(409, "frozen here")
    with pytest.raises(Retry):
        await three.look()
    assert list(three.image.grants) == [0]
    assert three.start_pods() == []
    three.kube.refuse.clear()
    await three.look()
    assert three.start_pods() == [0]
    assert three.runs(0) == "broker:new"


async def test_late_deletion_meets_another_pod_and_does_nothing(three: Cluster):
    """X is granted broker 0 and freezes; Y finishes, and grants 1; X wakes."""
    declare(three, **NEW)
    await three.look()
    granted = three.image.grants[0]
    three.take_part(*three.start_pods())
    await three.tick()
    await three.look()
    assert list(three.image.grants) == [1]
    with pytest.raises(Conflict):
        await three.kube.delete(PODS, "kafka", "main-broker-0-0", uid=granted.pod_uid)
    assert three.runs(0) == "broker:new"


async def test_template_that_somebody_wrote_meanwhile_is_not_overwritten(three: Cluster):
    declare(three, **NEW)
    seen = restarts.RestartReconciler(
        three.scene.term, PassResult(), manifest_context(three.scene.term)
    )
    (zero, *_) = await seen._look()
    three.kube.put(STATEFUL_SETS, three.kube.find(STATEFUL_SETS, "kafka", "main-broker-0"))
    with pytest.raises(Conflict):
        await seen._begin(zero)
    assert three.runs(0) == "broker:old"
    assert three.start_pods() == []


async def test_refused_restart_stalls_until_retry_succeeds(three: Cluster):
    declare(three, **NEW)
    three.kube.refuse["delete"] = Rejected(403, "pods is forbidden")
    with pytest.raises(Retry):
        await three.look()
    assert three.scene.term.shown.notes["Stalled"].reason == "RestartRefused"
    three.kube.refuse.clear()
    await three.look()
    assert "Stalled" not in three.scene.term.shown.notes


async def test_grant_for_missing_pod_deletes_nothing(three: Cluster):
    """Another client deleted it meanwhile."""
    grant = RestartGranted(cause="x", broker_id=0, broker_epoch=None, pod_uid="gone", revision="r")
    three.deciding.image = replay(three.image, grant)
    three.kube.calls.clear()
    await three.look()
    assert [c for c in three.kube.calls if c[:2] == ("delete", "pods")] == []


async def test_refused_spec_that_is_taken_back_restarts_nobody(three: Cluster):
    before = three.pod(0)["metadata"]["uid"]
    declare(three, **OLD, brokers={"count": 3, "resources": {"requests": {"cpu": "2"}}})
    three.kube.refuse["replace"] = Rejected(422, "must be less than or equal to cpu limit")
    with pytest.raises(Retry):
        await three.look()
    assert 0 in three.image.grants
    del three.kube.refuse["replace"]
    declare(three, **OLD)
    for _ in range(3):
        await three.look()
    assert three.pod(0)["metadata"]["uid"] == before
    assert not three.image.grants
    assert rolls_of(three.scene.term).rolling is None
    assert "Stalled" not in three.scene.term.shown.notes


async def test_revoked_restart_is_not_carried_out_late(three: Cluster):
    declare(three, **NEW)
    three.kube.refuse["replace"] = Rejected(422, "no")
    with pytest.raises(Retry):
        await three.look()
    seen = three.kube.find(STATEFUL_SETS, "kafka", "main-broker-0")["metadata"]["resourceVersion"]
    del three.kube.refuse["replace"]
    declare(three, **OLD)
    await three.look()
    found = three.kube.find(STATEFUL_SETS, "kafka", "main-broker-0")
    assert found["metadata"]["resourceVersion"] != seen


async def test_started_restart_is_finished_after_revert(
    three: Cluster,
):
    """An operator that sleeps before it deletes the pod deletes it when it wakes, by its uid: no
    grant covered that after the restart was withdrawn."""
    before = three.pod(0)["metadata"]["uid"]
    declare(three, **NEW)
    three.kube.refuse["delete"] = Unavailable(503, "asleep")
    with pytest.raises(Retry):
        await three.look()
    assert three.template(0)["spec"]["containers"][0]["image"] == "broker:new"
    declare(three, **OLD)
    for _ in range(3):
        with suppress(Retry):
            await three.look()
        assert three.image.grants[0].pod_uid == before, "it may go at any moment"
    del three.kube.refuse["delete"]
    await three.look()
    assert three.start_pods() == [0]
    assert three.runs(0) == "broker:old"
    three.take_part(0)
    await three.tick()
    await three.look()
    assert not three.image.grants


async def test_withdrawn_restart_leaves_another_grant_alone(three: Cluster):
    declare(three, **NEW)
    await three.look()
    grant = three.image.grants[0]
    await three.deciding.request(
        WithdrawRestart(broker_id=0, pod_uid=str(grant.pod_uid), revision="another")
    )
    assert dict(three.image.grants) == {0: grant}
