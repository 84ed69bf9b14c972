"""Users of other namespaces than their LogCluster's: what they may be given, as it is now.

`api.tenancy` decides; here is read what it decides by.  What a namespace may not have any more is
taken back: its users are cut off, and keep their logins for when it may again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

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
from plimsoll_core.security.state import DeclaredUser, Security
from plimsoll_core.security.tokens import account_user
from plimsoll_operator.api.cluster_users import ClusterUsers
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
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.work_queue import Retry

KEPT_MAX = 1_000
"""Users of a cluster; where there are more, those whose namespaces are gone are kept no longer."""


class NotAllowed(NamedTuple):
    """A reason and a sentence."""

    reason: str
    message: str


async def labels_of(term: Term, namespace: str) -> dict[str, str] | None:
    """A namespace's labels; None: there is no such namespace, or it is going.  Raises ApiError."""
    try:
        found = await term.kube.get(NAMESPACES, None, namespace)
    except NotFound:
        return None
    meta = found["metadata"]
    return None if meta.get("deletionTimestamp") else dict(meta.get("labels") or {})


async def labels_for(term: Term, user: User, cluster: LogCluster) -> dict[str, str] | None:
    """Of the user's namespace, where they matter; None: it is gone or going."""
    going = user.metadata.deletion_timestamp is not None
    if not is_tenant(user) or not (going or needs_labels(cluster)):
        return {}
    return await labels_of(term, user.metadata.namespace)


def refusal(user: User, cluster: LogCluster, labels: Mapping[str, str] | None) -> NotAllowed | None:
    """Why the object may not have a user here.  `labels` None: its namespace is gone or going."""
    if labels is None:
        text = f"Namespace {user.metadata.namespace} is gone, or is being deleted."
        return NotAllowed("NotAllowed", text)
    if text := refused_namespace(user, cluster, labels):
        return NotAllowed("NotAllowed", text)
    if text := refused_name(user, cluster):
        return NotAllowed("UserNameNotAllowed", text)
    return None


def taken_name(user: User, security: Security) -> NotAllowed | None:
    """Why an object may not begin to declare the user: somebody who is none of its namespace's may
    have it already.  Who an account is says its own namespace."""
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
    """No login, no rules, no quotas; what is committed of its password stays."""
    answer = await term.ask(
        DeclareUser(object=row.object, user_name=row.user_name, disabled=True, acls=())
    )
    if isinstance(answer, Refused):
        raise Retry(answer.message)


async def labels_around(term: Term, row: DeclaredUser) -> dict[str, str] | None:
    """Of a tenant's namespace; None: it is gone or going.

    The LogCluster's own namespace is none of a tenant's: what goes with it stays."""
    namespace = row.object.namespace
    return {} if namespace == term.key[0] else await labels_of(term, namespace)


def may_still(cluster: LogCluster, row: DeclaredUser, labels: dict[str, str] | None) -> bool:
    """Whether a user may still be there whose object is not, or is another one: its namespace,
    which has the labels, is there, and may have it."""
    own = row.object.namespace == cluster.key[0]
    return own or refusal(_stated_by(row, cluster), cluster, labels) is None


def _stated_by(row: DeclaredUser, cluster: LogCluster) -> User:
    """As much of the object as is committed."""
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
    """What a User of another namespace states of quotas, but no more than holds for everybody, of
    whatever client id; nothing where Kafka's tools gave the user quotas: those hold."""
    own = quotas.rows.get(QuotaEntity(user=user))
    if own is not None and own.owner == BY_CLIENT:
        return QuotaValues()
    rows = quotas.rows.items()
    everybody = [row.values for entity, row in rows if entity.user in (None, DEFAULT)]
    stated = [quota for quota in OF_CLIENTS if values.of(quota) is not None]
    held = {quota.value: smallest(quota, values, *everybody) for quota in stated}
    return replace(values, **held)


class _Granted:
    """What a LogCluster said of Users when it was looked at last."""

    users: ClusterUsers | None = None


def follow_grants(term: Term, cluster: LogCluster) -> None:
    """Look at all users of other namespaces once the LogCluster says something else of them."""
    known = term.kept(_Granted, _Granted)
    if known.users == cluster.spec.users:
        return
    known.users = cluster.spec.users
    stated = [u.key for u in term.objects.users if u.cluster_key == term.key and is_tenant(u)]
    rows = (row.object for row in term.image.security.users.values())
    declared = [(one.namespace, one.name) for one in rows if one.namespace != term.key[0]]
    for key in dict.fromkeys((*stated, *declared)):
        term.add(Work(Task.USER, key))
