"""`controller_mutation_rate`: what of a request to make or delete partitions may be done now.

Called by CreateTopics, CreatePartitions and DeleteTopics before the controller is asked, and with
what it made of it; by `auto_creation`, too.  Each broker counts for its own clients.  Clients whose
version of the request knows of the refusal are refused; for others all is done, and they are not
read for a while.
Source: KIP-599.
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
    """`wanted`: each with how many partitions it would make or delete; what is left out is refused.
    `charge_made` has to follow, whatever comes of the rest."""
    return reserved(context.charges, wanted, strict=context.api_version >= strict_version)


def reserved(
    charges: Charges | None, wanted: Sequence[tuple[_T, int]], *, strict: bool
) -> list[_T]:
    """The same of any request; `strict`: what there is no room for is left out."""
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
    """So many were made or deleted in the end; and its client is told how long to wait.  None: it
    is not known, and what was reserved is charged."""
    if context.charges is not None:
        context.charges.mutated(partitions)
