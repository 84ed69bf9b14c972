"""Growing, shrinking, moving and restarting, each while Spark writes and the operator is killed.

One cluster lives through all of it, test by test, in this order.  Every step is judged twice: by a
`Verification` that writes during it, and reads everything back in the end; and by what the
controller committed meanwhile: no ISR may fall below min ISR by our own doing.
"""

import os
import signal
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from dev.kubectl import RESTRICTED, Cluster, CommandFailed, condition, is_true, wait_for
from tests.e2e.clients import produce
from tests.e2e.drill import (
    FAST,
    TOPICS,
    Drill,
    Watch,
    assert_all_passed,
    kill_operator,
    verified,
)
from tests.e2e.faults import evict

ALL_STEPS_S = 215
"""So long do all steps take where processors are idle.  Where they take longer another Verification
writes, which waits until the one before has read everything back."""


@pytest.fixture(scope="module")
def drill(operator: Cluster) -> Iterator[Drill]:
    namespace = f"ops-{uuid.uuid4().hex[:6]}"
    operator.make_namespace(namespace, RESTRICTED)
    made = Drill(operator, namespace)
    made.apply("LogCluster", "main", made.spec)
    for name, (partitions, factor, min_isr) in TOPICS.items():
        spec = {
            "partitions": partitions,
            "replicationFactor": factor,
            "minInSyncReplicas": min_isr,
        }
        made.apply("Topic", name, spec)
    for kind, name in (("logcluster", "main"), *(("topic", name) for name in TOPICS)):
        wait_for(
            f"{kind}/{name} to be Ready",
            lambda kind=kind, name=name: is_true(made.get(kind, name), "Ready") or None,
            120,
        )
    # So that there is something to copy in every partition.
    produce(operator, namespace, "pairs", ["x" * 20_000] * 300)
    yield made
    operator.delete_namespace(namespace)


def finished(drill: Drill, name: str, wanted: str = "Completed") -> dict[str, Any]:
    def probe() -> dict[str, Any] | None:
        found = drill.get("rebalance", name)
        phase = (found.get("status") or {}).get("phase")
        assert phase not in {"Completed", "Cancelled", "Failed"} - {wanted}, found["status"]
        return found if phase == wanted else None

    return wait_for(f"rebalance/{name} to be {wanted}", probe, 400)


def assert_even(drill: Drill) -> None:
    """Every member has as many replicas as any other, give or take one; no other broker has any."""
    counts = drill.hosts()
    assert sorted(counts) == drill.members()
    assert max(counts.values()) - min(counts.values()) <= 1, counts


@pytest.mark.timeout(600)
def test_three_brokers_become_five(drill: Drill):
    with verified(drill, then_s=ALL_STEPS_S) as watch:
        drill.change(count=5)
        fill = wait_for("the new brokers to be filled", drill.running_move, 90)
        kill_operator(drill)
        finished(drill, fill["metadata"]["name"])
        wait_for("everything to be in sync", drill.settled, 60)
    assert drill.members() == [0, 1, 2, 3, 4]
    assert_even(drill)
    assert not watch.below


def leave(drill: Drill, *, excluded: int, then: list[int]) -> Watch:
    """Four brokers, without one of those that are there, the operator killed in mid-drain."""
    with verified(drill) as watch:
        drill.change(count=4, excludedIds=[excluded])
        wait_for("the drain to run", drill.running_move, 90)
        kill_operator(drill)
        wait_for("the members to be settled", lambda: drill.members() == then or None, 180)
        wait_for("the pod to go", lambda: drill.pod(excluded) is None or None, 90)
        wait_for("everything to be in sync", drill.settled, 120)
    assert excluded not in drill.hosts()
    gone = drill.cluster.get("statefulset", f"main-broker-{excluded}", drill.namespace)
    assert gone is None
    return watch


def volume(drill: Drill, broker: int) -> dict[str, Any] | None:
    return drill.cluster.get("pvc", f"data-main-broker-{broker}-0", drill.namespace)


