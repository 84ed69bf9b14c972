"""Object that takes over a user with a deleted object: another of its namespace that declares it.

Called once an absence is proven. A user that a live object declares is handed over with its login
and its rules, and never removed. An object of another namespace takes no login over: it gets the
name once the user is removed.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll_core.security.state import DeclaredUser, UserObject
from plimsoll_operator.api.load import Unreadable, from_object
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.user import User
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import USERS
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.user import tenants


class UserClaims(NamedTuple):
    """`heir`: the oldest object that takes the user over. `any`: True if any object declares it,
    even one with an unreadable spec."""

    heir: UserObject | None
    any: bool


async def claims_on(term: Term, cluster: LogCluster, row: DeclaredUser) -> UserClaims:
    """Return the claims by a fresh list. Raises ApiError."""
    claimed = False
    listed = await term.kube.list(USERS, row.object.namespace)
    for found in sorted(listed.items, key=_age):
        if found["metadata"].get("deletionTimestamp"):
            continue
        try:
            user = from_object(found, User)
        except Unreadable:
            claimed = claimed or _may_declare(term, found, row.user_name)
            continue
        if (user.cluster_key, user.user_name) != (term.key, row.user_name):
            continue
        labels = await tenants.labels_for(term, user, cluster)
        if tenants.refusal(user, cluster, labels) is None:
            meta = user.metadata
            return UserClaims(
                UserObject(namespace=meta.namespace, name=meta.name, uid=meta.uid), True
            )
    return UserClaims(None, any=claimed)


def _may_declare(term: Term, found: Object, user_name: str) -> bool:
    """Return True if an object may declare the user, by the readable names in its spec."""
    meta, spec = found["metadata"], found.get("spec") or {}
    ref = spec.get("clusterRef") or {}
    cluster = (ref.get("namespace") or meta["namespace"], ref.get("name"))
    names = (spec.get("userName"), meta["name"], f"{meta['namespace']}.{meta['name']}")
    return cluster == term.key and user_name in names


def _age(found: Object) -> tuple[str, str]:
    meta = found["metadata"]
    return meta.get("creationTimestamp") or "", meta["name"]
