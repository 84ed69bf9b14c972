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
from plimsoll_core.quotas.state import DEFAULT, OF_CLIENTS, ClientQuotas, QuotaEntity, QuotaValues
from plimsoll_core.security.state import DeclaredUser
from plimsoll_operator.api.cluster_users import ClusterUsers
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.tenancy import (
    is_tenant,
    needs_labels,
    refused_name,
    refused_namespace,
)
from plimsoll_operator.api.user import User
from plimsoll_operator.kube.errors import NotFound
from plimsoll_operator.kube.resources import NAMESPACES
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.work_queue import Retry

DEFAULTS = (
    QuotaEntity(user=DEFAULT),
    QuotaEntity(user=DEFAULT, client_id=DEFAULT),
    QuotaEntity(client_id=DEFAULT),
)
"""Whose quotas hold for a user that has none: no User of another namespace states more."""


class NotAllowed(NamedTuple):
    """A reason and a sentence."""

    reason: str
    message: str


async def labels_of(term: Term, namespace: str) -> dict[str, str] | None:
    """A namespace's labels; None: there is no such namespace.  Raises ApiError."""
    try:
        found = await term.kube.get(NAMESPACES, None, namespace)
    except NotFound:
        return None
    return dict(found["metadata"].get("labels") or {})


async def labels_for(term: Term, user: User, cluster: LogCluster) -> dict[str, str]:
    """Of the user's namespace, where they matter."""
    if not is_tenant(user) or not needs_labels(cluster):
        return {}
    return await labels_of(term, user.metadata.namespace) or {}


def refusal(user: User, cluster: LogCluster, labels: Mapping[str, str]) -> NotAllowed | None:
    """Why the object may not have a user here."""
    if text := refused_namespace(user, cluster, labels):
        return NotAllowed("NotAllowed", text)
    if text := refused_name(user, cluster):
        return NotAllowed("UserNameNotAllowed", text)
    return None


async def cut_off(term: Term, row: DeclaredUser) -> None:
    """No login, no rules, no quotas; what is committed of its password stays."""
    answer = await term.ask(
        DeclareUser(object=row.object, user_name=row.user_name, disabled=True, acls=())
    )
    if isinstance(answer, Refused):
        raise Retry(answer.message)


async def went_with_its_namespace(term: Term, row: DeclaredUser) -> bool:
    """Whether the namespace of a user's object is gone, and with it who the user was for.

    The LogCluster's own namespace is none of a tenant's: what goes with it stays."""
    namespace = row.object.namespace
    return namespace != term.key[0] and await labels_of(term, namespace) is None


def bounded(values: QuotaValues, quotas: ClientQuotas) -> QuotaValues:
    """What a User of another namespace states of quotas, but no more than holds for everybody."""
    held = {}
    for quota in OF_CLIENTS:
        stated = values.of(quota)
        rows = (quotas.rows.get(entity) for entity in DEFAULTS)
        bounds = [one for row in rows if row and (one := row.values.of(quota)) is not None]
        if stated is not None and bounds:
            held[quota.value] = min(stated, *bounds)
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
    for user in term.objects.users:
        if user.cluster_key == term.key and is_tenant(user):
            term.add(Work(Task.USER, user.key))
