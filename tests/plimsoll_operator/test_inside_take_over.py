"""An operator takes over a cluster that requires certificates: brokers are shown the controller's,
whatever the LogCluster's spec says."""

import asyncio
from base64 import b64encode
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.plimsoll_broker.tls_listening import until
from tests.plimsoll_operator.builders import CLUSTER_UID
from tests.plimsoll_operator.test_group_commit import MemoryLog
from tests.plimsoll_operator.test_inside import DAY_MS, Inside
from tests.plimsoll_operator.test_leader import WAIT_S, NoServer, Scene

from plimsoll_core.cluster.record_versions import NEWEST
from plimsoll_core.cluster.records import ControllerChanged, InsideModeSet, MetadataVersionFinalized
from plimsoll_core.ids import ControllerEpoch
from plimsoll_core.security.inside import RETIRED, InsideMode
from plimsoll_net.inside_identity import CERTIFICATE
from plimsoll_operator.api import labels
from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.kube.resources import LOG_CLUSTERS, SECRETS
from plimsoll_operator.manifests import listener_secrets as manifests
from plimsoll_operator.metalog.codec import pack
from plimsoll_operator.metalog.interface import EMPTY_TIP
from plimsoll_operator.pki.authority import INSIDE_CA_DAYS, signed_by
from plimsoll_operator.reconcile.cluster import inside
from plimsoll_operator.reconcile.shared.pinned_choices import manifest_context
from plimsoll_operator.reconcile.stall_causes import StallSource
from plimsoll_operator.reconcile.work_queue import Retry

CLUSTER = UUID(CLUSTER_UID)


class ShowingServer(NoServer):
    """Notes what brokers are shown."""

    def __init__(self) -> None:
        self.inside = self
        self.tell: dict[UUID, Any] = {}
        self.committed: dict[UUID, Any] = {}
        self.demands_tls: dict[UUID, Any] = {}
        self.shown: asyncio.Queue[Any] = asyncio.Queue()

    def show(self, cluster_id: UUID, identity: Any) -> None:
        assert cluster_id == CLUSTER
        self.shown.put_nowait(identity)


async def a_closed_scene() -> tuple[Scene, ShowingServer]:
    """A cluster in mode Required, of which the log and the authority's Secret are there."""
    made = Inside()
    await made.settle()
    log, tip = MemoryLog(), EMPTY_TIP
    for record in (
        ControllerChanged(cause="t", controller_epoch=ControllerEpoch(1), identity="before"),
        MetadataVersionFinalized(cause="t", metadata_version=NEWEST),
        InsideModeSet(cause="declared", mode=InsideMode.REQUIRED),
    ):
        for batch in pack([record], tip, 1, lambda: uuid4().hex):
            log.batches.append(batch)
            tip = tip.after(batch)
    scene, server = Scene(log), ShowingServer()
    scene.parts.server = server  # type: ignore[assignment]
    name = labels.inside_authority(CLUSTER)
    context = manifest_context(made.scene.term)
    assert context is not None
    secret = manifests.authority_secret(context, made.authority, name, "internal-ca")
    secret["metadata"]["namespace"] = "kafka"
    scene.kube.put(SECRETS, secret)
    return scene, server


def declare(scene: Scene, **spec: Any) -> None:
    body = scene.kube.find(LOG_CLUSTERS, "kafka", "main")
    scene.parts.objects.clusters.put(scene.kube.put(LOG_CLUSTERS, {**body, "spec": spec}))


async def shown_in_a_term(scene: Scene, server: ShowingServer) -> Any:
    term = asyncio.create_task(scene.leader.run())
    shown = asyncio.create_task(server.shown.get())
    async with asyncio.timeout(WAIT_S):
        await asyncio.wait((term, shown), return_when=asyncio.FIRST_COMPLETED)
        await scene.leader.stop()
        await term
    return shown.result()


@pytest.mark.parametrize(
    "refused",
    [
        {"version": "99.0"},
        {"config": {"no.such.config": "1"}},
    ],
)
async def test_new_operator_presents_certificate_despite_refused_spec(
    refused: dict[str, Any],
) -> None:
    scene, server = await a_closed_scene()
    declare(scene, storage={"size": "1Gi"}, **refused)
    assert (await shown_in_a_term(scene, server)).authorities


async def test_new_operator_presents_certificate_after_failed_reads() -> None:
    scene, server = await a_closed_scene()
    declare(scene, storage={"size": "1Gi"}, version="99.0")
    get, failures = scene.kube.get, [Unavailable(503, "etcd"), Unavailable(503, "etcd")]

    async def failing(kind: Any, namespace: str, name: str) -> Any:
        if kind is SECRETS and failures:
            raise failures.pop()
        return await get(kind, namespace, name)

    scene.kube.get = failing  # type: ignore[method-assign]
    assert (await shown_in_a_term(scene, server)).authorities
    assert not failures


