"""Members as a simulated operator reconciles them: requests for the next steps towards them.

It stands for the operator's reconciler of members and of the Rebalances that drain brokers.  An
operator that was deposed and does not know it goes on with what it knows.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_core.cluster.model import ClusterImage, Rebalance, RebalanceObject
from plimsoll_core.errors import Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.membership import SetLeaving, SettleNewcomers, UnregisterBroker
from plimsoll_core.messages.rebalances import BeginRebalance, RebalanceObjectGone, RunRebalance
from plimsoll_core.messages.requests import Request, SetMembers
from plimsoll_core.planner.rebalance import PlanRequest, make
from plimsoll_sim.hosts.brokers import BrokerHost

OPEN = ("Beginning", "Running")
DRAIN = "drain-"
"""What the names of Rebalances begin with that an operator makes for leaving brokers."""


def requests(
    image: ClusterImage, wanted: tuple[BrokerId, ...], hosts: dict[int, BrokerHost]
) -> Iterable[Request]:
    """The next steps, all that can be taken by what is committed."""
    if not image.members or set(wanted) - set(image.members):
        yield SetMembers(broker_ids=tuple(sorted({*image.members, *wanted})))
        return
    going = [b for b in image.members if b not in wanted]
    former = [b for b in image.leaving if b not in image.members]
    if sorted((*going, *former)) != list(image.leaving):
        yield SetLeaving(broker_ids=tuple(sorted((*going, *former))))
    empty = [b for b in going if b in image.leaving and not image.hosted.get(b)]
    if empty:
        yield SetMembers(broker_ids=tuple(b for b in image.members if b not in empty))
    joined = [b for b in image.newcomers if b in image.brokers and image.brokers[b].active]
    if joined:
        yield SettleNewcomers(broker_ids=tuple(joined))
    yield from _drain_requests(image)
    for broker_id, broker in sorted(image.brokers.items()):
        host = hosts[int(broker_id)]
        if broker_id not in image.members and host.removed and not host.running:
            yield UnregisterBroker(broker_id=broker_id, broker_epoch=broker.broker_epoch)


def _drain_requests(image: ClusterImage) -> Iterable[Request]:
    covered: set[BrokerId] = set()
    for row in drains(image):
        if row.phase not in OPEN or not set(row.brokers) <= set(image.leaving):
            yield RebalanceObjectGone(object=row.object)
        elif row.phase == "Beginning":
            yield from _begun(image, row.object, row.brokers)
        else:
            yield RunRebalance(object=row.object)
        covered |= set(row.brokers)
    missing = tuple(b for b in image.leaving if image.hosted.get(b) and b not in covered)
    if missing:
        name = DRAIN + "-".join(map(str, missing))
        uid = f"{name}@{image.next_offset}"
        yield from _begun(image, RebalanceObject(namespace="sim", name=name, uid=uid), missing)


def _begun(
    image: ClusterImage, holder: RebalanceObject, brokers: tuple[BrokerId, ...]
) -> Iterable[Request]:
    away = frozenset(b for b, broker in image.brokers.items() if not broker.active)
    planned = make(image, PlanRequest(mode="RemoveBrokers", brokers=brokers, away=away))
    if isinstance(planned, Refusal):
        return
    yield BeginRebalance(
        object=holder,
        mode="RemoveBrokers",
        brokers=brokers,
        plan_hash=planned.hash,
        moves=planned.moves,
        waves=planned.waves,
    )


def drains(image: ClusterImage) -> list[Rebalance]:
    """Drains, not what an administrator wished for."""
    rows = (row for _, row in sorted(image.rebalances.items()))
    return [row for row in rows if row.object.name.startswith(DRAIN)]
