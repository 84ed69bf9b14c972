"""The invariants of every committed image, named like the protocol's safety predicates.

Called by tests and the simulator after each record; the operator calls them only for a copy of
the metadata that a broker has sent. Each predicate yields a sentence per violation. Predicates that
need logs or clients are in the simulator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from plimsoll_core.cluster.image_indexes import all_behind, all_spelled
from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.cluster.records import EPOCHS_SKIPPED
from plimsoll_core.ids import BrokerId

Predicate = Callable[[ClusterImage], Iterator[str]]


def set_shape(image: ClusterImage) -> Iterator[str]:
    """Yield a sentence for each violation of I11: `isr`, `elr` and `last_known_elr` are disjoint
    subsets of `replicas` without duplicates; so are `adding` and `removing`."""
    for p in image.partitions.values():
        members = (*p.isr, *p.elr, *p.last_known_elr)
        moving = (*p.adding, *p.removing)
        for name, some in (("replicas", p.replicas), ("isr+elr+lkelr", members), ("moves", moving)):
            if len(set(some)) != len(some):
                yield f"SetShape: {_name(p)} repeats a broker in {name} {some}"
            if not set(some) <= set(p.replicas):
                yield f"SetShape: {_name(p)} has {name} {some} outside replicas {p.replicas}"


def elr_rule(image: ClusterImage) -> Iterator[str]:
    """Yield a sentence for each violation of I12: a partition with at least min ISR members in its
    ISR has an empty ELR and last known ELR."""
    for p in image.partitions.values():
        if len(p.isr) >= p.effective_min_isr and (p.elr or p.last_known_elr):
            yield f"ELRRule: {_name(p)} has isr {p.isr}, elr {p.elr}, lkelr {p.last_known_elr}"


def leader_shape(image: ClusterImage) -> Iterator[str]:
    """Yield a sentence for each violation of I13: a partition's leader is in its ISR; a partition
    with an empty ISR has no leader."""
    for p in image.partitions.values():
        if p.leader is not None and p.leader not in p.isr:
            yield f"LeaderShape: {_name(p)} is led by {p.leader} outside isr {p.isr}"


def isr_active(image: ClusterImage) -> Iterator[str]:
    """Yield a sentence for each violation of I14: members of an ISR are registered, not fenced and
    not shutting down.

    This holds after all records of a decision. Between two records of a decision an ISR may still
    hold a broker that the next record removes.
    """
    for p in image.partitions.values():
        for member in p.isr:
            broker = image.brokers.get(member)
            if broker is None or not broker.active:
                yield f"IsrActive: {_name(p)} has broker {member} in its isr {p.isr}"


def always_led(image: ClusterImage) -> Iterator[str]:
    """Yield a sentence for each violation of this rule: a partition has a leader if a member of its
    ISR (or of its ELR, if the ISR is empty) is active; while the cluster hibernates, none has one.
    This holds after all records of a decision."""
    for p in image.partitions.values():
        if image.hibernated:
            if p.leader is not None:
                yield f"AlwaysLed: {_name(p)} is led by {p.leader} though the cluster hibernates"
            continue
        if p.leader is None:
            for member in p.isr or p.elr:
                broker = image.brokers.get(member)
                if broker is not None and broker.active:
                    yield f"AlwaysLed: {_name(p)} has no leader though {member} may lead it"


def reassign(image: ClusterImage) -> Iterator[str]:
    """Yield a sentence for each violation of I26: a reassignment ends as soon as all target
    replicas are in the ISR."""
    for p in image.partitions.values():
        target = set(p.replicas) - set(p.removing)
        if (p.adding or p.removing) and target and target <= set(p.isr):
            yield f"Reassign: {_name(p)} still moves though {sorted(target)} is in isr {p.isr}"


def reassigned_in_sync(before: ClusterImage, after: ClusterImage) -> Iterator[str]:
    """Yield a sentence for each violation of I26 by a change: a change of a partition's replicas
    neither removes the last ISR member, nor shrinks the ISR below min ISR. When a reassignment
    ends, every added replica is in the ISR."""
    for key, new in after.partitions.items():
        old = before.partitions.get(key)
        if old is None or old is new or new.replicas == old.replicas:
            continue
        if old.isr and not new.isr:
            yield f"Reassign: {_name(new)} lost its last in-sync replica to a move: {old}"
        if len(new.isr) < min(len(old.isr), new.effective_min_isr):
            yield f"Reassign: {_name(new)} fell below min ISR by a move: {old.isr} to {new.isr}"
        added = set(new.replicas) - set(old.settled)
        if not new.moving and old.isr and not added <= set(new.isr):
            yield f"Reassign: {_name(new)} ended a move without {sorted(added - set(new.isr))}"


def rebalances(image: ClusterImage) -> Iterator[str]:
    """Yield a sentence for each violation of these rules: at most one Rebalance runs at a time; its
    counts and remaining moves agree; an ended Rebalance has no remaining moves."""
    running = [uid for uid, row in image.rebalances.items() if row.phase == "Running"]
    if len(running) > 1:
        yield f"OneRebalance: {sorted(running)} run at the same time"
    for uid, row in image.rebalances.items():
        rest = image.rebalance_rests.get(uid)
        if (row.phase in ("Beginning", "Running")) != (rest is not None):
            yield f"Rebalances: {row} with what is left being {rest}"
        if rest is None:
            continue
        for key, number in rest.active.items():
            if number not in rest.moves or rest.moves[number].key != key:
                yield f"Rebalances: {key} is active as move {number}, which is of another partition"
        done = row.moved + row.dropped + len(rest.moves)
        if row.phase == "Running" and done != row.total:
            yield f"Rebalances: the moves add up to {done} partitions of {row.total} in {row}"


def indexes(image: ClusterImage) -> Iterator[str]:
    """Yield a sentence for each violation of these rules: each index of the image equals the value
    computed from its partitions and topics; partitions are numbered 0 to n-1 in each topic."""
    hosted: dict[BrokerId, set[PartitionKey]] = {}
    for key, p in image.partitions.items():
        if key != p.key:
            yield f"Indexes: {_name(p)} is filed under {key}"
        for replica in p.replicas:
            hosted.setdefault(replica, set()).add(key)
    if hosted != {broker_id: set(keys) for broker_id, keys in image.hosted.items()}:
        yield "Indexes: hosted differs from the partitions' replicas"
    if Counter(p.replicas[0] for p in image.partitions.values()) != dict(image.preferred.items()):
        yield "Indexes: preferred differs from the partitions' first replicas"
    if all_behind(image.topics, image.partitions.values()) != image.min_isr_behind:
        yield "Indexes: min_isr_behind differs from the partitions' min ISRs"
    if {t.name: t.id for t in image.topics.values()} != dict(image.topic_ids.items()):
        yield "Indexes: topic_ids differs from the topics"
    spellings = {plain: sorted(names) for plain, names in image.spellings.items()}
    spelled = all_spelled(t.name for t in image.topics.values())
    if spellings != {plain: sorted(names) for plain, names in spelled.items()}:
        yield "Indexes: spellings differs from the topics' names"
    expected = {PartitionKey(t.id, n) for t in image.topics.values() for n in range(t.partitions)}
    if expected != set(image.partitions):
        yield "Indexes: partitions are not numbered 0 … n-1 per topic"


def membership(image: ClusterImage) -> Iterator[str]:
    """Yield a sentence for each violation of I26: a broker with a replica is registered and a
    member; `leaving` and `newcomers` name known brokers only; no registered broker's volume is
    released."""
    for broker_id in image.hosted:
        if broker_id not in image.brokers:
            yield f"Membership: broker {broker_id} holds replicas but is not registered"
        if image.members and broker_id not in image.members:
            yield f"Membership: broker {broker_id} holds replicas but is no member"
    unknown = set(image.leaving) - set(image.members) - set(image.brokers)
    if unknown:
        yield f"Membership: {sorted(unknown)} are leaving but unknown"
    if set(image.newcomers) - set(image.members):
        yield f"Membership: {image.newcomers} joined but are no members"
    for pvc_uid, broker_id in image.released.items():
        if broker_id in image.brokers:
            yield f"Membership: the volume {pvc_uid} of broker {broker_id} is released"


def epochs_monotone(before: ClusterImage, after: ClusterImage) -> Iterator[str]:
    """Yield a sentence for each violation of I10 by a change: each change of a partition adds 1 to
    its partition epoch, or skips `EPOCHS_SKIPPED` of both epochs; the leader epoch never falls, and
    grows with each new leader; broker epochs are unique and never fall."""
    for key, new in after.partitions.items():
        old = before.partitions.get(key)
        if old is None or old is new:
            continue
        skipped = new.partition_epoch - old.partition_epoch - 1
        if skipped not in (0, EPOCHS_SKIPPED):
            yield f"EpochsMonotone: {_name(new)} jumped from PE {old.partition_epoch}"
        if new.leader_epoch - old.leader_epoch - skipped not in (0, 1):
            yield f"EpochsMonotone: {_name(new)} went to LE {new.leader_epoch}"
        if new.leader != old.leader and new.leader_epoch == old.leader_epoch:
            yield f"OneLeaderPerEpoch: {_name(new)} has two leaders at LE {new.leader_epoch}"
    for broker_id, broker in after.brokers.items():
        known = before.brokers.get(broker_id)
        if known is not None and broker.broker_epoch < known.broker_epoch:
            yield f"EpochsMonotone: broker {broker_id} went back to {broker.broker_epoch}"
    epochs = [broker.broker_epoch for broker in after.brokers.values()]
    if len(set(epochs)) != len(epochs):
        yield "EpochsMonotone: two brokers share an epoch"


Full = frozenset[PartitionKey]
"""The partitions that have had at least min ISR members in the ISR since their min ISR was last
raised. Only for these partitions is it known which replicas hold all acknowledged records."""


def full_after(full: Full, before: ClusterImage, after: ClusterImage) -> Full:
    """Return the set `Full` after a change from `before` to `after`. A partition enters it when its
    ISR has at least min ISR members, and leaves it when min ISR rises above the size of its ISR or
    the partition is removed."""
    kept = set(full & set(after.partitions))
    for key, p in after.partitions.items():
        old = before.partitions.get(key)
        if old is p:
            continue
        if len(p.isr) >= p.effective_min_isr:
            kept.add(key)
        elif old is None or p.effective_min_isr > old.effective_min_isr:
            kept.discard(key)
    return frozenset(kept)


def recovery_quorum(image: ClusterImage, full: Full) -> Iterator[str]:
    """Yield a sentence for each violation of I15: for each partition in `full`, the ISR, ELR and
    last known ELR together have at least min ISR members, which are the replicas that may hold all
    acknowledged records."""
    for key in full:
        p = image.partitions[key]
        if len({*p.isr, *p.elr, *p.last_known_elr}) < p.effective_min_isr:
            yield f"RecoveryQuorum: {_name(p)} has lost track: {p}"


EVERY_RECORD: tuple[Predicate, ...] = (
    set_shape,
    elr_rule,
    leader_shape,
    reassign,
    rebalances,
    indexes,
    membership,
)
EVERY_DECISION: tuple[Predicate, ...] = (*EVERY_RECORD, isr_active, always_led)


def violations(image: ClusterImage, predicates: tuple[Predicate, ...]) -> list[str]:
    return [sentence for predicate in predicates for sentence in predicate(image)]


def _name(p: Partition) -> str:
    return f"{p.topic_id}-{p.index}"
