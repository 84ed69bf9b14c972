"""Derives the rights that a LogCluster and its User objects declare, as if nothing else were
committed.

Pure. Rules that clients made with Kafka's tools are in no object and unknown here, as are the
remains of a deleted User. Called by `plimsoll acl explain --declared`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from immutables import Map

from plimsoll_core.security.acl import Acl
from plimsoll_core.security.acl_index import index_of
from plimsoll_core.security.state import DeclaredUser, Security, UserObject
from plimsoll_operator.api.authorization import committed
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.tenancy import refused_name, refused_namespace, ruled
from plimsoll_operator.api.user import User

Labels = Mapping[str, Mapping[str, str]]
"""Labels of namespaces, by the namespace's name."""


def declared(cluster: LogCluster, users: Iterable[User], labels: Labels | None = None) -> Security:
    """`users`: those of the cluster; `labels`: of their namespaces, if these differ from the
    LogCluster's."""
    holders: dict[Acl, tuple[str, ...]] = {}
    rows: dict[str, DeclaredUser] = {}
    for user in users:
        if user.cluster_key == (cluster.metadata.namespace, cluster.metadata.name):
            known = (labels or {}).get(user.metadata.namespace, {})
            if refused_namespace(user, cluster, known) or refused_name(user, cluster):
                continue
            if user.user_name in rows:  # another object has the name
                continue
            rows[user.user_name] = _row(user)
            for acl in ruled(user, cluster, known).acls:
                holders.setdefault(acl, (_uid(user),))
    return Security(
        authorization=committed(cluster.spec.authorization, b""),
        users=Map(rows),
        acls=Map(holders),
        index=index_of(holders),
    )


def _uid(user: User) -> str:
    return "/".join(user.key)  # no uid is known here; the name identifies it


def _row(user: User) -> DeclaredUser:
    namespace, name = user.key
    return DeclaredUser(
        object=UserObject(namespace=namespace, name=name, uid=_uid(user)),
        user_name=user.user_name,
        disabled=bool(user.spec.disabled),
    )
