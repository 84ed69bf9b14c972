"""Limits of Users in other namespaces than their LogCluster's (tenants), and the rights that a user
keeps at present.

`api.tenancy` decides; this module reads the inputs of its decisions. If a namespace may no longer
have users, its users are disabled, and keep their passwords in case it is allowed again.

Rights that a user keeps if its object states fewer (`left_of`) are committed before the rights that
the object adds, which may be refused for their number or for a missing Secret. So a fault in an
object never delays a revocation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.messages.requests import Refused
from plimsoll_core.messages.security import DeclareUser
from plimsoll_core.quotas.state import (
    BY_CLIENT,
    DEFAULT,
    OF_CLIENTS,
    ClientQuotas,
    QuotaEntity,
    QuotaValues,
    smallest,
)
from plimsoll_core.security.acl import Acl, AclPermission
from plimsoll_core.security.state import DeclaredUser, SecurityState, UserObject
from plimsoll_core.security.tokens import account_user
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import ClusterRef, ObjectMeta
from plimsoll_operator.api.tenancy import (
    is_tenant,
    needs_labels,
    refused_name,
    refused_namespace,
)
from plimsoll_operator.api.user import Account, Authentication, User, UserSpec
from plimsoll_operator.kube.errors import NotFound
from plimsoll_operator.kube.resources import NAMESPACES
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.work_queue import Retry

KEPT_MAX = 1_000
"""Number of users of a cluster above which those with deleted namespaces are removed."""


class NotAllowed(NamedTuple):
    """The reason why an object may not have a user: reason and sentence of a condition."""

    reason: str
    message: str


async def labels_of(term: Term, namespace: str) -> dict[str, str] | None:
    """Return a namespace's labels, or None if it does not exist or is being deleted. Raises
    ApiError."""
    try:
        found = await term.kube.get(NAMESPACES, None, namespace)
    except NotFound:
        return None
    meta = found["metadata"]
    return None if meta.get("deletionTimestamp") else dict(meta.get("labels") or {})


async def labels_for(term: Term, user: User, cluster: LogCluster) -> dict[str, str] | None:
    """Return the labels of the user's namespace if they affect what the user may have, else {}.
    Return None if the namespace does not exist or is being deleted."""
    going = user.metadata.deletion_timestamp is not None
    if not is_tenant(user) or not (going or needs_labels(cluster)):
        return {}
    return await labels_of(term, user.metadata.namespace)


def refusal(user: User, cluster: LogCluster, labels: Mapping[str, str] | None) -> NotAllowed | None:
    """Return why the object may not declare a user in this cluster, or None if it may. `labels` are
    its namespace's, None if that does not exist or is being deleted."""
    if labels is None:
        text = (
            f"The User has no effect, because its namespace {user.metadata.namespace} is gone "
            "or is being deleted."
        )
        return NotAllowed("NotAllowed", text)
    if text := refused_namespace(user, cluster, labels):
        return NotAllowed("NotAllowed", text)
    if text := refused_name(user, cluster):
        return NotAllowed("UserNameNotAllowed", text)
    return None


def taken_name(user: User, security: SecurityState) -> NotAllowed | None:
    """Return why an object of a tenant may not begin to declare the user, or None if it may.

    A person outside its namespace may own the name already. The name of a ServiceAccount contains
    its own namespace, so it is always free.
    """
    if user.service_account is not None:
        return None
    name, principal = user.user_name, user.principal
    password = any(key[0] == name for key in security.credentials)
    rules = any(acl.principal == principal for acl in security.acls)
    if not (password or rules or security.is_super_user(principal)):
        return None
    text = (
        f"User {name} already has a password, rules or super user rights, from Kafka's tools or "
        "the LogCluster's superUsers. The LogCluster's owner must remove these first, or choose "
        "another userName."
    )
    return NotAllowed("UserNameTaken", text)


async def cut_off(term: Term, row: DeclaredUser) -> None:
    """Commit that the user is disabled and has no rules and quotas. Its committed password
    stays."""
    answer = await term.ask(
        DeclareUser(object=row.object, user_name=row.user_name, disabled=True, acls=())
    )
    if isinstance(answer, Refused):
        raise Retry(answer.message)


