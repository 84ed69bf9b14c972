"""Users of other namespaces than their LogCluster's: what its owner allows them, and no more."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest
from tests.plimsoll_operator.builders import a_cluster, an_image, replay
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.model import Endpoint
from plimsoll_core.cluster.records import (
    BrokerUpdated,
    ListenersConfigured,
    MetadataVersionFinalized,
    QuotasSet,
)
from plimsoll_core.controller.security import security_share
from plimsoll_core.controller.security.security_share import Bound
from plimsoll_core.ids import BrokerId
from plimsoll_core.quotas.state import BY_CLUSTER, DEFAULT, QuotaEntity, QuotaRow, QuotaValues
from plimsoll_core.security.acl import AclOperation, ResourceType
from plimsoll_core.security.acl_index import AclQuestion
from plimsoll_operator.api.load import from_object
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.tenancy import refused_name, ruled
from plimsoll_operator.api.user import User, UserStatus
from plimsoll_operator.kube.resources import NAMESPACES, SECRETS, USERS
from plimsoll_operator.reconcile.cluster import reconcile as cluster
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Work
from plimsoll_operator.reconcile.registry import all_work
from plimsoll_operator.reconcile.user import reconcile as user
from plimsoll_operator.rights_explanation import declared
from plimsoll_operator.status.status_writer import Target

SHOP = ("shop", "app")
SECURED = Listener(name="secured", port=9094, authentication=("ScramSha512",))
LABELLED = {"from": "Selector", "selector": {"matchLabels": {"kafka": "yes"}}}
ALL = {"allowedNamespaces": {"from": "All"}}
Rule = dict[str, Any]


def on(kind: str, name: str | None, *operations: str, **more: Any) -> Rule:
    """`pattern`: Prefixed, if given."""
    resource = {"type": kind} if name is None else {"type": kind, "name": name}
    if pattern := more.pop("pattern", None):
        resource["pattern"] = pattern
    return {"resource": resource, "operations": list(operations), **more}


WRITES = on("Topic", "shop.orders", "Write")


def a_user(*acls: Rule, key: tuple[str, str] = SHOP, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "User",
        "metadata": {"name": key[1], "namespace": key[0], "uid": "u"},
        "spec": {
            "clusterRef": {"name": "main", "namespace": "kafka"},
            "authentication": {"scram": {}},
            "acls": list(acls),
            **spec,
        },
    }


def refused(*acls: Rule, **users: Any) -> list[str]:
    """The rules that do not count, by what they allow on."""
    cluster = a_cluster(users={**ALL, **users})
    found = from_object(a_user(*acls), User)
    counted = ruled(found, cluster, {"team": "bi"})
    left = [acl.name for acl in found.acls if acl not in counted.acls]
    assert bool(left) == bool(counted.refused)
    return left


# --- which rules count ---------------------------------------------------------------------------


def test_rules_within_the_namespaces_prefix_count() -> None:
    assert not refused(
        on("Topic", "shop.orders", "Read", "Write"),
        on("Topic", "shop.", "All", pattern="Prefixed"),
        on("Group", "shop.readers", "Read"),
        on("TransactionalId", "shop.", "Write", pattern="Prefixed"),
    )


@pytest.mark.parametrize(
    "rule",
    [
        on("Topic", "billing.orders", "Read"),
        on("Topic", "*", "Read"),
        on("Topic", "shop", "Read", pattern="Prefixed"),
        on("Topic", "s", "Read", pattern="Prefixed"),
        on("Topic", "shop-eu.orders", "Read"),
        on("Topic", "Shop.orders", "Read"),
        on("Topic", "__consumer_offsets", "Read"),
        on("Group", "*", "Read"),
        on("Group", "billing.readers", "Delete"),
        on("TransactionalId", "billing.tx", "Write"),
        on("Cluster", None, "Describe"),
        on("Cluster", None, "ClusterAction"),
    ],
    ids=lambda rule: "-".join(map(str, (*rule["resource"].values(), *rule["operations"]))),
)
def test_rule_outside_namespace_prefix_is_refused(rule: Rule) -> None:
    assert len(refused(WRITES, rule)) == 1


@pytest.mark.parametrize("name", ["*", "billing.orders"])
def test_deny_rule_is_held_to_prefix(name: str) -> None:
    assert refused(on("Topic", name, "Read", permission="Deny"))
    assert not refused(on("Topic", "shop.orders", "Read", permission="Deny"))
    assert not refused(
        on("Topic", "bi.daily", "All", permission="Deny"),
        shared=[shared("Read", name="bi.", pattern="Prefixed")],
    )


def test_shared_star_prefix_does_not_share_everything() -> None:
    assert refused(on("Topic", "*", "Read"), shared=[shared("Read", name="*", pattern="Prefixed")])
    assert not refused(on("Topic", "*", "Read"), shared=[shared("Read", name="*")])


def shared(*operations: str, name: str = "bi.daily", **resource: Any) -> dict[str, Any]:
    return {
        "resource": {"type": "Topic", "name": name, **resource},
        "operations": list(operations),
        "namespaces": {"matchLabels": {"team": "bi"}},
    }


@pytest.mark.parametrize(
    ("rule", "counts"),
    [
        (on("Topic", "bi.daily", "Read"), True),
        (on("Topic", "bi.daily", "Describe"), True),
        (on("Topic", "bi.daily", "Write"), False),
        (on("Topic", "bi.daily", "All"), False),
        (on("Topic", "bi.daily", "Read", pattern="Prefixed"), False),
        (on("Topic", "bi.daily2", "Read"), False),
        (on("Group", "bi.daily", "Read"), False),
    ],
    ids=lambda one: str(one) if isinstance(one, bool) else str(list(one["resource"].values())),
)
def test_shared_name_is_given_with_its_operations_alone(rule: Rule, *, counts: bool) -> None:
    assert bool(refused(rule, shared=[shared("Read")])) is not counts


def test_shared_prefix_covers_only_narrower_names() -> None:
    entry = shared("Read", name="bi.", pattern="Prefixed")
    within = on("Topic", "bi.daily", "Read"), on("Topic", "bi.eu.", "Read", pattern="Prefixed")
    assert not refused(*within, shared=[entry])
    wider = on("Topic", "b", "Read", pattern="Prefixed")
    assert refused(wider, on("Topic", "*", "Read"), shared=[entry]) == ["b", "*"]


def test_share_of_other_namespaces_is_not_given() -> None:
    entry = shared("Read") | {"namespaces": {"matchLabels": {"team": "ops"}}}
    assert refused(on("Topic", "bi.daily", "Read"), shared=[entry])


def test_shared_resource_without_a_name_gives_nothing() -> None:
    """As an API server without the CRD's rules would let it through."""
    entry = {"resource": {"type": "Topic", "pattern": "Prefixed"}, "operations": ["All"]}
    assert refused(on("Topic", "billing.orders", "Read"), shared=[entry])


