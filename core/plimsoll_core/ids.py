"""Distinct types for integers that must not be confused."""

from typing import NamedTuple, NewType
from uuid import UUID

BrokerId = NewType("BrokerId", int)
"""A broker's number, 0 or greater, stored on its volume."""

BrokerEpoch = NewType("BrokerEpoch", int)
"""Identifies one registration of a broker process: the metadata offset of its registration
record."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""The number of a partition's leadership: at most one broker leads in each value."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""The number of changes of a partition so far. A proposed ISR states it."""

ControllerEpoch = NewType("ControllerEpoch", int)
"""The number of a controller's term. Every reply and stream states it."""

Offset = NewType("Offset", int)
"""A position in a partition's log. Ends are exclusive; an empty log begins and ends at 0."""

MetadataOffset = NewType("MetadataOffset", int)
"""A position in the metadata log: the number of records before it."""

ProducerId = NewType("ProducerId", int)


class ProducerLife(NamedTuple):
    """A producer id, and the epoch of one instance that has it."""

    producer_id: int
    epoch: int


TopicId = UUID
"""Identifies a topic. It is never reused: a topic that is deleted and created again has another
id."""

IncarnationId = UUID
"""Identifies a broker process; a random UUID."""


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
