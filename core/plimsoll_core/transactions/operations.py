"""The operations on a shard's transactional ids, and their answers: the input and output of `step`.

Handlers make operations from requests; deadlines and written markers make others. An operation
holds the content of the request. A token, passed beside it, identifies the request that is
answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_core.transactions.records import TransactionStored


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducer:
    """InitProducerId with a transactional id. `expected`: the producer id and epoch that the
    request states; None if none. `fresh_id`: an unused producer id; None if the caller has
    none at hand. Answered by `ProducerInitialized`, or by `ProducerIdWanted`, after which the
    caller repeats the operation with a fresh id."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerLife | None = None
    fresh_id: int | None = None
    principal: str = ""


class ProducerInitialized(NamedTuple):
    """The producer id and epoch of the instance that asked."""

    producer: ProducerLife


class ProducerIdWanted(NamedTuple):
    """The id needs an unused producer id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddToTransaction:
    """AddPartitionsToTxn of one transaction. Answered by `PartitionsAdded`."""

    transactional_id: str
    producer: ProducerLife
    partitions: tuple[TopicPartition, ...]


class PartitionsAdded(NamedTuple):
    """All partitions are part of the transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPartitions:
    """A leader's question whether these partitions are part of the producer's open transaction.
    Answered by `PartitionsVerified`."""

    transactional_id: str
    producer: ProducerLife
    partitions: tuple[TopicPartition, ...]


class PartitionsVerified(NamedTuple):
    """The partitions that are part of the transaction."""

    partitions: frozenset[TopicPartition]


class TransactionFate(Enum):
    """What became of a producer's transaction in a partition. OPEN: it is not over, or its markers
    are being written."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class TellFates:
    """A leader's question what became of the producer's transaction in these partitions, since
    their logs have no marker. A leader does not know the transactional id: the coordinators fill it
    in. Answered by `FatesTold`."""

    transactional_id: str = ""
    producer: ProducerLife
    partitions: tuple[TopicPartition, ...]


class FatesTold(NamedTuple):
    """The fates of the transaction in the partitions asked for."""

    fates: tuple[tuple[TopicPartition, TransactionFate], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """EndTxn. Answered by `TransactionEnded` once the decision is committed."""

    transactional_id: str
    producer: ProducerLife
    commits: bool


class TransactionEnded(NamedTuple):
    """The transaction's end is decided, for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """All markers of the transaction of this producer are committed. Not answered."""

    transactional_id: str
    producer: ProducerLife


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOverdue:
    """A deadline: abort the id's transaction if it is older than its timeout. Not answered."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndWait:
    """A deadline: the id's requests have waited long enough for the markers of its transaction. Not
    answered."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireId:
    """A deadline: forget the id if it was idle for too long. Not answered."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransaction:
    """DescribeTransactions of one id. Answered by the `TransactionStored`."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactions:
    """ListTransactions of one shard. Answered by `TransactionsListed`. `states`: Kafka's names, in
    lower case; `producer_ids`: list only these; both empty for all. `running_ms`: list only
    transactions that have been open for longer; negative for all."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    running_ms: int = -1


class TransactionsListed(NamedTuple):
    """The listed ids of one shard."""

    ids: tuple[TransactionStored, ...]


TransactionOperation = (
    InitProducer
    | AddToTransaction
    | VerifyPartitions
    | TellFates
    | EndTransaction
    | MarkersWritten
    | EndOverdue
    | EndWait
    | ExpireId
    | DescribeTransaction
    | ListTransactions
)


class MarkerCode(NamedTuple):
    """The result of writing one partition's marker."""

    partition: TopicPartition
    code: Code
