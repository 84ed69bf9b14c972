"""Turns a Topic object into the request that declares it to its cluster's controller, with every
default filled in.

Called by the Topic reconciler; pure but for the read of a namespace's labels. A namespace may
declare topics if it is the cluster's own, or if `topics.allowedNamespaces` selects it;
`topics.prefix` limits their names. Defaults apply at the topic's creation: partitions, replication
factor, min ISR and strategy are committed with it. Later, a value that the object does not state
stays as committed, whatever the defaults, the number of brokers or the release. This module checks
everything that is independent of the cluster's state. The controller checks the rest (taken names,
missing brokers, unknown configs), and refuses in the same form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from plimsoll_core.cluster.model import Topic as Committed
from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.cluster.topic_configs import MIN_ISR, UNCLEAN_ENABLE, UNCLEAN_RECOVERY
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId, LeaderEpoch
from plimsoll_core.messages.elections import NamedLeader, NameLeaders
from plimsoll_core.messages.requests import DeclareTopic
from plimsoll_operator.api import labels
from plimsoll_operator.api.broker_configs import config_strings, default_replication_factor
from plimsoll_operator.api.cluster_ids import from_kafka_id
from plimsoll_operator.api.cluster_topics import (
    MIN_ISR_DEFAULT,
    PARTITIONS_DEFAULT,
    TopicDefaults,
    Topics,
)
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.name_prefix import prefix_of
from plimsoll_operator.api.selectors import allows
from plimsoll_operator.api.topic import Placement, Strategy, Topic
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.resources import NAMESPACES
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.work_queue import UNLESS_LASTING, Retry

OWN_FIELDS = {
    MIN_ISR: "spec.minInSyncReplicas",
    UNCLEAN_RECOVERY: "spec.uncleanRecovery.strategy",
    UNCLEAN_ENABLE: "spec.uncleanRecovery.strategy",
}
"""Kafka configs that have a field of their own in the spec. They are refused in `spec.config`,
since the two places could contradict each other."""


def declare(
    topic: Topic,
    cluster: LogCluster,
    namespace_labels: Mapping[str, str] | None = None,
    committed: Committed | None = None,
) -> DeclareTopic | Refusal:
    """Return the request that declares `topic` to the controller of `cluster`, or a refusal.

    `namespace_labels` are those of the topic's namespace, needed if the cluster selects namespaces
    by label. `committed` is the topic that has this name now, None if there is none.
    """
    if refusal := namespace_refusal(topic, cluster, namespace_labels or {}):
        return refusal
    own = OWN_FIELDS.keys() & (topic.spec.config or {}).keys()
    if own:
        return Refusal(
            reason=Reason.InvalidConfig,
            message=(
                f"Use the Topic's field {OWN_FIELDS[min(own)]} instead of the config {min(own)}."
            ),
        )
    unstated = _unstated(cluster) if committed is None else _as_decided(committed)
    partitions = topic.spec.partitions or unstated.partitions
    placement = topic.spec.placement or Placement()
    assignment = explicit_assignment(placement, topic.spec.partitions)
    if isinstance(assignment, Refusal):
        return assignment
    factor = topic.spec.replication_factor
    if assignment is not None:
        partitions = len(assignment)
        if factor not in (None, len(assignment[0])):
            return invalid_placement(
                f"spec.replicationFactor is {factor}, but the assignment lists "
                f"{len(assignment[0])} replicas for each partition."
            )
        factor = len(assignment[0])
    factor = factor or unstated.replication_factor
    return DeclareTopic(
        object=object_of(topic),
        topic_name=topic.topic_name,
        partitions=partitions,
        replication_factor=factor,
        min_isr=topic.spec.min_in_sync_replicas or min(unstated.min_isr, factor),
        strategy=placement.strategy or unstated.strategy,
        assignment=assignment,
        configs=_configs(topic),
        deletion_policy=topic.spec.deletion_policy or "Delete",
        adopt=from_kafka_id(topic.metadata.annotations.get(labels.ADOPT, "")),
    )


class _Unstated(NamedTuple):
    """Values that apply to fields that a Topic's spec does not state."""

    partitions: int
    replication_factor: int
    min_isr: int
    strategy: Strategy


def _unstated(cluster: LogCluster) -> _Unstated:
    """Return the values that apply to fields that a new topic's spec does not state: the cluster's
    defaults."""
    defaults = (cluster.spec.topics or Topics()).defaults or TopicDefaults()
    return _Unstated(
        partitions=defaults.partitions or PARTITIONS_DEFAULT,
        replication_factor=default_replication_factor(cluster),
        min_isr=defaults.min_in_sync_replicas or MIN_ISR_DEFAULT,
        strategy="RoundRobin",
    )


def _as_decided(committed: Committed) -> _Unstated:
    """Return the values that apply to fields that an existing topic's spec does not state: those
    that are committed. Strategy Explicit is replaced by RoundRobin, since it needs rows for new
    partitions, which a spec that does not state the strategy lacks."""
    return _Unstated(
        partitions=committed.partitions,
        replication_factor=committed.replication_factor,
        min_isr=committed.min_isr,
        strategy="Blocked" if committed.strategy == "Blocked" else "RoundRobin",
    )


