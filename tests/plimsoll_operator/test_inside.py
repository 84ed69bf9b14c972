"""Certificates that brokers and the operator show each other: what is written, in which order."""

from typing import Any

from tests.plimsoll_operator.builders import an_image, finalised, replay
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_core.cluster.record_versions import NEWEST
from plimsoll_core.cluster.records import BrokerFenced, BrokerUnfenced
from plimsoll_core.controller.kernel.volatile_state import Contact
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import BrokerFigures, InsideFigures
from plimsoll_core.security.inside import InsideMode, broker_identity
from plimsoll_net.inside_identity import AUTHORITIES, CERTIFICATE, KEY, MODE, fingerprints
from plimsoll_operator.api import labels
from plimsoll_operator.kube.resources import SECRETS
from plimsoll_operator.manifests import listener_secrets as manifests
from plimsoll_operator.pki.authority import (
    INSIDE_CA_DAYS,
    INSIDE_DAYS,
    describe,
    issue_inside,
    new_authority,
    signed_by,
)
from plimsoll_operator.reconcile.cluster import inside
from plimsoll_operator.reconcile.cluster.access import secure_condition
from plimsoll_operator.reconcile.shared.pinned_choices import manifest_context
from plimsoll_operator.reconcile.stall_causes import StallSource

NOW_MS = 1_800_000_000_000
DAY_MS = 24 * 3_600_000


class Inside:
    """A LogCluster of two brokers that run, in a term whose controller decides."""

    def __init__(self, mode: str | None = "Required", version: int = NEWEST) -> None:
        image = finalised(an_image((0, 1)), version)
        self.deciding = Deciding(image)
        self.now_ms = NOW_MS
        self.scene = Scene(image, self.deciding)
        self.want(mode)
        self.scene.term.now_ms = lambda: self.now_ms
        self.shown: list[Any] = []
        self.scene.term.show_inside = self.shown.append
        # Brokers that hear and tell nothing.
        self.away: set[int] = set()
        # Brokers whose copy of the metadata is not on their disks.
        self.uncopied: set[int] = set()
        # Connections in plaintext, of each broker.
        self.plaintext = 0

    def want(self, mode: str | None, **annotations: str) -> None:
        spec = {} if mode is None else {"certificates": {"internal": {"mode": mode}}}
        self.scene.declare(**spec)
        if annotations:
            body = self.scene.kube.objects["logclusters", "kafka", "main"]
            body["metadata"]["annotations"] = annotations
            self.scene.objects.clusters.put(body)

    @property
    def mode(self) -> InsideMode:
        return self.deciding.image.inside.mode

    def files(self, broker_id: int) -> dict[str, bytes]:
        key = "secrets", "kafka", labels.broker_tls("main", broker_id)
        return manifests.inside_of(self.scene.kube.objects.get(key))

    def sha256(self, broker_id: int) -> str:
        return describe(self.files(broker_id)[CERTIFICATE]).sha256

    def allowed(self, broker_id: int) -> tuple[str, ...]:
        return self.deciding.image.inside.of(broker_id)

    def beat(self) -> None:
        """Brokers have loaded what is in their Secrets, and say so."""
        for broker_id in (0, 1):
            if broker_id in self.away:
                continue
            files = self.files(broker_id)
            told = InsideFigures(
                sha256=describe(files[CERTIFICATE]).sha256 if files else "",
                authorities=fingerprints(files[AUTHORITIES]) if files else (),
                plaintext=self.plaintext,
                only_tls=bool(files) and files[MODE] == b"Required",
            )
            broker = self.deciding.image.brokers[BrokerId(broker_id)]
            copied = None if broker_id in self.uncopied else self.deciding.image.next_offset
            self.deciding.soft.contacts[broker.id] = Contact(
                broker_epoch=broker.broker_epoch,
                last_ms=0,
                figures=BrokerFigures(inside=told, copied_offset=copied),
            )

    def goes(self, broker_id: int) -> None:
        """It is fenced, and tells nothing more."""
        self.away.add(broker_id)
        self._change(BrokerFenced, broker_id)

    def returns(self, broker_id: int) -> None:
        self.away.discard(broker_id)
        self._change(BrokerUnfenced, broker_id)

    def _change(self, kind: type[BrokerFenced] | type[BrokerUnfenced], broker_id: int) -> None:
        found = self.deciding.image.brokers[BrokerId(broker_id)]
        record = kind(cause="t", broker_id=found.id, broker_epoch=found.broker_epoch)
        self.deciding.image = replay(self.deciding.image, record)

    async def look(self) -> None:
        term = self.scene.term
        assert term.cluster is not None
        assert manifest_context(term) is not None
        wanted = await self.scene.run_part(inside.decide, term.cluster)
        context = manifest_context(term)
        await self.scene.run_part(inside.reconcile, term.cluster, context, wanted)

    async def settle(self, passes: int = 12) -> None:
        for _ in range(passes):
            self.beat()
            await self.look()

    @property
    def authority(self) -> Any:
        name = labels.inside_authority(self.deciding.image.cluster_id)
        secret = next(body for key, body in self.scene.kube.objects.items() if key[2] == name)
        found = manifests.authorities_of(secret)
        assert found is not None
        return found


