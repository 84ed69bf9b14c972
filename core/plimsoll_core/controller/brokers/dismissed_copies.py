"""Prepares the loss of logs of a broker with a copy of the metadata that a person gave up.

Called for DismissCopy, before the broker is told to drop the copy, and for the names of the logs
that it must not set aside. A log that it sets aside must not count as complete: between that and
the broker's new registration the last other member of an ISR may go, and the broker would be
elected. Source: docs/protocol.md 3.16.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.controller.brokers.fencing import fence, leave
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import DismissCopy
from plimsoll_core.messages.requests import Answer, Done

CAUSE = "its copy of the metadata was given up"


def dismiss_copy(turn: DecisionContext, request: DismissCopy) -> Answer:
    """Remove the broker from the ISRs and ELRs of all logs that it is to set aside, and fence its
    registration; if more than one slice of partitions is affected, `turn.again` continues. Do
    nothing if it has registered anew since."""
    broker_id = request.broker_id
    if all(one.broker_id != broker_id for one in turn.image.dismissed):
        return Done()
    kept = frozenset(_kept(turn.image, broker_id))
    broker = turn.image.brokers.get(broker_id)
    if not leave(turn, broker_id, CAUSE, lost=True, but=kept) or (
        broker is not None and not broker.fenced and not fence(turn, broker, CAUSE)
    ):
        turn.again = request
    else:
        turn.soft.leaving.discard(broker_id)
    return Done()


def logs_to_keep(
    image: ClusterImage, broker_id: BrokerId
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return names of topics, each with the indexes of partitions with logs that this broker must
    not set aside although its copy of the metadata was given up: its replica is the only one in
    ISR, ELR and last known ELR, or the first of those that all belong to such brokers."""
    found: dict[str, list[int]] = {}
    for key in _kept(image, broker_id):
        found.setdefault(image.topics[key.topic_id].name, []).append(key.index)
    return tuple((topic, tuple(sorted(indexes))) for topic, indexes in sorted(found.items()))


def _kept(image: ClusterImage, broker_id: BrokerId) -> list[PartitionKey]:
    dismissed = {one.broker_id for one in image.dismissed}
    found: list[PartitionKey] = []
    for key in image.hosted.get(broker_id, ()):
        partition = image.partitions[key]
        in_sync = {*partition.isr, *partition.elr}
        # One that stopped uncleanly may lack records, but its log is of the history that is kept.
        others = {*in_sync, *partition.last_known_elr} - {broker_id, *dismissed}
        if not others and min(in_sync, default=None) == broker_id:
            found.append(key)
    return found
