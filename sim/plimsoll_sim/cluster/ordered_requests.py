"""Clients' requests to a controller in a run, other than those of its tenants."""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll_core.messages.elections import ElectLeaders
from plimsoll_core.messages.reassignments import AlterReassignments
from plimsoll_core.messages.requests import CreateTopics
from plimsoll_core.messages.security import OnBehalf
from plimsoll_core.messages.topic_changes import TopicChange
from plimsoll_core.security.acl import ANONYMOUS
from plimsoll_sim.cluster.run_options import RunOptions

Ordered = CreateTopics | TopicChange | ElectLeaders | AlterReassignments
_ANONYMOUS = OnBehalf(principal=ANONYMOUS, host="client")


def in_nobodys_name(request: Ordered, options: RunOptions) -> Ordered:
    """Return the request as a broker passes it on from a listener without logins; unchanged if no
    listener asks for logins."""
    return replace(request, behalf=_ANONYMOUS) if options.tenants else request
