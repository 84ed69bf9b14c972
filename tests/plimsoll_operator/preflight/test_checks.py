"""What `plimsoll preflight` says about facts: each sentence names what to do."""

import json
from typing import Any

import pytest

from plimsoll_operator.api.cluster_topics import LabelSelector
from plimsoll_operator.preflight import checklist
from plimsoll_operator.preflight.checks import (
    NAMED_MAX,
    WANTED,
    fairness,
    kinds,
    latency,
    operator,
    quantile,
    rights,
    storage,
    version,
    webhooks,
    writes,
)
from plimsoll_operator.preflight.facts import (
    Appends,
    NotRead,
    OperatorPods,
    PermissionAnswer,
    StorageClass,
    Verdict,
    Webhook,
    WebhookRule,
    Webhooks,
)
from plimsoll_operator.preflight.rights import READ_NODES, VERIFICATION, Permission, needed

REFUSED = NotRead(message="you may not", refused=True)
SILENT = NotRead(message="no answer", refused=False)
CHECKS_OF_FACTS: list[Any] = [
    version, lambda fact: storage(fact, ""), fairness, rights, webhooks, latency, kinds,
    lambda fact: operator(fact, "here"),
]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS_OF_FACTS)
def test_unreadable_fact_warns_and_silence_fails(check: Any):
    assert (check(REFUSED).result, check(SILENT).result) == ("warning", "failed")
    assert "you may not" in check(REFUSED).message
    assert "no answer" in check(SILENT).message


@pytest.mark.parametrize(
    ("found", "result", "sentence"),
    [
        ("v1.30.0", "ok", "v1.30.0"),
        ("v1.34.1-eks-abc", "ok", "v1.34.1"),
        ("v2.0.0", "ok", "v2.0.0"),
        ("v1.29.9", "failed", "upgrade it to 1.30"),
        ("mine", "warning", "1.30 or later"),
    ],
)
def test_kubernetes_older_than_the_chart_takes_fails(found: str, result: str, sentence: str):
    verdict = version(found)
    assert verdict.result == result
    assert sentence in verdict.message


def a_class(name: str, **more: Any) -> StorageClass:
    stated: dict[str, Any] = {
        "is_default": False,
        "binding_mode": "WaitForFirstConsumer",
        "expandable": True,
        "created": "2026-01-01T00:00:00Z",
    }
    return StorageClass(name=name, **(stated | more))


@pytest.mark.parametrize(
    ("classes", "wanted", "result", "sentence"),
    [
        ((), "", "failed", "install a CSI driver"),
        ((a_class("fast"),), "", "failed", "--storage-class"),
        ((a_class("fast"),), "slow", "failed", "available: fast"),
        ((a_class("fast"),), "fast", "ok", "volumes can grow later"),
        ((a_class("std", is_default=True, expandable=False),), "", "ok", "cannot grow later"),
        (
            (a_class("std", is_default=True, binding_mode="Immediate"),),
            "",
            "warning",
            "volumeBindingMode WaitForFirstConsumer",
        ),
    ],
)
def test_storage_class_of_the_brokers(
    classes: tuple[StorageClass, ...], wanted: str, result: str, sentence: str
):
    verdict = storage(classes, wanted)
    assert verdict.result == result
    assert sentence in verdict.message


def test_newest_default_storage_class_is_used():
    old = a_class("old", is_default=True)
    new = a_class("new", is_default=True, created="2026-02-01T00:00:00Z")
    assert "StorageClass new" in storage((new, old), "").message


def test_missing_priority_and_fairness_names_the_value():
    assert fairness(True).result == "ok"
    verdict = fairness(False)
    assert verdict.result == "failed"
    assert "priorityAndFairness.enabled=false" in verdict.message


def answers(*missing: Permission, namespace: str = "kafka") -> tuple[PermissionAnswer, ...]:
    return tuple(
        PermissionAnswer(permission=one, namespace=namespace, allowed=one not in missing)
        for one in needed((), cluster=False)
    )


def test_missing_rights_are_named_with_their_namespace():
    assert rights(answers()).result == "ok"
    lost = Permission(group="plimsoll.dev", resource="topics/status", verb="patch")
    verdict = rights(answers(lost))
    assert verdict.result == "failed"
    assert "patch topics.plimsoll.dev/status in namespace kafka" in verdict.message
    everything = rights(answers(*needed((), cluster=False)))
    assert f"and {len(answers()) - NAMED_MAX} more" in everything.message


def test_rights_follow_the_charts_values():
    def resources(*values: str, cluster: bool) -> set[str]:
        return {one.resource for one in needed(values, cluster=cluster)}

    assert resources(VERIFICATION, cluster=False) - resources(cluster=False) == {
        "jobs", "roles", "rolebindings",
    }  # fmt: skip
    assert resources(READ_NODES, cluster=True) - resources(cluster=True) == {"nodes"}
    asked = list(needed((VERIFICATION,), cluster=False))
    assert len(asked) == len(set(asked))


def a_webhook(rule: WebhookRule, labels: dict[str, str] | None = None) -> Webhook:
    return Webhook(
        configuration="ValidatingWebhookConfiguration policy",
        name="check.example",
        rules=(rule,),
        namespaces=LabelSelector(match_labels=labels),
    )


