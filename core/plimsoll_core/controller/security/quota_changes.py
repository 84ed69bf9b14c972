"""Changes clients' quotas: for clients' tools, and as a LogCluster or a User object declares.

Called for AlterQuotas and DeclareQuotas, and by `declared_users`.  Quotas that an object declares
change through that object alone.  Source: KIP-546; ClientQuotaControlManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from plimsoll_core.cluster.records import QuotasRemoved, QuotasSet
from plimsoll_core.controller.kernel.decision import DecisionContext, access_too_old
from plimsoll_core.controller.security.security_share import QUOTAS, SecurityShare, share_of_client
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import Answer, Done
from plimsoll_core.messages.security import (
    AlterQuotas,
    DeclareQuotas,
    QuotaChange,
    QuotaChanged,
    QuotasAltered,
)
from plimsoll_core.quotas.form import malformed_entity, malformed_value, malformed_values
from plimsoll_core.quotas.state import (
    BY_CLIENT,
    BY_CLUSTER,
    DEFAULT,
    QuotaEntity,
    QuotaRow,
    QuotaValues,
)

CHANGES_MAX = 1_000
"""The most entities in one request."""
CAUSE = "declared"


def alter_quotas(turn: DecisionContext, request: AlterQuotas) -> Answer | Refusal:
    if refusal := access_too_old(turn):
        return refusal
    if len(request.changes) > CHANGES_MAX:
        return _no(
            f"The request changes the quotas of {len(request.changes)} entities; at most "
            f"{CHANGES_MAX} are allowed in one request."
        )
    times = Counter(change.entity for change in request.changes)
    share = share_of_client(turn, QUOTAS, request.behalf)
    told = []
    for change in request.changes:
        refused = _refused(turn, change, times[change.entity], share)
        if refused is None:
            if not request.validate_only:
                before = len(turn.image.quotas.rows)
                _change(turn, change)
                share.changed(len(turn.image.quotas.rows) - before)
            told.append(QuotaChanged(entity=change.entity))
        else:
            code, message = refused.reason.code, refused.message
            told.append(QuotaChanged(entity=change.entity, code=code, message=message))
    return QuotasAltered(entities=tuple(told), end_offset=turn.image.next_offset)


def _refused(
    turn: DecisionContext, change: QuotaChange, times: int, share: SecurityShare
) -> Refusal | None:
    if times > 1:
        return _no(f"The request to change quotas names {change.entity} twice; name it once.")
    if text := malformed_entity(change.entity):
        return _no(text)
    for key, value in change.values.items():
        if text := malformed_value(change.entity, key, value):
            return _no(text)
    row = turn.image.quotas.rows.get(change.entity)
    if row is not None and row.owner != BY_CLIENT:
        text = (
            f"The quotas of {change.entity} are declared by {_holder(turn, row.owner)}, so a "
            "client cannot change them; edit spec.quotas of that object."
        )
        return Refusal(reason=Reason.PolicyViolation, message=text)
    return share.refusal(1) if row is None else None


def _holder(turn: DecisionContext, owner: str) -> str:
    if owner == BY_CLUSTER:
        return f"the LogCluster {turn.image.name}"
    return f"the object {turn.image.security.object_of(owner)}"


def _change(turn: DecisionContext, change: QuotaChange) -> None:
    row = turn.image.quotas.rows.get(change.entity)
    before = QuotaValues() if row is None else row.values
    values = replace(before, **change.values)
    cause = "changed by a client"
    if values == before:
        return
    if any(True for _ in values.items()):
        made = QuotaRow(entity=change.entity, values=values)
        turn.add(QuotasSet(cause=cause, row=made))
    else:
        turn.add(QuotasRemoved(cause=cause, entity=change.entity))


def declare_quotas(turn: DecisionContext, request: DeclareQuotas) -> Answer | Refusal:
    """Replace the default quotas that the LogCluster declares by those of the request. They apply
    to users without quotas of their own. Refuse a row that is not a default or is malformed."""
    wanted = {row.entity: row for row in request.rows}
    if list(turn.image.quotas.of_owner(BY_CLUSTER)) == _in_order(wanted.values()):
        return Done()
    if refusal := access_too_old(turn):
        return refusal
    for row in wanted.values():
        if row.owner != BY_CLUSTER or DEFAULT not in msgspec.structs.astuple(row.entity):
            return _no(
                "A LogCluster can declare only default quotas. Declare those of one user in "
                "spec.quotas of its User object."
            )
        if text := malformed_entity(row.entity) or malformed_values(row.entity, row.values):
            return _no(text)
    _settle_cluster(turn, wanted.values())
    return Done()


def settle_user(turn: DecisionContext, user: str, values: QuotaValues | None, owner: str) -> None:
    """Set the user's quotas as the User object with the uid `owner` declares them, also in place of
    a client's. If `values` is None or empty, remove the quotas if this object declared them."""
    entity = QuotaEntity(user=user)
    found = turn.image.quotas.rows.get(entity)
    if values is not None and values != QuotaValues():
        wanted = QuotaRow(entity=entity, values=values, owner=owner)
        if found != wanted:
            turn.add(QuotasSet(cause=CAUSE, row=wanted))
    elif found is not None and found.owner == owner:
        turn.add(QuotasRemoved(cause="not declared any more", entity=entity))


def _settle_cluster(turn: DecisionContext, rows: Iterable[QuotaRow]) -> None:
    wanted = {row.entity: row for row in rows}
    for row in turn.image.quotas.of_owner(BY_CLUSTER):
        if row.entity not in wanted:
            turn.add(QuotasRemoved(cause="not declared any more", entity=row.entity))
    for row in _in_order(wanted.values()):
        if turn.image.quotas.rows.get(row.entity) != row:
            turn.add(QuotasSet(cause=CAUSE, row=row))


def _in_order(rows: Iterable[QuotaRow]) -> list[QuotaRow]:
    return sorted(rows, key=lambda row: row.entity.order)


def _no(message: str) -> Refusal:
    return Refusal(reason=Reason.InvalidRequest, message=message)
