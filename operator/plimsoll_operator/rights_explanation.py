"""Explains for `plimsoll acl explain` how brokers decide about a principal: which rule decides, and
which object or client stated the rule.

Pure. The core decides (`security.explained_rights`), by the committed state where the operator's
view answers, else by the rights that a LogCluster and its User objects declare (`declared`). Rules
that clients made with Kafka's tools are in no object and unknown there, as are the remains of a
deleted User.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from immutables import Map

from plimsoll_core.security.acl import CLUSTER_NAME, Acl, AclOperation, AclPermission, ResourceType
from plimsoll_core.security.acl_index import AclQuestion, Ground, index_of
from plimsoll_core.security.explained_rights import explained
from plimsoll_core.security.state import BY_CLIENT, DeclaredUser, Mode, SecurityState, UserObject
from plimsoll_operator.api.authorization import committed
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.tenancy import refused_name, refused_namespace, ruled
from plimsoll_operator.api.user import User

Labels = Mapping[str, Mapping[str, str]]
"""The labels of namespaces, by the namespace's name."""


def declared(
    cluster: LogCluster, users: Iterable[User], labels: Labels | None = None
) -> SecurityState:
    """Return the rights that a LogCluster and its Users declare. Ignored among `users`: those of
    another cluster, those with a namespace or name that the LogCluster does not admit, and each
    with the user name of an earlier one. `labels`: the labels of the other namespaces in which
    there are Users; a missing namespace has none."""
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
    return SecurityState(
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


A_CLIENT = "a client (CreateAcls)"


class Explanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer to a question about rights. `mode`: Off, Audit or Enforce; brokers apply a denial
    by rules only in Enforce. `ground`: the kind of reason. `rule`: the deciding rule; None if none
    decides. `stated_by`: the objects or clients that stated `rule`, or the User that is disabled;
    else empty. `needed`: the smallest rule that would allow the operation; None unless it is denied
    because no rule allows it."""

    mode: str
    allowed: bool
    ground: str
    rule: str | None = None
    stated_by: tuple[str, ...] = ()
    needed: str | None = None

    @property
    def sentence(self) -> str:
        says = "may" if self.allowed else "may not"
        who = " and ".join(self.stated_by)
        why = {
            Ground.SUPER_USER.value: "the principal is a super user of the LogCluster",
            Ground.DISABLED.value: f"{who} is disabled: brokers refuse its logins",
            Ground.RULE.value: f"{who} state{'' if self.stated_by[1:] else 's'}: {self.rule}",
            Ground.NO_ACL_FOUND.value: "no rule names the resource",
            Ground.DEFAULT.value: "no rule allows this",
        }[self.ground]
        text = f"The principal {says} do this: {why}."
        if self.needed is not None:
            text += f" This rule would allow it: {self.needed}."
        if self.ground == Ground.DISABLED.value:
            return text  # in every mode
        if self.mode == Mode.OFF.value:
            text += " But spec.authorization.mode is Off: brokers check no rules."
        elif self.mode == Mode.AUDIT.value and not self.allowed:
            text += " But spec.authorization.mode is Audit: brokers log it and allow it."
        return text


def question(principal: str, host: str, operation: str, resource: str) -> AclQuestion:
    """Parse the words of a question: a principal (`User:alice`), a client's address or `*`, Kafka's
    name of an operation, and a resource (`Cluster`, `Topic:orders`). Raises ValueError; its message
    is a sentence for the user."""
    kind, _, name = resource.partition(":")
    operations = {one.value: one for one in AclOperation}
    kinds = {one.value: one for one in ResourceType}
    if ":" not in principal:
        raise ValueError("Write a principal as its type and its name, such as User:alice.")
    if operation not in operations:
        raise ValueError(
            f"The operation {operation} does not exist for this resource; use one of: "
            f"{', '.join(operations)}."
        )
    is_cluster = kind == ResourceType.CLUSTER.value
    if is_cluster and name not in ("", CLUSTER_NAME):
        raise ValueError(
            f"Write the only resource of type Cluster as Cluster or {kind}:{CLUSTER_NAME}."
        )
    if kind not in kinds or not (name or is_cluster):
        raise ValueError(
            "Write a resource as Cluster, or as a type and a name, such as Topic:orders or "
            "Group:mine."
        )
    return AclQuestion(principal, host, operations[operation], kinds[kind], name or CLUSTER_NAME)


def resource_text(asked: AclQuestion) -> str:
    """Return the resource of a question in the spelling that `question` parses, in every
    release."""
    kind = asked.resource.value
    return kind if asked.resource is ResourceType.CLUSTER else f"{kind}:{asked.name}"


def explanation(security: SecurityState, asked: AclQuestion) -> Explanation:
    verdict = explained(security, asked)
    stated_by: tuple[str, ...] = ()
    if verdict.rule is not None:
        stated_by = tuple(_holder(security, owner) for owner in security.acls[verdict.rule])
    elif verdict.ground is Ground.DISABLED:
        stated_by = (str(security.object_named(asked.principal.partition(":")[2])),)
    unruled = verdict.ground in (Ground.NO_ACL_FOUND, Ground.DEFAULT) and not verdict.allowed
    return Explanation(
        mode=security.authorization.mode.value,
        allowed=verdict.allowed,
        ground=verdict.ground.value,
        rule=None if verdict.rule is None else str(verdict.rule),
        stated_by=stated_by,
        needed=str(_smallest(asked)) if unruled else None,
    )


def _holder(security: SecurityState, owner: str) -> str:
    """Return a text that names the owner of a rule, a User object or a client. `owner`: the
    object's uid, or `BY_CLIENT`, as committed."""
    if owner == BY_CLIENT:
        return A_CLIENT
    users = security.users.values()
    return next((_shown(one) for one in users if one.object.uid == owner), f"an object {owner}")


def _shown(user: DeclaredUser) -> str:
    if user.gone_since_ms is None:
        return str(user.object)
    at = timestamp(user.gone_since_ms)
    return f"{user.object} (its object was deleted at {at}, its rights end with its grace)"


def _smallest(asked: AclQuestion) -> Acl:
    """Return the rule (ACL) that allows the operation of the question and nothing else."""
    return Acl(
        resource=asked.resource,
        name=asked.name,
        principal=asked.principal,
        host=asked.host,
        operation=asked.operation,
        permission=AclPermission.ALLOW,
    )
