"""Stalled and Blocked are computed from all causes, worst first, and none hides another."""

import dataclasses
from itertools import combinations, permutations
from typing import Any, get_args

import msgspec
import pytest
from tests.plimsoll_operator.builders import a_cluster_body, an_image
from tests.plimsoll_operator.terms import Scene

from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_status import (
    BLOCKED_MAX,
    Action,
    BlockedAction,
    LogClusterStatus,
)
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.kube.errors import Rejected
from plimsoll_operator.kube.resources import LOG_CLUSTERS, VOLUME_CLAIMS
from plimsoll_operator.reconcile.blocked_actions import ORDER, STALLED
from plimsoll_operator.reconcile.cluster import reconcile as cluster
from plimsoll_operator.reconcile.cluster.unrestored import RESTORING, restoring
from plimsoll_operator.reconcile.registry import draft_of
from plimsoll_operator.reconcile.shown_state import ShownState
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.status.events import Occurrence
from plimsoll_operator.status.status_writer import Target

ENDED_WITH_ITS_TERM = {StallSource.LEADERSHIP, StallSource.CONTROLLER}
"""Set when the reconcilers of a term run no more; these two exclude each other."""

PAIRS = [
    pair
    for pair in combinations(StallSource, 2)
    if not ENDED_WITH_ITS_TERM.issuperset(pair)  # worse first, as the table has them
]


def a_cause(source: StallSource, *, serves: bool = True) -> Cause:
    return Cause(reason=source.name, message=f"About {source.name}.", serves=serves)


def shown(scene: Scene) -> tuple[LogClusterStatus, dict[str, Condition]]:
    """The LogCluster's status, and its conditions by type."""
    draft = draft_of(scene.term, Target(LOG_CLUSTERS, *scene.term.key))
    assert draft is not None
    assert isinstance(draft.status, LogClusterStatus)
    return draft.status, {c.type: c for c in draft.status.conditions}


def a_serving_scene(**spec: Any) -> Scene:
    return Scene(an_image(), **spec)


@pytest.mark.parametrize("source", StallSource, ids=lambda source: source.name)
def test_single_stall_cause_shows_its_reason(source: StallSource):
    scene = a_serving_scene()
    before = shown(scene)[1]
    scene.effects.stall(source, a_cause(source))
    _, conditions = shown(scene)
    found = conditions["Stalled"]
    assert (found.status, found.reason, found.message) == (
        "True",
        source.name,
        f"About {source.name}.",
    )
    assert conditions["Ready"] == before["Ready"], "it serves, whatever stalls"
    scene.effects.unstall(source)
    assert shown(scene)[1] == before


def test_later_stall_cause_never_hides_a_worse_one():
    for worse, lesser in PAIRS:
        for order in permutations((worse, lesser)):
            scene = a_serving_scene()
            for source in order:
                scene.effects.stall(source, a_cause(source))
            found = shown(scene)[1]["Stalled"]
            assert found.reason == worse.name
            assert found.message == f"About {worse.name}. About {lesser.name}."


def test_ended_stall_cause_reveals_the_other():
    for ended, left in (pair for both in PAIRS for pair in permutations(both)):
        scene = a_serving_scene()
        for source in sorted((ended, left), key=list(StallSource).index):
            scene.effects.stall(source, a_cause(source))
        scene.marked.clear()
        scene.effects.unstall(ended)
        found = shown(scene)[1]["Stalled"]
        assert (found.reason, found.message) == (left.name, f"About {left.name}.")
        assert scene.marked == [Target(LOG_CLUSTERS, *scene.term.key)], "the status is rendered"


def test_unchanged_stall_cause_renders_no_status():
    scene = a_serving_scene()
    scene.effects.stall(StallSource.RACKS, a_cause(StallSource.RACKS))
    scene.marked.clear()
    scene.effects.stall(StallSource.RACKS, a_cause(StallSource.RACKS))
    scene.effects.unstall(StallSource.SPEC)
    assert scene.marked == []


def test_service_stopping_cause_makes_cluster_unready():
    scene = a_serving_scene()
    scene.effects.stall(StallSource.CONFIG, a_cause(StallSource.CONFIG, serves=False))
    scene.effects.stall(StallSource.DELETED_VOLUMES, a_cause(StallSource.DELETED_VOLUMES))
    assert scene.term.shown.notes["Ready"].reason == "CONFIG"
    _, conditions = shown(scene)
    assert conditions["Ready"].status == "False"
    assert conditions["Stalled"].reason == "DELETED_VOLUMES"
    scene.effects.unstall(StallSource.CONFIG)
    assert "Ready" not in scene.term.shown.notes


# --- as the reconcilers set and clear them ------------------------------------------------------


def hold_volume(scene: Scene, size: str) -> None:
    """Broker 0's claim, as its StatefulSet made it."""
    own = labels.labels("main", scene.term.cluster_id, "broker") | {labels.BROKER_ID: "0"}
    meta = {"name": "data-main-broker-0-0", "namespace": "kafka", "labels": own}
    spec = {"resources": {"requests": {"storage": size}}}
    scene.kube.put(VOLUME_CLAIMS, {"metadata": meta, "spec": spec})


def test_waiting_cause_makes_cluster_unready_not_stalled():
    shown = ShownState()
    shown.stall_causes[StallSource.CONTROLLER] = restoring("The log is restored.")
    assert shown.notes["Stalled"].status == "False"
    assert shown.notes["Stalled"].reason == RESTORING
    assert (shown.notes["Ready"].status, shown.notes["Ready"].reason) == ("False", RESTORING)


