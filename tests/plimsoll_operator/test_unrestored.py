"""A cluster with volumes and an empty metadata log: its brokers start, nothing is committed."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator.builders import CLUSTER_UID, an_image
from tests.plimsoll_operator.terms import Scene
from tests.plimsoll_operator.test_group_commit import MemoryLog, a_controller, a_registration
from tests.plimsoll_operator.test_identity import hold_volume
from tests.plimsoll_operator.test_leader import WAIT_S
from tests.plimsoll_operator.test_leader import Scene as LedScene

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.records import ControllerChanged
from plimsoll_core.ids import BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.requests import LogPosition, SetMembers
from plimsoll_core.security.inside import (
    PLAINTEXT,
    BrokerCertificates,
    Inside,
    InsideMode,
    Peer,
    broker_identity,
    refuses_broker,
)
from plimsoll_net.inside_identity import AUTHORITIES, CERTIFICATE
from plimsoll_operator.api import labels
from plimsoll_operator.controller import metadata_restoration
from plimsoll_operator.controller.controller_term import Controller, Outcome
from plimsoll_operator.controller.inside_server import InsideServer
from plimsoll_operator.controller.metadata_restoration import BackupOffer, RestorationOptions
from plimsoll_operator.kube.resources import LOG_CLUSTERS, SECRETS, STATEFUL_SETS, Kind
from plimsoll_operator.manifests import listener_secrets as manifests
from plimsoll_operator.metalog.interface import LogUnavailable
from plimsoll_operator.pki.authority import describe, signed_by
from plimsoll_operator.reconcile.cluster import unrestored

CLUSTER = UUID(CLUSTER_UID)
IDS = tuple(BrokerId(b) for b in (0, 2))


def a_scene() -> Scene:
    return Scene(ClusterImage(cluster_id=CLUSTER))


async def bring_up(scene: Scene) -> None:
    scene.effects.carry_out(await unrestored.bring_up(scene.term, IDS))


def files(scene: Scene, broker_id: int) -> dict[str, bytes]:
    name = labels.broker_tls("main", broker_id)
    return manifests.inside_of(scene.kube.find(SECRETS, "kafka", name))


async def test_brokers_with_volumes_are_started_with_certificates():
    scene = a_scene()
    await bring_up(scene)
    assert scene.made("statefulsets") == ["main-broker-0", "main-broker-2"]
    assert scene.made("services") == ["main-bootstrap", "main-brokers"]
    secret = scene.kube.find(SECRETS, "kafka", labels.inside_authority(CLUSTER))
    authorities = manifests.authorities_of(secret)
    assert authorities is not None
    for broker_id in IDS:
        found = files(scene, broker_id)
        assert describe(found[CERTIFICATE]).names == {broker_identity(CLUSTER, broker_id)}
        assert signed_by(found[CERTIFICATE], authorities.current.certificate)
        assert found[AUTHORITIES] == authorities.trusted


async def test_second_start_changes_no_certificate():
    scene = a_scene()
    await bring_up(scene)
    before = [files(scene, broker_id) for broker_id in IDS]
    scene.kube.calls.clear()
    await bring_up(scene)
    assert [files(scene, broker_id) for broker_id in IDS] == before
    assert {verb for verb, _, _ in scene.kube.calls} <= {"get", "list"}


async def test_unrestored_cluster_admits_only_written_certificates():
    scene = a_scene()
    assert unrestored.admitted(scene.term) == Inside()
    await bring_up(scene)
    admits = unrestored.admitted(scene.term)
    assert admits.mode is InsideMode.REQUIRED, "no copy is taken from a stranger in plaintext"
    shown = describe(files(scene, 0)[CERTIFICATE]).sha256
    right = Peer(cluster_id=CLUSTER, broker_id=BrokerId(0), sha256=shown)
    assert refuses_broker(admits, CLUSTER, right) == ""
    assert refuses_broker(admits, CLUSTER, replace(right, broker_id=BrokerId(2))) != ""
    assert refuses_broker(admits, CLUSTER, replace(right, sha256="00")) != ""


@pytest.mark.parametrize(
    ("mode", "refuses"), [("Required", True), ("Permissive", False), ("Off", False), (None, False)]
)
async def test_damaged_log_admits_no_stranger_in_plaintext(mode: str | None, refuses: bool):
    """Nothing is replayed, so the image says nothing of certificates. The status does."""
    scene = a_scene()
    status: Any = {"certificates": {"internal": {"mode": mode, "pinned": mode}}} if mode else {}
    body = scene.kube.find(LOG_CLUSTERS, *scene.term.key)
    scene.term.objects.clusters.put({**body, "status": status})
    server = InsideServer()
    server.committed[CLUSTER] = lambda: unrestored.admitted(scene.term)
    server.demands_tls[CLUSTER] = lambda: unrestored.demands_tls(scene.term)
    assert (server.refuses_now(CLUSTER, None) == PLAINTEXT) is refuses
    peer = Peer(cluster_id=CLUSTER, broker_id=BrokerId(0), sha256="00")
    assert server.refuses_now(CLUSTER, peer) == ""
    scene.controller.image = an_image()
    assert server.refuses_now(CLUSTER, None) == "", "a log that was replayed decides"


async def test_restored_cluster_admits_new_certificates_until_committed():
    scene = a_scene()
    await bring_up(scene)
    new = {b: describe(files(scene, b)[CERTIFICATE]).sha256 for b in IDS}
    old = tuple(BrokerCertificates(broker_id=b, sha256=(f"old-{b}",)) for b in IDS)
    image = replace(an_image(), inside=Inside(mode=InsideMode.REQUIRED, certificates=old))
    scene.controller.image = image
    assert unrestored.admitted(scene.term).of(0) == (new[IDS[0]], "old-0")
    rows = tuple(BrokerCertificates(broker_id=b, sha256=(new[b],)) for b in IDS)
    committed = Inside(mode=InsideMode.REQUIRED, certificates=rows)
    scene.controller.image = replace(image, inside=committed)
    assert unrestored.admitted(scene.term) == committed
    renewed = replace(image, inside=Inside(mode=InsideMode.REQUIRED, certificates=old))
    scene.controller.image = renewed
    assert unrestored.admitted(scene.term) == renewed.inside, "what was committed once is not added"


# --- a term ---------------------------------------------------------------------------------------


async def test_empty_log_with_volumes_begins_no_term():
    log = MemoryLog()
    scene = LedScene(log)
    for broker in range(3):
        hold_volume(scene.kube, CLUSTER, broker)
    started, create = asyncio.Event(), scene.kube.create

    async def noting(kind: Kind, body: Any) -> Any:
        made = await create(kind, body)
        if len(scene.kube.names(STATEFUL_SETS)) == 3:
            started.set()
        return made

    scene.kube.create = noting  # type: ignore[method-assign]
    term = asyncio.create_task(scene.leader.run())
    async with asyncio.timeout(WAIT_S):
        await started.wait()
        assert log.batches == []
        await scene.leader.stop()
        await term
    assert log.batches == []


EXPECTED = frozenset((BrokerId(0), BrokerId(1)))


async def expects() -> frozenset[BrokerId]:
    return EXPECTED


async def hear(controller: Controller, *, used: frozenset[BrokerId]) -> None:
    """Every broker registers with an empty copy of the metadata."""
    async with asyncio.timeout(WAIT_S):
        await controller.wait_reachable()
    assert controller.restores
    position = LogPosition(
        applied_offset=MetadataOffset(0), nonce=None, controller_epoch=ControllerEpoch(0)
    )
    for broker_id in sorted(EXPECTED):
        request = replace(
            a_registration(broker_id), volume_is_empty=broker_id not in used, position=position
        )
        controller.hear_restoring(request, ControllerEpoch(0))


async def test_log_of_never_used_volumes_begins():
    log = MemoryLog()
    controller = a_controller(log, expects_copies=expects)
    running = asyncio.create_task(controller.run())
    await hear(controller, used=frozenset())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
    assert isinstance(log.records()[0], ControllerChanged)
    await controller.stop()
    await running


async def test_log_lost_later_does_not_begin_again():
    """In the same process: what the volumes were when the log began says nothing."""
    log, restores = MemoryLog(), asyncio.Queue[str]()
    controller = a_controller(log, expects_copies=expects, on_restoring=restores.put_nowait)
    running = asyncio.create_task(controller.run())
    await hear(controller, used=frozenset())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        await restores.get()
        log.batches.clear()
        log.failures.append(LogUnavailable("it is away"))
        await controller.request(SetMembers(broker_ids=(BrokerId(7),)))
        await restores.get()
        assert log.batches == []
        await controller.stop()
        assert await running is Outcome.STOPPED


async def hangs() -> BackupOffer | None:
    await asyncio.Event().wait()
    raise AssertionError


async def test_backup_that_hangs_begins_no_log(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metadata_restoration, "BACKUP_S", 0.01)
    log = MemoryLog()
    options = RestorationOptions(quiet_ms=10, all_ms=10)
    controller = a_controller(
        log, backup_asked=lambda: True, read_backup=hangs, restoration=options
    )
    async with asyncio.timeout(WAIT_S):
        assert await controller.run() is Outcome.STALLED
    assert controller.stalled is not None
    assert "could not be read within" in controller.stalled.message
    assert log.batches == []


async def test_stop_ends_the_read_of_backup():
    reads = asyncio.Event()

    async def noted() -> BackupOffer | None:
        reads.set()
        return await hangs()

    log = MemoryLog()
    controller = a_controller(log, backup_asked=lambda: True, read_backup=noted)
    running = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await reads.wait()
        await controller.stop()
        assert await running is Outcome.STOPPED
    assert log.batches == []


async def test_used_volume_without_copy_begins_no_log():
    log = MemoryLog()
    options = RestorationOptions(quiet_ms=50, all_ms=50)
    controller = a_controller(log, expects_copies=expects, empty_log=options)
    running = asyncio.create_task(controller.run())
    await hear(controller, used=frozenset((BrokerId(1),)))
    async with asyncio.timeout(WAIT_S):
        assert await running is Outcome.STALLED
    assert log.batches == []
