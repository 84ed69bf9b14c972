"""Measures the progress of moving partitions: bytes copied, rate and time left. No decision depends
on it.

The image states which partitions move; brokers report how many bytes they hold. A `Meter` stores
what neither knows, for one object (a Topic, Reassignment or Rebalance): bytes copied by finished
moves, the recent rate, and the lowest ISR margin. Its content is lost at the end of a term; the
next term starts from the bytes that are left to copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from plimsoll_core.cluster.model import Partition, PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_operator.status.cluster_counts import margin

RATE_MS = 20_000
"""Period over which the rate is computed, in milliseconds."""
SAMPLES_MAX = 64

Copies = Mapping[PartitionKey, Mapping[BrokerId, int]]
"""For each moving partition: the bytes that its leader and its new replicas hold, by broker, as
brokers report them."""


@dataclass(frozen=True, slots=True)
class Copied:
    """Bytes copied and bytes to copy in total, summed over the new replicas of one partition."""

    copied: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveProgress:
    """Progress of moves: bytes `copied` of `total`. `rate`, in bytes a second, and `eta_seconds`
    are None until known."""

    copied: int
    total: int
    rate: int | None = None
    eta_seconds: int | None = None

    @property
    def left(self) -> int:
        return self.total - self.copied


def copied(partition: Partition, sizes: Mapping[BrokerId, int]) -> Copied | None:
    """Return the bytes copied to the new replicas of one partition. `sizes` are its replicas' sizes
    by broker; a new replica without one has 0 bytes, one in the ISR all. Return None if there is no
    leader or its size is unknown."""
    whole = None if partition.leader is None else sizes.get(partition.leader)
    if whole is None:
        return None
    held = (whole if b in partition.isr else min(whole, sizes.get(b, 0)) for b in partition.adding)
    return Copied(sum(held), whole * len(partition.adding))


class Meter:
    """Measures the moves of one object. `read` returns the progress for a status."""

    def __init__(self) -> None:
        self._totals: dict[PartitionKey, int] = {}
        self._samples: deque[tuple[int, int]] = deque(maxlen=SAMPLES_MAX)
        self.lowest_margin: int | None = None

    def saw(self, partition: Partition) -> None:
        """Record the present ISR margin of a moving partition; `lowest_margin` keeps the lowest one
        seen."""
        left = margin(partition)
        if self.lowest_margin is None or left < self.lowest_margin:
            self.lowest_margin = left

    def read(self, moving: Iterable[Partition], copies: Copies, now_ms: int) -> MoveProgress:
        """Record a sample for the rate, and return the progress of the partitions in `moving` and
        of those that have finished since the first call. A partition of unknown size is left out.
        `copies` are the reported sizes in bytes, `now_ms` the time on a monotonic clock."""
        done = sum(self._totals.values())
        for partition in moving:
            self.saw(partition)
            known = copied(partition, copies.get(partition.key, {}))
            done -= self._totals.get(partition.key, 0)
            if known is not None:
                self._totals[partition.key] = known.total
                done += known.copied
            else:
                self._totals.pop(partition.key, None)
        return self._progress(done, sum(self._totals.values()), now_ms)

    def _progress(self, done: int, total: int, now_ms: int) -> MoveProgress:
        samples = self._samples
        if samples and done < samples[-1][1]:
            samples.clear()  # a copy restarted, or its leader truncated
        while samples and now_ms - samples[0][0] > RATE_MS:
            samples.popleft()
        samples.append((now_ms, done))
        elapsed_ms = now_ms - samples[0][0]
        if elapsed_ms <= 0:
            return MoveProgress(copied=done, total=total)
        rate = (done - samples[0][1]) * 1000 // elapsed_ms
        eta = None if rate <= 0 else -(-(total - done) // rate)
        return MoveProgress(copied=done, total=total, rate=rate, eta_seconds=eta)
