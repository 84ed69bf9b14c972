"""Brokers that come and go, as an operator carries it out, and what must come of it.

`requests` and `run_pods` stand for the operator's handlers and for what Kubernetes makes of
StatefulSets.  An operator that was deposed and does not know it goes on with what it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from plimsoll_core.cluster.model import ClusterImage, Rebalance, RebalanceObject
from plimsoll_core.errors import Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.membership import SetLeaving, SettleNewcomers, UnregisterBroker
from plimsoll_core.messages.rebalances import BeginRebalance, RebalanceObjectGone, RunRebalance
from plimsoll_core.messages.requests import Request, SetMembers
from plimsoll_core.planner.rebalance import PlanRequest, make
from plimsoll_sim.brokers import BrokerHost

if TYPE_CHECKING:
    from plimsoll_sim.world import World

GRACE_US = 40_000_000
OPEN = ("Beginning", "Running")
DRAIN = "drain-"


# --- what an operator does ------------------------------------------------------------------------


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
    yield from _drains(image)
    for broker_id, broker in sorted(image.brokers.items()):
        host = hosts[int(broker_id)]
        if broker_id not in image.members and host.removed and not host.running:
            yield UnregisterBroker(broker_id=broker_id, broker_epoch=broker.broker_epoch)


def _drains(image: ClusterImage) -> Iterable[Request]:
    covered: set[BrokerId] = set()
    for row in _made(image):
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


def run_pods(
    image: ClusterImage,
    hosts: dict[int, BrokerHost],
    now: tuple[int, str],
    start: Callable[[BrokerHost], None],
) -> None:
    """Members have a pod; who holds nothing and is none loses it: asked first, then killed.
    `now`: the time, and the revision that new StatefulSets are made with."""
    now_us, revision = now
    if not image.members:
        return
    for host in hosts.values():
        broker_id = BrokerId(host.id)
        if broker_id in image.members or image.hosted.get(broker_id):
            if host.removed:
                host.removed = False
                host.template, host.template_version = revision, host.template_version + 1
                start(host)
            continue
        if not host.removed:
            host.removed, host.removed_us, host.stuck = True, now_us, False
        if now_us - host.removed_us > GRACE_US:
            host.kill()
        else:
            host.stop()


# --- what must come about -------------------------------------------------------------------------


def unfinished(image: ClusterImage, world: World) -> list[str]:
    """A drain ends, and what it emptied is gone."""
    left = []
    if image.members != world.wishes.members:
        left.append(f"members are {image.members}, not {world.wishes.members}")
    if image.leaving:
        left.append(f"{image.leaving} are still leaving")
    left += [f"{row.object.name} is remembered: {row}" for row in _made(image)]
    for host in world.brokers.values():
        broker_id = BrokerId(host.id)
        if broker_id not in image.members and (host.running or broker_id in image.brokers):
            left.append(f"broker {host.id} is no member but still there")
    return left


def _made(image: ClusterImage) -> list[Rebalance]:
    """Drains, not what an administrator wished for."""
    rows = (row for _, row in sorted(image.rebalances.items()))
    return [row for row in rows if row.object.name.startswith(DRAIN)]
