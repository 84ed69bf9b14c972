"""How many partitions brokers hold at most, and how many of those one principal may make.

Called wherever partitions are made: for clients (CreateTopics, CreatePartitions, topics made on
demand) and for Topic objects.  Each broker tells with its heartbeats for how many it has memory and
descriptors (`BrokerFigures.partitions_max`); a broker that has not told is not looked at.  What is
there already stays, and is replicated, whatever the bound.

A topic belongs to the principal that made it (`Topic.owner`, committed), or, where a listener has
no login, to the client's network.  All principals share what the brokers hold by `FairPool`'s rule.
Super users have no share and no bound but the brokers'; neither have objects, whose number is a
matter of rights on Kubernetes and of `topics.limits.partitionsPerNamespace`.
"""

from __future__ import annotations

from collections import Counter

from plimsoll_core.addresses import network_of
from plimsoll_core.cluster.record_versions import OWNERS_SINCE
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.security import OnBehalf
from plimsoll_core.planner.placement import Assignment
from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_core.security.acl import ANONYMOUS

FLOOR = 64
"""Replicas that any principal may have while the brokers have room."""


def beyond_brokers(turn: DecisionContext, rows: Assignment) -> Refusal | None:
    """Why a broker of these rows cannot take them."""
    for broker_id, added in sorted(Counter(one for row in rows for one in row).items()):
        most = _most(turn, broker_id)
        there = len(turn.image.hosted.get(broker_id, ()))
        if most is not None and there + added > most:
            return Refusal(
                reason=Reason.PolicyViolation,
                message=(
                    f"Broker {broker_id} has {there} replicas and has memory and descriptors for"
                    f" {most}; {added} more are too many. Use fewer partitions, delete topics, add"
                    " brokers, or give the brokers more memory."
                ),
            )
    return None


def _most(turn: DecisionContext, broker_id: BrokerId) -> int | None:
    contact = turn.soft.contacts.get(broker_id)
    figures = None if contact is None else contact.figures
    return None if figures is None else figures.partitions_max


class PartitionRoom:
    """Of one request of a client; `behalf`: for whom a broker asks."""

    def __init__(self, turn: DecisionContext, behalf: OnBehalf | None) -> None:
        self._turn = turn
        self.owner = _owner(turn, behalf)
        self._pool: FairPool | None = None

    def refusal(self, rows: Assignment) -> Refusal | None:
        """Why these may not be made."""
        if refusal := beyond_brokers(self._turn, rows):
            return refusal
        pool = self._pool = self._pool or _pool(self._turn)
        replicas = sum(map(len, rows))
        if not self.owner or not pool.capacity or pool.admits(self.owner, replicas):
            return None
        return Refusal(
            reason=Reason.PolicyViolation,
            message=(
                f"{self.owner} has made {pool.held(self.owner)} replicas of the {pool.capacity}"
                f" that the brokers hold at most, {pool.free} are free; {replicas} more are beyond"
                " its share. Delete topics, or ask the owner of the cluster for a Topic object."
            ),
        )

    def made(self, rows: Assignment) -> None:
        """They are committed with this request."""
        if self._pool is not None:
            self._pool.take(self.owner, sum(map(len, rows)))


def _owner(turn: DecisionContext, behalf: OnBehalf | None) -> str:
    """Empty: nobody whose share is counted."""
    if behalf is None or turn.image.metadata_version < OWNERS_SINCE:
        return ""
    if behalf.principal == ANONYMOUS:
        return network_of(behalf.host)
    return "" if turn.image.security.is_super_user(behalf.principal) else behalf.principal


def _pool(turn: DecisionContext) -> FairPool:
    """In replicas; a broker that has not told can hold as many as others on average.  A capacity of
    0: none has told."""
    bounds = [_most(turn, broker_id) for broker_id in turn.image.brokers]
    told = [most for most in bounds if most is not None]
    pool = FairPool(sum(told) * len(bounds) // len(told) if told else 0)
    pool.floor = min(FLOOR, pool.capacity)
    for topic in turn.image.topics.values():
        pool.take(topic.owner, topic.partitions * topic.replication_factor)
    return pool
