"""An administrator's Rebalances: approves plans some seconds after they are made, and ends
Rebalances when a run is healed.
"""

from __future__ import annotations

from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.store import ObjectChange
from plimsoll_operator.kube.resources import REBALANCES
from plimsoll_sim.desired.objects import AppliedObjects
from plimsoll_sim.engine.loop import SimLoop


def heal(objects: AppliedObjects, replication_factor: int) -> None:
    """Resume every paused Rebalance, and delete those that contradict the topics or members.
    `replication_factor`: the greatest one of topics that have no object or are created again."""
    factors = [topic.replication_factor for topic in objects.topics.values()]
    most = max([*factors, replication_factor])
    for name, found in objects.rebalances.items():
        if found.spec.paused:
            objects.edit(REBALANCES, name, paused=None)
        brokers = found.spec.brokers or ()
        left = len(objects.members) - len(brokers)
        short = found.spec.mode == "RemoveBrokers" and left < most
        if short or not set(brokers) <= set(objects.members):
            objects.delete(REBALANCES, name)


READING_US = 700_000


class Approvals:
    """Approves the plan of every Rebalance, whether the administrator or an operator created it."""

    def __init__(self, loop: SimLoop, server: MemoryApiServer, objects: AppliedObjects) -> None:
        self._loop = loop
        self._objects = objects
        server.store.observers.append(self._stored)

    def _stored(self, change: ObjectChange) -> None:
        if change.resource.kind != REBALANCES or change.type == "DELETED":
            return
        name, plan = change.after.key[1], _waiting_plan(change.after.body)
        if plan is not None:
            self._loop.later(READING_US, lambda: self._approve(name, plan))

    def _approve(self, name: str, plan: str) -> None:
        if name not in self._objects.names(REBALANCES):
            return
        body = self._objects.body(REBALANCES, name)
        if _waiting_plan(body) == plan:
            self._objects.edit(REBALANCES, name, approved_plan=plan)


def _waiting_plan(body: dict[str, object]) -> str | None:
    """Return the hash of the plan that waits for approval, or None."""
    status, spec = body.get("status"), body.get("spec")
    assert isinstance(spec, dict)
    if not isinstance(status, dict) or status.get("phase") != "AwaitingApproval":
        return None
    plan = (status.get("plan") or {}).get("hash")
    return str(plan) if plan and spec.get("approvedPlan") != plan else None
