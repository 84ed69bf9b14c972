"""What clients ask a controller for in a run, beside the requests of its tenants."""

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
    """As a broker passes it on of a listener that asks for no login, where others ask for one."""
    return replace(request, behalf=_ANONYMOUS) if options.tenants else request
