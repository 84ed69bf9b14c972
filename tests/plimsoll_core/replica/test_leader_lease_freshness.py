"""Whether a broker knows all metadata that was committed at a moment."""

from plimsoll_core.ids import MetadataOffset
from plimsoll_core.replica.leader_lease import LeaderLease


def test_metadata_age_counts_from_applied_heartbeat() -> None:
    lease = LeaderLease()
    assert not lease.applied_since(0, MetadataOffset(9))
    lease.answered(1_000, 6_000, MetadataOffset(10))
    assert not lease.applied_since(1_000, MetadataOffset(9)), "what it told of is not applied"
    assert lease.applied_since(1_000, MetadataOffset(10))
    assert not lease.applied_since(1_001, MetadataOffset(10)), "asked before that"
    lease.answered(2_000, 6_000, MetadataOffset(11))
    assert not lease.applied_since(2_000, MetadataOffset(10))
    assert lease.applied_since(1_000, MetadataOffset(10))
    assert lease.applied_since(2_000, MetadataOffset(11))