@pytest.mark.parametrize("prefix", ["{namespace}-", "{namespace}", "all.", "{namespace}x."])
def test_prefix_overlapping_other_namespaces_is_refused(prefix: str) -> None:
    body = {"metadata": {"name": "m", "namespace": "k"}, "spec": {"storage": {"size": "1Gi"}}}
    body["spec"]["users"] = {"prefix": prefix}
    with pytest.raises(Exception, match="prefix"):
        from_object(body, LogCluster)


# --- one object ----------------------------------------------------------------------------------


class Tenants(Scene):
    """A cluster in namespace `kafka` and a namespace `shop`, whose label lets it in."""

    def __init__(self, **users: Any) -> None:
        default = QuotaRow(
            entity=QuotaEntity(user=DEFAULT),
            values=QuotaValues(producer_byte_rate=1_000.0),
            owner=BY_CLUSTER,
        )
        image = replay(
            an_image(),
            MetadataVersionFinalized(cause="t", metadata_version=3),
            ListenersConfigured(cause="t", listeners=(SECURED,)),
            QuotasSet(cause="t", row=default),
        )
        self.decided = Deciding(image)
        self.users = users or {"allowedNamespaces": LABELLED}
        super().__init__(image, self.decided, users=self.users)
        self.label(kafka="yes")

    def label(self, **labels: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "shop", "labels": labels},
            "status": {"phase": "Active"},
        }
        self.kube.put(NAMESPACES, body)

    def apply(self, *acls: Rule, **spec: Any) -> None:
        body = a_user(*acls, **spec)
        del body["metadata"]["uid"]
        assert self.objects.users.put(self.kube.put(USERS, body)) is not None

    async def reconciled(self) -> Condition:
        await self.run(user.reconcile, SHOP)
        _, status = self.term.shown.statuses[Target(USERS, *SHOP)]
        assert isinstance(status, UserStatus)
        return status.conditions[0]

    def may(self, operation: AclOperation, topic: str, name: str = "shop.app") -> bool:
        asked = AclQuestion(f"User:{name}", "h", operation, ResourceType.TOPIC, topic)
        return self.decided.image.security.allows(asked)

    @property
    def logs_in(self) -> bool:
        found = self.decided.image.security.credential("shop.app", "SCRAM-SHA-512")
        return found is not None


