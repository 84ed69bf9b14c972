"""Decides if a broker that is held back is unfenced early because partitions need it.

Called for heartbeats of fenced brokers. Early unfencing needs a leaderless partition that the
broker may lead, or an ISR below its minimum that reaches it with the broker. While held back, the
broker joins no other ISR (`partitions.alter_partition`), so that losing it again stalls no producer
(docs/protocol.md 3.2)."""

from __future__ import annotations

from plimsoll_core.cluster.model import Partition
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.partitions.unclean_recovery import strategy_of, suspects
from plimsoll_core.ids import BrokerId


def return_helps(turn: DecisionContext, broker_id: BrokerId) -> bool:
    return any(_helps(turn, p, broker_id) for p in turn.hosted(broker_id))


def _helps(turn: DecisionContext, p: Partition, broker_id: BrokerId) -> bool:
    if p.leader is None:
        return _may_lead(turn, p, broker_id)
    if len(p.isr) >= p.effective_min_isr:
        return False
    # Several that are held back help together.  One that is dead for good does not count.
    able = {r for r in p.replicas if r in p.isr or r == broker_id or _is_here(turn, r)}
    return len(able) >= p.effective_min_isr


def _may_lead(turn: DecisionContext, p: Partition, broker_id: BrokerId) -> bool:
    """Return True if the broker's log of the leaderless partition is online, and the broker may be
    elected: as a member of its ISR or ELR, or by the topic's strategy for unclean recovery."""
    if turn.out_of_service(broker_id, p):
        return False
    if p.isr or p.elr:
        if broker_id in (*p.isr, *p.elr):
            return True
        return strategy_of(turn.image, p, turn.settings) == "Proactive"
    strategy = strategy_of(turn.image, p, turn.settings)
    if strategy == "Proactive":
        return True
    known = suspects(p)
    if broker_id not in known:
        return False
    # A person may name it at any time; a balanced recovery waits until all of them have reported.
    return strategy == "Manual" or all(r == broker_id or _is_here(turn, r) for r in known)


def _is_here(turn: DecisionContext, broker_id: BrokerId) -> bool:
    """Return True if the broker is active, or fenced and sending heartbeats."""
    broker = turn.image.brokers.get(broker_id)
    return broker is not None and (turn.acceptable(broker_id) or turn.has_session(broker))
