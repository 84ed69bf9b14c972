"""What an Event will say, and which object it is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from plimsoll_core.cluster.model import ReassignmentObject, RebalanceObject, TopicObject
from plimsoll_core.security.state import UserObject
from plimsoll_operator.api.meta import ObjectMeta

LENGTH_MAX = 1_000


class About(NamedTuple):
    """One of the users' objects."""

    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """What an Event will say.  `key`: the same key within a minute is the same Event, unless one
    that `undoes` it came between.  `about`: the object that it is about besides the LogCluster;
    both tell of it.  `unclean`: the elected leader may lack acknowledged records."""

    key: str
    undoes: str = ""
    reason: str
    message: str
    warning: bool = False
    about: About | None = None
    unclean: bool = False


def about_committed(
    kind: str, found: TopicObject | ReassignmentObject | RebalanceObject | UserObject | None
) -> About | None:
    """An object as the metadata name it; None for a topic that has none."""
    return None if found is None else About(kind, found.namespace, found.name, found.uid)


def about_seen(kind: str, meta: ObjectMeta) -> About:
    """An object as a watch has brought it."""
    return About(kind, meta.namespace, meta.name, meta.uid)
