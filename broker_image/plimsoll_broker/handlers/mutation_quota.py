"""`controller_mutation_rate`: what of a request to make or delete partitions may be done now.

Called by CreateTopics, CreatePartitions and DeleteTopics before the controller is asked.  Each
broker counts what its clients ask of it.  Clients whose version of the request knows of the refusal
are refused; for others all is done, and they are not read for a while.  Source: KIP-599.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_core.errors import Code

CHARGED_MAX = 10_000
"""Partitions of one topic: a request for more is refused by the controller, and must not be waited
for as if it had been made."""
OVER_QUOTA = Code.THROTTLING_QUOTA_EXCEEDED
OVER_QUOTA_TEXT = "The throttling quota has been exceeded."
_T = TypeVar("_T")


def within_quota(
    context: RequestContext, wanted: Sequence[tuple[_T, int]], strict_version: int
) -> list[_T]:
    """`wanted`: each with how many partitions it makes or deletes; what is left out is refused."""
    charges = context.charges
    if charges is None:
        return [one for one, _ in wanted]
    # Clients send any number, negative ones too.
    wanted = [(one, min(max(partitions, 0), CHARGED_MAX)) for one, partitions in wanted]
    if context.api_version < strict_version:
        charges.mutated(sum(partitions for _, partitions in wanted))
        return [one for one, _ in wanted]
    taken = []
    for one, partitions in wanted:
        if not charges.may_mutate():
            charges.mutated(0)  # how long to wait
            break
        charges.mutated(partitions)
        taken.append(one)
    return taken
