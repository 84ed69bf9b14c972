"""Adds and removes ACLs for clients. Called for CreateAcls and DeleteAcls.

To add an ACL that exists is no error and changes nothing. ACLs that a User object declares are
changed only through that object. An ACL that both a client and an object have added stays until
both have removed it. Source: KIP-140; AclControlManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from plimsoll_core.cluster.records import AclsAdded, AclsRemoved
from plimsoll_core.controller.kernel.decision import DecisionContext, access_too_old
from plimsoll_core.controller.security.security_share import ACLS, SecurityShare, share_of_client
from plimsoll_core.errors import Code, Reason, Refusal
from plimsoll_core.messages.requests import Answer
from plimsoll_core.messages.security import AclsChanged, CreateAcls, DeleteAcls, DeletedAcl
from plimsoll_core.security.acl import Acl, malformed
from plimsoll_core.security.state import BY_CLIENT

CHANGES_MAX = 1_000
"""The most ACLs that one request adds or removes."""
RECORD_BYTES_MAX = 256 * 1024
"""The most bytes of the ACLs in one record, as JSON. It is well below the limit of a batch of the
metadata log."""


def create_acls(turn: DecisionContext, request: CreateAcls) -> Answer | Refusal:
    if refusal := access_too_old(turn):
        return refusal
    share = share_of_client(turn, ACLS, request.behalf)
    if refusal := add_wanted(turn, request.acls, BY_CLIENT, share):
        return refusal
    return AclsChanged(end_offset=turn.image.next_offset)


def add_wanted(
    turn: DecisionContext, acls: tuple[Acl, ...], owner: str, share: SecurityShare
) -> Refusal | None:
    """Add those of the ACLs that `owner` does not have yet, and return None. If one is malformed or
    they are too many, add none and return a refusal."""
    known = turn.image.security.acls
    new = tuple(acl for acl in dict.fromkeys(acls) if owner not in known.get(acl, ()))
    for acl in new:  # what an earlier release took stays, and hinders no other change
        if text := malformed(acl):
            return Refusal(reason=Reason.InvalidRequest, message=text)
    if len(new) > CHANGES_MAX:
        text = f"One request can add at most {CHANGES_MAX} ACL rules, not {len(new)}."
        return Refusal(reason=Reason.InvalidRequest, message=text)
    if refusal := share.refusal(sum(acl not in known for acl in new)):
        return refusal
    for some in parts(new):
        turn.add(AclsAdded(cause="added", acls=some, owner=owner))
    return None


def parts(acls: Iterable[Acl]) -> Iterator[tuple[Acl, ...]]:
    """Yield the ACLs in parts of at most `CHANGES_MAX` ACLs and `RECORD_BYTES_MAX` bytes, which
    each fit a record, so that any set of ACLs can also be removed again."""
    part: list[Acl] = []
    size = 0
    for acl in acls:
        own = len(msgspec.json.encode(acl)) + 1
        if part and (size + own > RECORD_BYTES_MAX or len(part) >= CHANGES_MAX):
            yield tuple(part)
            part, size = [], 0
        part.append(acl)
        size += own
    if part:
        yield tuple(part)


def delete_acls(turn: DecisionContext, request: DeleteAcls) -> Answer | Refusal:
    if refusal := access_too_old(turn):
        return refusal
    security = turn.image.security
    gone: dict[Acl, None] = {}
    deleted = []
    for one in request.filters:
        found = sorted((acl for acl in security.acls if one.matches(acl)), key=lambda a: a.order)
        for acl in found:
            if BY_CLIENT in security.acls[acl]:
                gone[acl] = None
        deleted.append(tuple(_told(turn, acl) for acl in found))
    if len(gone) > CHANGES_MAX:
        text = (
            f"One request can remove at most {CHANGES_MAX} ACL rules; its filters match "
            f"{len(gone)}."
        )
        return Refusal(reason=Reason.InvalidRequest, message=text)
    for some in parts(gone):
        turn.add(AclsRemoved(cause="removed by a client", acls=some))
    return AclsChanged(deleted=tuple(deleted), end_offset=turn.image.next_offset)


def _told(turn: DecisionContext, acl: Acl) -> DeletedAcl:
    """Return the answer for one ACL that a client deletes: deleted, or an error that names the
    object that declares it."""
    security = turn.image.security
    owners = [owner for owner in security.acls[acl] if owner != BY_CLIENT]
    if not owners:
        return DeletedAcl(acl=acl)
    holder = security.object_of(owners[0])
    text = (
        f"The ACL rule is declared by the object {holder}, so a client cannot change it; edit "
        "spec.acls of that object."
    )
    return DeletedAcl(acl=acl, code=Code.POLICY_VIOLATION, message=text)
