"""What one operator could not restore stays shown while another one tries again."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from tests.plimsoll_operator.builders import CLUSTER_UID
from tests.plimsoll_operator.test_identity import hold_volume
from tests.plimsoll_operator.test_leader import WAIT_S, Scene
from tests.plimsoll_operator.test_restore_decision import BROKERS, NEW, OLD, Chain, members

from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.metadata_copy import OfferMetadataCopy
from plimsoll_operator.api.labels import RESTORE_METADATA
from plimsoll_operator.controller.controller_term import Outcome
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_operator.metalog.directory import DirectoryLog
from plimsoll_operator.reconcile.reconcile_term import Task, Work

CLUSTER = UUID(CLUSTER_UID)
COPIES = dict(zip(BROKERS, (NEW, OLD, OLD), strict=True))


def a_scene(log: DirectoryLog) -> Scene:
    """A LogCluster with volumes, and the first operator."""
    scene = Scene(log)
    for broker_id in BROKERS:
        hold_volume(scene.kube, CLUSTER, broker_id)
    return scene


async def send(scene: Scene, broker_id: int, chain: Chain) -> None:
    controller, data, part = scene.leader.controller, chain.sent(CLUSTER), b""
    await controller.wait_reachable()
    while True:
        offer = OfferMetadataCopy(
            cluster_id=CLUSTER,
            broker_id=BrokerId(broker_id),
            controller_epoch=chain.position.controller_epoch,
            position=chain.position,
            size=len(data) if part else 0,
            data=part,
        )
        if not (await controller.offered(offer)).length:
            return
        part = data


async def attempt(scene: Scene, copies: Mapping[int, Chain] = COPIES) -> Outcome:
    """Return how a term ended that got the brokers' copies."""
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        running = group.create_task(scene.leader.run())
        for broker_id, chain in copies.items():
            group.create_task(send(scene, broker_id, chain))
    return running.result()


def told(scene: Scene) -> None:
    """The watch tells of the LogCluster as it is stored."""
    scene.parts.objects.clusters.put(scene.kube.find(LOG_CLUSTERS, "kafka", "main"))
    scene.leader.offer(Work(Task.CLUSTER, ("kafka", "main")))


async def test_choice_stays_shown_while_another_operator_tries_again(tmp_path: Path) -> None:
    log = DirectoryLog(tmp_path, CLUSTER)
    first = a_scene(log)
    assert await attempt(first) is Outcome.STALLED
    stalled, offered = first.shown("Stalled"), first.status["metadataRestore"]
    assert stalled[:2] == ("True", "MetadataRegressed")
    assert "no other broker holds" in offered["doubts"][0]
    (choice,) = offered["choices"]

    second = Scene(log, first.kube)
    controller = second.leader.controller
    running = asyncio.create_task(second.leader.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_reachable()
        for _ in range(2):  # the second time as its own write
            await second.leader.term.write_status()
            assert second.shown("Stalled") == stalled
            assert second.shown("Ready")[1:] == stalled[1:]
            assert second.status["metadataRestore"] == offered
            told(second)

        sending = asyncio.create_task(send(second, 1, NEW))
        said = {RESTORE_METADATA: choice["value"]}
        second.kube.set_metadata(LOG_CLUSTERS, "kafka", "main", annotations=said)
        told(second)
        await controller.wait_active()
        await sending
        await second.leader.term.write_status()
        assert "metadataRestore" not in second.status
        assert second.shown("Stalled")[0] == "False"
        await second.leader.stop()
        await running
    await log.close()


async def test_same_finding_is_no_new_event(tmp_path: Path) -> None:
    log = DirectoryLog(tmp_path, CLUSTER)
    first = a_scene(log)
    assert await attempt(first) is Outcome.STALLED
    second = Scene(log, first.kube)
    assert await attempt(second) is Outcome.STALLED
    assert second.events.count("MetadataRegressed") == 1
    await log.close()


async def test_other_finding_replaces_what_was_shown(tmp_path: Path) -> None:
    log = DirectoryLog(tmp_path, CLUSTER)
    first = a_scene(log)
    assert await attempt(first) is Outcome.STALLED
    second = Scene(log, first.kube)
    longer = NEW.add(members(1), epoch=2)
    assert await attempt(second, {**COPIES, 1: longer}) is Outcome.STALLED
    (choice,) = second.status["metadataRestore"]["choices"]
    assert choice["endOffset"] == longer.image.next_offset
    assert choice["value"] in second.shown("Stalled")[2]
    assert second.events.count("MetadataRegressed") == 2
    await log.close()
