"""Makes the Kubernetes Events that report committed records. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from plimsoll_core.cluster.model import (
    ClusterImage,
    Reassignment,
    Rebalance,
    Topic,
    TopicObject,
)
from plimsoll_core.cluster.records import (
    RESTORED_CAUSE,
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    ControllerChanged,
    HibernationSet,
    PartitionsChanged,
    ReassignmentNoted,
    RebalanceNoted,
    Record,
    RestartEnded,
    RestartGranted,
    TopicBound,
    TopicOrphaned,
    TopicRemoved,
    UserDeclared,
)
from plimsoll_core.controller.partitions.unclean_recovery import is_loss_certain
from plimsoll_core.security.state import NO_OBJECT, UserObject
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.kube.resources import REASSIGNMENTS, REBALANCES, TOPICS, USERS
from plimsoll_operator.status.commit_counters import is_unclean
from plimsoll_operator.status.events import LENGTH_MAX, Occurrence, about_committed
from plimsoll_operator.status.metadata_restored_condition import restored_condition


def occurrences(
    old: ClusterImage, new: ClusterImage, records: Iterable[Record]
) -> Iterator[Occurrence]:
    """Yield the Events that report `records`, which turn the image `old` into `new`. A record gives
    at most one Event, however many partitions it affects; the first of a restored log gives two."""
    for record in records:
        match record:
            case BrokerFenced() | BrokerRegistered() | BrokerUnfenced():
                yield from _presence(old, new, record)
            case PartitionsChanged() if is_unclean(record):
                yield _unclean(new, record)
            case ControllerChanged():
                yield from _begun(record)
            case RestartGranted() | RestartEnded() | HibernationSet():
                yield _by_request(new, record)
            case ReassignmentNoted() | RebalanceNoted():
                yield from _moves(old, record)
            case TopicOrphaned(topic_id=topic_id, pending=pending) if topic_id in new.topics:
                name = new.topics[topic_id].name
                yield Occurrence(
                    key=f"orphaned-{name}",
                    reason="TopicPendingDeletion",
                    message=f"The Topic object of topic {name} was deleted: the topic serves until "
                    f"{timestamp(pending.until_ms)}, then brokers delete its data. To keep the "
                    "topic and its data, apply its Topic object again before then.",
                )
            case TopicBound() | UserDeclared():
                yield from _handed_over(old, record)
            case TopicRemoved(topic_id=topic_id) if topic_id in old.topics:
                name = old.topics[topic_id].name
                yield Occurrence(
                    key=f"removed-{name}",
                    reason="TopicRemoved",
                    message=f"Topic {name} was deleted.",
                )
            case _:
                pass


def _begun(record: ControllerChanged) -> Iterator[Occurrence]:
    yield Occurrence(
        key=f"controller-{record.controller_epoch}",
        reason="ControllerChanged",
        message=(
            f"Operator {record.identity} leads the cluster as its controller, with controller "
            f"epoch {record.controller_epoch}."
        ),
    )
    if record.cause == RESTORED_CAUSE:
        yield Occurrence(
            key=f"restored-{record.controller_epoch}",
            reason="MetadataRestored",
            message=restored_condition(record.restored).message,
            warning=True,
        )


def _handed_over(old: ClusterImage, record: TopicBound | UserDeclared) -> Iterator[Occurrence]:
    if isinstance(record, UserDeclared):
        yield from _user_handed_over(old, record)
    elif record.topic_id in old.topics:
        yield from _topic_handed_over(old.topics[record.topic_id], record)


def _topic_handed_over(before: Topic, record: TopicBound) -> Iterator[Occurrence]:
    holder, heir = before.object, record.object
    if holder is None or heir is None or _place(holder) == _place(heir):
        return
    text = (
        f"Topic {before.name}: its object {'/'.join(_place(holder))} was deleted, and "
        f"{'/'.join(_place(heir))} declares the same topic, so that object owns it now, with "
        "all its records."
    )
    yield Occurrence(
        key=f"handed-over-{before.id}-{heir.uid}",
        reason="TopicHandedOver",
        message=text[:LENGTH_MAX],
        about=about_committed(TOPICS.kind, heir),
    )


def _user_handed_over(old: ClusterImage, record: UserDeclared) -> Iterator[Occurrence]:
    before, heir = old.security.users.get(record.user.user_name), record.user.object
    if before is None or NO_OBJECT in (before.object.uid, heir.uid):
        return
    if _place(before.object) == _place(heir):
        return
    text = (
        f"User {before.user_name}: its object {'/'.join(_place(before.object))} was deleted, "
        f"and {'/'.join(_place(heir))} declares the same user, so that object owns it now. Its "
        "present login stays valid for now; have its clients load that object's Secret."
    )
    yield Occurrence(
        key=f"handed-over-{before.user_name}-{heir.uid}",
        reason="UserHandedOver",
        message=text[:LENGTH_MAX],
        about=about_committed(USERS.kind, heir),
    )


def _place(found: TopicObject | UserObject) -> tuple[str, str]:
    return found.namespace, found.name


def _by_request(
    new: ClusterImage, record: RestartGranted | RestartEnded | HibernationSet
) -> Occurrence:
    if not isinstance(record, HibernationSet):
        return _restart(record)
    key = f"hibernation-{new.next_offset}"
    if record.hibernated:
        text = "The cluster hibernates: its brokers stop one after another and keep their volumes."
        return Occurrence(key=key, reason="Hibernated", message=text)
    text = (
        "The cluster has woken from hibernation: its brokers are back, and their partitions get "
        "leaders."
    )
    return Occurrence(key=key, reason="Woken", message=text)


def _presence(
    old: ClusterImage, new: ClusterImage, record: BrokerFenced | BrokerRegistered | BrokerUnfenced
) -> Iterator[Occurrence]:
    """Yield the Event that reports a broker's fencing, unfencing, or registration with an empty
    volume; none for any other registration."""
    broker_id = record.broker_id
    if isinstance(record, BrokerFenced):
        yield Occurrence(
            key=f"fenced-{broker_id}",
            undoes=f"unfenced-{broker_id}",
            reason="BrokerFenced",
            message=_fenced(old, new, broker_id, record.cause),
            warning=not (old.hibernated or broker_id in old.grants or broker_id in old.leaving),
        )
    elif isinstance(record, BrokerUnfenced):
        yield Occurrence(
            key=f"unfenced-{broker_id}",
            undoes=f"fenced-{broker_id}",
            reason="BrokerUnfenced",
            message=f"Broker {broker_id} is ready.",
        )
    elif _emptied(old, record):
        yield Occurrence(
            key=f"emptied-{broker_id}-{record.incarnation_id}",
            reason="VolumeEmptied",
            message=_came_back_empty(old, record),
            warning=True,
        )


def _restart(record: RestartGranted | RestartEnded) -> Occurrence:
    broker_id = record.broker_id
    if isinstance(record, RestartGranted):
        return Occurrence(
            key=f"restart-{broker_id}-{record.revision}",
            reason="RestartGranted",
            message=(
                f"Broker {broker_id} is being restarted, so that its pod runs revision "
                f"{record.revision} of its template."
            ),
        )
    text = f"The restart of broker {broker_id} is complete: it is back and in sync everywhere."
    if record.proven is None:
        text = f"The restart of broker {broker_id} was abandoned: {record.cause}."
    return Occurrence(
        key=f"restarted-{broker_id}-{record.proven}", reason="RestartEnded", message=text
    )


def _moves(old: ClusterImage, record: ReassignmentNoted | RebalanceNoted) -> Iterator[Occurrence]:
    if isinstance(record, ReassignmentNoted):
        row = record.reassignment
        yield _reassignment(row, old.reassignments.get(row.object.uid))
        return
    plan = record.rebalance
    told = _rebalance(plan, old.rebalances.get(plan.object.uid))
    if told is not None:
        yield told


def _reassignment(row: Reassignment, before: Reassignment | None) -> Occurrence:
    name = row.object.name
    if row.phase != "Running":
        ended = f"Reassignment {name} of {row.total} partitions is {row.phase.lower()}."
        text = f"{ended} {row.message}".strip()
    elif before is None:
        text = f"Reassignment {name} started: it moves replicas of {row.total} partitions."
    else:
        text = f"Reassignment {name} {'is paused' if row.paused else 'was resumed'}."
    state = "Paused" if row.paused else row.phase
    key = f"reassignment-{row.object.uid}-{row.phase}"
    return Occurrence(
        key=f"{key}-{row.paused}",
        undoes=f"{key}-{not row.paused}",
        reason=f"Reassignment{state}",
        message=text[:LENGTH_MAX],
        about=about_committed(REASSIGNMENTS.kind, row.object),
        warning=row.phase == "Failed",
    )


def _rebalance(row: Rebalance, before: Rebalance | None) -> Occurrence | None:
    """Return the Event that reports a Rebalance's start, pause, resumption or end. Return None if
    the record changes none of these."""
    name = row.object.name
    if row.phase == "Beginning":
        return None
    if row.phase != "Running":
        left = f", {row.dropped} skipped because they had changed" if row.dropped else ""
        text = (
            f"Rebalance {name} is {row.phase.lower()}: {row.moved} of {row.total} partitions were "
            f"moved{left}."
        )
    elif before is None or before.phase == "Beginning":
        text = (
            f"Rebalance {name} started: it moves {row.total} partitions and copies "
            f"{row.replicas} replicas."
        )
    elif row.paused != before.paused:
        text = f"Rebalance {name} {'is paused' if row.paused else 'was resumed'}."
    else:
        return None
    state = "Paused" if row.paused else row.phase
    key = f"rebalance-{row.object.uid}-{row.phase}"
    return Occurrence(
        key=f"{key}-{row.paused}",
        undoes=f"{key}-{not row.paused}",
        reason=f"Rebalance{state}",
        message=f"{text} {row.message}".strip()[:LENGTH_MAX],
        about=about_committed(REBALANCES.kind, row.object),
        warning=row.phase == "Failed",
    )


def _unclean(new: ClusterImage, record: PartitionsChanged) -> Occurrence:
    topic = new.topics.get(record.topic_id)
    name = topic.name if topic is not None else str(record.topic_id)
    ranges = (str(first) if first == last else f"{first}-{last}" for first, last in record.ranges)
    loss = "although it may lack acknowledged records"
    if is_loss_certain(record.cause):
        loss = "although it lacks records that another replica held"
    text = (
        f"Topic {name}: broker {record.leader} became the leader of partitions {loss} "
        f"({record.cause}). Partitions: {', '.join(ranges)}."
    )
    return Occurrence(
        key=f"unclean-{name}-{record.leader}-{record.ranges[0][0]}",
        reason="UncleanElection",
        message=text[:LENGTH_MAX],
        warning=True,
        about=None if topic is None else about_committed(TOPICS.kind, topic.object),
        unclean=True,
    )


def _emptied(old: ClusterImage, record: BrokerRegistered) -> bool:
    """Return True if a known broker registers without any of its earlier log directories."""
    known = old.brokers.get(record.broker_id)
    return known is not None and not set(known.directory_ids) & set(record.directory_ids)


def _came_back_empty(old: ClusterImage, record: BrokerRegistered) -> str:
    count = len(old.hosted.get(record.broker_id, ()))
    return (
        f"Broker {record.broker_id} came back with an empty volume; its {count} replicas are "
        "copied from other brokers."
    )


def _fenced(old: ClusterImage, new: ClusterImage, broker_id: int, cause: str) -> str:
    moved = offline = 0
    for key, before in old.partitions.items():
        after = new.partitions.get(key)
        if before.leader != broker_id or after is None or after.leader == broker_id:
            continue
        moved += after.leader is not None
        offline += after.leader is None
    text = f"Broker {broker_id}: {cause}; {moved} leaderships moved, {offline} partitions offline."
    return text[:LENGTH_MAX]
