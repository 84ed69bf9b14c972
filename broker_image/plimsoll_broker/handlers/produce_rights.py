"""DeniedTopics: the topics of a Produce that its client may not write, checked before anything
else.

Called by the produce handler. Each topic is checked once; if the rules have changed by the append
it is checked again, so that a revoked right no longer counts.
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
    """`names`: topics that may not be written. `rights` None: authorization is off. `decided_by`:
    the rules by which they were decided."""

    names: frozenset[str] = frozenset()
    rights: Rights | None = None
    decided_by: Security | None = None

    def may(self, name: str) -> bool:
        """Return True if the topic may be written now."""
        rights = self.rights
        if rights is None:
            return True
        if name in self.names:
            return False
        return rights.security is self.decided_by or rights.topic(_WRITE, name)


_NO_NAMES: frozenset[str] = frozenset()
NOTHING = DeniedTopics()


def denied_at_once(rights: Rights | None, request: ProduceRequest) -> DeniedTopics:
    """Check a request that names few topics."""
    if rights is None:
        return NOTHING
    decided_by = rights.security
    names = [one.name for one in request.topics if not rights.topic(_WRITE, one.name)]
    return DeniedTopics(frozenset(names) if names else _NO_NAMES, rights, decided_by)


async def denied_in_slices(rights: Rights | None, request: ProduceRequest) -> DeniedTopics:
    """Check a request that names any number of topics, in time slices."""
    if rights is None:
        return NOTHING
    decided_by = rights.security
    names: set[str] = set()
    async for topic in in_slices(request.topics):
        if not rights.topic(_WRITE, topic.name):
            names.add(topic.name)
    return DeniedTopics(frozenset(names), rights, decided_by)
