"""The listeners of a LogCluster: what the operator writes for them, and in which order."""

import base64
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.plimsoll_operator.builders import an_image, finalised
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.record_versions import NEWEST
from plimsoll_operator.api import labels
from plimsoll_operator.api.listeners import DeclaredListener, ListenerTls, committed
from plimsoll_operator.kube.resources import CONFIG_MAPS, LOG_CLUSTERS, NAMESPACES, SECRETS
from plimsoll_operator.manifests import listener_secrets as manifests
from plimsoll_operator.manifests.networkpolicy import network_policy
from plimsoll_operator.manifests.services import bootstrap_service, brokers_service
from plimsoll_operator.pki.authority import KeyPair, describe, issue, new_authority, signed_by
from plimsoll_operator.pki.rotation import AGAIN_MS, DAY_MS
from plimsoll_operator.reconcile.cluster import listeners
from plimsoll_operator.reconcile.shared.pinned_choices import manifest_context
from plimsoll_operator.reconcile.stall_causes import StallSource
from plimsoll_operator.reconcile.work_queue import Retry

PLAIN = {"name": "internal", "port": 9092}
TLS = {"name": "tls", "port": 9094, "tls": {}}
GIVEN = {"name": "given", "port": 9095, "tls": {"certificateSecret": "corp"}}
NOW_MS = 1_800_000_000_000


class Declared:
    """A LogCluster with listeners, in a term whose controller decides."""

    def __init__(self, *declared: dict[str, Any], version: int = NEWEST, **spec: Any) -> None:
        image = finalised(an_image((0, 1)), version)
        self.deciding = Deciding(image)
        if declared:
            spec["listeners"] = list(declared)
        self.scene = Scene(image, self.deciding, **spec)
        self.now_ms = NOW_MS
        self.scene.term.now_ms = lambda: self.now_ms

    async def look(self) -> None:
        term = self.scene.term
        assert term.cluster is not None
        assert manifest_context(term) is not None
        await self.scene.run_part(listeners.reconcile, term.cluster, manifest_context(term))

    def secret(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.scene.kube.objects["secrets", "kafka", name]
        return found

    def pair(self, broker_id: int, name: str = "tls") -> KeyPair:
        found = manifests.pair_of(self.secret(labels.broker_tls("main", broker_id)), name)
        assert found is not None
        return found

    @property
    def trusted(self) -> bytes:
        shown = self.scene.kube.objects["configmaps", "kafka", "main-listener-ca"]
        return str(shown["data"]["ca.crt"]).encode()

    @property
    def writes(self) -> list[Any]:
        return [call for call in self.scene.kube.calls if call[0] not in ("get", "list")]

    @property
    def stalled(self) -> str:
        cause = self.scene.term.shown.stall_causes.get(StallSource.LISTENERS)
        return "" if cause is None else cause.message

    def give(self, pair: KeyPair, name: str = "corp") -> None:
        meta = {"name": name, "namespace": "kafka", "labels": {}}
        body = manifests._secret(meta, {"tls.crt": pair.certificate, "tls.key": pair.key})
        self.scene.kube.put(SECRETS, body)


async def test_cluster_without_declared_listeners_is_unchanged() -> None:
    made = Declared()
    await made.look()
    assert made.deciding.asked == []
    assert made.writes == []
    assert made.scene.work == []


async def test_brokers_have_certificates_before_listener_is_committed() -> None:
    made = Declared(PLAIN, TLS)
    await made.look()
    for broker_id in (0, 1):
        pair = made.pair(broker_id)
        assert signed_by(pair.certificate, made.trusted)
        names = describe(pair.certificate).names
        assert f"main-broker-{broker_id}-0.main-brokers.kafka.svc" in names
        assert {"main-bootstrap.kafka.svc", "main-bootstrap.kafka.svc.cluster.local"} <= names
        assert f"main-broker-{1 - broker_id}-0.main-brokers.kafka.svc" not in names
    assert [one.name for one in made.deciding.image.listeners] == ["internal", "tls"]
    assert made.stalled == ""


async def test_nothing_is_written_again_while_nothing_is_due() -> None:
    made = Declared(PLAIN, TLS)
    await made.look()
    made.scene.kube.calls.clear()
    made.deciding.asked.clear()
    await made.look()
    kinds = {call[1] for call in made.writes}
    assert kinds <= {"configmaps"}, "an apply of what is there"
    assert made.deciding.asked == []


async def test_certificate_is_renewed_at_two_thirds() -> None:
    made = Declared(TLS)
    await made.look()
    before = made.pair(0)
    made.now_ms = describe(before.certificate).validity.due_ms() - 1
    await made.look()
    assert made.pair(0).certificate == before.certificate
    made.now_ms += 1
    await made.look()
    assert made.pair(0).certificate != before.certificate
    assert signed_by(made.pair(0).certificate, made.trusted)


def ends(made: Declared) -> dict[tuple[str, str], int]:
    shown = listeners.certificate_times(made.scene.term).shown()
    return {(one.listener, one.kind): one.not_after_ms for one in shown}


async def test_end_of_every_certificate_is_known_for_metrics() -> None:
    made, corp = Declared(PLAIN, TLS, GIVEN), new_authority("corp", NOW_MS)
    made.give(issue(corp, ("kafka.corp",), NOW_MS, days=5))
    await made.look()
    day_ms = 24 * 3_600_000
    assert ends(made) == {
        ("", "authority"): NOW_MS + 1095 * day_ms,
        ("tls", "own"): NOW_MS + 90 * day_ms,
        ("given", "given"): NOW_MS + 5 * day_ms,
    }
    made.give(issue(corp, ("kafka.corp",), NOW_MS, days=50))
    await made.look()
    assert ends(made)["given", "given"] == NOW_MS + 50 * day_ms


async def test_expiry_of_irreplaceable_certificate_stays_known() -> None:
    """By another process, too, which has never written it."""
    made = Declared(TLS)
    await made.look()
    before = ends(made)
    made.now_ms = NOW_MS + 100 * 24 * 3_600_000
    made.scene.term._kept.clear()

    async def refused(*_: Any) -> None:
        raise Retry("the API server refuses every write")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listeners, "write_secret", refused)
        with pytest.raises(Retry):
            await made.look()
    assert ends(made)["tls", "own"] == before["tls", "own"] < made.now_ms


