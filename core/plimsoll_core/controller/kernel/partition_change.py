"""Derives a partition from a change of its sets: the only maker of changed partitions.

Called by every decision that changes a partition; the steps and their order are the protocol's rule
for changes (KIP-966 for the ELR). `as_records` states the changes as columnar records. This module
does not know why a set changes, and handles one partition at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from msgspec.structs import replace

from plimsoll_core.cluster.model import Partition, Recovery
from plimsoll_core.cluster.records import PARTITION_FIELDS, PartitionsChanged
from plimsoll_core.ids import BrokerId, LeaderEpoch, PartitionEpoch

Ids = tuple[BrokerId, ...]
Acceptable = Callable[[BrokerId], bool]
"""Returns True if a broker may lead the partition now: it is active, its log is online, and it is
not being fenced."""

EMPTY: frozenset[BrokerId] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionUpdate:
    """The requested change of a partition. None leaves a field as it is.

    `lost` are replicas with a log that is not trusted any more: they cannot be in the ELR, only in
    the last known ELR. `preferred` elects the first replica if it may lead. `unclean` is the broker
    to elect in an unclean recovery: only if the ISR is empty and no member of the ELR may lead.
    """

    isr: Iterable[BrokerId] | None = None
    replicas: Ids | None = None
    adding: Ids | None = None
    removing: Ids | None = None
    lost: AbstractSet[BrokerId] = EMPTY
    min_isr: int | None = None
    recovery: Recovery | None = None
    preferred: bool = False
    unclean: BrokerId | None = None


def change(
    p: Partition, wish: PartitionUpdate, ok: Acceptable, absent: AbstractSet[BrokerId] = EMPTY
) -> Partition:
    """Return the partition after the change `wish`, or `p` itself if nothing differs. `ok` returns
    True for a broker that may lead. `absent` are brokers that are away for a granted restart, or
    may be from now on."""
    moved = _complete_reassignment(_wished(p, wish), absent)
    shaped = _reshape_elr(p, moved, wish.lost)
    if wish.unclean is None:
        led = _elect(p, shaped, wish.preferred, ok)
    else:
        led = _recover(shaped, wish.unclean)
    ended = _complete_reassignment(led, absent)
    if ended is not led:
        # A leader just elected out of the ELR, or uncleanly, is the whole target.
        led = _reshape_elr(p, ended, wish.lost)
    return _with_epochs(p, led)


def _wished(p: Partition, wish: PartitionUpdate) -> Partition:
    isr = p.isr if wish.isr is None else tuple(wish.isr)
    return replace(
        p,
        isr=isr,
        replicas=p.replicas if wish.replicas is None else wish.replicas,
        adding=p.adding if wish.adding is None else wish.adding,
        removing=p.removing if wish.removing is None else wish.removing,
        min_isr=p.min_isr if wish.min_isr is None else wish.min_isr,
        recovery=p.recovery if wish.recovery is None else wish.recovery,
    )


def ends_now(p: Partition, absent: AbstractSet[BrokerId] = EMPTY) -> bool:
    """Return True if the partition's move is complete (protocol.md 3.0, step 1).

    All added replicas must be in the ISR, and the ISR without the removed replicas must be large
    enough: at least min ISR members that are not in `absent`, and as many members as there are now
    among the former replicas. So a dead replica that stays delays no move that keeps both numbers.
    """
    isr = [r for r in p.target if r in p.isr]
    if not isr or not set(p.adding) <= set(isr):
        return False
    if len(isr) == len(p.target):
        return True
    had = sum(r in p.isr for r in p.settled)
    present = sum(r not in absent for r in isr)
    return len(isr) >= min(had, len(p.target)) and present >= min(p.min_isr, len(p.target))


def _complete_reassignment(p: Partition, absent: AbstractSet[BrokerId]) -> Partition:
    """Step 1: if the partition's move is complete (`ends_now`), drop the removed replicas."""
    if not p.moving or not ends_now(p, absent):
        return p
    isr = tuple(r for r in p.isr if r not in p.removing)
    return replace(p, isr=isr, replicas=p.target, adding=(), removing=())


