"""Listeners of a running cluster on Kubernetes: opened, renewed and closed without a restart."""

import base64
import json
import re
import ssl
import uuid
from collections.abc import Callable, Iterator

import pytest
from dev.kubectl import RESTRICTED, Cluster, CommandFailed, is_true, wait_for
from tests.e2e.played import CORP, GATEWAY_PORT, install, play_cert_manager, play_gateway, remove
from tests.e2e.secured import BOOTSTRAP, OPEN_S, PLAIN, TLS, Secured, told_brokers, wait_shown

from plimsoll_core.addresses import host_and_port


@pytest.fixture(scope="module")
def secured(operator: Cluster) -> Iterator[Secured]:
    namespace = f"tls-{uuid.uuid4().hex[:6]}"
    operator.make_namespace(namespace, RESTRICTED)
    made = Secured(operator, namespace)
    made.listen()
    made.apply(
        "Topic",
        "t",
        {
            "clusterRef": {"name": "main"},
            "partitions": 3,
            "replicationFactor": 3,
            "minInSyncReplicas": 2,
        },
    )
    for kind, name in (("logcluster", "main"), ("topic", "t")):
        wait_for(
            f"{kind}/{name} to be Ready",
            lambda kind=kind, name=name: is_true(made.object(kind, name), "Ready") or None,
            180,
        )
    yield made
    operator.delete_namespace(namespace)


def test_listener_with_tls_is_opened_without_a_restart(secured: Secured) -> None:
    before = secured.pods()
    assert len(before) == 3
    secured.write_and_read({b"before"}, 9092)
    secured.listen(PLAIN, TLS)
    secured.wait_open("tls")
    context = ssl.create_default_context(cadata=secured.authorities)
    tls = {"security_protocol": "SSL", "ssl_context": context}
    secured.write_and_read({b"tls %d" % number for number in range(100)}, TLS["port"], **tls)
    secured.write_and_read({b"plain"}, 9092)
    assert secured.pods() == before
    ports = {one["port"] for one in secured.object("service", BOOTSTRAP)["spec"]["ports"]}
    assert ports == {9092, 9094}
    rules = secured.object("networkpolicy", "main-broker")["spec"]["ingress"]
    assert {9092, 9094} <= {one["port"] for one in rules[0]["ports"]}


def test_renewed_certificate_is_shown_without_a_restart(secured: Secured) -> None:
    before, pods = secured.shown(0), secured.pods()
    spoilt = {"data": {"tls.crt": base64.b64encode(b"spoilt").decode()}}
    secured.kubectl(
        "patch", "secret", "main-broker-0-tls", "--type", "merge", "-p", json.dumps(spoilt)
    )
    secured.kubectl("annotate", "logcluster", "main", "example.test/looked-at=1", "--overwrite")
    wait_for("another certificate", lambda: secured.shown(0) != before or None, OPEN_S)
    assert secured.pods() == pods


def test_listener_is_closed_and_the_others_serve_on(secured: Secured) -> None:
    pods = secured.pods()
    secured.listen(TLS)
    wait_for("the status without it", lambda: secured.opened("internal") == -1 or None, 60)
    context = ssl.create_default_context(cadata=secured.authorities)
    tls = {"security_protocol": "SSL", "ssl_context": context}
    secured.write_and_read({b"after"}, TLS["port"], **tls)
    ports = {one["port"] for one in secured.object("service", BOOTSTRAP)["spec"]["ports"]}
    assert ports == {9094}
    assert secured.pods() == pods


def test_allowed_namespaces_change_without_restart(secured: Secured) -> None:
    """By the policy: the node's network keeps none."""
    pods, named = secured.pods(), {"key": "team", "operator": "In", "values": ["shop", "bi"]}
    selector = {"matchLabels": {"kafka": "main"}, "matchExpressions": [named]}
    secured.listen({**TLS, "allowedNamespaces": {"from": "Selector", "selector": selector}})

    def peers() -> list[dict[str, object]] | None:
        rules = secured.object("networkpolicy", "main-broker")["spec"]["ingress"]
        of_clients = [one for one in rules if TLS["port"] in [p["port"] for p in one["ports"]]]
        assert len(of_clients) == 1
        return of_clients[0].get("from")

    found = wait_for("the policy", peers, 60)
    assert {"podSelector": {}} in found
    assert {"namespaceSelector": selector} in found
    assert secured.pods() == pods
    secured.listen(TLS)
    wait_for("a policy that lets all in", lambda: peers() is None or None, 60)


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_operator_may_not_list_or_watch_secrets(secured: Secured, verb: str) -> None:
    account = "system:serviceaccount:plimsoll-system:plimsoll"
    command = ("auth", "can-i", verb, "secrets", f"--as={account}", "-n", secured.namespace)
    done = secured.cluster.run("sh", "-c", f"kubectl {' '.join(command)} || true")
    assert done.strip() == "no"