async def test_removed_listener_takes_certificate_expiry_along() -> None:
    made = Declared(PLAIN, TLS)
    await made.look()
    assert ends(made)
    cluster = made.scene.term.cluster
    assert cluster is not None
    assert manifest_context(made.scene.term) is not None
    assert cluster.spec.listeners is not None
    spec = msgspec.structs.replace(cluster.spec, listeners=cluster.spec.listeners[:1])
    plain = msgspec.structs.replace(cluster, spec=spec)
    await made.scene.run_part(listeners.reconcile, plain, manifest_context(made.scene.term))
    assert ends(made) == {}


async def test_no_secret_is_listed_or_watched() -> None:
    made = Declared(PLAIN, TLS, GIVEN)
    made.give(issue(new_authority("corp", NOW_MS), ("kafka.corp",), NOW_MS))
    await made.look()
    verbs = {call[0] for call in made.scene.kube.calls if call[1] == "secrets"}
    assert verbs <= {"get", "create", "replace"}


async def test_foreign_secret_with_broker_name_is_left() -> None:
    made, name = Declared(PLAIN, TLS), labels.broker_tls("main", 1)
    theirs = {"metadata": {"name": name, "namespace": "kafka"}, "data": {"password": "aA=="}}
    made.scene.kube.put(SECRETS, theirs)
    await made.look()
    assert made.secret(name)["data"] == {"password": "aA=="}
    assert made.scene.term.shown.stall_causes[StallSource.LISTENERS].reason == "SecretForeign"
    assert f"Secret {name} does not belong to this LogCluster" in made.stalled
    assert "Delete it" in made.stalled
    assert made.pair(0).certificate, "the other broker has its own"
    made.scene.kube.drop(SECRETS, "kafka", name)
    await made.look()
    assert made.stalled == ""
    assert made.pair(1).certificate


async def test_broker_secret_without_labels_is_recognised() -> None:
    made, name = Declared(PLAIN, TLS), labels.broker_tls("main", 1)
    await made.look()
    for lost in ("ownerReferences", "labels"):
        secret = made.secret(name)
        made.scene.kube.put(SECRETS, {**secret, "data": {}})
        made.scene.kube.set_metadata(SECRETS, "kafka", name, **{lost: None})
        await made.look()
        assert made.stalled == "", lost
        assert made.pair(1).certificate, "it is written anew"


