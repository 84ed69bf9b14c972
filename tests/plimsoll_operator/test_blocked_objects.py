"""Whatever is shown as Blocked is told in the LogCluster, in an Event and in the metric, too."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.plimsoll_operator import moving, rebalancing
from tests.plimsoll_operator.moving import Moves
from tests.plimsoll_operator.rebalancing import Rebalancings
from tests.plimsoll_operator.terms import Scene

from plimsoll_core.errors import Reason
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api.cluster_status import LogClusterStatus
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.reassignment import ReassignmentStatus
from plimsoll_operator.api.rebalance import RebalanceStatus
from plimsoll_operator.api.user import UserStatus
from plimsoll_operator.api.verification import VerificationStatus
from plimsoll_operator.kube.resources import (
    LOG_CLUSTERS,
    REASSIGNMENTS,
    REBALANCES,
    USERS,
    VERIFICATIONS,
    Kind,
)
from plimsoll_operator.reconcile.registry import draft_of
from plimsoll_operator.reconcile.shared.broker_rolls import rolls_of
from plimsoll_operator.status import operator_metrics
from plimsoll_operator.status.event_reasons import REASONS
from plimsoll_operator.status.events import Occurrence
from plimsoll_operator.status.status_writer import Target

UNSCHEDULABLE = "Unschedulable: 0/3 nodes are available: 3 Insufficient memory."


def shown(scene: Scene) -> tuple[LogClusterStatus, Condition]:
    """The LogCluster's status, and its condition Blocked."""
    draft = draft_of(scene.term, Target(LOG_CLUSTERS, *scene.term.key))
    assert draft is not None
    assert isinstance(draft.status, LogClusterStatus)
    return draft.status, next(c for c in draft.status.conditions if c.type == "Blocked")


def events(scene: Scene) -> list[Occurrence]:
    told: list[Occurrence] = []
    scene.effects.tell = told.append
    return told


def metric(scene: Scene) -> str:
    rows = [row for found in scene.term.shown.blocked.values() for row in found]
    families = list(operator_metrics._blocked([(scene.term.key, rows)]))
    registry = CollectorRegistry()
    registry.register(type("Found", (), {"collect": lambda _: families})())
    return generate_latest(registry).decode()


async def a_blocked_reassignment() -> tuple[Scene, str, list[Occurrence], Any]:
    scene = Moves()
    told = events(scene)
    await scene.look()
    await scene.kill(4)
    rolls_of(scene.term).troubles = {BrokerId(4): UNSCHEDULABLE}
    return scene, "Reassignment kafka/move", told, await scene.look()


async def a_blocked_fill() -> tuple[Scene, str, list[Occurrence], Any]:
    scene = Rebalancings(approval="Automatic")
    told = events(scene)
    await scene.look()
    await scene.kill(4)
    rolls_of(scene.term).troubles = {BrokerId(4): UNSCHEDULABLE}
    await scene.look()
    return scene, "Rebalance kafka/fill", told, scene.status


@pytest.mark.parametrize("begin", [a_blocked_reassignment, a_blocked_fill])
async def test_move_whose_target_is_down_is_told_everywhere(begin: Any):
    scene, whose, told, status = await begin()
    assert status.phase == "Blocked"
    cluster, blocked = shown(scene)
    assert (blocked.status, blocked.reason) == ("True", "TargetDown")
    assert whose in blocked.message
    (row,) = cluster.blocked
    assert (f"{row.action} {row.object}", row.reason) == (whose, "TargetDown")
    kind = whose.split()[0]
    assert [one.message for one in told if one.reason == f"{kind}Blocked"] == [row.sentence]
    assert f'action="{kind}",' in metric(scene)
    for message in (blocked.message, row.until, told[-1].message):
        assert "Broker 4 is down (its pod: Unschedulable: 0/3 nodes" in message


async def test_ended_wait_is_no_longer_reported():
    scene, _, _, _ = await a_blocked_reassignment()
    first = shown(scene)[0].blocked
    await scene.look()  # type: ignore[attr-defined]
    assert shown(scene)[0].blocked == first, "since when is kept"
    target = Target(REASSIGNMENTS, *moving.KEY)
    scene.shows(target, 0, None)
    cluster, blocked = shown(scene)
    assert (cluster.blocked, blocked.status) == ((), "False")
    assert 'action="Reassignment"' not in metric(scene)
    assert rebalancing.KEY != moving.KEY


@pytest.mark.parametrize("reason", [reason.name for reason in Reason])
@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (REASSIGNMENTS, ReassignmentStatus(phase="Blocked")),
        (REBALANCES, RebalanceStatus(phase="Blocked")),
        (VERIFICATIONS, VerificationStatus(phase="Running")),
        (USERS, UserStatus()),
    ],
    ids=lambda one: one.kind if isinstance(one, Kind) else "",
)
def test_object_shown_as_blocked_is_always_reported(kind: Kind, status: Any, reason: str):
    scene = Moves()
    told = events(scene)
    found = type(status)(
        **{
            **{f: getattr(status, f) for f in status.__struct_fields__},
            "conditions": (condition("Blocked", True, reason, "It waits."),),
        }
    )
    scene.shows(Target(kind, "kafka", "x"), 1, found)
    cluster, blocked = shown(scene)
    assert (blocked.status, blocked.reason) == ("True", reason)
    assert [(r.action, r.object, r.reason) for r in cluster.blocked] == [
        (kind.kind, "kafka/x", reason)
    ]
    assert [one.reason for one in told] == [f"{kind.kind}Blocked"]
    assert {one.reason for one in told} <= {one.reason for one in REASONS}
    assert f'action="{kind.kind}"' in metric(scene)
