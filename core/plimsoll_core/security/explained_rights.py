"""Explains why a principal may do something, or may not: the brokers' decision, and its ground.

Pure; computed from the committed state (`state.SecurityState`); no request is decided here. Beside
the index of ACLs this module considers two rules: a disabled user may do nothing, because no login
of the user is accepted; and a right on the cluster, or on any topic, suffices for some operations
(listed in `requirements`, and used by the guards of brokers and
`controller.security.reauthorization`).
"""

from __future__ import annotations

from plimsoll_core.security.acl import CLUSTER_NAME, Acl, AclOperation, Pattern, ResourceType
from plimsoll_core.security.acl_index import AclQuestion, AclVerdict, Ground
from plimsoll_core.security.state import SecurityState

_USER = "User"
_OF_THE_CLUSTER = (AclOperation.CREATE, AclOperation.DELETE)
"""Operations on the cluster that suffice to create or delete any topic."""
_IN_NO_NAME = "\0"


def explained(security: SecurityState, asked: AclQuestion) -> AclVerdict:
    """Return the decision on a question as if ACLs were enforced, whatever the mode, with its
    ground: a disabled user, an ACL, or another right that suffices."""
    kind, _, user = asked.principal.partition(":")
    if kind == _USER and security.is_disabled(user):
        return AclVerdict(False, Ground.DISABLED)
    verdict = security.explain(asked)
    if verdict.allowed:
        return verdict
    return _another_right_that_is_enough(security, asked) or verdict


def _another_right_that_is_enough(security: SecurityState, asked: AclQuestion) -> AclVerdict | None:
    """Return the decision by another right that also permits the operation, or None if no such
    right does. Create or Delete on the cluster permits the same on each topic. Write on any topic
    permits IdempotentWrite on the cluster (KIP-679)."""
    if asked.resource is ResourceType.TOPIC and asked.operation in _OF_THE_CLUSTER:
        on_all = asked._replace(resource=ResourceType.CLUSTER, name=CLUSTER_NAME)
        verdict = security.explain(on_all)
        return verdict if verdict.allowed else None
    question = (asked.operation, asked.resource)
    if question != (AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER):
        return None
    write, kind = AclOperation.WRITE, ResourceType.TOPIC
    if not security.allows_on_any(asked.principal, asked.host, write, kind):
        return None
    names = sorted({_under(acl) for acl in security.acls if acl.resource is kind})
    found = (
        security.explain(asked._replace(operation=write, resource=kind, name=name))
        for name in names
    )
    by_default = AclVerdict(True, Ground.NO_ACL_FOUND)
    return next((one for one in found if one.allowed and one.rule), by_default)


def _under(acl: Acl) -> str:
    """Return a resource name to which the ACL applies. For a prefix it is a name that no literal
    ACL has."""
    return acl.name if acl.pattern is Pattern.LITERAL else f"{acl.name}{_IN_NO_NAME}"
