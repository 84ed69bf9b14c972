"""A term as its LogCluster shows it: what is led says so, what cannot be led says why at once."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from tests.plimsoll_operator.builders import CLUSTER_UID, a_cluster_body
from tests.plimsoll_operator.scripted_kube import ScriptedKube
from tests.plimsoll_operator.test_group_commit import MemoryLog

from plimsoll_operator.control_failures import ControlFailures
from plimsoll_operator.controller.controller_term import Outcome
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_operator.kube.seen_objects import Objects
from plimsoll_operator.leadership.led_cluster import LedCluster
from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.metalog.interface import (
    Batch,
    LogCorrupt,
    LogOfAnother,
    LogRegressed,
    MetadataLog,
    OpenedLog,
)
from plimsoll_operator.options import OperatorOptions, from_environment
from plimsoll_operator.process_clocks import monotonic_ms, wall_ms
from plimsoll_operator.reconcile.stall_causes import Cause
from plimsoll_operator.status.operator_metrics import Metrics

WAIT_S = 30
HOLE = "metadata batches 2 to 2 are missing while 8 exists"


class BrokenLog(MemoryLog):
    """Its storage lost something."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def open(self) -> OpenedLog:
        raise self.error

    async def remains(self) -> tuple[Batch, ...]:
        raise self.error


class NoServer:
    """The controllers' server, to which no broker connects."""

    inside: Any = None
    failures = ControlFailures()

    def add(self, *_: Any) -> None: ...

    async def remove(self, *_: Any) -> None: ...


ID_KEY = b"of this process"


class Scene:
    """A LogCluster and the process that leads it."""

    def __init__(self, log: MetadataLog | MemoryLog, known: ScriptedKube | None = None) -> None:
        self.kube = known or ScriptedKube()
        kube: Any = self.kube
        self.parts = Parts(
            options=OperatorOptions(
                identity="x", broker_image="b:1", controllers=("c:1",), topic_id_key=ID_KEY
            ),
            kube=kube,
            lease_kube=kube,
            status_kube=kube,
            watch_kube=kube,
            metadata_log=kube,
            objects=Objects(),
            server=NoServer(),  # type: ignore[arg-type]
            metrics=Metrics(),
            now_ms=wall_ms,
            monotonic_ms=monotonic_ms,
        )
        if known is None:
            self.kube.put(LOG_CLUSTERS, a_cluster_body())
        body = self.kube.find(LOG_CLUSTERS, "kafka", "main")
        found = self.parts.objects.clusters.put(body)
        assert found is not None
        metadata_log: Any = log
        self.leader = LedCluster(self.parts, found, UUID(CLUSTER_UID), metadata_log, "main-1")

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.kube.find(LOG_CLUSTERS, "kafka", "main").get("status") or {})

    def shown(self, type_: str) -> tuple[str, str, str]:
        (found,) = [c for c in self.status["conditions"] if c["type"] == type_]
        return found["status"], found["reason"], found["message"]

    @property
    def events(self) -> list[str]:
        return [
            body["reason"]
            for (plural, _, _), body in self.kube.objects.items()
            if plural == "events"
        ]


@pytest.mark.parametrize("error", [LogRegressed(HOLE), LogCorrupt(HOLE)])
async def test_log_that_does_not_open_stalls_cluster(error: Exception):
    scene = Scene(BrokenLog(error))
    async with asyncio.timeout(WAIT_S):
        assert await scene.leader.run(vacant_ms=60_000) is Outcome.STALLED
    for type_, status in (("Stalled", "True"), ("Ready", "False")):
        assert scene.shown(type_)[:2] == (status, "MetadataRegressed")
        assert HOLE in scene.shown(type_)[2]
    assert "brokers" not in scene.status, "nothing is known of them"
    assert scene.events == ["MetadataRegressed"]


async def test_second_log_cluster_locally_is_refused_without_loss():
    scene = Scene(BrokenLog(LogOfAnother("a local cluster is one LogCluster")))
    async with asyncio.timeout(WAIT_S):
        assert await scene.leader.run(vacant_ms=60_000) is Outcome.STALLED
    status, reason, message = scene.shown("Stalled")
    assert (status, reason) == ("True", "NotAllowed")
    assert message == "A local cluster is one LogCluster."


def test_topic_ids_derive_from_the_process_key():
    assert Scene(BrokenLog(LogCorrupt(HOLE))).leader.controller.soft.topic_id_key == ID_KEY
    env = {"PLIMSOLL_BROKER_IMAGE": "b:1", "PLIMSOLL_CONTROLLERS": "c:1"}
    one, other = from_environment(env), from_environment(env)
    assert one.topic_id_key != other.topic_id_key
    assert len(one.topic_id_key) >= 16
    assert one.topic_id_key.hex() not in repr(one)


async def test_stall_cause_ends_with_its_term():
    scene = Scene(BrokenLog(LogRegressed(HOLE)))
    async with asyncio.timeout(WAIT_S):
        assert await scene.leader.run(vacant_ms=60_000) is Outcome.STALLED
    await scene.leader.say(Cause(reason="TwoClusters", message="Two of them.", serves=False))
    for type_, status in (("Stalled", "True"), ("Ready", "False")):
        assert scene.shown(type_) == (status, "TwoClusters", "Two of them.")


async def test_stall_is_one_event_despite_retries():
    scene = Scene(BrokenLog(LogRegressed(HOLE)))
    async with asyncio.timeout(WAIT_S):
        for _ in range(3):
            assert await scene.leader.run(vacant_ms=60_000) is Outcome.STALLED
    assert scene.events == ["MetadataRegressed"]


async def test_stop_as_take_over_commits_ends_term(monkeypatch: pytest.MonkeyPatch):
    """The stop is between the commit and the first turn of the tasks that wait for it."""
    scene = Scene(MemoryLog())
    controller, turns, stops = scene.leader.controller, 0, []
    wait_active = controller.wait_active

    async def counted() -> None:
        nonlocal turns
        turns += 1
        assert turns < 100, "a task waits without a turn of the event loop"
        await wait_active()

    def committed(*_: object) -> None:
        if not stops:
            stops.append(asyncio.ensure_future(scene.leader.stop()))

    monkeypatch.setattr(controller, "wait_active", counted)
    controller.subscribe(committed)
    async with asyncio.timeout(WAIT_S):
        assert await scene.leader.run() is Outcome.STOPPED
        await asyncio.gather(*stops)
    assert turns < 100
