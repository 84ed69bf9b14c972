"""Listeners for clients outside: what is made for them, which addresses are found and told."""

from typing import Any

import pytest
from tests.plimsoll_operator.outside import (
    BALANCED,
    NODE_PORT,
    PLAIN,
    SERVICE_NAMES,
    Outside,
    on_nodes,
)

from plimsoll_operator.api import labels
from plimsoll_operator.api.listeners import committed, without_addresses
from plimsoll_operator.kube.errors import Rejected
from plimsoll_operator.kube.resources import NODES, PODS, SERVICES, Kind
from plimsoll_operator.pki.authority import describe

# --- NodePort ------------------------------------------------------------------------------------


async def test_node_port_listener_uses_pods_node_address() -> None:
    made = on_nodes(PLAIN, NODE_PORT)
    await made.look()
    assert made.services == SERVICE_NAMES
    made.give_ports()
    await made.look()
    assert made.addresses == {0: "203.0.113.10:30001", 1: "10.0.0.11:30002"}
    assert made.committed.bootstrap_servers == "203.0.113.10:30000,10.0.0.11:30000"
    assert made.why == ""
    assert [one.advertised for one in made.deciding.image.listeners if one.name == "internal"] \
        == [None]  # fmt: skip


async def test_broker_services_select_one_pod_unchanged() -> None:
    made = on_nodes(NODE_PORT)
    await made.look()
    spec = made.service("main-broker-1-ext")["spec"]
    assert spec["selector"] == labels.selector("main") | {labels.BROKER_ID: "1"}
    assert (spec["type"], spec["externalTrafficPolicy"]) == ("NodePort", "Local")
    assert spec["publishNotReadyAddresses"] is True
    assert labels.BROKER_ID not in made.service("main-bootstrap-ext")["spec"]["selector"]
    made.give_ports()
    await made.look()
    made.scene.kube.calls.clear()
    made.deciding.asked.clear()
    await made.look()
    assert made.writes == []
    assert made.deciding.asked == []


async def test_service_that_another_client_changed_is_restored() -> None:
    made = on_nodes(NODE_PORT)
    await made.look()
    spec = made.service("main-broker-0-ext")["spec"]
    made.set(SERVICES, "main-broker-0-ext", spec={**spec, "selector": {"app": "other"}})
    await made.look()
    assert made.service("main-broker-0-ext")["spec"]["selector"][labels.BROKER_ID] == "0"


async def test_address_follows_pod_and_stays_without_pod() -> None:
    made = on_nodes(NODE_PORT)
    await made.look()
    made.give_ports()
    await made.look()
    made.scene.kube.drop(PODS, "kafka", "main-broker-1-0")
    await made.look()
    assert made.addresses[1] == "10.0.0.11:30002"
    assert made.why == ""
    made.put_pod(1, "n0")
    await made.look()
    assert made.addresses[1] == "203.0.113.10:30002"


async def test_listener_without_address_is_reported_alone() -> None:
    made = on_nodes(PLAIN, NODE_PORT)
    made.put_pod(1, None)
    await made.look()
    made.give_ports()
    await made.look()
    assert made.addresses == {0: "203.0.113.10:30001"}
    assert made.why == "pod main-broker-1-0 is not scheduled to a node"
    assert made.ready[0] == "ListenerNotOpen", "broker 0 has not registered it yet"
    made.put_node("n1")
    made.put_pod(1, "n1")
    await made.look()
    assert made.why == "node n1 has no address in its status"
    assert [one.name for one in made.deciding.image.listeners] == ["ext", "internal"]
    assert made.stalled == ""


async def test_missing_node_right_names_the_chart_value() -> None:
    made = on_nodes(NODE_PORT)
    await made.look()
    made.give_ports()
    asked = made.scene.kube.get

    async def refuses_nodes(kind: Kind, *rest: Any, **more: Any) -> Any:
        if kind is NODES:
            raise Rejected(403, "GET /api/v1/nodes/n0 answered: forbidden")
        return await asked(kind, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made.scene.kube, "get", refuses_nodes)
        await made.look()
    assert "rbac.readNodes" in made.why
    assert made.addresses == {}


async def test_stated_hosts_and_addresses_win() -> None:
    stated = {
        **NODE_PORT,
        "hostTemplate": "b{id}.{cluster}.{namespace}.example.com",
        "advertised": [{"id": 1, "host": "special.example.com", "port": 19094}],
        "bootstrapHost": "kafka.example.com",
    }
    made = Outside(stated)
    await made.look()
    made.give_ports()
    await made.look()
    assert made.addresses == {
        0: "b0.main.kafka.example.com:30001",
        1: "special.example.com:19094",
    }
    assert made.committed.bootstrap_servers == "kafka.example.com:30000"
    assert not [call for call in made.scene.kube.calls if call[1] in ("nodes", "pods")]


async def test_committed_listener_without_addresses_equals_declaration() -> None:
    made = on_nodes(PLAIN, NODE_PORT)
    await made.look()
    made.give_ports()
    await made.look()
    cluster = made.scene.term.cluster
    assert cluster is not None
    found = made.deciding.image.listeners
    assert found != committed(cluster.listeners)
    assert tuple(map(without_addresses, found)) == committed(cluster.listeners)


# --- LoadBalancer --------------------------------------------------------------------------------


