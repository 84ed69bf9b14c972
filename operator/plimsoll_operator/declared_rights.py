"""Why a principal may do something, or may not, by what a LogCluster and its User objects declare.

Pure: the decision is the brokers' own (`security.acl_index`).  Rules that clients made by Kafka's
tools are in no object and are not known here; `kafka-acls --list` shows those.  Called by
`plimsoll acl explain`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from immutables import Map

from plimsoll_core.security.acl import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermission,
    ResourceType,
)
from plimsoll_core.security.acl_index import AclQuestion, AclVerdict, Ground, index_of
from plimsoll_core.security.state import Mode, Security
from plimsoll_operator.api.authorization import committed
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.tenancy import refused_name, refused_namespace, ruled
from plimsoll_operator.api.user import User

UNREAD_NAMED_MAX = 5


def _named(users: tuple[str, ...]) -> str:
    return ", ".join(users[:UNREAD_NAMED_MAX])


class Explanation(NamedTuple):
    """`allowed`: what the rules say; `mode`: whether they are enforced.  `rule` and `declared_by`:
    what decided, and the User that states it.  `needed`: the smallest rule that would allow it.
    `unread`: Users that cannot be read, whose rules are not known here."""

    mode: str
    allowed: bool
    ground: str
    rule: str | None = None
    declared_by: str | None = None
    needed: str | None = None
    unread: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        says = "may" if self.allowed else "may not"
        why = {
            Ground.SUPER_USER.value: "it is a super user of the LogCluster",
            Ground.RULE.value: f"{self.declared_by} states: {self.rule}",
            Ground.NO_ACL_FOUND.value: "no rule of anybody names the resource",
            Ground.DEFAULT.value: "no rule allows it",
        }[self.ground]
        text = f"It {says}: {why}."
        if self.needed is not None and self.ground != Ground.RULE.value:
            text += f" This rule would allow it: {self.needed}."
        if self.mode == Mode.OFF.value:
            text += " But spec.authorization.mode is Off: everybody may do all."
        elif self.mode == Mode.AUDIT.value and not self.allowed:
            text += " But spec.authorization.mode is Audit: it is logged, and done."
        if self.unread:
            more = len(self.unread) - UNREAD_NAMED_MAX
            text += f" Not read, so that their rules do not count here: {_named(self.unread)}"
            text += f" and {more} more." if more > 0 else "."
        return text


Labels = Mapping[str, Mapping[str, str]]
"""Of namespaces, by name."""


def explain(
    cluster: LogCluster, users: Iterable[User], asked: AclQuestion, labels: Labels | None = None
) -> Explanation:
    """`users`: those of the cluster; `labels`: of their namespaces, where they are others than the
    LogCluster's.  Raises ValueError for a principal without a type."""
    if ":" not in asked.principal:
        raise ValueError("A principal is written as its type and its name, like User:alice.")
    holders: dict[Acl, str] = {}
    for user in users:
        if user.cluster_key == (cluster.metadata.namespace, cluster.metadata.name):
            known = (labels or {}).get(user.metadata.namespace, {})
            if refused_namespace(user, cluster, known) or refused_name(user, cluster):
                continue
            for acl in ruled(user, cluster, known).acls:
                holders.setdefault(acl, f"User {user.key[0]}/{user.key[1]}")
    authorization = committed(cluster.spec.authorization, b"")
    security = Security(
        authorization=authorization,
        acls=Map(dict.fromkeys(holders, ())),
        index=index_of(holders),
    )
    verdict = security.explain(asked)
    if not verdict.allowed:
        verdict = _another_right_that_is_enough(security, holders, asked) or verdict
    needed = None if verdict.allowed else _smallest(asked)
    return Explanation(
        mode=authorization.mode.value,
        allowed=verdict.allowed,
        ground=verdict.ground.value,
        rule=None if verdict.rule is None else str(verdict.rule),
        declared_by=None if verdict.rule is None else holders[verdict.rule],
        needed=None if needed is None else str(needed),
    )


def _another_right_that_is_enough(
    security: Security, holders: Iterable[Acl], asked: AclQuestion
) -> AclVerdict | None:
    """As brokers have it: Create of the Cluster is Create of each topic, and who may write a topic
    may write it idempotently (KIP-679)."""
    question = (asked.operation, asked.resource)
    if question == (AclOperation.CREATE, ResourceType.TOPIC):
        on_all = asked._replace(resource=ResourceType.CLUSTER, name=CLUSTER_NAME)
        verdict = security.explain(on_all)
        return verdict if verdict.allowed else None
    if question == (AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER):
        write, kind = AclOperation.WRITE, ResourceType.TOPIC
        if security.allows_on_any(asked.principal, asked.host, write, kind):
            names = (acl.name for acl in holders if acl.resource is kind)
            found = (
                security.explain(asked._replace(operation=write, resource=kind, name=name))
                for name in names
            )
            by_default = AclVerdict(True, Ground.NO_ACL_FOUND)
            return next((one for one in found if one.allowed and one.rule), by_default)
    return None


def _smallest(asked: AclQuestion) -> Acl:
    """Of this operation alone, on this resource alone, for this host alone."""
    return Acl(
        resource=asked.resource,
        name=asked.name,
        principal=asked.principal,
        host=asked.host,
        operation=asked.operation,
        permission=AclPermission.ALLOW,
    )