async def test_given_key_pair_is_copied_and_followed() -> None:
    made, corp = Declared(GIVEN), new_authority("corp", NOW_MS)
    given = issue(corp, ("kafka.corp",), NOW_MS)
    made.give(given)
    await made.look()
    for broker_id in (0, 1):
        assert made.pair(broker_id, "given").certificate == given.certificate
    assert ("configmaps", "kafka", "main-listener-ca") not in made.scene.kube.objects
    other = issue(corp, ("kafka.corp",), NOW_MS)
    made.give(other)
    await made.look()
    assert made.pair(1, "given").certificate == other.certificate


@pytest.mark.parametrize("wrong", ["absent", "no key", "another's key"])
async def test_missing_key_pair_is_reported_and_old_shown(wrong: str) -> None:
    made, corp = Declared(PLAIN, GIVEN), new_authority("corp", NOW_MS)
    given = issue(corp, ("kafka.corp",), NOW_MS)
    made.give(given)
    await made.look()
    if wrong == "absent":
        made.scene.kube.drop(SECRETS, "kafka", "corp")
    else:
        key = b"" if wrong == "no key" else issue(corp, ("kafka.corp",), NOW_MS).key
        made.give(KeyPair(certificate=given.certificate, key=key))
    await made.look()
    assert "Secret corp" in made.stalled
    assert made.pair(0, "given").certificate == given.certificate
    assert len(made.deciding.image.listeners) == 2
    made.give(given)
    await made.look()
    assert made.stalled == ""


async def test_listeners_during_upgrade_wait_without_stall() -> None:
    made = Declared(TLS, version=2)
    await made.look()
    assert made.deciding.image.listeners == ()
    assert made.stalled == ""
    pinned = Declared(TLS, version=2, metadataVersion="0.1")
    await pinned.look()
    assert "needs metadata version" in pinned.stalled


async def test_foreign_authority_secret_is_never_overwritten() -> None:
    made = Declared(TLS)
    name = labels.listener_authority(made.deciding.image.cluster_id)
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "kafka", "labels": {}},
        "data": {"ca.crt": "eA=="},
    }
    made.scene.kube.put(SECRETS, body)
    await made.look()
    assert f"Secret kafka/{name} cannot be used: it does not hold the CAs" in made.stalled
    assert made.secret(name)["data"] == {"ca.crt": "eA=="}


@pytest.mark.parametrize("spoilt", ["ca.crt", "ca.key", "announced.crt", "former.crt"])
async def test_damaged_authority_is_reported_and_brokers_keep_certificates(spoilt: str) -> None:
    """Once the term ended with it, as soon as a broker's certificate was due."""
    made, corp = Declared(TLS, GIVEN), new_authority("corp", NOW_MS)
    made.give(issue(corp, ("kafka.corp",), NOW_MS))
    await made.look()
    name = labels.listener_authority(made.deciding.image.cluster_id)
    whole, before, trusted = made.secret(name), made.pair(0), made.trusted
    junk = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    data = {"announced.key": whole["data"]["ca.key"], **whole["data"], spoilt: junk.decode()}
    made.scene.kube.put(SECRETS, {**whole, "data": data})
    made.now_ms += 61 * DAY_MS
    given = issue(corp, ("kafka.corp",), made.now_ms)
    made.give(given)
    await made.look()
    assert (
        f"The CA that signs brokers' listener certificates: Secret kafka/{name} cannot be used: "
        in made.stalled
    )
    assert "Restore its content, or delete it" in made.stalled
    assert made.pair(0).certificate == before.certificate
    assert made.trusted == trusted
    assert made.pair(1, "given").certificate == given.certificate, "the other listener goes on"
    made.scene.kube.put(SECRETS, whole)
    await made.look()
    assert made.stalled == ""
    assert made.pair(0).certificate != before.certificate


async def test_listener_authority_expired_unattended_is_replaced() -> None:
    """Once the term ended with it: an authority that is over signs nothing."""
    made = Declared(TLS)
    await made.look()
    before = made.trusted
    made.now_ms += 1095 * DAY_MS
    await made.look()
    assert made.stalled == ""
    assert signed_by(made.pair(0).certificate, made.trusted)
    assert not signed_by(made.pair(0).certificate, before)