async def labels_around(term: Term, row: DeclaredUser) -> dict[str, str] | None:
    """Return the labels of the namespace of the user's object. Return {} for the LogCluster's own
    namespace, which is not a tenant's: users deleted with it stay. Return None if the namespace
    does not exist or is being deleted."""
    namespace = row.object.namespace
    return {} if namespace == term.key[0] else await labels_of(term, namespace)


def may_still(cluster: LogCluster, row: DeclaredUser, labels: dict[str, str] | None) -> bool:
    """Return True if a committed user may remain although its object is deleted or replaced: its
    namespace exists and may have it. `labels` is the result of `labels_around`."""
    own = row.object.namespace == cluster.key[0]
    return own or refusal(_stated_by(row, cluster), cluster, labels) is None


def _stated_by(row: DeclaredUser, cluster: LogCluster) -> User:
    """Return a User object made from the committed user, with the fields that follow from it."""
    namespace, name = cluster.key
    account = account_user(row.object.namespace, "")
    login = None
    if row.user_name.startswith(account):
        login = Authentication(service_account=Account(name=row.user_name.removeprefix(account)))
    return User(
        metadata=ObjectMeta(
            name=row.object.name, namespace=row.object.namespace, uid=row.object.uid
        ),
        spec=UserSpec(
            cluster_ref=ClusterRef(name=name, namespace=namespace),
            user_name=row.user_name,
            authentication=login,
        ),
    )


def bounded(user: str, values: QuotaValues, quotas: ClientQuotas) -> QuotaValues:
    """Return the quotas `values` of a tenant's user, each reduced to those that apply to all users,
    with any client id. Return no quotas if Kafka's tools set quotas for this user, since those
    hold."""
    own = quotas.rows.get(QuotaEntity(user=user))
    if own is not None and own.owner == BY_CLIENT:
        return QuotaValues()
    rows = quotas.rows.items()
    everybody = [row.values for entity, row in rows if entity.user in (None, DEFAULT)]
    stated = [quota for quota in OF_CLIENTS if values.of(quota) is not None]
    held = {quota.value: smallest(quota, values, *everybody) for quota in stated}
    return replace(values, **held)


class Narrowed(NamedTuple):
    """Rules and quotas that a user keeps. `changes` is True if they are fewer or smaller than the
    committed ones."""

    acls: tuple[Acl, ...]
    quotas: QuotaValues
    changes: bool


def left_of(
    row: DeclaredUser, may: Callable[[Acl], bool], quotas: QuotaValues, image: ClusterImage
) -> Narrowed:
    """Return which of the committed rules the user's object may keep (those for which `may` is
    True), and the smaller of its committed quotas and `quotas`."""
    uid = row.object.uid
    mine = [acl for acl, owners in image.security.acls.items() if uid in owners]
    kept = [acl for acl in mine if may(acl)]
    before = image.quotas.rows.get(QuotaEntity(user=row.user_name))
    own = before.values if before is not None and before.owner == uid else QuotaValues()
    least = _least(own, quotas)
    return Narrowed(tuple(kept), least, len(kept) < len(mine) or least != own)


def still_stated(stated: Iterable[Acl], may: Callable[[Acl], bool]) -> Callable[[Acl], bool]:
    """Return a function that is True for the rules to keep: those that are allowed and are still
    `stated`. A deny rule is kept until all stated rules are committed: without it others would
    grant more."""
    known = frozenset(stated)
    return lambda acl: may(acl) and (acl in known or acl.permission is AclPermission.DENY)


def _least(one: QuotaValues, other: QuotaValues) -> QuotaValues:
    """Return, for each quota, the smaller of the two limits; if only one of `one` and `other`
    limits it, that limit."""
    return replace(one, **{quota.value: smallest(quota, one, other) for quota in OF_CLIENTS})


def object_of(user: User) -> UserObject:
    return UserObject(namespace=user.key[0], name=user.key[1], uid=user.metadata.uid)


def rows_of(term: Term, key: Key) -> list[DeclaredUser]:
    rows = term.image.security.users.values()
    return [row for row in rows if (row.object.namespace, row.object.name) == key]
