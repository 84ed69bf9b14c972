"""Limits what User objects of namespaces other than the LogCluster's may declare: the user name,
and the rules (ACLs) that take effect.

Pure. The owner of a LogCluster sets the limits in `spec.users`. An object grants no right outside
its namespace's prefix except shared ones. A denying rule is limited too: if everyone may use
resources without rules, any rule takes that right away. Called by the User reconciler and by
`plimsoll acl explain --declared`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from plimsoll_core.security.acl import WILDCARD, Acl, AclPermission, Pattern, ResourceType
from plimsoll_core.security.acl_index import allowing
from plimsoll_operator.api.cluster_users import ClusterUsers, Shared
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.name_prefix import prefix_of
from plimsoll_operator.api.selectors import allows, matches
from plimsoll_operator.api.user import User

TOLD_MAX = 5
"""Bound on the number of refused rules that a message names."""
_NAMED = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)


class Ruling(NamedTuple):
    """The rules of a User within the limits. `acls`: the rules that take effect; `refused`: a
    sentence about the rules that do not, "" if there is none."""

    acls: tuple[Acl, ...]
    refused: str = ""


def is_tenant(user: User) -> bool:
    """Return True if the User's namespace is not the LogCluster's own."""
    return user.metadata.namespace != user.cluster_key[0]


def needs_labels(cluster: LogCluster) -> bool:
    """Return True if the LogCluster's limits on Users depend on the labels of their namespaces."""
    users = _of(cluster)
    allowed = users.allowed_namespaces
    selected = allowed is not None and allowed.from_ == "Selector"
    return selected or any(one.namespaces is not None for one in users.shared or ())


def refused_namespace(user: User, cluster: LogCluster, labels: Mapping[str, str]) -> str:
    """Return a sentence that says why Users of this User's namespace are not allowed in the
    LogCluster, or "" if they are. `labels`: those of the namespace."""
    if not is_tenant(user) or allows(_of(cluster).allowed_namespaces, labels):
        return ""
    return (
        f"LogCluster {'/'.join(cluster.key)} takes no Users from namespace"
        f" {user.metadata.namespace}. Ask the LogCluster's owner to allow this namespace in"
        " spec.users.allowedNamespaces."
    )


def refused_name(user: User, cluster: LogCluster) -> str:
    """Return a sentence that says why the User may not have its user name, or "" if it may. The
    name of a ServiceAccount is always allowed: it belongs to the User's namespace, so that no other
    user can have it."""
    prefix = _prefix(user, cluster)
    if not is_tenant(user) or user.service_account or user.user_name.startswith(prefix):
        return ""
    return (
        f"The userName of a User in namespace {user.metadata.namespace} must begin with "
        f"{prefix}; {user.user_name} does not."
    )


def ruled(user: User, cluster: LogCluster, labels: Mapping[str, str]) -> Ruling:
    """Divide the User's rules into those within the LogCluster's limits and the others; a User of
    the LogCluster's own namespace has no limits. `labels`: those of the User's namespace."""
    if not is_tenant(user):
        return Ruling(user.acls)
    prefix, may = _prefix(user, cluster), bounds(user, cluster, labels)
    good: list[Acl] = []
    bad: dict[int, Acl] = {}
    for number, acl in user.rules:
        if may(acl):
            good.append(acl)
        else:
            bad.setdefault(number, acl)
    if not bad:
        return Ruling(tuple(good))
    told = [
        f"rule {number} ({acl.operation.value} on {acl.resource.value} {acl.name})"
        for number, acl in list(bad.items())[:TOLD_MAX]
    ]
    more = f" and {len(bad) - TOLD_MAX} more" if len(bad) > TOLD_MAX else ""
    text = (
        f"spec.acls: {', '.join(told)}{more} grants more than this User may have, and has no"
        f" effect. Users of namespace {user.metadata.namespace} may be given rights on"
        f" topics, groups and transactional ids that begin with {prefix}, and the rights that"
        " the LogCluster lists in spec.users.shared."
    )
    return Ruling(tuple(good), text)


def bounds(user: User, cluster: LogCluster, labels: Mapping[str, str]) -> Callable[[Acl], bool]:
    """Return a function that returns True if a rule is within the LogCluster's limits for this
    User, always for a User of the LogCluster's own namespace. The rule need not be one that the
    User states. `labels`: those of the User's namespace."""
    if not is_tenant(user):
        return lambda acl: True
    prefix, shared = _prefix(user, cluster), _shared_with(cluster, labels)
    return lambda acl: _is_within(acl, prefix) or any(_covers(one, acl) for one in shared)


def _of(cluster: LogCluster) -> ClusterUsers:
    return cluster.spec.users or ClusterUsers()


def _prefix(user: User, cluster: LogCluster) -> str:
    return prefix_of(_of(cluster).prefix, user.metadata.namespace)


def _shared_with(cluster: LogCluster, labels: Mapping[str, str]) -> list[Shared]:
    found = _of(cluster).shared or ()
    return [one for one in found if one.namespaces is None or matches(one.namespaces, labels)]


def _is_within(acl: Acl, prefix: str) -> bool:
    return acl.resource in _NAMED and acl.name.startswith(prefix)


def _covers(shared: Shared, acl: Acl) -> bool:
    """Return True if the shared right covers everything that the rule grants or denies."""
    name = shared.resource.name or ""
    everything = acl.name == WILDCARD and acl.pattern is Pattern.LITERAL
    if acl.resource.value != shared.resource.type:
        return False
    if acl.resource is not ResourceType.CLUSTER:
        if not name:  # it names nothing; the CRD's rules forbid it
            return False
        if shared.resource.pattern == "Prefixed":
            inside = acl.name.startswith(name) and not everything
        else:
            inside = acl.name == name and acl.pattern is Pattern.LITERAL
        if not inside:
            return False
    if acl.permission is AclPermission.DENY:
        return True
    given = set(shared.operations)
    return any(one.value in given for one in allowing(acl.operation))
