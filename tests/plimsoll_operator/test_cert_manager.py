"""Listeners whose certificates cert-manager makes; its part is played by the test."""

from dataclasses import replace
from typing import Any

import pytest
from tests.plimsoll_operator.outside import BALANCED, PLAIN, Outside
from tests.plimsoll_operator.test_listeners import NOW_MS, ends

from plimsoll_operator.api_server.kinds import Resource
from plimsoll_operator.kube.errors import Rejected, Unavailable
from plimsoll_operator.kube.resources import CERTIFICATES
from plimsoll_operator.pki.authority import issue, new_authority

NAME = "main-listener-ext"
ISSUED: dict[str, Any] = {
    "name": "ext",
    "port": 9095,
    "tls": {"issuerRef": {"name": "corp", "kind": "ClusterIssuer"}},
}


def with_cert_manager(
    *declared: dict[str, Any], installed: bool = True, allowed: bool = True
) -> Outside:
    made = Outside(*declared)
    if installed:
        resource = Resource(kind=CERTIFICATES, has_status=True, has_generation=True)
        made.scene.kube.server.store.serve([resource])
    made.scene.term.options = replace(made.scene.term.options, certificates=allowed)
    return made


def spec(made: Outside) -> dict[str, Any]:
    found: dict[str, Any] = made.scene.kube.find(CERTIFICATES, "kafka", NAME)["spec"]
    return found


def say(made: Outside, status: str, message: str = "") -> None:
    generation = made.scene.kube.find(CERTIFICATES, "kafka", NAME)["metadata"]["generation"]
    said = {"type": "Ready", "status": status, "message": message, "observedGeneration": generation}
    made.set(CERTIFICATES, NAME, status={"conditions": [said]})


AUTHORITY = new_authority("corp", NOW_MS)


async def test_certificate_request_names_broker_addresses() -> None:
    made = with_cert_manager(PLAIN, ISSUED)
    await made.look()
    stated = spec(made)
    assert stated["secretName"] == NAME
    assert stated["issuerRef"] == {
        "name": "corp",
        "kind": "ClusterIssuer",
        "group": "cert-manager.io",
    }
    assert {
        "main-bootstrap.kafka.svc",
        "main-broker-0-0.main-brokers.kafka.svc",
        "main-broker-1-0.main-brokers.kafka.svc.cluster.local",
    } <= set(stated["dnsNames"])
    assert "ipAddresses" not in stated


async def test_issued_and_renewed_certificates_reach_brokers() -> None:
    made = with_cert_manager(ISSUED)
    await made.look()
    assert f"Certificate {NAME} is not ready" in made.stalled
    assert [one.name for one in made.deciding.image.listeners] == ["ext"]
    first = issue(AUTHORITY, ("kafka.corp",), NOW_MS)
    made.give(first, NAME)
    say(made, "True")
    await made.look()
    assert made.stalled == ""
    for broker_id in (0, 1):
        assert made.pair(broker_id, "ext").certificate == first.certificate
    assert ends(made).keys() == {("ext", "given")}
    renewed = issue(AUTHORITY, ("kafka.corp",), NOW_MS)
    made.give(renewed, NAME)
    made.deciding.asked.clear()
    await made.look()
    assert made.pair(1, "ext").certificate == renewed.certificate
    assert made.deciding.asked == [], "brokers read their Secrets, and no record is needed"


async def test_unready_certificate_is_reported_and_old_shown() -> None:
    made = with_cert_manager(PLAIN, ISSUED)
    await made.look()
    pair = issue(AUTHORITY, ("kafka.corp",), NOW_MS)
    made.give(pair, NAME)
    say(made, "False", "Referenced Issuer not found: corp.")
    await made.look()
    assert made.stalled == (
        f"Listener ext: Certificate {NAME} is not ready (Referenced Issuer not found: corp)."
    )
    assert made.pair(0, "ext").certificate == pair.certificate


async def test_status_of_earlier_certificate_is_ignored_after_change() -> None:
    made = with_cert_manager(ISSUED)
    await made.look()
    made.give(issue(AUTHORITY, ("kafka.corp",), NOW_MS), NAME)
    say(made, "True")
    changed = {**ISSUED, "tls": {"issuerRef": {"name": "other"}}}
    made.redeclare(changed)
    await made.look()
    assert spec(made)["issuerRef"]["kind"] == "Issuer"
    assert "is not ready" in made.stalled


async def test_outside_certificate_names_only_public_addresses() -> None:
    outside = {**BALANCED, **ISSUED, "bootstrapHost": "kafka.example.com"}
    made = with_cert_manager(outside)
    await made.look()
    assert spec(made)["dnsNames"] == ["kafka.example.com"]
    made.balance("main-broker-0-ext", ip="203.0.113.1")
    made.balance("main-broker-1-ext", hostname="b1.example.com")
    await made.look()
    assert spec(made)["dnsNames"] == ["b1.example.com", "kafka.example.com"]
    assert spec(made)["ipAddresses"] == ["203.0.113.1"]


async def test_certificate_waits_for_a_name_outside() -> None:
    made = with_cert_manager({**BALANCED, **ISSUED})
    await made.look()
    assert made.scene.made(CERTIFICATES.plural) == []
    assert "no external name is known yet" in made.stalled


@pytest.mark.parametrize("lacking", ["kind", "value", "right", "webhook"])
async def test_unobtainable_certificate_delays_only_its_listener(
    lacking: str,
) -> None:
    made = with_cert_manager(PLAIN, ISSUED, installed=lacking != "kind", allowed=lacking != "value")
    if lacking == "right":
        made.scene.kube.refuse["apply"] = Rejected(403, "PATCH x answered: may not")
    if lacking == "webhook":
        made.scene.kube.refuse["apply"] = Unavailable(500, "PATCH x answered: no endpoints")
    await made.look()
    said = {
        "kind": "install cert-manager",
        "value": "certManager.enabled",
        "right": "may not",
        "webhook": "no endpoints",
    }
    assert said[lacking] in made.stalled
    assert [one.name for one in made.deciding.image.listeners] == ["ext", "internal"]


async def test_certificate_is_deleted_with_its_listener() -> None:
    made = with_cert_manager(ISSUED)
    await made.look()
    other = {"metadata": {"name": "other", "namespace": "kafka"}, "spec": {}}
    made.scene.kube.put(CERTIFICATES, other)
    made.redeclare(PLAIN)
    await made.look()
    assert made.scene.made(CERTIFICATES.plural) == ["other"]