async def test_cluster_without_stated_mode_is_unchanged() -> None:
    made = Inside(mode=None)
    await made.look()
    assert made.deciding.asked == []
    assert [call for call in made.scene.kube.calls if call[0] not in ("get", "list")] == []
    assert made.scene.work == []


async def test_certificates_are_committed_before_brokers_have_them() -> None:
    made = Inside()
    writes: list[tuple[str, ...]] = []
    create = made.scene.kube.create

    async def noting(kind: Any, body: Any) -> Any:
        name = body["metadata"]["name"]
        if kind is SECRETS and name.endswith("-tls"):
            digest = describe(manifests.data_of(body)[CERTIFICATE]).sha256
            writes.append((name, digest))
            assert any(digest in row.sha256 for row in made.deciding.image.inside.certificates)
        return await create(kind, body)

    made.scene.kube.create = noting  # type: ignore[method-assign]
    await made.look()
    assert len(writes) == 2
    for broker_id in (0, 1):
        found = describe(made.files(broker_id)[CERTIFICATE])
        assert found.names == {broker_identity(made.deciding.image.cluster_id, broker_id)}
        assert found.validity.not_after_ms == NOW_MS + INSIDE_DAYS * DAY_MS
        assert made.allowed(broker_id) == (found.sha256,)
        assert signed_by(made.files(broker_id)[CERTIFICATE], made.authority.current.certificate)
    assert len(made.shown) == 1


async def test_mode_becomes_required_when_brokers_are_ready() -> None:
    made = Inside()
    made.plaintext = 1
    await made.settle(3)
    assert made.mode is InsideMode.PERMISSIVE
    assert made.files(0)[MODE] == b"Permissive"
    assert "1 connections in plaintext" in inside.waits_of(made.scene.term)
    assert StallSource.INSIDE not in made.scene.term.shown.stall_causes
    made.plaintext = 0
    await made.settle(3)
    assert made.mode is InsideMode.REQUIRED
    assert made.files(0)[MODE] == b"Required"
    assert inside.waits_of(made.scene.term) == ""


async def test_nothing_is_written_again_while_nothing_is_due() -> None:
    made = Inside()
    await made.settle()
    made.scene.kube.calls.clear()
    records = len(made.deciding.records)
    await made.settle(2)
    assert {call[0] for call in made.scene.kube.calls} == {"get"}
    assert len(made.deciding.records) == records
    assert len(made.shown) == 1


async def test_return_to_off_removes_files_last() -> None:
    made = Inside()
    await made.settle()
    made.want("Off")
    await made.look()
    assert made.mode is InsideMode.PERMISSIVE
    assert made.files(0)[MODE] == b"Required", "not looked at in this pass"
    await made.look()
    assert made.mode is InsideMode.PERMISSIVE, "brokers still insist on TLS"
    assert made.files(0)[MODE] == b"Permissive"
    await made.settle(3)
    assert made.mode is InsideMode.OFF
    assert made.files(0) == {}
    assert made.allowed(0) == ()