def test_authority_keys_are_not_beside_the_cluster(secured: Secured) -> None:
    names = secured.kubectl("get", "secrets", "-o", "name").split()
    assert not [name for name in names if name.endswith("listener-ca")]
    in_system = secured.cluster.kubectl("-n", "plimsoll-system", "get", "secrets", "-o", "name")
    assert [name for name in in_system.split() if name.endswith("listener-ca")]


# --- clients outside -----------------------------------------------------------------------------

NODE_PORT = {"name": "node", "port": 9096, "type": "NodePort"}
BALANCED = {"name": "lb", "port": 9097, "type": "LoadBalancer", "tls": {}}
ISSUED = {"name": "issued", "port": 9098, "tls": {"issuerRef": {"name": "corp"}}}
ROUTED = {
    "name": "routed",
    "port": 9099,
    "type": "TLSRoute",
    "tls": {},
    "hostTemplate": "b{id}.kafka.example.com",
    "bootstrapHost": "kafka.example.com",
    "parentRefs": [{"name": "edge"}],
}
BROKERS = (0, 1, 2)
LB_ADDRESSES = {
    "bootstrap": "203.0.113.10",
    "0": "203.0.113.11",
    "1": "203.0.113.12",
    "2": "203.0.113.13",
}
NONSENSE = {
    "needs tls, hostTemplate": {**ROUTED, "parentRefs": None},
    "hostTemplate must contain {id}": {**ROUTED, "hostTemplate": "kafka.example.com"},
    "parentRefs is allowed only with": {**NODE_PORT, "parentRefs": [{"name": "edge"}]},
    "hostTemplate, bootstrapHost, advertised": {**PLAIN, "bootstrapHost": "kafka.example.com"},
    "loadBalancerClass and": {**NODE_PORT, "service": {"loadBalancerClass": "example.com/x"}},
    "externalTrafficPolicy is allowed only": {
        **ROUTED,
        "service": {"externalTrafficPolicy": "Local"},
    },
    "allowedNamespaces is allowed only with": {**NODE_PORT, "allowedNamespaces": {"from": "All"}},
    "is required with from: Selector": {**PLAIN, "allowedNamespaces": {"from": "Selector"}},
    "and not allowed otherwise": {**PLAIN, "allowedNamespaces": {"from": "Same", "selector": {}}},
    "must not have both": {
        **TLS,
        "tls": {"certificateSecret": "corp", "issuerRef": {"name": "corp"}},
    },
}


@pytest.mark.parametrize("sentence", NONSENSE)
def test_schema_refuses_nonsense_about_clients_outside(secured: Secured, sentence: str) -> None:
    listener = {key: value for key, value in NONSENSE[sentence].items() if value is not None}
    patch = json.dumps({"spec": {"listeners": [listener]}})
    with pytest.raises(CommandFailed, match=re.escape(sentence)):
        secured.kubectl(
            "patch", "logcluster", "main", "--type=merge", "--dry-run=server", "-p", patch
        )


def test_outside_client_reaches_brokers_by_node_port(secured: Secured) -> None:
    pods = secured.pods()
    secured.listen(TLS, NODE_PORT, BALANCED)
    addresses = secured.wait_addresses("node")
    assert len({port for _, _, port in addresses}) == 3
    node = json.loads(secured.cluster.kubectl("get", "nodes", "-o", "json"))["items"][0]
    assert {host for _, host, _ in addresses} <= {
        one["address"] for one in node["status"]["addresses"]
    }
    for _, host, port in addresses:
        assert told_brokers(host_and_port(host, port)) == set(addresses)
    bootstrap = secured.row("node")["bootstrapServers"]
    secured.write_and_read({b"outside %d" % number for number in range(100)}, servers=bootstrap)
    assert secured.pods() == pods


def test_listener_without_address_is_unready_alone(
    secured: Secured,
) -> None:
    def ready() -> bool | None:
        return secured.condition("Ready")["reason"] == "ListenerWithoutAddress" or None

    wait_for("Ready with the reason", ready, OPEN_S)
    assert "main-broker-0-lb has no ingress" in secured.condition("Ready")["message"]
    assert secured.addresses("lb") == []
    secured.write_and_read({b"meanwhile"}, servers=secured.row("node")["bootstrapServers"])