async def test_authority_is_replaced_in_steps_on_request() -> None:
    made = Declared(TLS)
    await made.look()
    first = made.trusted
    for request, trusted_before in (("1", True), ("2", True), ("3", False)):
        body = made.scene.kube.find(LOG_CLUSTERS, "kafka", "main")
        body["metadata"]["annotations"] = {labels.ROTATE_LISTENERS: request}
        made.scene.objects.clusters.put(made.scene.kube.put(LOG_CLUSTERS, body))
        shown = made.trusted
        await made.look()
        assert signed_by(made.pair(0).certificate, shown), "nobody trusts what is shown now"
        assert (first in made.trusted) == trusted_before
        assert signed_by(made.pair(0).certificate, first) == (request == "1")
        made.now_ms += AGAIN_MS
    assert first not in made.trusted


@pytest.mark.parametrize("days", [61, 3 * 365, 4 * 365])
async def test_clock_ahead_replaces_nothing_and_is_reported(days: int) -> None:
    made = Declared(TLS)
    await made.look()
    trusted, shown = made.trusted, made.pair(0)
    made.scene.kube.said_ms = NOW_MS
    made.now_ms += days * DAY_MS
    await made.look()
    assert (made.trusted, made.pair(0)) == (trusted, shown)
    assert made.scene.term.shown.stall_causes[StallSource.CLOCK].reason == "ClockAhead"


async def test_authority_with_deleted_secret_is_recreated() -> None:
    made = Declared(TLS)
    await made.look()
    before = made.trusted
    name = labels.listener_authority(made.deciding.image.cluster_id)
    made.scene.kube.drop(SECRETS, "kafka", name)
    await made.look()
    assert made.trusted != before
    assert signed_by(made.pair(0).certificate, made.trusted)
    assert not signed_by(made.pair(0).certificate, before)


async def test_authority_keys_are_in_operators_namespace() -> None:
    made = Declared(TLS)
    made.scene.kube.put(NAMESPACES, {"metadata": {"name": "plimsoll-system"}})
    made.scene.term.options = replace(made.scene.term.options, namespace="plimsoll-system")
    await made.look()
    name = labels.listener_authority(made.deciding.image.cluster_id)
    assert ("secrets", "plimsoll-system", name) in made.scene.kube.objects
    in_cluster = [key for key in made.scene.kube.objects if key[:2] == ("secrets", "kafka")]
    assert in_cluster == [
        ("secrets", "kafka", labels.broker_tls("main", 0)),
        ("secrets", "kafka", labels.broker_tls("main", 1)),
    ]
    shown = made.scene.kube.objects[CONFIG_MAPS.plural, "kafka", "main-listener-ca"]
    assert "PRIVATE" not in str(shown)


# --- manifests ------------------------------------------------------------------------------------


def test_services_and_policies_follow_the_committed_listeners() -> None:
    made = Declared(PLAIN, TLS)
    context = manifest_context(made.scene.term)
    assert context is not None
    opened = (
        Listener(name="internal", port=9092),
        Listener(name="tls", port=9094, tls_version_min="1.2"),
    )
    for service in (brokers_service(context, opened), bootstrap_service(context, opened)):
        ports = {one["name"]: one["port"] for one in service["spec"]["ports"]}
        ports.pop("metrics", None)
        assert ports == {"kafka-internal": 9092, "kafka-tls": 9094}
    policy = network_policy(context, opened)
    first = [one["port"] for one in policy["spec"]["ingress"][0]["ports"]]
    assert first == [9092, 9094, labels.HEALTH_PORT]
    only = network_policy(context, opened[1:])
    assert 9092 not in [one["port"] for one in only["spec"]["ingress"][0]["ports"]]


def test_declared_listener_is_committed_with_its_defaults() -> None:
    declared = (
        DeclaredListener(name="tls", port=9094, tls=ListenerTls()),
        DeclaredListener(name="internal", port=9092),
    )
    assert committed(declared) == (
        Listener(name="internal", port=9092),
        Listener(name="tls", port=9094, tls_version_min="1.2"),
    )
    assert committed(None) == ()
