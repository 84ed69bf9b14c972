"""A batch that is deleted under a leader is found, and the log made whole before it matters."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.plimsoll_operator.builders import an_image
from tests.plimsoll_operator.metalog.fake_api import DirectApi
from tests.plimsoll_operator.metalog.shells import FAST, RingShell
from tests.plimsoll_operator.terms import Scene, StubController
from tests.plimsoll_operator.test_group_commit import CLUSTER

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.messages.requests import SetMembers
from plimsoll_operator.controller.controller_options import ControllerOptions
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.kube.resources import NAMESPACES
from plimsoll_operator.metalog.interface import LogUnavailable
from plimsoll_operator.metalog.kube_objects import Place
from plimsoll_operator.metalog.kubernetes_log import RingLog
from plimsoll_operator.reconcile.cluster import metadata_log_repair
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.events import Occurrence

WAIT_S = 30
PLACE = Place(namespace="kafka", cluster_name="main", cluster_id=CLUSTER)


@pytest.fixture
async def shell() -> AsyncIterator[RingShell]:
    found = RingShell()
    yield found
    await found.stop()


def a_controller(shell: RingShell) -> Controller:
    return Controller(
        cluster_id=CLUSTER,
        name="main",
        log=RingLog(DirectApi(shell.faults), PLACE, FAST),
        settings=Settings(),
        identity="x",
        options=ControllerOptions(always_confirmed=True, backoff_ms=1),
    )


async def test_batch_deleted_under_leader_is_rewritten(shell: RingShell):
    controller = a_controller(shell)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        for count in (1, 2, 3):
            await controller.request(SetMembers(broker_ids=tuple(range(count))))
        scene = a_scene(an_image())
        scene.term.controller = controller
        events: list[Occurrence] = []
        scene.effects.tell = events.append
        await scene.run(metadata_log_repair.reconcile)
        assert events == []
        del shell.store.objects["metadatabatches", f"{PLACE.prefix}-0001"]
        await scene.run(metadata_log_repair.reconcile)
        (event,) = events
        assert (event.reason, event.warning) == ("MetadataLogMended", True)
        assert f"{PLACE.prefix}-0001" in event.message
        members = controller.image.members
        await controller.stop()
        await task
        successor = a_controller(shell)
        task = asyncio.create_task(successor.run())
        await successor.wait_active()
        assert successor.image.members == members == (0, 1, 2)
        await successor.stop()
        await task


def a_scene(image: ClusterImage, controller: StubController | None = None) -> Scene:
    """In a namespace that stands."""
    scene = Scene(image, controller)
    scene.kube.put(NAMESPACES, {"metadata": {"name": "kafka"}, "status": {"phase": "Active"}})
    return scene


async def test_metadata_log_is_not_repaired_while_terminating():
    """Its objects are deleted one after the other, and none can be made."""
    controller = StubController(an_image())
    controller.snapshotter = Unwritable()  # type: ignore[attr-defined]
    scene = a_scene(controller.image, controller)
    going = {"metadata": {"name": "kafka"}, "status": {"phase": "Terminating"}}
    scene.kube.put(NAMESPACES, going)
    await scene.run(metadata_log_repair.reconcile)
    assert "Stalled" not in scene.term.shown.notes


class Unwritable:
    """A snapshotter whose API server is away."""

    async def mend(self) -> tuple[str, ...]:
        raise LogUnavailable("the API server does not answer")


async def test_irreparable_log_stalls_until_repaired():
    image = an_image()
    controller = StubController(image)
    controller.snapshotter = Unwritable()  # type: ignore[attr-defined]
    scene = a_scene(image, controller)
    with pytest.raises(Retry):
        await scene.run(metadata_log_repair.reconcile)
    note = scene.term.shown.notes["Stalled"]
    assert note.reason == "MetadataRegressed"
    assert "does not answer" in note.message
