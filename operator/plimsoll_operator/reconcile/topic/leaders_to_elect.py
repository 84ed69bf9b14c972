"""Leaders that a Topic object names for partitions without one. Pure.

Called by the Topic reconciler; the controller's `name_leaders` decides on their election.
"""

from __future__ import annotations

from plimsoll_core.ids import BrokerId, LeaderEpoch
from plimsoll_core.messages.elections import NamedLeader, NameLeaders
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.reconcile.topic.topic_declaration import object_of


def named_leaders(topic: Topic) -> NameLeaders | None:
    """Return the request to elect the leaders that the object names, or None."""
    recovery = topic.spec.unclean_recovery
    if recovery is None or not recovery.elect:
        return None
    leaders = tuple(
        NamedLeader(
            partition=one.partition,
            leader=BrokerId(one.leader),
            at_leader_epoch=LeaderEpoch(one.at_leader_epoch),
        )
        for one in recovery.elect
    )
    return NameLeaders(object=object_of(topic), leaders=leaders)
