"""Rights that a user keeps if its object states fewer. Pure.

They are committed before the rights that the object adds, which may be refused for their number or
for a missing Secret. So a fault in an object never delays a revocation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.quotas.state import OF_CLIENTS, QuotaEntity, QuotaValues, smallest
from plimsoll_core.security.acl import Acl, AclPermission
from plimsoll_core.security.state import DeclaredUser


class Narrowed(NamedTuple):
    """`changes`: True if it is less than what is committed."""

    acls: tuple[Acl, ...]
    quotas: QuotaValues
    changes: bool


def left_of(
    row: DeclaredUser, may: Callable[[Acl], bool], quotas: QuotaValues, image: ClusterImage
) -> Narrowed:
    """Return what the row's object may keep of the committed rights, with `quotas`."""
    uid = row.object.uid
    mine = [acl for acl, owners in image.security.acls.items() if uid in owners]
    kept = [acl for acl in mine if may(acl)]
    before = image.quotas.rows.get(QuotaEntity(user=row.user_name))
    own = before.values if before is not None and before.owner == uid else QuotaValues()
    least = _least(own, quotas)
    return Narrowed(tuple(kept), least, len(kept) < len(mine) or least != own)


def still(stated: Iterable[Acl], may: Callable[[Acl], bool]) -> Callable[[Acl], bool]:
    """Return a test of the rights to keep: allowed, and still stated. A deny rule stays until all
    stated rights are committed: without it others would grant more."""
    known = frozenset(stated)
    return lambda acl: may(acl) and (acl in known or acl.permission is AclPermission.DENY)


def _least(one: QuotaValues, other: QuotaValues) -> QuotaValues:
    """Return the smaller of both; a quota bounded by one of them only is bounded."""
    return replace(one, **{quota.value: smallest(quota, one, other) for quota in OF_CLIENTS})
