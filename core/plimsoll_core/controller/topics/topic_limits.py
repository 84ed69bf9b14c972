"""The limits on new topics and partitions: names, partitions per topic, per namespace, per broker.

Called wherever partitions are created: for clients (CreateTopics, CreatePartitions, topics created
on demand) and for Topic objects.  Each broker reports in its heartbeats for how many partitions it
has memory and descriptors (`BrokerFigures.partitions_max`); a broker that has not reported it is
not checked.  Existing partitions stay, and are replicated, whatever the limit.

A topic belongs to the principal that created it (`Topic.owner`, committed), or, on a listener
without authentication, to the client's network.  All principals share the brokers' partitions by
`FairPool`'s rule.  Super users have no share, only the brokers' limit; nor have objects: their
number is limited by rights on Kubernetes and by `topics.limits.partitionsPerNamespace`.
"""

from __future__ import annotations

from collections import Counter

from plimsoll_core.addresses import network_of
from plimsoll_core.cluster.record_versions import OWNERS_SINCE
from plimsoll_core.cluster.topic_names import check_form
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import (
    DeclareTopic,
)
from plimsoll_core.messages.security import OnBehalf
from plimsoll_core.planner.placement import Assignment
from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_core.security.acl import ANONYMOUS


def check_name(turn: DecisionContext, name: str) -> Refusal | None:
    """Refuse a name that differs from an existing topic's only in '.' and '_'. Metrics do not
    distinguish these."""
    if refusal := check_form(name):
        return refusal
    if "." not in name and "_" not in name:
        return None
    plain = name.replace(".", "_")
    for other in turn.image.topic_ids:
        if other != name and other.replace(".", "_") == plain:
            return Refusal(
                reason=Reason.InvalidTopicName,
                message=(
                    f"The name {name} differs from topic {other} only in '.' and '_', which "
                    "metrics do not distinguish. Choose another name."
                ),
            )
    return None


def check_partitions(turn: DecisionContext, partitions: int) -> Refusal | None:
    most = turn.settings.partitions_per_topic_max
    if 1 <= partitions <= most:
        return None
    return Refusal(
        reason=Reason.InvalidPartitions,
        message=f"A topic can have 1 to {most} partitions in this cluster, not {partitions}.",
    )


def too_many_in_namespace(
    turn: DecisionContext, request: DeclareTopic, added: int
) -> Refusal | None:
    most, namespace = turn.settings.partitions_per_namespace_max, request.object.namespace
    if most is None:
        return None
    holders = ((t, t.object or t.detached_from) for t in turn.image.topics.values())
    there = sum(t.partitions for t, holder in holders if holder and holder.namespace == namespace)
    if there + added <= most:
        return None
    return Refusal(
        reason=Reason.InvalidPartitions,
        message=(
            f"The Topics of namespace {namespace} have {there} partitions and may have {most};"
            f" {added} more are too many. Use fewer, or raise the LogCluster's"
            " topics.limits.partitionsPerNamespace."
        ),
    )


FLOOR = 64
"""The number of replicas that every principal may have while the brokers have room."""


def beyond_brokers(turn: DecisionContext, rows: Assignment) -> Refusal | None:
    """Return a refusal if this placement gives a broker more replicas than it reported to have
    memory and file descriptors for, or None."""
    for broker_id, added in sorted(Counter(one for row in rows for one in row).items()):
        most = _most(turn, broker_id)
        there = len(turn.image.hosted.get(broker_id, ()))
        if most is not None and there + added > most:
            return Refusal(
                reason=Reason.PolicyViolation,
                message=(
                    f"Broker {broker_id} has {there} replicas, and memory and file descriptors for "
                    f"at most {most}; {added} more are too many. Use fewer partitions, delete "
                    "topics, add brokers, or give the brokers more memory."
                ),
            )
    return None


def _most(turn: DecisionContext, broker_id: BrokerId) -> int | None:
    contact = turn.soft.contacts.get(broker_id)
    figures = None if contact is None else contact.figures
    return None if figures is None else figures.partitions_max


class PartitionRoom:
    """The limits on the replicas that one client request may create: those of the brokers, and the
    share of the principal to which they are charged. `behalf` is the client that sent the request
    to its broker, None if the broker named none; then nothing is charged."""

    def __init__(self, turn: DecisionContext, behalf: OnBehalf | None) -> None:
        self._turn = turn
        self.owner = _owner(turn, behalf)
        self._pool: FairPool | None = None

    def refusal(self, rows: Assignment) -> Refusal | None:
        """Return a refusal if partitions with these replicas would exceed a limit, or None."""
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
        """Charge the replicas of partitions that this request creates."""
        if self._pool is not None:
            self._pool.take(self.owner, sum(map(len, rows)))


def _owner(turn: DecisionContext, behalf: OnBehalf | None) -> str:
    """Return the principal that is charged for the request's replicas, or "" if none is."""
    if behalf is None or turn.image.metadata_version < OWNERS_SINCE:
        return ""
    if behalf.principal == ANONYMOUS:
        return network_of(behalf.host)
    return "" if turn.image.security.is_super_user(behalf.principal) else behalf.principal


def _pool(turn: DecisionContext) -> FairPool:
    """Return the pool of replicas that principals share: the sum of the brokers' limits, less what
    topics have. A broker that has not reported its limit counts as an average one. The capacity is
    0 if none has reported."""
    bounds = [_most(turn, broker_id) for broker_id in turn.image.brokers]
    told = [most for most in bounds if most is not None]
    pool = FairPool(sum(told) * len(bounds) // len(told) if told else 0)
    pool.floor = min(FLOOR, pool.capacity)
    for topic in turn.image.topics.values():
        pool.take(topic.owner, topic.partitions * topic.replication_factor)
    return pool
