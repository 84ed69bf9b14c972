"""What every decision about groups is given: one shard's state, the time, and the cluster.

`groups.step` hands it to the rules.  `state` is read, `soft` may be written; time and the cluster
come in as values.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.groups.settings import GroupSettings
from plimsoll_core.groups.soft import SoftState
from plimsoll_core.groups.state import GroupsState


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTurn:
    """One operation's surroundings."""

    state: GroupsState
    """Read by rules, never written."""
    soft: SoftState
    settings: GroupSettings
    image: ClusterImage
    """The newest metadata that the broker has applied."""
    image_is_fresh: bool
    """Whether `image` holds all that was committed when this shard became active: only then does
    a topic that it does not know not exist."""
    now_ms: int
    """Monotonic: for deadlines."""
    wall_ms: int
    """Since 1970: for what goes into records."""
    believed_ms: int | None
    """`wall_ms`, for what is removed for its age; None while the clock is not to be believed."""
    record_bytes_max: int = 2**20
    """How large a record may be, with its key."""

    def has_partition(self, topic: str, index: int) -> bool:
        """As far as the newest metadata here say."""
        topic_id = self.image.topic_ids.get(topic)
        return topic_id is not None and PartitionKey(topic_id, index) in self.image.partitions
