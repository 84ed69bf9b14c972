"""On which topics of a Produce its client may not write: asked before anything else of it is.

Called by the produce handler.  A topic is asked for once; what changes until the append is asked
for again then, so that a right that was taken away meanwhile is not there any more.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll_broker.background.time_slices import in_slices
from plimsoll_broker.security.authority import Rights
from plimsoll_core.security.acl import AclOperation
from plimsoll_core.security.state import Security
from plimsoll_wire.produce import ProduceRequest

_WRITE = AclOperation.WRITE


class DeniedTopics(NamedTuple):
    """`names`: of topics that may not be written.  `rights` None: nobody asks for any.
    `decided_by`: what they were decided by."""

    names: frozenset[str] = frozenset()
    rights: Rights | None = None
    decided_by: Security | None = None

    def may(self, name: str) -> bool:
        """Whether the topic may be written now."""
        rights = self.rights
        if rights is None:
            return True
        if name in self.names:
            return False
        return rights.security is self.decided_by or rights.topic(_WRITE, name)


_NO_NAMES: frozenset[str] = frozenset()
NOTHING = DeniedTopics()


def denied_at_once(rights: Rights | None, request: ProduceRequest) -> DeniedTopics:
    """Of a request that names few topics."""
    if rights is None:
        return NOTHING
    decided_by = rights.security
    names = [one.name for one in request.topics if not rights.topic(_WRITE, one.name)]
    return DeniedTopics(frozenset(names) if names else _NO_NAMES, rights, decided_by)


async def denied_in_slices(rights: Rights | None, request: ProduceRequest) -> DeniedTopics:
    """Of any number: others are heard in between."""
    if rights is None:
        return NOTHING
    decided_by = rights.security
    names: set[str] = set()
    async for topic in in_slices(request.topics):
        if not rights.topic(_WRITE, topic.name):
            names.add(topic.name)
    return DeniedTopics(frozenset(names), rights, decided_by)