async def test_tenant_beyond_its_share_is_told_which(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = Bound(1, 0, "ACL rules")
    monkeypatch.setitem(security_share.BOUNDS, security_share.ACLS, bound)
    scene = Tenants()
    scene.apply(WRITES)
    ready = await scene.reconciled()
    assert (ready.status, ready.reason) == ("False", "PolicyViolation")
    assert "The Users of namespace shop have 0 ACL rules, and" in ready.message
    scene = Tenants()
    scene.apply()
    assert (await scene.reconciled()).reason == "Serving"


async def test_allowed_namespaces_user_gets_secret_and_prefix() -> None:
    scene = Tenants()
    scene.apply(WRITES)
    ready = await scene.reconciled()
    assert (ready.status, ready.reason) == ("True", "Serving")
    assert scene.kube.find(SECRETS, "shop", "app-kafka")["type"]
    assert not [key for key in scene.kube.objects if key[:2] == ("secrets", "kafka")]
    assert scene.logs_in
    assert scene.may(AclOperation.WRITE, "shop.orders")
    assert not scene.may(AclOperation.WRITE, "billing.orders")


async def test_secret_names_a_listener_that_admits_namespace() -> None:
    """It named the first one, which the brokers' NetworkPolicy closes to the tenant's pods."""
    scene = Tenants()
    listeners = [
        {"name": "own", "port": 9095, "authentication": ["ScramSha512"]},
        {"name": "secured", "port": 9094, "authentication": ["ScramSha512"]},
    ]
    own = Listener(name="own", port=9095, authentication=("ScramSha512",))
    declared = ListenersConfigured(cause="t", listeners=(own, SECURED))
    broker = scene.decided.image.brokers[BrokerId(0)]
    opened = BrokerUpdated(
        cause="registration",
        broker_id=broker.id,
        broker_epoch=broker.broker_epoch,
        directory_ids=broker.directory_ids,
        endpoints=tuple(
            Endpoint(name=one.name, host="b0", port=one.port) for one in (own, SECURED)
        ),
    )
    scene.decided.image = replay(scene.decided.image, declared, opened)
    scene.apply(WRITES)
    for allowed, port in (({"from": "Same"}, 9094), (LABELLED, 9095)):
        listeners[0]["allowedNamespaces"] = allowed
        scene.declare(users=scene.users, listeners=listeners)
        await scene.reconciled()
        data = scene.kube.find(SECRETS, "shop", "app-kafka")["data"]
        assert b64decode(data["bootstrap.servers"]).decode() == f"b0:{port}"


async def test_namespaces_are_not_allowed_by_default() -> None:
    scene = Tenants(prefix="{namespace}.")
    scene.apply(WRITES)
    ready = await scene.reconciled()
    assert (ready.status, ready.reason) == ("False", "NotAllowed")
    assert "spec.users.allowedNamespaces" in ready.message
    assert not scene.decided.image.security.users
    assert ("secrets", "shop", "app-kafka") not in scene.kube.objects


async def test_name_without_namespace_prefix_is_refused() -> None:
    scene = Tenants()
    scene.apply(WRITES, userName="admin")
    ready = await scene.reconciled()
    assert (ready.status, ready.reason) == ("False", "UserNameNotAllowed")
    assert not scene.decided.image.security.users
    assert ("secrets", "shop", "app-kafka") not in scene.kube.objects


async def test_rule_outside_is_told_and_the_others_count() -> None:
    scene = Tenants()
    scene.apply(WRITES, on("Topic", "billing.orders", "Read"))
    ready = await scene.reconciled()
    assert (ready.status, ready.reason) == ("False", "AclNotAllowed")
    assert "rule 1 (Read on Topic billing.orders)" in ready.message
    assert scene.logs_in
    assert scene.may(AclOperation.WRITE, "shop.orders")
    assert not scene.may(AclOperation.READ, "billing.orders")


async def test_disallowed_namespace_is_disconnected_and_returns_unchanged() -> None:
    scene = Tenants()
    scene.apply(WRITES)
    await scene.reconciled()
    password = scene.kube.find(SECRETS, "shop", "app-kafka")["data"]["password"]
    scene.label(kafka="no")
    assert (await scene.reconciled()).reason == "NotAllowed"
    assert not scene.logs_in
    assert not scene.may(AclOperation.WRITE, "shop.orders")
    records = len(scene.decided.records)
    await scene.reconciled()
    assert len(scene.decided.records) == records
    scene.label(kafka="yes")
    assert (await scene.reconciled()).status == "True"
    assert scene.logs_in
    assert scene.may(AclOperation.WRITE, "shop.orders")
    assert scene.kube.find(SECRETS, "shop", "app-kafka")["data"]["password"] == password


def follow_grants(scene: Tenants) -> None:
    found = PassResult()
    assert scene.term.cluster is not None
    cluster.follow_grants(scene.term, found, scene.term.cluster)
    scene.effects.carry_out(found)


async def test_revoked_share_is_withdrawn_at_once() -> None:
    daily = on("Topic", "bi.daily", "Read")
    entry = {key: value for key, value in shared("Read").items() if key != "namespaces"}
    scene = Tenants(**ALL, shared=[entry])
    scene.apply(daily)
    assert (await scene.reconciled()).status == "True"
    assert scene.may(AclOperation.READ, "bi.daily")
    assert scene.term.cluster is not None
    follow_grants(scene)
    scene.work.clear()
    follow_grants(scene)
    assert scene.work == []
    scene.declare(users=ALL)
    follow_grants(scene)
    assert scene.work == [Work(Task.USER, SHOP)]
    assert (await scene.reconciled()).reason == "AclNotAllowed"
    assert not scene.may(AclOperation.READ, "bi.daily")


async def test_quota_above_default_is_capped() -> None:
    scene = Tenants()
    scene.apply(WRITES, quotas={"producerBytesPerSecond": "1Gi", "consumerBytesPerSecond": "1Gi"})
    assert (await scene.reconciled()).reason == "QuotaNotAllowed"
    row = scene.decided.image.quotas.rows[QuotaEntity(user="shop.app")]
    assert row.values.producer_byte_rate == 1_000.0
    assert row.values.consumer_byte_rate == float(1 << 30), "nothing holds for everybody"
    scene.apply(WRITES, quotas={"producerBytesPerSecond": "100"})
    assert (await scene.reconciled()).status == "True"
    row = scene.decided.image.quotas.rows[QuotaEntity(user="shop.app")]
    assert row.values.producer_byte_rate == 100.0


async def test_user_of_gone_namespace_is_disconnected() -> None:
    scene = Tenants()
    scene.apply(WRITES)
    await scene.reconciled()
    scene.kube.drop(USERS, *SHOP)
    scene.kube.drop(NAMESPACES, None, "shop")
    scene.objects.users.drop(SHOP)
    assert Work(Task.USER, SHOP) in list(all_work(scene.term))
    await scene.run(user.reconcile, SHOP)
    assert not scene.logs_in
    assert not scene.may(AclOperation.WRITE, "shop.orders")
    assert scene.decided.image.security.users["shop.app"].disabled


async def test_users_of_unknown_cluster_are_left_alone() -> None:
    scene = Tenants()
    scene.apply(WRITES)
    await scene.reconciled()
    body = scene.term.cluster
    assert body is not None
    unread = {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "LogCluster",
        "metadata": {"name": "main", "namespace": "kafka", "uid": body.metadata.uid},
        "spec": {"storage": {"size": "1Gi"}, "users": {"allowedNamespaces": 7}},
    }
    scene.objects.clusters.drop(("kafka", "main"))
    scene.objects.clusters.put(unread)
    assert "users" in scene.term.missing
    await scene.run(user.reconcile, SHOP)
    assert scene.logs_in
    assert scene.may(AclOperation.WRITE, "shop.orders")


def test_declared_rights_are_the_rules_that_count() -> None:
    cluster = a_cluster(authorization={"mode": "Enforce"}, users={"allowedNamespaces": LABELLED})
    outside = on("Topic", "billing.orders", "Read")
    found = [from_object(a_user(WRITES, outside), User)]
    may = AclQuestion("User:shop.app", "*", AclOperation.WRITE, ResourceType.TOPIC, "shop.orders")
    may_not = may._replace(operation=AclOperation.READ, name="billing.orders")
    labels = {"shop": {"kafka": "yes"}}
    let_in = declared(cluster, found, labels)
    assert let_in.allows(may)
    assert not let_in.allows(may_not)
    assert not declared(cluster, found).allows(may), "its namespace is not let in"


def test_own_namespaces_account_needs_no_prefix() -> None:
    cluster = a_cluster(users=ALL)
    account = {"authentication": {"serviceAccount": {"name": "orders"}}}
    found = from_object(a_user(WRITES, **account), User)
    assert found.user_name == "system:serviceaccount:shop:orders"
    assert not refused_name(found, cluster)
    other = from_object(a_user(WRITES, userName="bank.writer"), User)
    assert refused_name(other, cluster)
