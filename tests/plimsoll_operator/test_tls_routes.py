"""Listeners behind Gateways: their TLSRoutes; the Gateway's controller is played by the test."""

from dataclasses import replace
from typing import Any

import pytest
from tests.plimsoll_operator.outside import BALANCED, PLAIN, SERVICE_NAMES, Outside

from plimsoll_operator.api_server.kinds import Resource
from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.kube.resources import GATEWAYS, TLS_ROUTE_KINDS, TLS_ROUTES, Kind
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
    *declared: dict[str, Any],
    installed: tuple[Kind, ...] = (TLS_ROUTES,),
    allowed: bool = True,
) -> Outside:
    made = Outside(*declared)
    served = [Resource(kind=kind, has_generation=True) for kind in installed]
    made.scene.kube.server.store.serve([*served, Resource(kind=GATEWAYS)])
    options = made.scene.term.options
    made.scene.term.options = replace(options, tls_routes=allowed)
    return made


def accept(
    made: Outside,
    name: str,
    status: str = "True",
    message: str = "",
    *,
    resolved: str = "True",
    parent: int = 0,
    kind: Kind = TLS_ROUTES,
) -> None:
    """As a Gateway's controller does of the parentRef of this number: it repeats that, and says of
    which generation it speaks."""
    route = made.scene.kube.find(kind, "kafka", name)
    conditions = [
        {
            "type": said,
            "status": verdict,
            "reason": "R",
            "message": message,
            "observedGeneration": route["metadata"]["generation"],
        }
        for said, verdict in (("Accepted", status), ("ResolvedRefs", resolved))
    ]
    of = route["spec"]["parentRefs"][parent]
    shown = {"controllerName": "example.com/gateways", "parentRef": of, "conditions": conditions}
    others = (route.get("status") or {}).get("parents") or []
    rest = [one for one in others if one["parentRef"] != of]
    made.set(kind, name, status={"parents": [*rest, shown]})


async def accept_all(made: Outside, status: str = "True", message: str = "", **more: Any) -> None:
    """`accept` of every route, after which the operator looks at them."""
    for name in SERVICE_NAMES:
        accept(made, name, status, message, **more)
    await made.look()


def passing(name: str, port: int, mode: str = "Passthrough", **more: Any) -> dict[str, Any]:
    """A Gateway's listener for TLS."""
    return {"name": name, "protocol": "TLS", "port": port, "tls": {"mode": mode}, **more}


def put_gateway(made: Outside, *listeners: dict[str, Any], name: str = "edge") -> None:
    meta = {"name": name, "namespace": "kafka"}
    made.scene.kube.put(GATEWAYS, {"metadata": meta, "spec": {"listeners": list(listeners)}})


async def test_routes_forward_names_to_broker_services() -> None:
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


async def test_accepted_route_is_announced_at_gateway_port() -> None:
    made = with_gateways(ROUTED)
    await made.look()
    assert made.addresses == {}
    assert "Gateway kafka/edge has not accepted the TLSRoute yet" in made.why
    put_gateway(made, {"name": "a", "protocol": "HTTP", "port": 80}, passing("b", 443))
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


async def test_gateway_port_is_named_or_stated() -> None:
    made = with_gateways({**ROUTED, "parentRefs": [{"name": "edge", "sectionName": "two"}]})
    put_gateway(made, passing("one", 443), passing("two", 8443))
    await made.look()
    await accept_all(made)
    assert made.addresses[0].endswith(":8443")
    made.redeclare({**ROUTED, "parentRefs": [{"name": "absent", "port": 9443}]})
    await made.look()
    assert made.addresses[0].endswith(":8443")
    await accept_all(made)
    assert made.addresses[0].endswith(":9443")


async def test_gateway_port_belongs_to_passthrough_listener() -> None:
    made = with_gateways(ROUTED)
    put_gateway(made, passing("ends", 442, mode="Terminate"), passing("bare", 444, tls=None),
                passing("others", 445, hostname="*.example.org"),
                passing("own", 443, hostname="*.kafka.example.com"))  # fmt: skip
    await made.look()
    await accept_all(made)
    assert made.addresses[0] == "b0.kafka.example.com:443"
    assert made.committed.bootstrap_servers == "b0.kafka.example.com:443,b1.kafka.example.com:443"


