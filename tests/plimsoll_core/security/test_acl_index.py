"""The index of ACLs decides as Kafka's authorizer does, whatever the rules are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plimsoll_core.security.acl_model import (
    ACLS,
    QUESTIONS,
    authorized,
    authorized_on_any,
)

from plimsoll_core.security.acl import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    Pattern,
    ResourceType,
    malformed,
)
from plimsoll_core.security.acl_index import AclIndex, AclQuestion, Ground, index_of
from plimsoll_core.security.state import Authorization, SecurityState

READ = AclQuestion("User:alice", "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, "a")


def a_rule(**stated: object) -> Acl:
    plain = {
        "resource": ResourceType.TOPIC,
        "name": "a",
        "principal": "User:alice",
        "operation": AclOperation.READ,
    }
    return Acl(**{**plain, **stated})  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["2001:db8:0:0:0:0:0:1", "2001:0DB8::1", "2001:db8::1"])
def test_rule_applies_to_address_in_any_spelling(host: str) -> None:
    """Kafka's rules have the long form, sockets tell the short one: a Deny had no effect."""
    asked = READ._replace(host="2001:db8::1")
    deny = a_rule(host=host, permission=AclPermission.DENY)
    index = index_of([a_rule(), deny])
    assert not index.allows(asked)
    assert index.explain(asked).rule == deny
    assert index.allows(asked._replace(host="2001:db8::2"))
    assert index.removed([deny]).allows(asked)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(acls=st.sets(ACLS, max_size=12), asked=st.lists(QUESTIONS, max_size=20), open_=st.booleans())
def test_index_decides_and_explains_as_a_full_walk(
    acls: set[Acl], asked: list[AclQuestion], open_: bool
) -> None:
    index = index_of(acls)
    for one in asked:
        expected = authorized(acls, one, open_)
        assert index.allows(one, otherwise=open_) == expected
        verdict = index.explain(one, otherwise=open_)
        assert verdict.allowed == expected
        if verdict.ground is Ground.RULE:
            assert verdict.rule in acls


@settings(max_examples=400, deadline=None)
@given(acls=st.sets(ACLS, max_size=12), asked=QUESTIONS, open_=st.booleans())
def test_index_rights_on_any_resource_match_kafka(
    acls: set[Acl], asked: AclQuestion, open_: bool
) -> None:
    security = SecurityState(
        authorization=Authorization(allow_everyone_if_no_acl=open_), index=index_of(acls)
    )
    found = security.allows_on_any(asked.principal, asked.host, asked.operation, asked.resource)
    assert found == authorized_on_any(acls, asked, open_)


@settings(max_examples=200, deadline=None)
@given(acls=st.lists(ACLS, max_size=12, unique=True), data=st.data())
def test_index_after_changes_equals_rebuilt_index(acls: list[Acl], data: st.DataObject) -> None:
    gone = data.draw(st.lists(st.sampled_from(acls), unique=True)) if acls else []
    left = [acl for acl in acls if acl not in gone]
    together = index_of(acls).removed(gone)
    singly = AclIndex()
    for acl in acls:
        singly = singly.added([acl])
    for acl in gone:
        singly = singly.removed([acl])
    assert together == singly == index_of(left)
    assert together.added(gone) == index_of(acls)
    assert together.removed(left) == AclIndex()


@pytest.mark.parametrize("before", [0, 300])
def test_rules_of_one_cell_are_sorted_once(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A User object with 990 rules about one prefix held the loop of the operator and of each
    broker for 0.5 s: all were sorted again for each."""
    rules = [a_rule(host=f"10.0.{n >> 8}.{n & 255}") for n in range(before + 300)]
    index, keys = index_of(rules[:before]), 0
    order = Acl.order.fget

    def counted(acl: Acl) -> tuple[str, ...]:
        nonlocal keys
        keys += 1
        return order(acl)

    monkeypatch.setattr(Acl, "order", property(counted))
    changed = index.added(rules[before:])
    assert changed.removed(rules[before:]) == index
    assert keys <= len(rules)


def test_deny_of_read_does_not_deny_describe() -> None:
    index = index_of(
        [a_rule(permission=AclPermission.DENY), a_rule(operation=AclOperation.WRITE)],
    )
    assert not index.allows(READ)
    assert index.allows(READ._replace(operation=AclOperation.DESCRIBE))


def test_super_user_is_allowed_whatever_is_denied() -> None:
    denied = a_rule(permission=AclPermission.DENY, operation=AclOperation.ALL)
    security = SecurityState(
        authorization=Authorization(super_users=("User:alice",)), index=index_of([denied])
    )
    assert security.allows(READ)
    assert security.explain(READ).ground is Ground.SUPER_USER


def test_decision_cost_is_independent_of_rule_count() -> None:
    few = index_of(a_rule(name=f"topic-{number}") for number in range(10))
    many = few
    for number in range(10, 2_000):
        some = a_rule(name=f"topic-{number}"), a_rule(name="a", principal=f"User:u{number}")
        many = many.added(some)
    assert len(list(many._cells(READ.principal, READ.resource, "topic-3"))) == 1
    assert len(list(many._cells(READ.principal, READ.resource, "a"))) == 0


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"name": ""}, "empty"),
        ({"principal": "alice"}, "User:alice"),
        ({"resource": ResourceType.CLUSTER, "name": "other"}, CLUSTER_NAME),
        ({"host": ""}, "host"),
        ({"name": "x" * 250}, "249"),
        ({"name": "x" * 2000, "resource": ResourceType.GROUP}, "1024"),
    ],
)
def test_rule_without_a_form_is_told_why(stated: dict[str, object], said: str) -> None:
    assert said in str(malformed(a_rule(**stated)))
    assert malformed(a_rule()) is None


def test_filter_finds_literal_wildcard_and_prefixed_rules() -> None:
    wanted = [
        a_rule(name="abc"),
        a_rule(name="*"),
        a_rule(name="ab", pattern=Pattern.PREFIXED),
    ]
    others = [a_rule(name="abcd"), a_rule(name="b", pattern=Pattern.PREFIXED)]
    matching = AclFilter(name="abc", matches_name=True)
    assert [acl for acl in (*wanted, *others) if matching.matches(acl)] == wanted
    literal = AclFilter(name="abc", pattern=Pattern.LITERAL)
    assert [acl for acl in (*wanted, *others) if literal.matches(acl)] == wanted[:1]
