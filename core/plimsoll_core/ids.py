"""Distinct types for integers that must not be confused."""

from typing import NamedTuple, NewType
from uuid import UUID

BrokerId = NewType("BrokerId", int)
"""A broker's number, kept on its volume; 0 and up."""

BrokerEpoch = NewType("BrokerEpoch", int)
"""Identifies one registration of a broker process: the metadata offset of its registration
record."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""A partition's term; one leader per value."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""Counts the changes of a partition; a proposed ISR states it."""

ControllerEpoch = NewType("ControllerEpoch", int)
"""Counts controllers' terms; every reply and stream states it."""

Offset = NewType("Offset", int)
"""A position in a partition's log.  Ends are exclusive; an empty log is 0/0."""

MetadataOffset = NewType("MetadataOffset", int)
"""A position in the metadata log; counts records."""

ProducerId = NewType("ProducerId", int)

TopicId = UUID
"""Identifies a topic; never reused: a recreated topic has another id."""

IncarnationId = UUID
"""Identifies a broker process; random."""


class TopicPartition(NamedTuple):
    """A partition by its topic's name, as clients write it. `PartitionKey` has the topic's id
    instead."""

    topic: str
    """The topic's name. A later topic may have the same name."""
    partition: int
    """The partition's index within the topic."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class BrokerLifetime(NamedTuple):
    """One registered run of a broker's process, by broker id and broker epoch."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
