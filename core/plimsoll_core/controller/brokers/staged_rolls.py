"""Decides which pool of brokers may roll, if the LogCluster orders its pools (`spec.rollout`).
Called for RequestRestart.

A pool rolls once every member of each earlier pool runs its new revision, is active, and is in sync
everywhere. Its members stay so meanwhile, or the roll stops. The pause after the first pool and its
approval arrive with the request: both follow from the spec and the pods. A broker that is down and
cannot start waits for no other pool: earlier pools may need it to come back into sync. A pool that
has nothing to change counts as rolled.
"""

from __future__ import annotations

from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import RequestRestart, RolledPool, Waits
from plimsoll_core.phrasing import brokers_text

EARLIER = "EarlierPool"


def stage_hold(turn: DecisionContext, request: RequestRestart) -> Waits | None:
    """Return why the broker's pool may not roll yet, or None if it may."""
    stage = request.stage
    if stage is None or (stage.cannot_start and not turn.acceptable(request.broker_id)):
        return None
    for pool in stage.earlier:
        if late := unrolled(turn, pool):
            few = brokers_text(late)
            until = f"{few} of pool {pool.name} run{'s' if len(late) == 1 else ''} revision "
            until += f"{pool.revision} and {'is' if len(late) == 1 else 'are'} in sync everywhere"
            return Waits(reason=EARLIER, until=until, of_stage=True)
    return stage.hold


def unrolled(turn: DecisionContext, pool: RolledPool) -> list[BrokerId]:
    """Return the pool's members that stay and have not rolled: they run another revision, restart,
    or are not in sync."""
    image, late = turn.image, []
    for broker_id in pool.broker_ids:
        if broker_id in image.leaving:
            continue
        broker = image.brokers.get(broker_id)
        current = broker is not None and broker.revision == pool.revision
        if not current or broker_id in image.grants or not is_in_sync(turn, broker_id):
            late.append(broker_id)
    return late


def is_in_sync(turn: DecisionContext, broker_id: BrokerId) -> bool:
    """Return True if the broker is active, and in the ISR of all its partitions, except those
    without a leader and those to which a move is adding it."""
    return turn.acceptable(broker_id) and all(
        broker_id in p.isr or broker_id in p.adding or p.leader is None
        for p in turn.hosted(broker_id)
    )
