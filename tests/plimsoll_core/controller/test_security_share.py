"""The room for users, rules, passwords and quotas that namespaces and clients share."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plimsoll_core.controller.test_security import Controller, a_rule
from tests.plimsoll_core.security.scram_client import a_credential

from plimsoll_core.controller.security import security_share
from plimsoll_core.controller.security.security_share import BOUNDS, CLIENTS, Bound, pool_of
from plimsoll_core.errors import Code, Reason
from plimsoll_core.messages import security as m
from plimsoll_core.messages.requests import Done, Refused
from plimsoll_core.quotas.state import QuotaEntity, QuotaValues
from plimsoll_core.security.acl import Acl
from plimsoll_core.security.state import Authorization, UserObject

VALUES = QuotaValues(producer_byte_rate=5.0)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten entries of each kind, one of them for everybody."""
    found = {kind: Bound(10, 1, bound.words) for kind, bound in BOUNDS.items()}
    monkeypatch.setattr(security_share, "BOUNDS", found)


class Shared(Controller):
    def __init__(self) -> None:
        super().__init__()
        root = Authorization(super_users=("User:root",))
        assert self.ask(m.DeclareAuthorization(authorization=root)) == Done()

    def declare(
        self, namespace: str, name: str, rules: tuple[Acl, ...] = (), *, tenant: bool = True
    ) -> Any:
        holder = UserObject(namespace=namespace, name=name, uid=f"{namespace}-{name}")
        user = f"{namespace}.{name}"
        return self.ask(
            m.DeclareUser(object=holder, user_name=user, acls=rules, tenant=tenant, quotas=VALUES)
        )


def rules(name: str, number: int) -> tuple[Acl, ...]:
    return tuple(a_rule(f"{name}-{n}") for n in range(number))


def is_beyond_share(answer: Any, words: str) -> bool:
    assert isinstance(answer, Refused), answer
    assert answer.reason == Reason.PolicyViolation.name
    assert words in answer.message
    return "than they leave free for others" in answer.message


def test_namespace_leaves_room_for_users_of_another() -> None:
    cluster = Shared()
    answers = [cluster.declare("shop", f"u{n}") for n in range(6)]
    assert answers[:5] == [Done()] * 5
    assert is_beyond_share(answers[5], "namespace shop have 5 declared users")
    assert "ask the LogCluster's owner" in answers[5].message
    assert cluster.declare("bank", "u") == Done()


def test_owners_namespace_has_the_rest_of_the_room() -> None:
    cluster = Shared()
    assert [cluster.declare("kafka", f"u{n}", tenant=False) for n in range(10)] == [Done()] * 10
    assert cluster.declare("kafka", "more", tenant=False).reason == Reason.InvalidRequest.name


def test_namespace_leaves_room_for_rules_of_another() -> None:
    cluster = Shared()
    assert cluster.declare("shop", "one", rules("a", 3)) == Done()
    assert is_beyond_share(cluster.declare("shop", "two", rules("b", 3)), "cannot add 3")
    assert "shop.two" not in cluster.image.security.users, "all or nothing"
    assert cluster.declare("shop", "two", rules("b", 2)) == Done()
    assert cluster.declare("bank", "one", rules("c", 2)) == Done()


def test_namespace_beyond_its_share_replaces_rules() -> None:
    cluster = Shared()
    assert cluster.declare("shop", "one", rules("a", 7), tenant=False) == Done()
    assert is_beyond_share(cluster.declare("shop", "one", rules("a", 8)), "cannot add 1")
    assert cluster.declare("shop", "one", rules("b", 7)) == Done()
    assert set(cluster.image.security.acls) == set(rules("b", 7))


def added(cluster: Shared, kind: str, client: m.OnBehalf, name: str, number: int) -> Any:
    """Return the answer for a client's request to add `number` entries, or the refusal of one."""
    names = [f"{name}{n}" for n in range(number)]
    if kind == security_share.ACLS:
        return cluster.ask(m.CreateAcls(acls=rules(name, number), behalf=client))
    if kind == security_share.CREDENTIALS:
        wanted = tuple(a_credential(one) for one in names)
        told = cluster.ask(m.AlterScramCredentials(upsertions=wanted, behalf=client)).users
    else:
        changes = tuple(
            m.QuotaChange(entity=QuotaEntity(user=one), values={"producer_byte_rate": 5.0})
            for one in names
        )
        told = cluster.ask(m.AlterQuotas(changes=changes, behalf=client)).entities
    failed = [one for one in told if one.code]
    if not failed:
        return Done()
    assert {one.code for one in failed} == {Code.POLICY_VIOLATION}
    reason = Reason.PolicyViolation
    return Refused(code=reason.code, reason=reason.name, message=failed[0].message)


@pytest.mark.parametrize(
    "kind", [security_share.ACLS, security_share.CREDENTIALS, security_share.QUOTAS]
)
def test_clients_leave_room_for_super_users(kind: str) -> None:
    cluster = Shared()
    alice, root = cluster.logged_in("alice"), cluster.logged_in("root")
    there = pool_of(cluster.image, kind).used
    assert not isinstance(added(cluster, kind, alice, "a", 5 - there), Refused)
    assert not isinstance(added(cluster, kind, alice, "a", 5 - there), Refused), "nothing new"
    beyond = added(cluster, kind, alice, "b", 1)
    assert is_beyond_share(beyond, "Clients other than super users have 5")
    assert "add them as a super user" in beyond.message
    assert not isinstance(added(cluster, kind, root, "c", 5), Refused)
    assert pool_of(cluster.image, kind).used == 10


def test_request_counts_what_it_deletes_and_adds() -> None:
    cluster = Shared()
    alice = cluster.logged_in("alice")
    assert not isinstance(added(cluster, security_share.QUOTAS, alice, "a", 5), Refused)
    gone, new = QuotaEntity(user="a0"), [QuotaEntity(user=f"b{n}") for n in range(2)]
    changes = (
        m.QuotaChange(entity=new[0], values={"producer_byte_rate": 5.0}),
        m.QuotaChange(entity=gone, values={"producer_byte_rate": None}),
        m.QuotaChange(entity=new[1], values={"producer_byte_rate": 5.0}),
    )
    told = cluster.ask(m.AlterQuotas(changes=changes, behalf=alice)).entities
    assert [one.code for one in told] == [Code.POLICY_VIOLATION, 0, 0]


def test_rule_counts_to_object_before_clients() -> None:
    cluster = Shared()
    assert cluster.declare("shop", "one", rules("a", 2)) == Done()
    assert isinstance(cluster.ask(m.CreateAcls(acls=rules("a", 3))), m.AclsChanged)
    found = {kind: pool_of(cluster.image, kind) for kind in BOUNDS}
    counts = {kind: (pool.held("shop"), pool.held(CLIENTS)) for kind, pool in found.items()}
    assert counts == {"users": (1, 0), "acls": (2, 1), "credentials": (0, 0), "quotas": (1, 0)}