async def test_absent_broker_keeps_certificate_until_off_is_known() -> None:
    """Its copy of the metadata says Required: without one it would call nobody."""
    made = Inside()
    await made.settle()
    made.goes(1)
    kept = made.sha256(1)
    made.want("Off")
    await made.settle(6)
    assert made.mode is InsideMode.OFF
    assert (made.files(0), made.allowed(0)) == ({}, ())
    assert (made.sha256(1), made.allowed(1)) == (kept, (kept,))
    assert made.files(1)[MODE] == b"Off"
    # Its authority is known to whoever leads, now and in a later term.
    made.shown.clear()
    made.scene.term._kept.clear()
    made.scene.effects.carry_out(await inside.show_at_once(made.scene.term))
    assert len(made.shown) == 1
    # It is back, and has not told yet; then its disk takes nothing.
    made.returns(1)
    made.uncopied = {1}
    await made.look()
    await made.settle(2)
    assert made.sha256(1) == kept
    shown = secure_condition(made.deciding.image, inside.waits_of(made.scene.term))
    assert shown is not None
    assert shown.message.endswith(
        "although internal TLS is Off: the broker cannot update its copy of the metadata on disk, "
        "which still says Required (see the broker's log). The operator then removes the "
        "certificate by itself."
    )
    made.uncopied = set()
    await made.settle(2)
    assert inside.waits_of(made.scene.term) == ""
    assert (made.files(1), made.allowed(1)) == ({}, ())
    made.scene.kube.calls.clear()
    await made.settle(2)
    assert made.scene.kube.calls == [], "nothing is left to do"


async def test_absent_broker_in_off_gets_new_authority() -> None:
    """Its certificate is looked after as in any other mode: what is kept is never left behind."""
    made = Inside()
    await made.settle()
    made.goes(1)
    made.want("Off")
    await made.settle(6)
    old, first = made.sha256(1), made.authority.current.certificate
    made.want("Off", **{labels.ROTATE_INSIDE: "1"})
    await made.settle(6)
    assert made.authority.current.certificate != first
    assert made.sha256(1) != old
    assert made.allowed(1)[0] == made.sha256(1)
    made.returns(1)
    await made.settle(3)
    assert (made.files(1), made.allowed(1)) == ({}, ())