def test_node_ports_survive_an_operator_restart(secured: Secured) -> None:
    pods, before = secured.pods(), secured.addresses("node")
    system = ("-n", "plimsoll-system")
    secured.cluster.kubectl(*system, "rollout", "restart", "deployment/plimsoll")
    secured.cluster.kubectl(
        *system, "rollout", "status", "deployment/plimsoll", "--timeout=120s", timeout_s=130
    )
    secured.kubectl("annotate", "logcluster", "main", "example.test/looked-at=2", "--overwrite")
    secured.write_and_read({b"by the next"}, servers=secured.row("node")["bootstrapServers"])
    assert secured.addresses("node") == before
    assert secured.pods() == pods


def test_load_balancers_addresses_are_told_certified_and_followed(secured: Secured) -> None:
    """kube-proxy itself sends on what is for an address in a Service's status."""
    pods = secured.pods()
    names = {id_: f"main-broker-{id_}-lb" for id_ in map(str, BROKERS)}
    for id_, name in (names | {"bootstrap": "main-bootstrap-lb"}).items():
        ingress = [{"ip": LB_ADDRESSES[id_]}]
        secured.set_status("service", name, {"loadBalancer": {"ingress": ingress}})
    addresses = secured.wait_addresses("lb")
    assert addresses == [(id_, LB_ADDRESSES[str(id_)], BALANCED["port"]) for id_ in BROKERS]
    bootstrap = f"{LB_ADDRESSES['bootstrap']}:{BALANCED['port']}"
    secured.wait_bootstrap("lb", bootstrap)
    authorities = secured.authorities
    for _, host, port in addresses:
        wait_shown(host, port, host, authorities)
    context = ssl.create_default_context(cadata=authorities)
    tls = {"security_protocol": "SSL", "ssl_context": context}
    secured.write_and_read({b"balanced %d" % n for n in range(10)}, servers=bootstrap, **tls)
    other = [{"ip": "203.0.113.99"}]
    secured.set_status("service", names["2"], {"loadBalancer": {"ingress": other}})

    def moved() -> bool | None:
        return (2, "203.0.113.99", BALANCED["port"]) in secured.addresses("lb") or None

    wait_for("the new address", moved, OPEN_S)
    assert secured.pods() == pods


@pytest.fixture
def other_kinds(secured: Secured) -> Iterator[Callable[[], None]]:
    """Installs cert-manager's Certificate and the Gateway API's TLSRoute and Gateway, as kinds that
    take whatever they are given."""
    yield lambda: install(secured.cluster)
    remove(secured.cluster)


def test_issuer_and_gateways_work_once_installed(
    secured: Secured, other_kinds: Callable[[], None]
) -> None:
    """Against the API objects: the test plays cert-manager and the Gateway's controller."""
    pods = secured.pods()
    secured.listen(TLS, NODE_PORT, ISSUED, ROUTED)

    def refused() -> bool | None:
        said = secured.condition("Stalled")["message"]
        return ("install cert-manager" in said and "does not serve TLSRoute" in said) or None

    wait_for("Stalled with both sentences", refused, OPEN_S)
    secured.write_and_read({b"while stalled"}, servers=secured.row("node")["bootstrapServers"])
    other_kinds()
    play_cert_manager(secured)
    play_gateway(secured)
    addresses = secured.wait_addresses("routed")
    assert addresses == [(id_, f"b{id_}.kafka.example.com", GATEWAY_PORT) for id_ in BROKERS]
    secured.wait_bootstrap("routed", f"kafka.example.com:{GATEWAY_PORT}")
    for id_, name, _ in addresses:
        service = secured.object("service", f"main-broker-{id_}-routed")["spec"]["clusterIP"]
        wait_shown(service, ROUTED["port"], name, secured.authorities)
    secured.wait_open("issued")
    address = secured.object("service", BOOTSTRAP)["spec"]["clusterIP"]
    name = f"{BOOTSTRAP}.{secured.namespace}.svc"
    wait_shown(address, ISSUED["port"], name, CORP.certificate.decode())
    wait_for("no cause", lambda: secured.condition("Stalled")["status"] == "False" or None, OPEN_S)
    assert secured.pods() == pods
    secured.listen(TLS)

    def gone() -> bool | None:
        left = secured.kubectl("get", "services,tlsroutes,certificates", "-o", "name").split()
        return {one for one in left if one.startswith("service/")} == {
            "service/main-bootstrap",
            "service/main-brokers",
        } == set(left) or None

    wait_for("what listeners had to be removed", gone, OPEN_S)
    assert secured.pods() == pods
