"""Which protocol a generation takes: the one that most members prefer among those that all support.

Called by `phases` and `join`.  Source: Kafka's `ClassicGroup.selectProtocol`.
"""

from __future__ import annotations

from collections import Counter

from plimsoll_core.groups.members import ClassicGroup, Protocols


def vote(group: ClassicGroup) -> str:
    """The members share one at least: `may_share` was asked of each that came.  With equal votes
    the first member's preference decides."""
    common = group.common()
    votes = Counter(
        next(name for name, _ in member.protocols if name in common)
        for member in group.members.values()
    )
    return max(votes, key=lambda name: votes[name])


def may_share(
    group: ClassicGroup, protocol_type: str, protocols: Protocols, member_id: str | None
) -> bool:
    """Whether somebody with these can be in one group with all others.  `member_id`: who it is
    there already."""
    if not protocol_type or not protocols:
        return False
    if len(group.members) == (member_id in group.members):
        return True
    if protocol_type != group.protocol_type:
        return False
    common = group.common(but=member_id if member_id in group.members else None)
    return any(name in common for name, _ in protocols)
