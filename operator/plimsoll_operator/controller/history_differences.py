"""Says what a person gives up with a history of the metadata: what its end holds and the history
that is kept does not, and which logs the brokers set aside. Pure.

Called by `restore_decision` for each history that a person may give up. Source: docs/protocol.md
3.16.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from plimsoll_core.cluster.model import ClusterImage, Partition
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import first_few

NAMES_SHOWN = 5
NOTHING_NAMED = "elections, ISR changes and starts of brokers only"


def given_up(lost: ClusterImage, kept: ClusterImage) -> tuple[str, ...]:
    """Return the parts of the image `lost` that `kept` lacks or has otherwise, for people: topics,
    users, ACLs, quotas and members. Elections are not listed; if there is nothing else, that is
    said."""
    return tuple(_parts(lost, kept)) or (NOTHING_NAMED,)


def only_holders(kept: ClusterImage, dismissed: Collection[BrokerId]) -> tuple[str, ...]:
    """Return which partitions of the history `kept` may lose records, since the brokers of
    `dismissed` copies set their logs aside: all in-sync replicas are theirs."""
    found = [
        f"{kept.topics[p.topic_id].name}-{p.index}"
        for p in kept.partitions.values()
        if len(p.replicas) > 1 and {*p.isr, *p.elr} <= set(dismissed)
    ]
    return tuple(_named("records of partitions with no other replica in sync", found))


def parted_records(
    lost: Iterable[ClusterImage], kept: ClusterImage, dismissed: Collection[BrokerId]
) -> tuple[str, ...]:
    """Return which partitions of the history `kept` may lose records that were acknowledged by the
    decisions of the images `lost`: no replica that was in sync by these is still a replica and
    keeps its log, since brokers of `dismissed` copies keep only the logs of sole replicas."""
    found = {
        f"{kept.topics[p.topic_id].name}-{p.index}"
        for image in lost
        for p in image.partitions.values()
        if (now := kept.partitions.get(p.key)) is not None
        and (in_sync := {*p.isr, *p.elr})
        and not _log_stays(in_sync, now, dismissed)
    }
    return tuple(_named("records acknowledged since the histories parted, of partitions", found))


def _log_stays(in_sync: set[BrokerId], kept: Partition, dismissed: Collection[BrokerId]) -> bool:
    holders = in_sync & set(kept.replicas)
    return bool(holders - set(dismissed)) or (bool(holders) and len(kept.replicas) == 1)


def _parts(lost: ClusterImage, kept: ClusterImage) -> Iterator[str]:
    mine, theirs = dict(lost.topics.items()), dict(kept.topics.items())
    made = [mine[one].name for one in mine if one not in theirs]
    gone = [theirs[one].name for one in theirs if one not in mine]
    other = [mine[one].name for one in mine if one in theirs and mine[one] != theirs[one]]
    yield from _named("topics with their records", made)
    yield from _named("the deletion of topics", gone)
    yield from _named("changes of topics", other)
    for what, one, another in (
        ("changes of users", lost.security.users, kept.security.users),
        ("changes of passwords of users", _passwords(lost), _passwords(kept)),
    ):
        yield from _named(what, (name for name, row in one.items() if another.get(name) != row))
        yield from _named(
            f"{what} that were removed", (name for name, _ in another.items() if name not in one)
        )
    if acls := set(lost.security.acls) ^ set(kept.security.acls):
        yield f"{len(acls)} changes of ACLs"
    if lost.quotas != kept.quotas:
        yield "changes of quotas"
    if lost.members != kept.members:
        yield "a change of the number of brokers"


def _passwords(image: ClusterImage) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for (user, _), row in sorted(image.security.credentials.items(), key=lambda item: item[0]):
        found[user] = (*found.get(user, ()), row)
    return found


def _named(what: str, names: Iterable[str]) -> Iterator[str]:
    if found := sorted(names):
        yield f"{what} {first_few(found, NAMES_SHOWN)}"