async def test_ungrowable_volume_does_not_hide_deletion():
    scene = a_serving_scene(storage={"size": "2Gi"})
    hold_volume(scene, "1Gi")
    scene.kube.refuse["merge"] = Rejected(403, "no expansion")
    claim = scene.kube.find(VOLUME_CLAIMS, "kafka", "data-main-broker-0-0")
    deleted = {"deletionTimestamp": "2026-11-22T00:00:00Z"}
    scene.kube.set_metadata(VOLUME_CLAIMS, "kafka", "data-main-broker-0-0", **deleted)
    await scene.run(cluster.reconcile)
    found = scene.term.shown.notes["Stalled"]
    assert found.reason == "VolumeDeleted"
    assert "no expansion" in found.message
    scene.kube.put(VOLUME_CLAIMS, claim)
    await scene.run(cluster.reconcile)
    assert scene.term.shown.notes["Stalled"].reason == "VolumeCannotGrow"


async def test_mended_config_is_no_longer_reported():
    scene = a_serving_scene()
    scene.declare(version="9.9", config={"log.retention.houres": 1})
    await scene.run(cluster.reconcile)
    assert scene.term.shown.notes["Stalled"].reason == "InvalidConfig"
    assert "9.9" in scene.term.shown.notes["Stalled"].message
    scene.declare(version="9.9")
    await scene.run(cluster.reconcile)
    assert scene.term.shown.notes["Stalled"].reason == "UnknownVersion"
    assert "houres" not in scene.term.shown.notes["Stalled"].message
    assert "Ready" not in scene.term.shown.notes


async def test_unreadable_spec_precedes_older_findings():
    scene = a_serving_scene()
    scene.declare(config={"log.retention.houres": 1})
    await scene.run(cluster.reconcile)
    scene.declare(config={"log.retention.hours": [1]})
    await scene.run(cluster.reconcile)
    assert scene.term.shown.notes["Stalled"].reason == "InvalidSpec"
    assert "houres" in scene.term.shown.notes["Stalled"].message
    scene.declare()
    await scene.run(cluster.reconcile)
    assert "Stalled" not in scene.term.shown.notes


# --- Blocked ------------------------------------------------------------------------------------


def a_row(action: Action, broker: int = 0) -> BlockedAction:
    return BlockedAction(
        action=action,
        broker=broker,
        reason=f"{action}Waits",
        until="it may go on",
        since="2026-11-22T00:00:00Z",
    )


def test_blocked_actions_all_have_a_rank():
    assert set(ORDER) == set(get_args(Action))
    assert list(ORDER)[-1] == STALLED, "what no waiting ends is no reason to be Blocked"


@pytest.mark.parametrize("action", [action for action in ORDER if action != STALLED])
def test_single_blocked_action_shows_its_reason(action: Action):
    scene = a_serving_scene()
    scene.effects.block("x", [a_row(action)])
    status, conditions = shown(scene)
    assert (conditions["Blocked"].status, conditions["Blocked"].reason) == (
        "True",
        f"{action}Waits",
    )
    assert status.blocked == (a_row(action),)


@pytest.mark.parametrize(("worse", "lesser"), combinations(ORDER, 2))
def test_worse_blocked_action_stands_first_whoever_wrote_it(worse: Action, lesser: Action):
    for keys in (("a", "b"), ("b", "a")):
        scene = a_serving_scene()
        for key, action in zip(keys, (worse, lesser), strict=True):
            scene.effects.block(key, [a_row(action)])
        status, conditions = shown(scene)
        assert [row.action for row in status.blocked] == [worse, lesser]
        assert conditions["Blocked"].reason == f"{worse}Waits"
        scene.effects.block(keys[0], [])
        left = "NothingWaits" if lesser == STALLED else f"{lesser}Waits"
        assert shown(scene)[1]["Blocked"].reason == left


def test_waiting_action_keeps_time_across_operators():
    scene = a_serving_scene()
    earlier = msgspec.to_builtins(a_row("Drain", 2))
    scene.objects.clusters.put({**a_cluster_body(), "status": {"blocked": [earlier]}})
    told: list[Occurrence] = []
    term = dataclasses.replace(scene.term, shown=ShownState())
    successor = dataclasses.replace(scene.effects, term=term, tell=told.append)
    # Its first status comes before any reconciler has looked.
    scene.objects.clusters.put({**a_cluster_body(), "status": {"blocked": []}})
    now = "2026-11-23T00:00:00Z"
    other = msgspec.structs.replace(a_row("Drain", 3), since=now)
    again = msgspec.structs.replace(a_row("Drain", 2), since=now)
    successor.block("Members", [again, other])
    assert term.shown.blocked["Members"] == (a_row("Drain", 2), other)
    assert [one.key for one in told] == ["blocked-Drain-3-DrainWaits"]
    successor.block("Members", [])
    successor.block("Members", [again])
    assert term.shown.blocked["Members"] == (again,), "it had ended"


def test_blocked_rows_that_cannot_be_read_are_none():
    scene = a_serving_scene()
    scene.objects.clusters.put({**a_cluster_body(), "status": {"blocked": [{"action": "New"}]}})
    dataclasses.replace(scene.effects).block("Members", [a_row("Drain", 2)])


def test_volumes_that_cannot_grow_hide_no_blocked_action():
    scene = a_serving_scene()
    scene.effects.block(
        "GrowVolume", [a_row("GrowVolume", broker) for broker in range(BLOCKED_MAX)]
    )
    scene.effects.block("Restart", [a_row("Restart", 7)])
    status, conditions = shown(scene)
    assert conditions["Blocked"].reason == "RestartWaits"
    assert len(status.blocked) == BLOCKED_MAX
    assert status.blocked[0].action == "Restart"
