"""Listeners behind Gateways: their TLSRoutes; the Gateway's controller is played by the test."""

from dataclasses import replace
from typing import Any

import pytest
from tests.plimsoll_operator.outside import BALANCED, PLAIN, SERVICE_NAMES, Outside

from plimsoll_operator.kube.memory.kinds import Resource
from plimsoll_operator.kube.resources import GATEWAYS, TLS_ROUTES
from plimsoll_operator.pki.authority import describe

ROUTED = {
    "name": "ext",
    "port": 9095,
    "type": "TLSRoute",
    "tls": {},
    "hostTemplate": "b{id}.kafka.example.com",
    "bootstrapHost": "kafka.example.com",
    "parentRefs": [{"name": "edge"}],
}


def with_gateways(
    *declared: dict[str, Any], installed: bool = True, allowed: bool = True
) -> Outside:
    made = Outside(*declared)
    if installed:
        made.scene.kube.server.store.serve([Resource(kind=TLS_ROUTES), Resource(kind=GATEWAYS)])
    options = made.scene.term.options
    made.scene.term.options = replace(options, tls_routes=allowed)
    return made


def accept(made: Outside, name: str, status: str = "True", message: str = "") -> None:
    """As a Gateway's controller does."""
    said = {"type": "Accepted", "status": status, "reason": "R", "message": message}
    made.set(TLS_ROUTES, name, status={"parents": [{"conditions": [said]}]})


def put_gateway(made: Outside, *listeners: dict[str, Any]) -> None:
    meta = {"name": "edge", "namespace": "kafka"}
    made.scene.kube.put(GATEWAYS, {"metadata": meta, "spec": {"listeners": list(listeners)}})


async def test_routes_pass_each_name_on_to_its_brokers_service() -> None:
    made = with_gateways(ROUTED)
    await made.look()
    route = made.scene.kube.find(TLS_ROUTES, "kafka", "main-broker-1-ext")
    assert route["spec"] == {
        "parentRefs": [{"name": "edge"}],
        "hostnames": ["b1.kafka.example.com"],
        "rules": [{"backendRefs": [{"name": "main-broker-1-ext", "port": 9095}]}],
    }
    begin = made.scene.kube.find(TLS_ROUTES, "kafka", "main-bootstrap-ext")
    assert begin["spec"]["hostnames"] == ["kafka.example.com"]
    assert made.service("main-broker-1-ext")["spec"]["type"] == "ClusterIP"


async def test_route_is_told_at_the_gateways_port_once_a_gateway_accepted_it() -> None:
    made = with_gateways(ROUTED)
    await made.look()
    assert made.addresses == {}
    assert "no Gateway has accepted it yet" in made.why
    put_gateway(made, {"name": "a", "protocol": "HTTP", "port": 80},
                {"name": "b", "protocol": "TLS", "port": 443})  # fmt: skip
    for name in SERVICE_NAMES:
        accept(made, name)
    accept(made, "main-broker-0-ext", "False", "not allowed by listeners")
    await made.look()
    assert made.addresses == {1: "b1.kafka.example.com:443"}
    assert "not allowed by listeners" in made.why
    accept(made, "main-broker-0-ext")
    await made.look()
    assert made.addresses[0] == "b0.kafka.example.com:443"
    assert made.committed.bootstrap_servers == "kafka.example.com:443"
    assert "b0.kafka.example.com" in describe(made.pair(0, "ext").certificate).names


async def test_port_of_a_gateway_is_the_named_listeners_or_the_stated_one() -> None:
    made = with_gateways({**ROUTED, "parentRefs": [{"name": "edge", "sectionName": "two"}]})
    put_gateway(made, {"name": "one", "protocol": "TLS", "port": 443},
                {"name": "two", "protocol": "TLS", "port": 8443})  # fmt: skip
    await made.look()
    for name in SERVICE_NAMES:
        accept(made, name)
    await made.look()
    assert made.addresses[0].endswith(":8443")
    made.redeclare({**ROUTED, "parentRefs": [{"name": "absent", "port": 9443}]})
    await made.look()
    assert made.addresses[0].endswith(":9443")


@pytest.mark.parametrize("lacking", ["kind", "value"])
async def test_routes_that_cannot_be_made_are_refused_with_a_sentence(lacking: str) -> None:
    made = with_gateways(PLAIN, ROUTED, installed=lacking != "kind", allowed=lacking != "value")
    await made.look()
    said = "knows no TLSRoute" if lacking == "kind" else "externalAccess.tlsRoutes is false"
    assert said in made.stalled
    assert made.addresses == {}
    assert [one.name for one in made.deciding.image.listeners] == ["ext", "internal"]


async def test_routes_go_with_their_listener() -> None:
    made = with_gateways(ROUTED)
    await made.look()
    made.redeclare({**BALANCED, "tls": {}})
    await made.look()
    assert made.scene.made(TLS_ROUTES.plural) == []
    assert made.services == SERVICE_NAMES
