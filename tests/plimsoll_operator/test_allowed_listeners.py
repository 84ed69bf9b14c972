"""Whose pods a listener's port lets in (`allowedNamespaces`): by the brokers' NetworkPolicy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import convert
from tests.plimsoll_operator.test_listeners import PLAIN, TLS, Declared
from tests.plimsoll_operator.test_manifests import a_context

from plimsoll_core.cluster.listeners import Listener
from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_topics import LabelSelector
from plimsoll_operator.api.listeners import DeclaredListener, committed
from plimsoll_operator.api.selectors import matches, why_refused
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.manifests.networkpolicy import network_policy
from plimsoll_operator.manifests.statefulset import revision

OWN, SYSTEM = "kafka", "plimsoll-system"
LABELS = {OWN: {}, SYSTEM: {}, "shop": {"team": "shop"}, "bi": {"team": "bi"}}
"""Of the namespaces, besides the one with its name."""
CLIENT = {"app": "orders"}
OPERATOR = {labels.NAME: "plimsoll", labels.COMPONENT: "operator"}
EVERYBODY = {"bi", "kafka", "outside", "plimsoll-system", "shop"}
BY_LABEL = {"from": "Selector", "selector": {"matchLabels": {"team": "shop"}}}
BY_NAME = {
    "from": "Selector",
    "selector": {
        "matchExpressions": [{"key": labels.NAMESPACE_NAME, "operator": "In", "values": ["bi"]}]
    },
}


def a_listener(allowed: dict[str, Any] | None, **fields: Any) -> dict[str, Any]:
    listener = {"name": "tls", "port": 9094, **fields}
    return listener if allowed is None else {**listener, "allowedNamespaces": allowed}


def a_policy(*declared: dict[str, Any], opened: tuple[Listener, ...] | None = None) -> Any:
    """`opened`: what brokers have open; None: what is declared."""
    context = a_context(listeners=list(declared))
    context = replace(context, operator_namespace=SYSTEM)
    if opened is None:
        opened = committed(convert(list(declared), tuple[DeclaredListener, ...]))
    return network_policy(context, opened)


def chosen(selector: dict[str, Any], of: dict[str, str]) -> bool:
    return matches(convert(selector, LabelSelector), of)


def is_let_in(rule: dict[str, Any], namespace: str | None, pod: dict[str, str]) -> bool:
    """As Kubernetes reads it: a rule without peers is about everybody, a peer without a selector
    of namespaces is about the policy's own; None: it is no pod."""
    if "from" not in rule:
        return True
    if namespace is None:
        return False
    of = {**LABELS[namespace], labels.NAMESPACE_NAME: namespace}
    return any(
        (chosen(peer["namespaceSelector"], of) if "namespaceSelector" in peer else namespace == OWN)
        and chosen(peer.get("podSelector", {}), pod)
        for peer in rule["from"]
    )


def let_in(policy: Any, port: int = 9094, pod: dict[str, str] = CLIENT) -> set[str]:
    """The namespaces whose pods with these labels reach a port, and who is outside."""
    rules = policy["spec"]["ingress"]
    about = [rule for rule in rules if {"port": port, "protocol": "TCP"} in rule["ports"]]
    return {
        namespace or "outside"
        for namespace in (*LABELS, None)
        if any(is_let_in(rule, namespace, pod) for rule in about)
    }


@pytest.mark.parametrize(
    ("allowed", "found"),
    [
        (None, EVERYBODY),
        ({"from": "All"}, EVERYBODY),
        ({}, {OWN}),
        ({"from": "Same"}, {OWN}),
        (BY_LABEL, {OWN, "shop"}),
        (BY_NAME, {OWN, "bi"}),
        ({"from": "Selector", "selector": {}}, EVERYBODY - {"outside"}),
        ({"from": "Selector"}, {OWN}),
    ],
)
def test_listener_admits_pods_of_allowed_namespaces(
    allowed: dict[str, Any] | None, found: set[str]
) -> None:
    policy = a_policy(a_listener(allowed))
    assert let_in(policy) == found
    assert let_in(policy, pod=OPERATOR) == found | {SYSTEM}


