"""Kafka's authorizer as it is written there: a walk over all rules.  Compared with the index."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from plimsoll_core.security.acl import (
    EVERYBODY,
    WILDCARD,
    Acl,
    AclOperation,
    AclPermission,
    Pattern,
    ResourceType,
)
from plimsoll_core.security.acl_index import AclQuestion

NAMES = ("a", "ab", "abc", "b", "ba", "*", "hardcode")
PRINCIPALS = ("User:alice", "User:bob", EVERYBODY)
SAME_HOST = "2001:db8::1"
"""As a socket tells it; the others are the same, as Kafka writes it and as people do."""
HOSTS = ("*", "10.0.0.1", "10.0.0.2", SAME_HOST, "2001:db8:0:0:0:0:0:1", "2001:0DB8::1")
CLIENT_HOSTS = HOSTS[1:4]
TYPES = (ResourceType.TOPIC, ResourceType.GROUP)
OPERATIONS = (
    AclOperation.ALL,
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS,
    AclOperation.DESCRIBE_CONFIGS,
)

ACLS = st.builds(
    Acl,
    resource=st.sampled_from(TYPES),
    name=st.sampled_from(NAMES),
    pattern=st.sampled_from(Pattern),
    principal=st.sampled_from(PRINCIPALS),
    host=st.sampled_from(HOSTS),
    operation=st.sampled_from(OPERATIONS),
    permission=st.sampled_from(AclPermission),
)
QUESTIONS = st.builds(
    AclQuestion,
    principal=st.sampled_from(PRINCIPALS[:2]),
    host=st.sampled_from(CLIENT_HOSTS),
    operation=st.sampled_from(OPERATIONS[1:]),
    resource=st.sampled_from(TYPES),
    name=st.sampled_from(("a", "ab", "abc", "abcd", "b", "c", "ba", "hardcode")),
)

_IMPLYING = {
    AclOperation.DESCRIBE: {"Describe", "Read", "Write", "Delete", "Alter"},
    AclOperation.DESCRIBE_CONFIGS: {"DescribeConfigs", "AlterConfigs"},
}


def is_from(acl: Acl, asked: AclQuestion) -> bool:
    """Kafka knows one spelling of each address."""
    host = SAME_HOST if acl.host in HOSTS[3:] else acl.host
    return host in (asked.host, WILDCARD)


def about(acl: Acl, kind: ResourceType, name: str) -> bool:
    if acl.resource is not kind:
        return False
    if acl.pattern is Pattern.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, WILDCARD)


def applies(acl: Acl, asked: AclQuestion) -> bool:
    if acl.principal not in (asked.principal, EVERYBODY):
        return False
    if not is_from(acl, asked):
        return False
    if acl.operation is AclOperation.ALL:
        return True
    allow = acl.permission is AclPermission.ALLOW
    implying = _IMPLYING.get(asked.operation, {asked.operation.value}) if allow else ()
    return acl.operation is asked.operation or acl.operation.value in implying


def authorized(acls: Iterable[Acl], asked: AclQuestion, otherwise: bool) -> bool:
    """`StandardAuthorizerData.authorize`, without super users."""
    found = [acl for acl in acls if about(acl, asked.resource, asked.name)]
    if not found:
        return otherwise
    said = {acl.permission for acl in found if applies(acl, asked)}
    return AclPermission.DENY not in said and AclPermission.ALLOW in said


def authorized_on_any(acls: Iterable[Acl], asked: AclQuestion, otherwise: bool) -> bool:
    """`Authorizer.authorizeByResourceType`."""
    acls = list(acls)
    if authorized(acls, asked._replace(name="hardcode"), otherwise):
        return True
    mine = [
        acl
        for acl in acls
        if acl.resource is asked.resource
        and is_from(acl, asked)
        and acl.principal in (asked.principal, EVERYBODY)
        and acl.operation in (asked.operation, AclOperation.ALL)
    ]
    denied = {(acl.pattern, acl.name) for acl in mine if acl.permission is AclPermission.DENY}
    if (Pattern.LITERAL, WILDCARD) in denied:
        return False
    for acl in mine:
        if acl.permission is AclPermission.DENY:
            continue
        if acl.pattern is Pattern.LITERAL and acl.name == WILDCARD:
            return True
        if acl.pattern is Pattern.LITERAL and (Pattern.LITERAL, acl.name) in denied:
            continue
        begins = (acl.name[:length] for length in range(1, len(acl.name) + 1))
        if not any((Pattern.PREFIXED, prefix) in denied for prefix in begins):
            return True
    return False
