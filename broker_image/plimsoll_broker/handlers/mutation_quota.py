"""`controller_mutation_rate`: how much of a request to create or delete partitions is allowed now.

Called by CreateTopics, CreatePartitions, DeleteTopics and `auto_creation`, before the controller is
asked and with the result. Each broker counts for its own clients. Clients with a request version
that knows the refusal are refused; for others all is done, and they are throttled. Source: KIP-599.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from plimsoll_broker.server.client_quotas import Charges
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_core.errors import Code

OVER_QUOTA = Code.THROTTLING_QUOTA_EXCEEDED
OVER_QUOTA_TEXT = "The throttling quota has been exceeded."
_T = TypeVar("_T")


def within_quota(
    context: RequestContext, wanted: Sequence[tuple[_T, int]], strict_version: int
) -> list[_T]:
    """Return the items that are allowed; the rest is refused. `wanted`: each with the number of
    partitions it creates or deletes. The caller must call `charge_made`, whatever the outcome."""
    return reserved(context.charges, wanted, strict=context.api_version >= strict_version)


def reserved(
    charges: Charges | None, wanted: Sequence[tuple[_T, int]], *, strict: bool
) -> list[_T]:
    """As `within_quota`, for any request. `strict`: leave out what the quota does not allow."""
    if charges is None:
        return [one for one, _ in wanted]
    taken = []
    for one, partitions in wanted:
        if strict and not charges.may_mutate():
            break
        charges.reserve(max(partitions, 0))  # clients send any number
        taken.append(one)
    return taken


def charge_made(context: RequestContext, partitions: int | None) -> None:
    """Charge the partitions created or deleted, and set the client's throttle time. None: not
    known; charge the reservation."""
    if context.charges is not None:
        context.charges.mutated(partitions)
