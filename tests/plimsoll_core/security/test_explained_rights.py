"""Explained rights are what brokers and the controller decide."""

from __future__ import annotations

import pytest
from immutables import Map

from plimsoll_core.security.acl import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermission,
    Pattern,
    ResourceType,
)
from plimsoll_core.security.acl_index import AclQuestion, Ground, index_of
from plimsoll_core.security.explained_rights import explained
from plimsoll_core.security.state import Authorization, DeclaredUser, SecurityState, UserObject

ALICE = "User:alice"


def asked(operation: AclOperation, who: str = ALICE) -> AclQuestion:
    return AclQuestion(who, "*", operation, ResourceType.TOPIC, "orders")


def with_rule(operation: AclOperation, resource: ResourceType, name: str) -> SecurityState:
    rule = Acl(resource=resource, name=name, principal=ALICE, operation=operation)
    return SecurityState(acls=Map({rule: ("",)}), index=index_of([rule]))


@pytest.mark.parametrize("operation", [AclOperation.CREATE, AclOperation.DELETE])
def test_cluster_right_covers_each_topic_creation(
    operation: AclOperation,
) -> None:
    security = with_rule(operation, ResourceType.CLUSTER, CLUSTER_NAME)
    found = explained(security, asked(operation))
    assert found.allowed
    assert found.rule in security.acls
    assert not explained(security, asked(AclOperation.ALTER)).allowed


def test_prefix_with_one_denied_topic_allows_idempotent_writes() -> None:
    """It was said that no rule names the resource."""
    write, topic = AclOperation.WRITE, ResourceType.TOPIC
    allow = Acl(
        resource=topic, name="a", pattern=Pattern.PREFIXED, principal=ALICE, operation=write
    )
    deny = Acl(
        resource=topic, name="a", principal=ALICE, operation=write, permission=AclPermission.DENY
    )
    rules = [allow, deny]
    security = SecurityState(acls=Map(dict.fromkeys(rules, ("",))), index=index_of(rules))
    cluster = asked(AclOperation.IDEMPOTENT_WRITE)._replace(
        resource=ResourceType.CLUSTER, name=CLUSTER_NAME
    )
    found = explained(security, cluster)
    assert (found.allowed, found.rule) == (True, allow)


def test_super_user_that_is_disabled_may_nothing() -> None:
    row = DeclaredUser(
        object=UserObject(namespace="kafka", name="alice", uid="u"),
        user_name="alice",
        disabled=True,
    )
    security = SecurityState(
        authorization=Authorization(super_users=(ALICE,)), users=Map({"alice": row})
    )
    assert explained(security, asked(AclOperation.READ)).ground is Ground.DISABLED
    unlike = explained(security, asked(AclOperation.READ, "Group:alice"))
    assert unlike.ground is Ground.NO_ACL_FOUND, "another type of principal"