def a_rule(group: str, resource: str, *operations: str, scope: str = "*") -> WebhookRule:
    return WebhookRule(
        groups=(group,), resources=(resource,), operations=operations or ("*",), scope=scope
    )


NAMESPACES = {"kafka": {"policy": "on"}, "shop": {}}


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        (a_rule("", "pods", "CREATE"), ["pods"]),
        (a_rule("", "pods", "UPDATE"), []),
        (a_rule("coordination.k8s.io", "leases", "UPDATE"), ["leases"]),
        (a_rule("*", "*/*", "DELETE"), ["metadatasnapshots", "pods", "statefulsets"]),
        (a_rule("plimsoll.dev", "*"), ["rebalances"]),
        (a_rule("plimsoll.dev", "*/status"), ["topics/status"]),
        (a_rule("plimsoll.dev", "topics/*"), ["topics/status"]),
        (a_rule("apps", "deployments"), []),
        (a_rule("", "configmaps", "CONNECT"), []),
        (a_rule("*", "*", scope="Cluster"), []),
    ],
)
def test_webhook_that_stands_before_our_writes_is_named(rule: WebhookRule, named: list[str]):
    verdict = webhooks(Webhooks(failing=(a_webhook(rule),), namespaces=NAMESPACES))
    assert verdict.result == ("warning" if named else "ok")
    for resource in named:
        assert resource in verdict.message
    if named:
        assert "ValidatingWebhookConfiguration policy (check.example)" in verdict.message
        assert "kafka, shop" in verdict.message


def test_webhook_of_other_namespaces_is_not_named():
    everything = a_rule("*", "*/*")
    only = Webhooks(failing=(a_webhook(everything, {"policy": "on"}),), namespaces=NAMESPACES)
    assert "in kafka." in webhooks(only).message
    away = Webhooks(failing=(a_webhook(everything, {"policy": "off"}),), namespaces=NAMESPACES)
    assert webhooks(away).result == "ok"
    unknown = Webhooks(failing=away.failing, namespaces={})
    assert webhooks(unknown).result == "warning", "without namespaces any may be selected"


def test_checked_webhooks_cover_leases_and_metadata_log():
    found = writes()
    assert found["coordination.k8s.io", "leases"] == {"CREATE", "UPDATE", "DELETE"}
    assert found["internal.plimsoll.dev", "metadatabatches"] == {"CREATE", "UPDATE"}
    assert found["", "pods"] == {"CREATE", "DELETE"}
    assert ("", "namespaces") not in found


def some_appends(*milliseconds: float, **more: str) -> Appends:
    return Appends(kind="ConfigMap", milliseconds=milliseconds, **more)


@pytest.mark.parametrize(
    ("appends", "result", "sentence"),
    [
        (some_appends(*[2.0] * 100), "ok", "took 2.0 ms (median) and 2.0 ms (p99)"),
        (some_appends(*[2.0] * 99, 5_000.0), "ok", "2.0 ms (p99)"),
        (some_appends(*[2.0] * 98, 50.1, 50.1), "warning", "etcd_disk_wal_fsync"),
        (some_appends(*[2.0] * 98, 50.0, 50.0), "ok", "50.0 ms (p99)"),
        (some_appends(*[2.0] * 98, 1_001.0, 1_001.0), "failed", "faster disk"),
        (some_appends(2.0, stopped="timed out"), "failed", "stopped after 1 writes: timed out"),
        (some_appends(2.0, left="forbidden"), "warning", "could not be deleted: forbidden"),
    ],
)
def test_latency_of_appends(appends: Appends, result: str, sentence: str):
    verdict = latency(appends)
    assert verdict.result == result
    assert sentence in verdict.message


def test_quantile_is_the_nearest_rank():
    values = tuple(float(one) for one in range(100, 0, -1))
    assert [quantile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert quantile((7.0,), 0.5) == 7.0


def test_kinds_that_are_not_served_are_named():
    assert kinds(WANTED).result == "ok"
    verdict = kinds(WANTED - {("plimsoll.dev/v1alpha1", "topics")})
    assert verdict.result == "failed"
    assert "topics (plimsoll.dev/v1alpha1)" in verdict.message


@pytest.mark.parametrize(
    ("ready", "wanted", "result"),
    [(2, 2, "ok"), (1, 2, "warning"), (0, 2, "failed"), (0, 0, "failed")],
)
def test_operator_is_ready_when_all_its_pods_are(ready: int, wanted: int, result: str):
    found = OperatorPods(name="plimsoll", ready=ready, wanted=wanted)
    assert operator((found,), "here").result == result
    assert operator((), "here").result == "failed"


def test_report_is_paragraphs_and_one_json_line():
    found = [
        Verdict(check="a", result="ok", message="Good."),
        Verdict(check="longer", result="warning", message="word " * 60),
    ]
    text = checklist.lines(found)
    assert text.splitlines()[0] == "ok       a       Good."
    assert max(map(len, text.splitlines())) <= 100
    assert text.endswith("1 ok, 1 with a warning, 0 failed.")
    assert not checklist.failed(found)
    found.append(Verdict(check="b", result="failed", message="Bad."))
    assert checklist.failed(found)
    told = json.loads(checklist.as_json(found))
    assert told["ok"] is False
    assert told["checks"][0] == {"check": "a", "result": "ok", "message": "Good."}
