"""The quota `controller_mutation_rate`: what a client may change of topics and partitions now.

Each broker counts for its own clients. If a request to create or delete partitions exceeds the
quota and its version knows the quota's error, the excess is refused; in older versions the whole
request is done, and the client is throttled. A request to change configs is done or refused as a
whole, in every version: Kafka counts none of these. A request that only validates costs the
controller the same work, and is charged the same. Source: KIP-599.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from plimsoll_broker.server.client_quotas import QuotaCharges
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_core.errors import Code

_T = TypeVar("_T")
OVER_QUOTA = Code.THROTTLING_QUOTA_EXCEEDED
OVER_QUOTA_TEXT = "The throttling quota has been exceeded."


def within_quota(
    context: RequestContext, wanted: Sequence[tuple[_T, int]], strict_version: int
) -> list[_T]:
    """Return the leading items of a request that the quota `controller_mutation_rate` permits now,
    and reserve tokens for them; the caller refuses the rest. `wanted`: each item with the number of
    partitions that it creates or deletes. `strict_version`: the first request version in which
    clients understand a refusal; in an earlier version all items are permitted. The caller must
    then call `charge_made`, whatever the outcome."""
    return reserved(context.charges, wanted, strict=context.api_version >= strict_version)


def reserved(
    charges: QuotaCharges | None, wanted: Sequence[tuple[_T, int]], *, strict: bool
) -> list[_T]:
    """Return the leading items that the quota permits now, and reserve tokens for their partitions.
    If `strict` is False, return all, and reserve for all. `wanted`: each item with its number of
    partitions. If `charges` is None there is no quota, and all are returned."""
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
    """Charge the number of partitions that were created or deleted in place of the reserved tokens,
    and set the throttle time of the request. `partitions`: None if the number is not known; then
    the reservation is charged. Do nothing without a quota."""
    if context.charges is not None:
        context.charges.mutated(partitions)


def may_change(context: RequestContext, topics: int) -> bool:
    """Return True if the quota permits a request to change the configs of so many topics now, and
    reserve tokens for them. The caller must then call `charge_made`, whatever the outcome."""
    charges = context.charges
    if charges is None:
        return True
    if not charges.may_mutate():
        return False
    charges.reserve(topics)
    return True
