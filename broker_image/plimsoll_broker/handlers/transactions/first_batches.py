"""FirstBatches: has the first batch of each transaction in a partition verified.

Called by the produce handler. A batch that arrives after its transaction has ended would open
another one, without an end. So before it is appended, the coordinator is asked whether the
partition is part of the producer's open transaction. The connection's later requests wait behind
it. What an answer permits, `plimsoll_core.replica.verified_writers` decides. Source: KIP-890, part
1; docs/protocol.md §4.14.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple

from plimsoll_broker.coordinator.verifier import ServedTransactions
from plimsoll_broker.handlers.batch_checks import (
    Answers,
    BadSent,
    Checked,
    every_batch,
    may_be_read,
)
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.security.authority import Rights
from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_core.replica.verified_writers import Verification, VerifiedWriters
from plimsoll_core.security.acl import AclOperation
from plimsoll_wire.batches import BatchHeader, parse_header
from plimsoll_wire.produce import ProduceRequest

NO_TRANSACTIONS = BadSent(
    Code.INVALID_RECORD,
    "the record batch belongs to a transaction, and transactions are not supported",
)
_NO_ID = BadSent(
    Code.INVALID_RECORD,
    "the record batch belongs to a transaction, but the request names no transactional id",
)
_NOT_VERIFIED = "the partition is not known to be part of the producer's open transaction"


class _AskedFor(NamedTuple):
    """A batch that is being verified. `where`: its position in the request; `of`: its partition's
    verifications."""

    where: tuple[int, int]
    of: VerifiedWriters
    verification: Verification


class FirstBatches:
    """Verifies the batches that would begin a transaction in a partition led here. `transactions`:
    this broker's part in transactions; None if it has none."""

    def __init__(self, manager: ReplicaManager, transactions: ServedTransactions | None) -> None:
        self._manager = manager
        self._transactions = transactions

    @property
    def _served(self) -> ServedTransactions | None:
        served = self._transactions
        return served if served is not None and served.now else None

    def among(self, request: ProduceRequest, denied: Container[str]) -> bool:
        """Return True if any batch of the request has to be verified. `denied`: topics that the
        client may not write, which are not looked up."""
        return self._served is not None and any(
            self._leader(name, index, parse_header(records), denied) is not None
            for _, name, (index, records) in every_batch(request)
            if records is not None and name not in denied and may_be_read(records)
        )

    async def verify(
        self, request: ProduceRequest, denied: Container[str], checked: Answers
    ) -> None:
        """Ask the coordinator about all batches that have to be verified, and replace the header of
        each that may not be appended by its error. A marker that arrives meanwhile withdraws the
        verification."""
        served = self._served
        if served is None:
            return
        asked: dict[ProducerLife, dict[TopicPartition, _AskedFor]] = {}
        for where, partition, header in _passed(request, checked):
            verified = self._leader(*partition, header, denied)
            if verified is not None:
                producer = producer_of(header)
                one = _AskedFor(where, verified, verified.begin(producer))
                asked.setdefault(producer, {})[partition] = one
        name = request.transactional_id or ""
        while asked:
            producer = next(iter(asked))
            try:
                codes = await served.verifier.verify(name, producer, asked[producer])
            except BaseException:
                _withdraw(asked)  # such as the client has disconnected
                raise
            for partition, one in asked.pop(producer).items():
                confirmed = codes[partition] is Code.NONE
                one.of.end(producer.producer_id, one.verification, confirmed=confirmed)
                if not confirmed:
                    checked[one.where] = BadSent(codes[partition], _NOT_VERIFIED)

    def _leader(
        self, name: str, index: int, header: BatchHeader, denied: Container[str]
    ) -> VerifiedWriters | None:
        """Return the verifications of the batch's partition if the batch has to be verified;
        otherwise None."""
        if not header.is_transactional or name in denied:
            return None
        hosted = self._manager.by_name(name, index)
        leader = None if hosted is None else hosted.replica.leader
        if hosted is None or leader is None:
            return None
        code = hosted.replica.check_verified(producer_of(header))
        return None if code is Code.NONE else leader.verified

    def check(self, request: ProduceRequest, hosted: Hosted, checked: Checked) -> Checked:
        """Return the error of a transactional batch that may not be appended now; otherwise
        `checked`. Called in the turn of the append."""
        if not isinstance(checked, BatchHeader) or not checked.is_transactional:
            return checked
        if self._served is None:
            return NO_TRANSACTIONS
        if request.transactional_id is None:
            return _NO_ID
        code = hosted.replica.check_verified(producer_of(checked))
        return checked if code is Code.NONE else BadSent(code, _NOT_VERIFIED)


def _withdraw(asked: Mapping[ProducerLife, Mapping[TopicPartition, _AskedFor]]) -> None:
    """Forget verifications that get no answer."""
    for producer, partitions in asked.items():
        for one in partitions.values():
            one.of.end(producer.producer_id, one.verification, confirmed=False)


def producer_of(header: BatchHeader) -> ProducerLife:
    return ProducerLife(header.producer_id, header.producer_epoch)


def _passed(
    request: ProduceRequest, checked: Answers
) -> Iterator[tuple[tuple[int, int], TopicPartition, BatchHeader]]:
    """Yield the position, the partition and the header of each batch that passed its check."""
    for where, name, (index, _) in every_batch(request):
        header = checked.get(where)
        if isinstance(header, BatchHeader):
            yield where, TopicPartition(name, index), header


def may_transact(rights: Rights, request: ProduceRequest, checked: Checked) -> bool:
    """Return False if the batch belongs to a transaction and the client has no right to write with
    the request's transactional id."""
    if not isinstance(checked, BatchHeader) or not checked.is_transactional:
        return True
    name = request.transactional_id
    return name is None or rights.transactional_id(AclOperation.WRITE, name)
