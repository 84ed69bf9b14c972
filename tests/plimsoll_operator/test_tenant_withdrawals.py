"""What Users of other namespaces may not have is taken back, whatever becomes of their objects."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plimsoll_core.security.scram_client import a_credential
from tests.plimsoll_operator.builders import replay
from tests.plimsoll_operator.test_tenants import (
    ALL,
    LABELLED,
    SHOP,
    WRITES,
    Tenants,
    a_user,
    on,
    shared,
)

from plimsoll_core.cluster.records import (
    AclsAdded,
    AuthorizationConfigured,
    QuotasSet,
    Record,
    ScramCredentialSet,
)
from plimsoll_core.quotas.state import DEFAULT, QuotaEntity, QuotaRow, QuotaValues
from plimsoll_core.security.acl import AclOperation
from plimsoll_core.security.state import Authorization
from plimsoll_operator.api.load import from_object
from plimsoll_operator.api.user import User
from plimsoll_operator.kube.resources import NAMESPACES, USERS
from plimsoll_operator.metalog.codec import record_too_large
from plimsoll_operator.reconcile.cluster import reconcile as cluster
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Work
from plimsoll_operator.reconcile.registry import all_work
from plimsoll_operator.reconcile.user import reconcile as user
from plimsoll_operator.reconcile.user import tenants

# --- what is taken back, whatever is wrong with the object ---------------------------------------


DAILY = on("Topic", "bi.daily", "Read")
SHARED = {key: value for key, value in shared("Read").items() if key != "namespaces"}
MANY = [on("Topic", f"shop.{n}", "Read", "Write", "Create", "Delete") for n in range(254)]
NO_SECRET = {"authentication": {"scram": {"passwordSecret": {"name": "not-there"}}}}
NONE = {"allowedNamespaces": {"from": "Same"}}


@pytest.mark.parametrize("acls", [(DAILY,), (DAILY, *MANY)], ids=["no secret", "too many rules"])
async def test_disabled_user_is_disconnected_despite_other_errors(acls: Any) -> None:
    scene = Tenants(**ALL, shared=[SHARED])
    scene.apply(DAILY)
    await scene.reconciled()
    assert scene.logs_in
    scene.apply(*acls, disabled=True, **NO_SECRET)
    await scene.reconciled()
    assert not scene.logs_in


@pytest.mark.parametrize(
    ("acls", "spec", "reason"),
    [
        ((DAILY, WRITES), NO_SECRET, "SecretMissing"),
        ((DAILY, WRITES, *MANY), {}, "InvalidRequest"),
        ((DAILY, on("Topic", "shop." + "\N{BOAR}" * 100, "Read")), {}, "InvalidRule"),
    ],
    ids=["no secret", "too many rules", "rule without a form"],
)
async def test_revoked_share_applies_despite_other_errors(
    acls: Any, spec: Any, reason: str
) -> None:
    scene = Tenants(**ALL, shared=[SHARED])
    scene.apply(DAILY, WRITES)
    await scene.reconciled()
    scene.apply(*acls, **spec)
    assert (await scene.reconciled()).reason == reason
    assert scene.may(AclOperation.READ, "bi.daily")
    scene.declare(users=ALL)
    assert (await scene.reconciled()).reason == reason
    assert not scene.may(AclOperation.READ, "bi.daily")
    assert scene.may(AclOperation.WRITE, "shop.orders"), "it may have what it had"


async def test_quota_is_lowered_though_the_object_is_refused() -> None:
    scene = Tenants(**ALL)
    scene.apply(WRITES, quotas={"consumerBytesPerSecond": "100"})
    await scene.reconciled()
    scene.apply(WRITES, quotas={"consumerBytesPerSecond": "10"}, **NO_SECRET)
    assert (await scene.reconciled()).reason == "SecretMissing"
    row = scene.decided.image.quotas.rows[QuotaEntity(user="shop.app")]
    assert row.values.consumer_byte_rate == 10.0


async def test_deny_rule_stays_until_successor_applies() -> None:
    scene = Tenants(**ALL)
    deny = on("Topic", "shop.orders", "Write", permission="Deny")
    scene.apply(on("Topic", "shop.", "All", pattern="Prefixed"), deny)
    await scene.reconciled()
    scene.apply(on("Topic", "shop.", "All", pattern="Prefixed"), **NO_SECRET)
    await scene.reconciled()
    assert not scene.may(AclOperation.WRITE, "shop.orders")


async def test_user_with_longest_rules_is_disconnected() -> None:
    scene = Tenants(**ALL)
    await _fill(scene)
    assert len(scene.decided.image.security.acls) > 2_500
    scene.declare(users=NONE)
    await scene.reconciled()
    assert not scene.decided.image.security.acls
    assert not scene.logs_in
    assert record_too_large(scene.decided.records) is None


async def _fill(scene: Tenants) -> None:
    kinds = ["Read", "Write", "Create", "Delete", "Alter", "Describe", "All"]
    kinds += ["DescribeConfigs", "AlterConfigs", "IdempotentWrite", "ClusterAction"]
    rules = [on("Group", f"shop.{n:04}" + "\N{BOAR}" * 240, *kinds) for n in range(250)]
    for count in (80, 160, 250):
        scene.apply(*rules[:count])
        assert (await scene.reconciled()).reason == "Serving"


# --- objects that go or are gone -----------------------------------------------------------------


@pytest.mark.parametrize("change", ["grant", "label", "disabled", "namespace", "share"])
async def test_terminating_object_still_withdraws_rights(change: str) -> None:
    scene = Tenants(allowedNamespaces=LABELLED, shared=[SHARED])
    scene.apply(DAILY)
    await scene.reconciled()
    scene.kube.set_metadata(USERS, *SHOP, deletionTimestamp="2026-01-01T00:00:00Z")
    body = scene.kube.find(USERS, *SHOP)
    if change == "disabled":
        body = {**body, "spec": {**body["spec"], "disabled": True}}
    assert scene.objects.users.put(body) is not None
    if change == "grant":
        scene.declare(users=NONE)
    if change == "label":
        scene.label(kafka="no")
    if change == "share":
        scene.declare(users={"allowedNamespaces": LABELLED})
    if change == "namespace":
        scene.kube.set_metadata(NAMESPACES, None, "shop", deletionTimestamp="2026-01-01T00:00:00Z")
    await scene.run(user.reconcile, SHOP)
    assert scene.logs_in is (change == "share")
    assert scene.may(AclOperation.READ, "bi.daily") is (change == "disabled")
    assert not scene.term.shown.statuses


@pytest.mark.parametrize("change", ["grant", "label"])
async def test_withdrawal_applies_during_grace_or_mass_deletion(change: str) -> None:
    scene = Tenants(allowedNamespaces=LABELLED, deletion={"maxPerHour": 0})
    scene.apply(WRITES)
    await scene.reconciled()
    scene.kube.drop(USERS, *SHOP)
    scene.objects.users.drop(SHOP)
    await scene.run(user.reconcile, SHOP)
    assert scene.logs_in
    assert "Stalled" in scene.term.shown.notes
    if change == "grant":
        scene.declare(users=NONE)
        scene.work.clear()
        assert scene.term.cluster is not None
        found = PassResult()
        cluster.follow_grants(scene.term, found, scene.term.cluster)
        scene.effects.carry_out(found)
        assert Work(Task.USER, SHOP) in scene.work
    else:
        scene.label(kafka="no")
    await scene.run(user.reconcile, SHOP)
    assert not scene.logs_in
    assert not scene.may(AclOperation.WRITE, "shop.orders")
    assert "Stalled" not in scene.term.shown.notes


async def test_user_of_terminating_namespace_is_disconnected() -> None:
    scene = Tenants()
    scene.apply(WRITES)
    await scene.reconciled()
    scene.kube.drop(USERS, *SHOP)
    scene.objects.users.drop(SHOP)
    scene.kube.set_metadata(NAMESPACES, None, "shop", deletionTimestamp="2026-01-01T00:00:00Z")
    await scene.run(user.reconcile, SHOP)
    assert not scene.logs_in
    assert scene.decided.image.security.users["shop.app"].disabled


# --- what Kafka's tools gave ---------------------------------------------------------------------


@pytest.mark.parametrize("had", ["password", "rule", "all"])
async def test_user_made_by_others_is_not_adopted(had: str) -> None:
    scene = Tenants(**ALL)
    acl = from_object(a_user(WRITES), User).acls[0]
    made: dict[str, Record] = {
        "password": ScramCredentialSet(cause="t", credential=a_credential("shop.app")),
        "rule": AclsAdded(cause="t", acls=(acl,)),
        "all": AuthorizationConfigured(
            cause="t", authorization=Authorization(super_users=("User:shop.app",))
        ),
    }
    scene.decided.image = replay(scene.decided.image, made[had])
    before = scene.decided.image.security
    scene.apply(WRITES)
    assert (await scene.reconciled()).reason == "UserNameTaken"
    assert scene.decided.image.security == before
    assert ("secrets", "shop", "app-kafka") not in scene.kube.objects


async def test_client_rule_does_not_refuse_declared_user() -> None:
    scene = Tenants(**ALL)
    scene.apply(WRITES)
    await scene.reconciled()
    acl = from_object(a_user(DAILY), User).acls[0]
    scene.decided.image = replay(scene.decided.image, AclsAdded(cause="t", acls=(acl,)))
    assert (await scene.reconciled()).status == "True"


async def test_client_quota_of_tenants_user_stays() -> None:
    scene, entity = Tenants(**ALL), QuotaEntity(user="shop.app")
    scene.apply(WRITES)
    await scene.reconciled()
    theirs = QuotaRow(entity=entity, values=QuotaValues(producer_byte_rate=10.0))
    scene.decided.image = replay(scene.decided.image, QuotasSet(cause="t", row=theirs))
    scene.apply(WRITES, quotas={"consumerBytesPerSecond": "1Gi"})
    assert (await scene.reconciled()).reason == "QuotaNotAllowed"
    assert scene.decided.image.quotas.rows[entity] == theirs
    scene.apply(WRITES)
    assert (await scene.reconciled()).status == "True"
    assert scene.decided.image.quotas.rows[entity] == theirs


async def test_quota_is_capped_by_default_quota() -> None:
    scene = Tenants(**ALL)
    row = QuotaRow(
        entity=QuotaEntity(user=DEFAULT, client_id="bulk"),
        values=QuotaValues(consumer_byte_rate=10.0),
    )
    scene.decided.image = replay(scene.decided.image, QuotasSet(cause="t", row=row))
    scene.apply(WRITES, quotas={"consumerBytesPerSecond": "1Gi"})
    assert (await scene.reconciled()).reason == "QuotaNotAllowed"
    held = scene.decided.image.quotas.rows[QuotaEntity(user="shop.app")]
    assert held.values.consumer_byte_rate == 10.0


# --- accounts ------------------------------------------------------------------------------------

ACCOUNT = "system:serviceaccount:shop:orders"
IS_ACCOUNT = {"authentication": {"serviceAccount": {"name": "orders"}}}


async def test_disabled_account_stays_out_under_another_object() -> None:
    scene = Tenants()
    scene.apply(WRITES, **IS_ACCOUNT)
    await scene.reconciled()
    scene.label(kafka="no")
    scene.kube.drop(USERS, *SHOP)
    scene.objects.users.drop(SHOP)
    await scene.run(user.reconcile, SHOP)
    assert scene.decided.image.security.is_disabled(ACCOUNT)
    scene.apply(WRITES, **IS_ACCOUNT)
    assert (await scene.reconciled()).reason == "NotAllowed"
    assert scene.decided.image.security.is_disabled(ACCOUNT)
    scene.label(kafka="yes")
    assert (await scene.reconciled()).reason != "NotAllowed"
    assert not scene.decided.image.security.is_disabled(ACCOUNT)
    assert scene.may(AclOperation.WRITE, "shop.orders", ACCOUNT)


async def test_disabled_deleted_account_stays_until_redeclared() -> None:
    scene = Tenants()
    scene.apply(WRITES, disabled=True, **IS_ACCOUNT)
    await scene.reconciled()
    scene.kube.drop(USERS, *SHOP)
    scene.objects.users.drop(SHOP)
    await scene.run(user.reconcile, SHOP)
    assert scene.decided.image.security.is_disabled(ACCOUNT)
    assert not scene.decided.image.security.acls
    records = len(scene.decided.records)
    await scene.run(user.reconcile, SHOP)
    assert len(scene.decided.records) == records
    assert Work(Task.USER, SHOP) not in list(all_work(scene.term))
    other = ("shop", "other")
    body = a_user(WRITES, key=other, **IS_ACCOUNT)
    del body["metadata"]["uid"]
    assert scene.objects.users.put(scene.kube.put(USERS, body)) is not None
    await scene.run(user.reconcile, other)
    assert not scene.decided.image.security.is_disabled(ACCOUNT)


async def test_users_of_gone_namespace_are_removed_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tenants, "KEPT_MAX", 0)
    scene = Tenants()
    scene.apply(WRITES)
    await scene.reconciled()
    scene.kube.drop(USERS, *SHOP)
    scene.kube.drop(NAMESPACES, None, "shop")
    scene.objects.users.drop(SHOP)
    await scene.run(user.reconcile, SHOP)
    assert not scene.decided.image.security.users
    assert not scene.decided.image.security.credentials


async def test_object_renaming_its_user_withdraws_the_first() -> None:
    scene = Tenants(**ALL, shared=[SHARED])
    scene.apply(DAILY, WRITES)
    await scene.reconciled()
    scene.apply(DAILY, WRITES, **IS_ACCOUNT)
    assert "the name of a user cannot be changed" in (await scene.reconciled()).message
    assert scene.may(AclOperation.READ, "bi.daily")
    scene.declare(users=ALL)
    await scene.reconciled()
    assert not scene.may(AclOperation.READ, "bi.daily")
    assert scene.may(AclOperation.WRITE, "shop.orders")
    scene.apply(DAILY, WRITES, disabled=True, **IS_ACCOUNT)
    await scene.reconciled()
    assert not scene.logs_in