async def test_gateway_terminating_tls_is_named() -> None:
    made = with_gateways({**ROUTED, "parentRefs": [{"name": "edge", "sectionName": "tls"}]})
    put_gateway(made, passing("tls", 443, mode="Terminate"))
    await made.look()
    await accept_all(made)
    assert made.addresses == {}
    assert "Gateway kafka/edge has no TLS passthrough listener for b0.kafka" in made.why


async def test_port_comes_from_the_accepting_gateway() -> None:
    parents = [{"name": "edge", "port": 443}, {"name": "other", "port": 8443}]
    made = with_gateways({**ROUTED, "parentRefs": parents})
    await made.look()
    for name in SERVICE_NAMES:
        accept(made, name, "False", "not allowed by listeners")
        accept(made, name, parent=1)
    await made.look()
    assert made.addresses[0] == "b0.kafka.example.com:8443"


async def test_acceptance_of_changed_route_is_stale() -> None:
    made = with_gateways(ROUTED)
    put_gateway(made, passing("tls", 443))
    await made.look()
    await accept_all(made)
    made.redeclare({**ROUTED, "hostTemplate": "c{id}.kafka.example.com"})
    await made.look()
    assert made.addresses[0] == "b0.kafka.example.com:443"
    await accept_all(made)
    assert made.addresses[0] == "c0.kafka.example.com:443"


async def test_revoked_acceptance_is_reported_and_addresses_stay() -> None:
    made = with_gateways(ROUTED)
    put_gateway(made, passing("tls", 443))
    await made.look()
    await accept_all(made)
    assert "not reached" not in made.stalled
    await accept_all(made, "False", "No listeners match this parent ref")
    assert made.addresses[0] == "b0.kafka.example.com:443"
    assert "Clients cannot reach listener ext at its advertised addresses" in made.stalled
    assert "No listeners match this parent ref, and 1 more like this" in made.stalled
    await accept_all(made)
    assert "not reached" not in made.stalled


async def test_route_with_unresolved_service_is_not_announced() -> None:
    made = with_gateways(ROUTED)
    put_gateway(made, passing("tls", 443))
    await made.look()
    await accept_all(made, message="no such Service", resolved="False")
    assert made.addresses == {}
    assert "cannot resolve the route's backend: no such Service" in made.why


async def test_gateway_message_is_passed_on_bounded() -> None:
    made = with_gateways(ROUTED)
    await made.look()
    await accept_all(made, "False", "x" * 32_768)
    assert len(made.why) < 2_000


@pytest.mark.parametrize("kind", TLS_ROUTE_KINDS[1:], ids=lambda kind: kind.api_version)
async def test_routes_use_the_newest_served_version(kind: Kind) -> None:
    oldest = TLS_ROUTE_KINDS[-1]
    made = with_gateways(ROUTED, installed=tuple(dict.fromkeys((kind, oldest))))
    put_gateway(made, passing("tls", 443))
    await made.look()
    assert made.scene.kube.find(kind, "kafka", "main-broker-1-ext")["spec"]["hostnames"]
    await accept_all(made, kind=kind)
    assert made.addresses[0] == "b0.kafka.example.com:443"
    made.redeclare({**BALANCED, "tls": {}})
    await made.look()
    assert made.scene.made(TLS_ROUTES.plural) == []


@pytest.mark.parametrize("lacking", ["kind", "value"])
async def test_impossible_routes_are_refused(lacking: str) -> None:
    installed = () if lacking == "kind" else (TLS_ROUTES,)
    made = with_gateways(PLAIN, ROUTED, installed=installed, allowed=lacking != "value")
    await made.look()
    said = "does not serve TLSRoute" if lacking == "kind" else "externalAccess.tlsRoutes is false"
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


async def test_routes_after_a_failed_list_are_deleted() -> None:
    """An error of the list counted as no routes, and they stayed for good."""
    made = with_gateways(ROUTED)
    await made.look()
    made.redeclare(PLAIN)
    listed = made.scene.kube.list

    async def refuses_routes(kind: Kind, *rest: Any, **more: Any) -> Any:
        if kind in TLS_ROUTE_KINDS:
            raise Unavailable(503, "LIST tlsroutes answered: later")
        return await listed(kind, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made.scene.kube, "list", refuses_routes)
        await made.look()
    assert made.scene.made(TLS_ROUTES.plural) == SERVICE_NAMES
    await made.look()
    assert made.scene.made(TLS_ROUTES.plural) == []
