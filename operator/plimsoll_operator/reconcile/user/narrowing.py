"""What is left of a user's rights where an object states less: pure.

Committed before what the object gives, which may be refused: for its number, for a Secret that is
missing.  So nothing that is wrong with an object holds up what takes away.
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
    """`changes`: whether it is less than what is committed."""

    acls: tuple[Acl, ...]
    quotas: QuotaValues
    changes: bool


def left_of(
    row: DeclaredUser, may: Callable[[Acl], bool], quotas: QuotaValues, image: ClusterImage
) -> Narrowed:
    """Of what is committed for the row's object, what it may still have, with `quotas`."""
    uid = row.object.uid
    mine = [acl for acl, owners in image.security.acls.items() if uid in owners]
    kept = [acl for acl in mine if may(acl)]
    before = image.quotas.rows.get(QuotaEntity(user=row.user_name))
    own = before.values if before is not None and before.owner == uid else QuotaValues()
    least = _least(own, quotas)
    return Narrowed(tuple(kept), least, len(kept) < len(mine) or least != own)


def still(stated: Iterable[Acl], may: Callable[[Acl], bool]) -> Callable[[Acl], bool]:
    """Of what the object may have, what it states.  A rule that denies stays until all that is
    stated is committed: without it others would give more."""
    known = frozenset(stated)
    return lambda acl: may(acl) and (acl in known or acl.permission is AclPermission.DENY)


def _least(one: QuotaValues, other: QuotaValues) -> QuotaValues:
    """The smaller of both; what only one of them bounds is bounded."""
    return replace(one, **{quota.value: smallest(quota, one, other) for quota in OF_CLIENTS})