def _configs(topic: Topic) -> dict[str, str]:
    """Return the configs that the spec states. A recovery strategy is left out if the spec does not
    state it, so that the topic follows the cluster's setting as it changes."""
    configs = config_strings(topic.spec.config or {})
    recovery = topic.spec.unclean_recovery
    if recovery is not None and recovery.strategy is not None:
        configs[UNCLEAN_RECOVERY] = recovery.strategy
    return configs


def object_of(topic: Topic) -> TopicObject:
    """Return the reference to the object for the metadata log."""
    meta = topic.metadata
    return TopicObject(namespace=meta.namespace, name=meta.name, uid=meta.uid)


def named_leaders(topic: Topic) -> NameLeaders | None:
    """Return the request to elect the leaders that the spec names, or None if it names none."""
    recovery = topic.spec.unclean_recovery
    if recovery is None or not recovery.elect:
        return None
    leaders = tuple(
        NamedLeader(
            partition=one.partition,
            leader=BrokerId(one.leader),
            at_leader_epoch=LeaderEpoch(one.at_leader_epoch),
        )
        for one in recovery.elect
    )
    return NameLeaders(object=object_of(topic), leaders=leaders)


Assignment = tuple[tuple[BrokerId, ...], ...]


# --- explicit replicas ---------------------------------------------------------------------------


def explicit_assignment(
    placement: Placement, partitions: int | None
) -> Assignment | Refusal | None:
    if placement.strategy != "Explicit":
        if placement.assignment:
            return invalid_placement(
                "spec.placement.assignment is allowed only with the strategy Explicit; set that "
                "strategy or remove the assignment."
            )
        return None
    entries = sorted(placement.assignment or (), key=lambda entry: entry.partition)
    if not entries:
        return invalid_placement("The placement strategy Explicit needs spec.placement.assignment.")
    wanted = partitions if partitions is not None else len(entries)
    if [entry.partition for entry in entries] != list(range(wanted)):
        return invalid_placement(
            f"spec.placement.assignment must list every partition from 0 to {wanted - 1} once."
        )
    for entry in entries:
        if len(set(entry.replicas)) != len(entry.replicas):
            return invalid_placement(
                f"spec.placement.assignment lists a broker twice for partition {entry.partition}."
            )
        if len(entry.replicas) != len(entries[0].replicas):
            return invalid_placement(
                f"spec.placement.assignment lists {len(entry.replicas)} replicas for partition "
                f"{entry.partition} and {len(entries[0].replicas)} for partition 0; all "
                "partitions must have the same number."
            )
    return tuple(tuple(BrokerId(b) for b in entry.replicas) for entry in entries)


def invalid_placement(message: str) -> Refusal:
    return Refusal(reason=Reason.PlacementInvalid, message=message)


# --- namespaces ----------------------------------------------------------------------------------


def is_allowed(namespace: str, cluster: LogCluster, namespace_labels: Mapping[str, str]) -> bool:
    """Return True if `namespace` may declare topics in `cluster`."""
    if namespace == cluster.metadata.namespace:
        return True
    allowed = (cluster.spec.topics or Topics()).allowed_namespaces
    return allows(allowed, namespace_labels)


def namespace_refusal(
    topic: Topic, cluster: LogCluster, namespace_labels: Mapping[str, str]
) -> Refusal | None:
    if is_allowed(topic.metadata.namespace, cluster, namespace_labels):
        return _name_refusal(topic, cluster)
    return Refusal(
        reason=Reason.NotAllowed,
        message=(
            f"LogCluster {cluster.metadata.namespace}/{cluster.metadata.name} does not accept "
            f"Topics from namespace {topic.metadata.namespace}; its owner can add the namespace "
            "to spec.topics.allowedNamespaces."
        ),
    )


def _name_refusal(topic: Topic, cluster: LogCluster) -> Refusal | None:
    """Return a refusal if the topic's name lacks the prefix that names of its namespace must have,
    else None. The cluster's own namespace may use every name."""
    stated = cluster.spec.topics.prefix if cluster.spec.topics else None
    namespace = topic.metadata.namespace
    if stated is None or namespace == cluster.metadata.namespace:
        return None
    prefix = prefix_of(stated, namespace)
    if topic.topic_name.startswith(prefix):
        return None
    text = (
        f"Topic names in namespace {namespace} must begin with {prefix}; {topic.topic_name} "
        "does not (spec.topics.prefix of the LogCluster)."
    )
    return Refusal(reason=Reason.NotAllowed, message=text)


async def namespace_labels(term: Term, topic: Topic, cluster: LogCluster) -> dict[str, str]:
    """Return the labels of the topic's namespace if the cluster selects namespaces by label, else
    {}. Raise Retry if they cannot be read."""
    namespace = topic.metadata.namespace
    allowed = cluster.spec.topics.allowed_namespaces if cluster.spec.topics else None
    if namespace == cluster.metadata.namespace or allowed is None or allowed.from_ != "Selector":
        return {}
    try:
        found = await term.kube.get(NAMESPACES, None, namespace)
    except ApiError as error:
        text = (
            f"the operator cannot read the labels of namespace {namespace}, which decide if "
            f"Topic {'/'.join(topic.key)} is allowed; {UNLESS_LASTING}: {error}"
        )
        raise Retry(text) from error
    return dict(found["metadata"].get("labels") or {})
