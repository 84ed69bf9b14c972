"""Which producers may begin a transaction in a partition: those that their coordinator confirmed.

A batch that arrives after its transaction has ended would open another one, without an end. So the
leader asks the coordinator before a producer's first batch of each transaction. `VerifiedWriters`
belongs to a leader and to one leader epoch. A marker withdraws the producer's verification, also
one that is still on its way: the transaction that the coordinator spoke of has ended. Pure. Source:
KIP-890, part 1.
"""

from __future__ import annotations

from plimsoll_core.ids import ProducerLife


class Verification:
    """One question to a coordinator. `confirmed`: True once it has answered that the partition is
    part of the producer's open transaction."""

    __slots__ = ("confirmed", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.confirmed = False


class VerifiedWriters:
    """The verifications of one partition, by producer id: at most one each."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[int, Verification] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(self, producer: ProducerLife) -> Verification:
        """Begin a verification, in place of an earlier one of the producer id. The caller then asks
        the coordinator, and calls `end`."""
        found = self._by_id.get(producer.producer_id)
        if found is None or found.epoch != producer.epoch:
            found = self._by_id[producer.producer_id] = Verification(producer.epoch)
        return found

    def end(self, producer_id: int, verification: Verification, *, confirmed: bool) -> None:
        """Record the coordinator's answer, unless a marker has withdrawn the verification."""
        if self._by_id.get(producer_id) is not verification:
            return
        if confirmed:
            verification.confirmed = True
        elif not verification.confirmed:
            del self._by_id[producer_id]

    def admits(self, producer: ProducerLife) -> bool:
        """Return True if the producer may begin a transaction now."""
        found = self._by_id.get(producer.producer_id)
        return found is not None and found.confirmed and found.epoch == producer.epoch

    def withdraw(self, producer_id: int) -> None:
        """Forget the verification of a producer, since its transaction has begun or ended."""
        self._by_id.pop(producer_id, None)
