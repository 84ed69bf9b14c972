"""Rejects a broker on an empty volume that may have held the last complete copy of a partition.

A check of `registration`.  A failed mount looks exactly like an empty disk, so it waits for another
complete replica, or for a person to give up what it held (`named_leaders`).
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Partition
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import RegisterBroker


def empty_volume_is_no_last_copy(turn: DecisionContext, request: RegisterBroker) -> Refusal | None:
    """A failed mount looks exactly like an empty disk.

    A process whose volume was empty when it began says so whenever it registers, also for another
    listener: what it may hold alone it holds since then.
    """
    known = turn.image.brokers.get(request.broker_id)
    begun = known is not None and known.incarnation_id == request.incarnation_id
    if begun or not request.volume_is_empty:
        return None
    alone = [p for p in turn.hosted(request.broker_id) if _may_be_last(turn, p, request.broker_id)]
    if not alone:
        return None
    turn.soft.emptied.add(request.broker_id)
    first = min(alone, key=lambda p: (turn.image.topics[p.topic_id].name, p.index))
    return Refusal(
        reason=Reason.VolumeNotEmptied,
        message=(
            f"Broker {request.broker_id}'s volume is empty, but the broker may hold the only"
            f" complete copy of {len(alone)} partitions, such as"
            f" {turn.image.topics[first.topic_id].name}-{first.index}. Attach its old volume, or"
            " bring another complete replica back first, or give up what it held by naming leaders"
            " in their Topics' spec.uncleanRecovery.elect."
        ),
    )


def _may_be_last(turn: DecisionContext, partition: Partition, broker_id: BrokerId) -> bool:
    """No other replica is known to be complete, and no person gave this one's records up."""
    given_up = turn.soft.given_up.get(partition.key) == (broker_id, partition.leader_epoch)
    return not given_up and not {*partition.isr, *partition.elr} - {broker_id}
