"""Updates the indexes of an image over its partitions and topics' names, so that no decision has to
scan all of them.

Called by `image.apply` with the changes of one record, and once after a snapshot is decoded. The
indexes are not stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from immutables import Map

from plimsoll_core.cluster.model import Partition, PartitionKey, Topic
from plimsoll_core.ids import BrokerId, TopicId

Hosted = Map[BrokerId, Map[PartitionKey, None]]
Spellings = Map[str, tuple[str, ...]]


def move_hosted(
    hosted: Hosted,
    gone: dict[BrokerId, list[PartitionKey]],
    new: dict[BrokerId, list[PartitionKey]],
) -> Hosted:
    """Return `ClusterImage.hosted` after brokers lost the replicas in `gone` and got those in
    `new`. A broker without replicas has no entry."""
    for broker_id in sorted({*gone, *new}):
        before: Map[PartitionKey, None] = hosted.get(broker_id, Map())
        keys = before.mutate()
        for key in gone.get(broker_id, ()):
            del keys[key]
        for key in new.get(broker_id, ()):
            keys[key] = None
        kept = keys.finish()
        hosted = hosted.set(broker_id, kept) if kept else hosted.delete(broker_id)
    return hosted


def plain_name(name: str) -> str | None:
    """Return the name with '_' for every '.', which metrics do not distinguish. Return None for a
    name without both, which collides with no other."""
    return name.replace(".", "_") if "." in name or "_" in name else None


def spell(spellings: Spellings, name: str) -> Spellings:
    """Return `ClusterImage.spellings` with the name of a new topic."""
    plain = plain_name(name)
    if plain is None:
        return spellings
    return spellings.set(plain, (*spellings.get(plain, ()), name))


def unspell(spellings: Spellings, name: str) -> Spellings:
    """Return `ClusterImage.spellings` without the name of a removed topic."""
    plain = plain_name(name)
    if plain is None:
        return spellings
    left = tuple(one for one in spellings[plain] if one != name)
    return spellings.set(plain, left) if left else spellings.delete(plain)


def all_spelled(names: Iterable[str]) -> Spellings:
    """Compute `ClusterImage.spellings` from the topics' names."""
    spelled: dict[str, list[str]] = {}
    for name in names:
        if (plain := plain_name(name)) is not None:
            spelled.setdefault(plain, []).append(name)
    return Map({plain: tuple(of_one) for plain, of_one in spelled.items()})


def count_preferred(preferred: Map[BrokerId, int], change: Counter[BrokerId]) -> Map[BrokerId, int]:
    """Return `ClusterImage.preferred` (partitions per broker that is their preferred leader) with
    `change` added. A broker with a count of 0 has no entry."""
    for broker_id in sorted(change):
        count = preferred.get(broker_id, 0) + change[broker_id]
        assert count >= 0, "more first replicas went than there were"
        if count:
            preferred = preferred.set(broker_id, count)
        elif broker_id in preferred:
            preferred = preferred.delete(broker_id)
    return preferred


def all_behind(
    topics: Mapping[TopicId, Topic], partitions: Iterable[Partition]
) -> Map[TopicId, int]:
    """Compute `ClusterImage.min_isr_behind` from scratch: for each topic, the number of partitions
    with a min ISR other than the topic's. A topic without such partitions has no entry."""
    wanted = {topic_id: topic.min_isr for topic_id, topic in topics.items()}
    return Map(
        Counter(p.topic_id for p in partitions if p.min_isr != wanted.get(p.topic_id, p.min_isr))
    )


def count_behind(behind: Map[TopicId, int], topic_id: TopicId, count: int) -> Map[TopicId, int]:
    """Return `ClusterImage.min_isr_behind` with the topic's count set to `count`. A topic with a
    count of 0 has no entry."""
    if count:
        return behind.set(topic_id, count)
    return behind.delete(topic_id) if topic_id in behind else behind
