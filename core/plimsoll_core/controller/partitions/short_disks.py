"""Leaders whose disk has little room left: a replica whose broker has room leads instead.

Called for heartbeats.  A broker that refuses clients' records (`BrokerFigures.disk_short`) stays in
its ISRs and follows; what it leads goes to members of the ISR on brokers that take records, if
there are any.  It gets no leadership back before it takes records again (`leadership_return`).
"""

from __future__ import annotations

from itertools import islice

from plimsoll_core.cluster.model import Broker, Partition
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.ids import BrokerId


def is_short(turn: DecisionContext, broker_id: BrokerId) -> bool:
    """As its last heartbeat says; False: none has come in this term."""
    contact = turn.soft.contacts.get(broker_id)
    figures = None if contact is None else contact.figures
    return figures is not None and figures.disk_short


def hand_leaders_over(turn: DecisionContext, broker: Broker) -> None:
    """One bounded batch a heartbeat."""
    if not is_short(turn, broker.id):
        return
    short = frozenset(one for one in turn.image.brokers if is_short(turn, one))

    def has_heir(p: Partition) -> bool:
        heirs = (one for one in p.isr if one not in short)
        return p.leader == broker.id and any(turn.may_lead(one, p) for one in heirs)

    led = (p for p in turn.hosted(broker.id) if has_heir(p))
    batch = list(islice(led, turn.settings.slice_partitions_max))
    cause = f"the disk of broker {broker.id} is nearly full"
    turn.change([(p, PartitionUpdate()) for p in batch], cause, without=short)
