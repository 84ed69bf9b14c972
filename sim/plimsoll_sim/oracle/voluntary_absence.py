"""Checks the controller's promise that no voluntary action takes an ISR below min ISR.

Called with every committed record. A restart is granted only if every partition of the broker keeps
min ISR in-sync replicas without this broker and without all brokers that are restarting by a grant.
As long as no fault happens, the partition then stays at min ISR, even if moves begin, end and are
cancelled meanwhile. Once another broker leaves, or min ISR is changed, nothing is promised until
all grants that concern the partition are over. Partitions that can spare no broker are exempt; the
policy allows to interrupt them. Two brokers may not restart into the same revision at once before
one broker has come back with it.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.cluster.records import Record, RestartGranted


class Absences:
    """Checks the restarts of one world. `excused`: partitions about which nothing is promised
    now."""

    def __init__(self) -> None:
        self.excused: set[PartitionKey] = set()
        self.granted = 0

    def follow(self, before: ClusterImage, after: ClusterImage, record: Record) -> str | None:
        """Check one committed record. Return a sentence if it breaks the promise, else None."""
        if isinstance(record, RestartGranted):
            return self._grant(before, after, record)
        if after.grants is not before.grants:
            self.excused = {key for key in self.excused if _granted(after, key)}
        if not after.grants or after.partitions is before.partitions:
            return None
        for key, new in after.partitions.items():
            old = before.partitions.get(key)
            if old is new or not _granted(after, key):
                continue
            if old is None:
                if _left(after, new) < new.effective_min_isr:
                    self.excused.add(key)  # created while a broker was away by grant
                continue
            sentence = self._changed(after, old, new)
            if sentence is not None:
                return f"{record.cause}: {sentence}"
        return None

    def _grant(
        self, before: ClusterImage, after: ClusterImage, record: RestartGranted
    ) -> str | None:
        self.granted += 1
        others = [g for b, g in after.grants.items() if b != record.broker_id]
        untried = {record.revision, *(g.revision for g in others)} - {before.proven_revision}
        if others and untried:
            return f"broker {record.broker_id} goes beside others, with {untried} not tried yet"
        for key in after.hosted.get(record.broker_id, ()):
            p = after.partitions[key]
            few = _left(after, p) < p.effective_min_isr
            if not few and not (p.moving and _cannot_spare(p)):
                continue
            if few and record.broker_id in p.isr and not _cannot_spare(p):
                return f"broker {record.broker_id} is granted, and too few are left: {p}"
            self.excused.add(key)
        return None

    def _changed(self, image: ClusterImage, old: Partition, new: Partition) -> str | None:
        key, granted = new.key, {b for b in image.grants if image.restart_granted(b)}
        gone = {b for b in old.isr if b not in new.isr and b in new.replicas}
        if gone - granted or new.min_isr != old.min_isr:
            self.excused.add(key)
        if key in self.excused:
            return None
        needed = new.effective_min_isr
        if len(new.isr) < needed <= len(old.isr) and gone:
            return f"granted {sorted(granted)} took it below its min ISR: {new}"
        moved = new.replicas != old.replicas
        if moved and _left(image, new) < needed and _left(image, old) >= old.effective_min_isr:
            return f"moved while {sorted(granted)} are away: {new}"
        return None


def _granted(image: ClusterImage, key: PartitionKey) -> bool:
    p = image.partitions.get(key)
    return p is not None and any(b in image.grants for b in p.replicas)


def _left(image: ClusterImage, p: Partition) -> int:
    """Return the size of the ISR without brokers that are restarting. A broker that has come back
    counts even if its grant is still open."""
    return sum(not image.restart_granted(b) for b in p.isr)


def _cannot_spare(p: Partition) -> bool:
    """Return True if no replica can be spared now, or once the partition's move has ended."""
    settled = [b for b in p.replicas if b not in p.adding]
    target = [b for b in p.replicas if b not in p.removing]
    return len(settled) <= p.min_isr or len(target) <= p.min_isr