@pytest.mark.timeout(600)
def test_excluded_broker_is_drained_and_removed(drill: Drill):
    drill.spec["storage"]["retention"] = {"whenScaled": "Delete"}
    watch = leave(drill, excluded=1, then=[0, 2, 3, 4])
    # Operators may be killed beside this test meanwhile: each take-over costs half a minute.
    wait_for("its volume to go", lambda: volume(drill, 1) is None or None, 180)
    assert_even(drill)
    assert not watch.below


@pytest.mark.timeout(600)
def test_another_goes_and_its_volume_is_kept(drill: Drill):
    drill.spec["storage"]["retention"] = {"whenScaled": "Retain"}
    watch = leave(drill, excluded=2, then=[0, 1, 3, 4])
    assert volume(drill, 2) is not None
    assert not watch.below


def uids(drill: Drill) -> dict[int, str]:
    found = {broker: drill.pod(broker) for broker in drill.members()}
    return {broker: pod["metadata"]["uid"] for broker, pod in found.items() if pod}


def is_another(drill: Drill, broker: int, before: dict[int, str]) -> bool | None:
    """Whether a broker's pod is another one; for a moment there is none."""
    return uids(drill).get(broker) not in (None, before[broker]) or None


@pytest.mark.timeout(600)
def test_changed_config_rolls_every_broker(drill: Drill):
    before = uids(drill)
    assert len(before) == 4
    with verified(drill, least_s=45) as watch:
        drill.spec["config"] = {"num.replica.fetchers": 2}
        drill.apply("LogCluster", "main", drill.spec)

        def replaced(least: int) -> bool | None:
            now = uids(drill)
            return sum(now.get(b) not in (None, before[b]) for b in before) >= least or None

        wait_for("the first broker to be replaced", lambda: replaced(1), 120)
        kill_operator(drill)
        wait_for("all brokers to be replaced", lambda: replaced(4), 240)
        wait_for("everything to be in sync", drill.settled, 120)
    assert not watch.below


@pytest.mark.timeout(600)
def test_replication_factor_goes_up_and_down(drill: Drill):
    partitions, _, min_isr = TOPICS["pairs"]

    def ask(factor: int) -> None:
        spec = {"partitions": partitions, "minInSyncReplicas": min_isr}
        drill.apply("Topic", "pairs", {**spec, "replicationFactor": factor})

    def has(factor: int) -> bool | None:
        found = drill.view("pairs")
        return (found is not None and all(len(p["isr"]) == factor for p in found)) or None

    with verified(drill) as watch:
        ask(3)
        kill_operator(drill)
        wait_for("three replicas each", lambda: has(3), 120)
        ask(2)
        kill_operator(drill)
        wait_for("two replicas each", lambda: has(2), 120)
        wait_for("everything to be in sync", drill.settled, 60)
    assert not watch.below


def completed(drill: Drill, name: str, spec: dict[str, Any]) -> None:
    """A Reassignment from its beginning to its end."""
    drill.apply("Reassignment", name, spec)
    wait_for(
        f"reassignment/{name} to be completed",
        lambda: is_true(drill.get("reassignment", name), "Complete") or None,
        180,
    )