@pytest.mark.parametrize("spoilt", ["former.crt", "announced.crt", "ca.crt", "ca.key"])
async def test_damaged_authority_ends_no_term(spoilt: str) -> None:
    """Each term ended with it, before anything else was done: no controller was left."""
    scene, server = await a_closed_scene()
    declare(scene, storage={"size": "1Gi"}, version="99.0")
    whole = scene.kube.find(SECRETS, "kafka", labels.inside_authority(CLUSTER))
    damaged = b64encode(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    data = {**whole["data"], spoilt: damaged.decode()}
    scene.kube.put(SECRETS, {**whole, "data": data})
    term = asyncio.create_task(scene.leader.run())
    async with asyncio.timeout(WAIT_S):
        await scene.leader.controller.wait_active()
        await asyncio.wait({term}, timeout=0.2)
        assert not term.done()
        scene.kube.put(SECRETS, whole)
        assert (await server.shown.get()).authorities
        await scene.leader.stop()
        await term


async def test_refused_peers_are_one_event_per_reason() -> None:
    scene, server = await a_closed_scene()
    term = asyncio.create_task(scene.leader.run())
    async with asyncio.timeout(WAIT_S):
        await server.shown.get()
        for _ in range(1_000):
            for reason in ("plaintext", RETIRED):
                server.tell[CLUSTER](reason)
        await until(lambda: scene.events.count("PeerRefused") == 2)
        await scene.leader.stop()
        await term
    assert scene.events.count("PeerRefused") == 2


async def test_expired_authority_is_replaced_by_later_operator() -> None:
    """Nobody inside asks for times; once the operator could sign nothing to be shown itself, and so
    no broker could tell it that the next authority is trusted."""
    made = Inside()
    await made.settle()
    before = made.authority.current
    made.now_ms += (INSIDE_CA_DAYS + 1) * DAY_MS
    made.scene.term._kept.clear()
    made.shown.clear()
    made.scene.effects.carry_out(await inside.show_at_once(made.scene.term))
    assert made.shown
    await made.settle(30)
    assert made.authority.current != before
    assert made.authority.trusted == made.authority.current.certificate
    for broker_id in (0, 1):
        assert signed_by(made.files(broker_id)[CERTIFICATE], made.authority.trusted)
        assert made.allowed(broker_id) == (made.sha256(broker_id),)


@pytest.mark.parametrize("spoilt", ["ca.crt", "ca.key"])
async def test_damaged_internal_authority_is_told_and_replaces_nothing(spoilt: str) -> None:
    made = Inside()
    await made.settle()
    name = labels.inside_authority(made.deciding.image.cluster_id)
    whole = made.scene.kube.find(SECRETS, "kafka", name)
    held = {broker_id: made.files(broker_id) for broker_id in (0, 1)}
    junk = b64encode(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").decode()
    made.scene.kube.put(SECRETS, {**whole, "data": {**whole["data"], spoilt: junk}})
    with pytest.raises(Retry):
        await made.settle()
    cause = made.scene.term.shown.stall_causes[StallSource.INSIDE]
    assert cause.reason == "CertificateMissing"
    assert f"Secret kafka/{name} cannot be used: " in cause.message
    assert "restore the content of its Secret" in cause.message
    assert {broker_id: made.files(broker_id) for broker_id in (0, 1)} == held
    made.scene.kube.put(SECRETS, whole)
    await made.settle()
    assert StallSource.INSIDE not in made.scene.term.shown.stall_causes


class Died(Exception):
    """The operator is gone."""


class Mortal:
    """Dies at one of its effects on the API server and the log, before it or after it."""

    def __init__(self, made: Inside, at: int, *, done: bool) -> None:
        self.left, self.done = at, done
        made.scene.kube.replace = self.dying(made.scene.kube.replace)  # type: ignore[method-assign]
        made.deciding.request = self.dying(made.deciding.request)  # type: ignore[method-assign]

    def dying(self, effect: Any) -> Any:
        async def once(*arguments: Any) -> Any:
            self.left -= 1
            if self.left == -1 and not self.done:
                raise Died
            result = await effect(*arguments)
            if self.left == -1:
                raise Died
            return result

        return once


@pytest.mark.slow
@pytest.mark.parametrize("done", [False, True])
async def test_operator_death_during_rotation_disconnects_no_broker(
    done: bool,
) -> None:
    """What a broker shows stays allowed, its authority trusted, and the next operator ends it."""
    deaths = 0
    for at in range(100):
        made = Inside()
        await made.settle()
        first = made.authority.current.certificate
        made.want("Required", **{labels.ROTATE_INSIDE: "1"})
        mortal = Mortal(made, at, done=done)
        for _ in range(12):
            made.beat()
            shown = {broker: made.sha256(broker) for broker in (0, 1)}
            signed = {broker: made.files(broker)[CERTIFICATE] for broker in (0, 1)}
            try:
                await made.look()
            except Died:
                deaths += 1
                made.scene.term._kept.clear()
            for broker in (0, 1):
                assert shown[broker] in made.allowed(broker)
                assert signed_by(signed[broker], made.authority.trusted)
        assert made.authority.current.certificate != first
        assert made.authority.former == b""
        if mortal.left >= 0:
            break
    assert deaths == at
    assert deaths >= 8