def _reshape_elr(before: Partition, p: Partition, lost: AbstractSet[BrokerId]) -> Partition:
    """Steps 2 and 3: return `p` with new ELRs. Both are empty if the ISR has at least min ISR
    members. Otherwise former members of ISR and ELR that are outside the ISR are in the ELR, or, if
    in `lost`, in the last known ELR. Members keep the order of the replicas, so that equal sets
    give equal records."""
    wanted = set(p.isr)
    isr = tuple(r for r in p.replicas if r in wanted)
    if len(isr) >= p.effective_min_isr:
        return replace(p, isr=isr, elr=(), last_known_elr=())
    pool = {*before.elr, *before.isr}
    elr = tuple(r for r in p.replicas if r in pool and r not in isr and r not in lost)
    maybe = {*before.last_known_elr, *pool}
    known = tuple(r for r in p.replicas if r in maybe and r not in isr and r not in elr)
    return replace(p, isr=isr, elr=elr, last_known_elr=known)


def _elect(before: Partition, p: Partition, preferred: bool, ok: Acceptable) -> Partition:
    """Step 4: elect the first replica if `preferred`, else keep the leader, else elect the next
    member of the ISR, or of the ELR if the ISR is empty; each only if it may lead (`ok`). If none
    may, the partition has no leader. A leader from the ELR becomes the only member of the ISR."""
    candidates = p.isr or p.elr
    order = [r for r in p.replicas if r in candidates]
    keep = [before.leader] if before.leader in order else []
    if preferred:
        first = [r for r in p.replicas[:1] if r in candidates]
        keep = [*first, *keep]
    leader = next((r for r in [*keep, *order] if r is not None and ok(r)), None)
    if leader is None or leader in p.isr:
        return replace(p, leader=leader)
    p = replace(p, leader=leader, isr=(leader,), elr=tuple(r for r in p.elr if r != leader))
    if len(p.isr) >= p.effective_min_isr:
        return replace(p, elr=(), last_known_elr=())
    return p


def _recover(p: Partition, leader: BrokerId) -> Partition:
    """Step 4 of an unclean recovery: elect `leader`, which becomes the only member of the ISR. The
    last known ELR keeps its other members until enough followers have caught up, and gets those of
    the ELR as well: they may be more complete than the new leader, and have to report again if the
    new leader is lost before a follower has copied its log."""
    assert not p.isr, "a member of the ISR is elected cleanly"
    maybe = {*p.elr, *p.last_known_elr} - {leader}
    p = replace(p, leader=leader, isr=(leader,), elr=(), recovery=Recovery.RECOVERING)
    if len(p.isr) >= p.effective_min_isr:
        return replace(p, last_known_elr=())
    return replace(p, last_known_elr=tuple(r for r in p.replicas if r in maybe))


def _with_epochs(before: Partition, p: Partition) -> Partition:
    """Step 5: set the epochs of a changed partition. A new leader or a removed replica begins a new
    leader epoch; a change of the ISR alone does not."""
    if p == before:
        return before
    new_term = p.leader != before.leader or not set(before.replicas) <= set(p.replicas)
    return replace(
        p,
        leader_epoch=LeaderEpoch(before.leader_epoch + (1 if new_term else 0)),
        partition_epoch=PartitionEpoch(before.partition_epoch + 1),
    )


# --- as records --------------------------------------------------------------------------------

Difference = tuple[tuple[str, Any], ...]


def as_records(
    changes: Iterable[tuple[Partition, Partition]], cause: str
) -> tuple[PartitionsChanged, ...]:
    """Return the records for these changes, given as pairs (before, after): one record for all
    partitions of a topic that change alike. Each partition may occur in only one pair."""
    groups: dict[tuple[UUID, Literal[0, 1], Difference], list[int]] = {}
    for old, new in changes:
        if new is old:
            continue
        step: Literal[0, 1] = 1 if new.leader_epoch != old.leader_epoch else 0
        stated = tuple(
            (name, getattr(new, name))
            for name in PARTITION_FIELDS
            if getattr(new, name) != getattr(old, name)
        )
        groups.setdefault((new.topic_id, step, stated), []).append(new.index)
    rows = sorted(
        (topic_id.int, sorted(indexes), step, stated)
        for (topic_id, step, stated), indexes in groups.items()
    )
    return tuple(
        PartitionsChanged(
            cause=cause,
            topic_id=UUID(int=number),
            ranges=ranges(indexes),
            leader_epoch_step=step,
            **dict(stated),
        )
        for number, indexes, step, stated in rows
    )


def ranges(indexes: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return `indexes`, which must be sorted, as ranges [first, last], both inclusive."""
    found: list[tuple[int, int]] = []
    for index in indexes:
        if found and found[-1][1] == index - 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return tuple(found)