def test_listeners_have_separate_allowed_namespaces() -> None:
    policy = a_policy(PLAIN, a_listener(BY_LABEL), a_listener({}, name="own", port=9096))
    assert let_in(policy, 9092) == EVERYBODY
    assert let_in(policy, 9094) == {OWN, "shop"}
    assert let_in(policy, 9096) == {OWN}
    assert let_in(policy, labels.HEALTH_PORT) == EVERYBODY
    assert let_in(policy, labels.REPLICATION_PORT) == set()
    alone = a_policy(a_listener({}))
    assert let_in(alone, labels.HEALTH_PORT) == EVERYBODY


def test_clients_of_a_route_are_the_gateways_pods() -> None:
    route = a_listener(
        BY_LABEL,
        type="TLSRoute",
        tls={},
        hostTemplate="b{id}.example.com",
        bootstrapHost="example.com",
        parentRefs=[{"name": "edge"}],
    )
    assert let_in(a_policy(route)) == {OWN, "shop"}


def test_open_listener_follows_spec_by_port_then_name() -> None:
    """What is committed is behind the spec while that is refused, or waits."""
    moved = (Listener(name="tls", port=9095),)
    assert let_in(a_policy(a_listener(BY_LABEL), opened=moved), 9095) == {OWN, "shop"}
    renamed = (Listener(name="old", port=9094),)
    assert let_in(a_policy(a_listener(BY_LABEL), opened=renamed)) == {OWN, "shop"}
    assert let_in(a_policy(PLAIN, opened=renamed)) == {OWN}
    assert let_in(a_policy(a_listener(BY_LABEL), opened=()), 9092) == EVERYBODY


def test_change_of_allowed_namespaces_restarts_nothing() -> None:
    def shown(*declared: dict[str, Any]) -> tuple[str, tuple[Listener, ...]]:
        context: Context = a_context(listeners=list(declared))
        return revision(context), committed(context.cluster.listeners)

    assert shown(a_listener(None)) == shown(a_listener(BY_LABEL))


@pytest.mark.parametrize(
    ("selector", "sentence"),
    [
        (
            {"matchExpressions": [{"key": "a", "operator": "In"}]},
            "The selector's operator In for the label a needs values.",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
            "The selector's operator Exists for the label a has no values.",
        ),
        ({"matchLabels": {"a b": ""}}, "The selector's key 'a b' is not a valid label key."),
        ({"matchLabels": {"/a": ""}}, "The selector's key '/a' is not a valid label key."),
        (
            {"matchLabels": {"Example.com/a": ""}},
            "The selector's key 'Example.com/a' is not a valid label key.",
        ),
        (
            {"matchLabels": {"a" * 64: ""}},
            f"The selector's key '{'a' * 64}' is not a valid label key.",
        ),
        ({"matchLabels": {"a": "-b"}}, "The selector's value '-b' is not a valid label value."),
        (
            {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b\n"]}]},
            "The selector's value 'b\\n' is not a valid label value.",
        ),
    ],
)
async def test_impossible_selector_admits_nobody_and_is_reported(
    selector: dict[str, Any], sentence: str
) -> None:
    listener = {**TLS, "allowedNamespaces": {"from": "Selector", "selector": selector}}
    made = Declared(PLAIN, listener)
    await made.look()
    assert made.stalled.startswith(f"Listener tls: allowedNamespaces.selector: {sentence} Until")
    assert [one.name for one in made.deciding.image.listeners] == ["internal", "tls"]
    assert let_in(a_policy(listener)) == {OWN}
    made = Declared(PLAIN, {**TLS, "allowedNamespaces": BY_NAME})
    await made.look()
    assert made.stalled == ""


def test_selectors_that_kubernetes_takes_are_taken() -> None:
    taken = {
        "matchLabels": {"a": "", "example.com/b-c_d.e": "F.g_h-1", "x" * 63: "y" * 63},
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["a", ""]},
            {"key": "k", "operator": "DoesNotExist"},
        ],
    }
    assert why_refused(convert(taken, LabelSelector)) == ""