async def test_previous_certificate_is_refused_once_new_is_used() -> None:
    made = Inside()
    await made.settle()
    old = made.sha256(0), made.sha256(1)
    made.now_ms += (INSIDE_DAYS * 2 // 3 + 1) * DAY_MS
    await made.look()
    assert made.allowed(0) == (made.sha256(0), old[0])
    assert made.sha256(1) == old[1], "one broker after the other"
    made.beat()
    await made.settle()
    for broker_id in (0, 1):
        assert made.sha256(broker_id) != old[broker_id]
        assert made.allowed(broker_id) == (made.sha256(broker_id),)


async def test_lost_secret_write_keeps_used_certificate_valid() -> None:
    """The record is committed, and the operator dies before it has written the Secret."""
    made = Inside()
    await made.settle()
    old = made.sha256(0)
    made.now_ms += (INSIDE_DAYS * 2 // 3 + 1) * DAY_MS
    before = {key: dict(body) for key, body in made.scene.kube.objects.items()}
    await made.look()
    lost = made.sha256(0)
    name = labels.broker_tls("main", 0)
    made.scene.kube.put(SECRETS, before["secrets", "kafka", name])
    made.beat()
    await made.look()
    assert old in made.allowed(0)
    assert lost not in made.allowed(0)
    await made.settle()
    assert made.allowed(0) == (made.sha256(0),)


async def test_authority_rotation_waits_for_brokers() -> None:
    made = Inside()
    await made.settle()
    first = made.authority.current.certificate
    old = made.sha256(0)
    made.want("Required", **{labels.ROTATE_INSIDE: "1"})
    await made.look()
    assert made.authority.announced is not None
    assert fingerprints(made.files(0)[AUTHORITIES]) == fingerprints(made.authority.trusted)
    await made.look()
    assert made.authority.current.certificate == first, "no broker has told that it trusts both"
    made.beat()
    await made.look()
    assert made.authority.current.certificate != first
    assert made.authority.former == first
    assert old in made.allowed(0)
    await made.settle()
    assert made.authority.former == b""
    assert first not in made.files(1)[AUTHORITIES]
    for broker_id in (0, 1):
        certificate = made.files(broker_id)[CERTIFICATE]
        assert signed_by(certificate, made.authority.current.certificate)
        assert made.allowed(broker_id) == (made.sha256(broker_id),)
    # The same wish is served once.
    await made.settle(3)
    assert made.authority.announced is None


async def test_authority_is_announced_after_two_thirds() -> None:
    made = Inside()
    await made.settle()
    first = made.authority.current.certificate
    made.now_ms += (INSIDE_CA_DAYS * 2 // 3 + 1) * DAY_MS
    await made.settle(20)
    assert made.authority.current.certificate != first
    assert made.authority.former == b""


async def test_broker_that_does_not_follow_delays_rotation() -> None:
    made = Inside()
    await made.settle()
    first = made.authority.current.certificate
    made.away = {1}
    made.want("Required", **{labels.ROTATE_INSIDE: "1"})
    await made.settle()
    assert made.authority.current.certificate == first
    made.away = set()
    await made.settle()
    assert made.authority.current.certificate != first
    assert made.authority.former == b""


async def test_foreign_certificates_in_secret_are_replaced() -> None:
    made = Inside()
    await made.settle()
    name = labels.broker_tls("main", 0)
    other = new_authority("other", NOW_MS)
    foreign = issue_inside(other, broker_identity(made.deciding.image.cluster_id, 0), NOW_MS)
    for certificate, key in (
        (b"spoilt", made.files(0)[KEY]),
        (foreign.certificate, foreign.key),
        (made.files(1)[CERTIFICATE], made.files(1)[KEY]),
    ):
        secret = made.scene.kube.objects["secrets", "kafka", name]
        files = {**made.files(0), CERTIFICATE: certificate, KEY: key}
        context = manifest_context(made.scene.term)
        assert context is not None
        made.scene.kube.put(SECRETS, manifests.with_inside(context, 0, secret, files))
        await made.look()
        await made.settle(4)
        found = describe(made.files(0)[CERTIFICATE])
        assert found.names == {broker_identity(made.deciding.image.cluster_id, 0)}
        assert made.allowed(0) == (found.sha256,)


async def test_mode_at_older_metadata_version_waits() -> None:
    made = Inside(version=2)
    await made.look()
    assert "metadata version" in inside.waits_of(made.scene.term)
    assert StallSource.INSIDE not in made.scene.term.shown.stall_causes
    made.scene.declare(certificates={"internal": {"mode": "Required"}}, metadataVersion="0.1")
    await made.look()
    assert made.scene.term.shown.stall_causes[StallSource.INSIDE].reason == "MetadataTooOld"


async def test_foreign_secret_with_broker_name_stops_certificates() -> None:
    made, name = Inside(), labels.broker_tls("main", 1)
    theirs = {"metadata": {"name": name, "namespace": "kafka"}, "data": {"password": "aA=="}}
    made.scene.kube.put(SECRETS, theirs)
    await made.settle(3)
    assert made.scene.kube.objects["secrets", "kafka", name]["data"] == {"password": "aA=="}
    cause = made.scene.term.shown.stall_causes[StallSource.INSIDE]
    assert cause.reason == "SecretForeign"
    assert f"Secret {name} does not belong to this LogCluster" in cause.message
    assert inside.waits_of(made.scene.term) == cause.message
    assert not made.files(0), "nobody is given one before that is over"
    made.scene.kube.drop(SECRETS, "kafka", name)
    await made.settle()
    assert made.mode is InsideMode.REQUIRED
    assert StallSource.INSIDE not in made.scene.term.shown.stall_causes