async def test_load_balancer_listener_waits_for_service_status() -> None:
    made = Outside(PLAIN, BALANCED)
    await made.look()
    assert made.addresses == {}
    assert made.committed.bootstrap_servers is None
    assert made.ready == (
        "ListenerWithoutAddress",
        "Listener ext has no external address for brokers 0 and 1 yet: Service "
        "main-broker-0-ext has no ingress in its status; Service main-broker-1-ext has no "
        "ingress in its status.",
    )
    made.balance("main-broker-0-ext", ip="203.0.113.1")
    made.balance("main-broker-1-ext", hostname="lb1.example.com", ip="203.0.113.2")
    await made.look()
    assert made.addresses == {0: "203.0.113.1:9095", 1: "lb1.example.com:9095"}
    assert made.committed.bootstrap_servers == "203.0.113.1:9095,lb1.example.com:9095"
    made.balance("main-bootstrap-ext", ip="2001:db8::0:1")
    await made.look()
    assert made.committed.bootstrap_servers == "[2001:db8::1]:9095"


async def test_load_balancer_without_status_keeps_address() -> None:
    made = Outside(BALANCED)
    await made.look()
    for number in (0, 1):
        made.balance(f"main-broker-{number}-ext", ip=f"203.0.113.{number + 1}")
    await made.look()
    made.set(SERVICES, "main-broker-0-ext", status={})
    await made.look()
    assert made.addresses[0] == "203.0.113.1:9095"
    made.balance("main-broker-0-ext", ip="203.0.113.9")
    await made.look()
    assert made.addresses[0] == "203.0.113.9:9095"


async def test_certificate_names_the_addresses_outside_and_follows_them() -> None:
    made = Outside({**BALANCED, "tls": {}, "bootstrapHost": "kafka.example.com"})
    await made.look()
    assert "kafka.example.com" in describe(made.pair(0, "ext").certificate).names
    for number in (0, 1):
        made.balance(f"main-broker-{number}-ext", ip=f"203.0.113.{number + 1}")
    await made.look()
    names = describe(made.pair(0, "ext").certificate).names
    assert {"203.0.113.1", "kafka.example.com", "main-bootstrap.kafka.svc"} <= names
    assert "203.0.113.2" not in names, "another broker's"


async def test_service_states_what_the_listener_asks_for() -> None:
    stated = {
        "annotations": {
            "external-dns.alpha.kubernetes.io/hostname": "{host}",
            "example.com/whose": "{namespace}/{cluster}/{id}",
        },
        "loadBalancerClass": "example.com/inner",
        "loadBalancerSourceRanges": ["203.0.113.0/24"],
        "externalTrafficPolicy": "Cluster",
    }
    made = Outside({**BALANCED, "service": stated, "hostTemplate": "b{id}.example.com"})
    await made.look()
    service = made.service("main-broker-0-ext")
    assert service["metadata"]["annotations"] == {
        "external-dns.alpha.kubernetes.io/hostname": "b0.example.com",
        "example.com/whose": "kafka/main/0",
    }
    spec = service["spec"]
    assert spec["loadBalancerClass"] == "example.com/inner"
    assert spec["loadBalancerSourceRanges"] == ["203.0.113.0/24"]
    assert spec["externalTrafficPolicy"] == "Cluster"
    assert made.service("main-bootstrap-ext")["metadata"]["annotations"] == {
        "example.com/whose": "kafka/main/bootstrap",
    }


async def test_refused_service_stalls_its_listener_alone() -> None:
    made = Outside(PLAIN, BALANCED)
    made.scene.kube.refuse["apply"] = Rejected(422, "PATCH x answered: may not change once set")
    await made.look()
    assert (
        made.stalled
        == "Listener ext: the API server rejected its Services: may not change once set."
    )
    assert [one.name for one in made.deciding.image.listeners] == ["ext", "internal"]


async def test_foreign_service_is_kept_and_stalls_listener() -> None:
    made = Outside(PLAIN, BALANCED)
    meta = {"name": "main-broker-0-ext", "namespace": "kafka"}
    made.scene.kube.put(SERVICES, {"metadata": meta, "spec": {"type": "ClusterIP"}})
    before = made.service("main-broker-0-ext")
    await made.look()
    assert "main-broker-0-ext" in made.stalled
    assert made.service("main-broker-0-ext") == before
    made.redeclare(PLAIN)
    await made.look()
    assert made.services == ["main-broker-0-ext"]


async def test_foreign_service_with_labels_gives_no_address() -> None:
    """Its port leads to whatever pods it selects, and clients were sent there."""
    made = on_nodes(PLAIN, NODE_PORT)
    meta = {"name": "main-broker-0-ext", "namespace": "kafka"}
    meta |= {"labels": {labels.CLUSTER: "main", labels.COMPONENT: labels.LISTENER_COMPONENT}}
    port = {"port": 9095, "nodePort": 31_999}
    made.scene.kube.put(SERVICES, {"metadata": meta, "spec": {"ports": [port]}})
    await made.look()
    assert made.addresses == {}
    assert "main-broker-0-ext" in made.stalled


async def test_listener_back_inside_loses_services() -> None:
    made = on_nodes(PLAIN, NODE_PORT)
    await made.look()
    made.redeclare(PLAIN, {"name": "ext", "port": 9095})
    await made.look()
    assert made.services == []
    assert made.committed.advertised is None
    made.scene.kube.calls.clear()
    await made.look()
    assert made.scene.kube.calls == [], "nothing is looked for that cannot be there"


async def test_undeletable_service_is_reported_and_retried() -> None:
    made = on_nodes(PLAIN, NODE_PORT)
    await made.look()
    made.redeclare(PLAIN)
    made.scene.kube.refuse["delete"] = Rejected(403, "DELETE x answered: may not")
    await made.look()
    assert made.stalled == "Cannot delete the objects of removed listeners: may not."
    del made.scene.kube.refuse["delete"]
    await made.look()
    assert made.services == []
    assert made.stalled == ""


async def test_listeners_wait_for_the_metadata_version() -> None:
    made = Outside(NODE_PORT, version=2)
    await made.look()
    assert made.services == []
