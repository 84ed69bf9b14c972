"""Integers that must not be swapped for one another, each with a name of its own."""

from typing import NamedTuple, NewType
from uuid import UUID

BrokerId = NewType("BrokerId", int)
"""A broker's number, kept on its volume; 0 and up."""

BrokerEpoch = NewType("BrokerEpoch", int)
"""One broker process's lifetime: the metadata offset of its registration record."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""A partition's term; one leader per value."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""Grows by one with every change of a partition; the token of a proposed ISR."""

ControllerEpoch = NewType("ControllerEpoch", int)
"""One controller's term; every reply and stream carries it."""

Offset = NewType("Offset", int)
"""A position in a partition's log.  Ends are exclusive; an empty log is 0/0."""

MetadataOffset = NewType("MetadataOffset", int)
"""A position in the metadata log; counts records."""

ProducerId = NewType("ProducerId", int)

TopicId = UUID
"""Never reused: a topic deleted and made again has another id."""

IncarnationId = UUID
"""Random, one per broker process."""


class TopicPartition(NamedTuple):
    """A partition as clients name it; `PartitionKey` is how it is known where topics have ids."""

    topic: str
    """The topic's name: another topic may have it later."""
    partition: int
    """The partition's index within the topic."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class BrokerLifetime(NamedTuple):
    """One life of a broker's process, as it is registered."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