@pytest.mark.timeout(600)
def test_full_rebalance_is_approved_and_cancelled(drill: Drill):
    off = {"topic": "orders", "awayFrom": [drill.members()[-1]]}
    completed(drill, "uneven", {"moves": [off], "throttle": FAST})
    drill.apply("Rebalance", "afresh", {"mode": "Full"})

    def planned() -> dict[str, Any] | None:
        found = drill.get("rebalance", "afresh").get("status") or {}
        return found if found.get("phase") == "AwaitingApproval" else None

    status = wait_for("the plan to be shown", planned, 60)
    assert status["plan"]["moves"]["replicas"] > 0
    with verified(drill) as watch:
        approved = {"mode": "Full", "approvedPlan": status["plan"]["hash"]}
        drill.apply("Rebalance", "afresh", approved)

        def under_way() -> bool | None:
            progress = drill.get("rebalance", "afresh")["status"].get("progress") or {}
            return progress.get("replicasMoved", 0) >= 1 or None

        wait_for("the first replica to be moved", under_way, 120, every_s=0.2)
        kill_operator(drill)
        drill.apply("Rebalance", "afresh", {**approved, "cancelled": True})
        finished(drill, "afresh", "Cancelled")
        wait_for("everything to be in sync", drill.settled, 60)
    assert not watch.below
    moved = drill.get("rebalance", "afresh")["status"]["progress"]["replicasMoved"]
    assert moved < status["plan"]["moves"]["replicas"], "it was over before it was cancelled"


@pytest.mark.timeout(600)
def test_killed_copy_target_returns_and_finishes(drill: Drill):
    first = drill.partitions("orders")[0]["replicas"]
    target = next(b for b in drill.members() if b not in first)
    moves = [{"topic": "orders", "partitions": [0], "replicas": [*first[:-1], target]}]
    with verified(drill) as watch:
        drill.apply(
            "Reassignment", "one", {"moves": moves, "throttle": {"bytesPerSecond": "512Ki"}}
        )

        def adding() -> bool | None:
            now = drill.view("orders")
            return (now is not None and target in now[0]["replicas"]) or None

        wait_for("the copy to begin", adding, 30, every_s=0.2)
        os.kill(drill.process(target), signal.SIGKILL)
        wait_for(
            "the move to be completed",
            lambda: is_true(drill.get("reassignment", "one"), "Complete") or None,
            180,
        )
        wait_for("everything to be in sync", drill.settled, 60)
    assert not watch.below
    assert drill.partitions("orders")[0]["replicas"] == moves[0]["replicas"]


def evict_when_permitted(drill: Drill, broker: int) -> None:
    """As `kubectl drain` goes on: a probe that came late makes a pod unready for a moment, and the
    budget refuses meanwhile."""

    def permitted() -> bool | None:
        try:
            evict(drill.cluster, drill.namespace, broker)
        except CommandFailed as refused:
            if "disruption budget" not in str(refused):
                raise
            return None
        return True

    wait_for(f"the eviction of broker {broker} to be permitted", permitted, 180, every_s=1)


@pytest.mark.timeout(900)
def test_eviction_waits_until_the_one_before_is_back(drill: Drill):
    first, second = drill.members()[:2]
    before = uids(drill)
    with Watch(drill) as watch:
        evict_when_permitted(drill, first)
        with pytest.raises(CommandFailed, match="disruption budget"):
            evict(drill.cluster, drill.namespace, second)
        evict_when_permitted(drill, second)
        assert is_another(drill, first, before), "the first has no new pod yet"
        # Read after the eviction: the budget may not permit it any sooner.
        short = wait_for("the ISRs to be read", lambda: drill.waiting_for(first), 60)
        assert short == [], "min ISRs of these wait for the first"
        wait_for("the second to be back", lambda: is_another(drill, second, before), 90)
        wait_for("everything to be in sync", drill.settled, 180)
    assert not watch.below


@pytest.mark.timeout(600)
def test_placement_ends_even(drill: Drill):
    drill.apply("Rebalance", "even", {"mode": "Full", "approval": "Automatic", "throttle": FAST})

    def over() -> bool | None:
        phase = (drill.get("rebalance", "even").get("status") or {}).get("phase")
        return phase in ("Completed", "NothingToDo") or None

    wait_for("the rebalance to end", over, 240)
    assert_even(drill)
    blocked = condition(drill.get("logcluster", "main"), "Blocked")
    assert blocked is None or blocked["status"] == "False", blocked


@pytest.mark.timeout(600)
def test_verifications_of_all_operations_passed(drill: Drill):
    assert_all_passed(drill)
