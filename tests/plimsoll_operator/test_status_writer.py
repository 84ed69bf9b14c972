"""Status is written on change only, once for many changes, and survives what it meets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from tests.plimsoll_operator.scripted_kube import ScriptedKube

from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.rebalance import Progress, RebalanceStatus
from plimsoll_operator.api.topic import TopicStatus
from plimsoll_operator.api_server.store import Backup
from plimsoll_operator.kube.errors import ApiError, Unavailable, error
from plimsoll_operator.kube.resources import REBALANCES, TOPICS, Kind
from plimsoll_operator.process_clocks import wall_ms
from plimsoll_operator.status import status_writer
from plimsoll_operator.status.status_writer import (
    CONFLICTS_SEEN,
    WRITES_AT_ONCE,
    StatusDraft,
    StatusWriter,
    Target,
)

TARGET = Target(TOPICS, "kafka", "orders")


def ready(status: str) -> Condition:
    return Condition(type="Ready", status=status, reason="Serving", message="")  # type: ignore


class Scene:
    def __init__(self) -> None:
        self.api = ScriptedKube()
        spec = {"clusterRef": {"name": "main"}}
        self.api.put(TOPICS, {"metadata": {"name": "orders", "namespace": "kafka"}, "spec": spec})
        self.partitions = 15
        self.uid = "u1"
        self.version = ""
        self.status = "True"
        self.writer = StatusWriter(self.api, self.render, wall_ms)

    def render(self, target: Target) -> StatusDraft | None:
        return StatusDraft(
            uid=self.uid,
            status=TopicStatus(partitions=self.partitions, conditions=(ready(self.status),)),
            generation=1,
            shown=(),
            version=self.version,
        )

    @property
    def writes(self) -> int:
        return sum(verb == "status" for verb, _, _ in self.api.calls)


async def test_equal_status_is_written_once():
    scene = Scene()
    assert await scene.writer.write(TARGET)
    assert not await scene.writer.write(TARGET)
    assert scene.writes == 1


async def test_status_that_another_process_overwrote_is_written_again():
    scene = Scene()
    await scene.writer.write(TARGET)
    own = scene.api.find(TOPICS, "kafka", "orders")["metadata"]["resourceVersion"]
    overwritten = {"conditions": [], "partitions": 3}
    await scene.api.apply_status(TOPICS, "kafka", "orders", overwritten)
    scene.version = own
    assert not await scene.writer.write(TARGET)  # the watch has not told of it yet
    scene.version = scene.api.find(TOPICS, "kafka", "orders")["metadata"]["resourceVersion"]
    assert not await scene.writer.write(TARGET, refresh=False)  # left to the refreshes
    assert await scene.writer.write(TARGET)
    assert scene.api.find(TOPICS, "kafka", "orders")["status"]["partitions"] == 15
    scene.version = scene.api.find(TOPICS, "kafka", "orders")["metadata"]["resourceVersion"]
    assert not await scene.writer.write(TARGET)


async def test_status_writer_omits_unset_fields():
    scene = Scene()
    progress = Progress(replicas_moved=3)
    assert msgspec.to_builtins(progress)["etaSeconds"] is None
    status = RebalanceStatus(phase="Running", progress=progress)
    scene.render = lambda target: StatusDraft(
        uid="u1", status=status, generation=1, shown=(), version=""
    )
    scene.writer = StatusWriter(scene.api, scene.render, wall_ms)
    spec = {"clusterRef": {"name": "main"}, "mode": "Full"}
    scene.api.put(REBALANCES, {"metadata": {"name": "fill", "namespace": "kafka"}, "spec": spec})
    await scene.writer.write(Target(REBALANCES, "kafka", "fill"))
    written = scene.api.find(REBALANCES, "kafka", "fill")["status"]["progress"]
    assert written["replicasMoved"] == 3
    assert "etaSeconds" not in written


async def test_recreated_object_gets_the_status_again():
    scene = Scene()
    await scene.writer.write(TARGET)
    scene.uid = "u2"
    assert await scene.writer.write(TARGET)
    assert scene.writes == 2


async def test_changed_status_keeps_its_transition_times():
    scene = Scene()
    await scene.writer.write(TARGET)
    first = scene.api.find(TOPICS, "kafka", "orders")["status"]["conditions"][0]
    scene.partitions = 16
    await scene.writer.write(TARGET)
    status = scene.api.find(TOPICS, "kafka", "orders")["status"]
    assert status["partitions"] == 16
    assert status["conditions"][0]["lastTransitionTime"] == first["lastTransitionTime"]


async def test_failed_write_is_not_taken_for_done():
    scene = Scene()
    scene.api.fail = [Unavailable(0, "no answer")]
    await scene.writer.write(TARGET)
    assert await scene.writer.write(TARGET)
    assert scene.api.find(TOPICS, "kafka", "orders")["status"]["partitions"] == 15


class OlderCrd(ScriptedKube):
    """An API server whose CRD lacks a field of the status: it says so as the real one does."""

    async def apply_status(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        status: dict[str, Any],
        *,
        version: str = "",
    ) -> dict[str, Any]:
        if "partitions" in status:
            self.calls.append(("status", kind.plural, name))
            sentence = (
                f"failed to create typed patch object ({namespace}/{name}; plimsoll.dev/v1alpha1, "
                f"Kind={kind.kind}): .status.partitions: field not declared in schema"
            )
            raise ApiError(500, sentence)
        return await super().apply_status(kind, namespace, name, status, version=version)


async def test_field_unknown_to_crd_is_omitted():
    scene = Scene()
    body = scene.api.find(TOPICS, "kafka", "orders")
    scene.api = OlderCrd()
    scene.api.put(TOPICS, body)
    scene.writer = StatusWriter(scene.api, scene.render, wall_ms)
    assert await scene.writer.write(TARGET)
    assert [one["type"] for one in shown(scene)["conditions"]] == ["Ready"]
    assert not await scene.writer.write(TARGET)
    scene.status = "False"
    assert await scene.writer.write(TARGET)
    assert shown(scene)["conditions"][0]["status"] == "False"
    assert scene.writes == 3, "it is refused once, and not tried again with the field"


def shown(scene: Scene) -> dict[str, Any]:
    found: dict[str, Any] = scene.api.find(TOPICS, "kafka", "orders")["status"]
    return found


async def test_object_that_is_gone_is_forgotten():
    scene = Scene()
    scene.api.drop(TOPICS, "kafka", "orders")
    await scene.writer.write(TARGET)
    assert scene.writes == 1


class SlowApi:
    """Answers a write when it is told to."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.waiting: dict[str, asyncio.Future[None]] = {}
        self.changed = asyncio.Event()
        self.fail: list[ApiError] = []

    async def apply_status(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        status: dict[str, Any],
        *,
        version: str = "",
    ) -> dict[str, Any]:
        assert name not in self.waiting, "two writes of one object at a time"
        self.begun.append(name)
        self.waiting[name] = asyncio.get_running_loop().create_future()
        self.changed.set()
        try:
            await self.waiting[name]
        finally:
            del self.waiting[name]
            self.changed.set()
        if self.fail:
            raise self.fail.pop()
        return {"metadata": {"resourceVersion": "2"}}

    async def answer(self, name: str) -> None:
        self.waiting[name].set_result(None)
        await self.until(lambda: name not in self.waiting)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Crowd:
    """Many topics, and a writer that runs."""

    def __init__(self) -> None:
        self.api = SlowApi()
        self.statuses: dict[str, TopicStatus] = {}
        self.writer = StatusWriter(self.api, self.render, wall_ms)
        self.running = asyncio.ensure_future(self.writer.run())

    def render(self, target: Target) -> StatusDraft | None:
        return StatusDraft(
            uid="u", status=self.statuses[target.name], generation=1, shown=(), version=""
        )

    def show(self, name: str, status: str, partitions: int = 1, *, urgent: bool = False) -> None:
        self.statuses[name] = TopicStatus(partitions=partitions, conditions=(ready(status),))
        self.writer.mark(Target(TOPICS, "kafka", name), urgent=urgent)

    async def settle(self, *names: str) -> None:
        """These are Ready, and show it."""
        for name in names:
            self.show(name, "True")
            await self.api.until(lambda name=name: name in self.api.waiting)
            await self.api.answer(name)
        self.api.begun.clear()


@pytest.fixture
async def crowd() -> AsyncIterator[Crowd]:
    made = Crowd()
    yield made
    made.running.cancel()
    await asyncio.wait([made.running])
    assert made.running.cancelled()


async def test_first_statuses_are_written_several_at_a_time(crowd: Crowd):
    for number in range(20):
        crowd.show(f"t{number}", "True")
    await crowd.api.until(lambda: len(crowd.api.waiting) == WRITES_AT_ONCE)
    await crowd.api.answer("t0")
    await crowd.api.until(lambda: len(crowd.api.begun) == WRITES_AT_ONCE + 1)


async def test_refreshes_are_written_one_at_a_time(crowd: Crowd):
    await crowd.settle("a", "b", "c")
    for name in ("a", "b", "c"):
        crowd.show(name, "True", partitions=2)
    await crowd.api.until(lambda: crowd.api.begun == ["a"])
    for _ in range(20):
        await asyncio.sleep(0)
    assert list(crowd.api.waiting) == ["a"]


async def test_changed_condition_does_not_wait_behind_refreshes(crowd: Crowd):
    await crowd.settle("a", "b", "c")
    for name in ("a", "b"):
        crowd.show(name, "True", partitions=2)
    await crowd.api.until(lambda: crowd.api.begun == ["a"])
    crowd.show("c", "False", urgent=True)
    await crowd.api.until(lambda: crowd.api.begun == ["a", "c"])


async def test_urgent_mark_without_change_becomes_refresh(crowd: Crowd):
    await crowd.settle("a", "b")
    crowd.show("a", "True", partitions=2)
    await crowd.api.until(lambda: crowd.api.begun == ["a"])
    crowd.show("b", "True", partitions=2, urgent=True)
    for _ in range(20):
        await asyncio.sleep(0)
    assert list(crowd.api.waiting) == ["a"]


async def test_object_changed_during_write_is_rewritten(crowd: Crowd):
    crowd.show("a", "True")
    await crowd.api.until(lambda: crowd.api.begun == ["a"])
    crowd.show("a", "False")
    await crowd.api.answer("a")
    await crowd.api.until(lambda: crowd.api.begun == ["a", "a"])


async def test_throttled_write_is_retried(crowd: Crowd, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(status_writer, "THROTTLED_SECONDS", 0)
    monkeypatch.setattr(status_writer, "RETRY_MS", 0)
    crowd.api.fail = [error(429, "too many requests")]
    crowd.show("a", "True")
    await crowd.api.until(lambda: crowd.api.begun == ["a"])
    await crowd.api.answer("a")
    await crowd.api.until(lambda: crowd.api.begun == ["a", "a"])


def seen(scene: Scene) -> dict[str, Any]:
    """A watch tells of the object as it is now."""
    found = scene.api.find(TOPICS, "kafka", "orders")
    scene.uid, scene.version = found["metadata"]["uid"], found["metadata"]["resourceVersion"]
    return found


def made_again(scene: Scene) -> None:
    scene.api.drop(TOPICS, "kafka", "orders")
    spec = {"clusterRef": {"name": "main"}}
    scene.api.put(TOPICS, {"metadata": {"name": "orders", "namespace": "kafka"}, "spec": spec})


async def test_late_status_does_not_reach_a_namesake():
    scene = Scene()
    seen(scene)
    assert await scene.writer.write(TARGET)
    made_again(scene)
    scene.status = "False"
    await scene.writer.write(TARGET)
    assert "status" not in scene.api.find(TOPICS, "kafka", "orders"), "the watch is late"
    scene.partitions = 7
    seen(scene)
    await scene.writer.write(TARGET)
    assert shown(scene)["partitions"] == 7


async def test_first_status_requires_the_seen_object():
    scene = Scene()
    seen(scene)
    made_again(scene)
    await scene.writer.write(TARGET)
    assert "status" not in scene.api.find(TOPICS, "kafka", "orders")


async def test_writes_proceed_before_the_watch():
    scene = Scene()
    seen(scene)
    for partitions in (1, 2, 3):
        scene.partitions = partitions
        await scene.writer.write(TARGET)
    assert shown(scene)["partitions"] == 3


async def test_conflicting_status_is_rewritten_once_seen(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(status_writer, "CONFLICT_MS", 1)
    scene = Scene()
    before = seen(scene)
    scene.api.put(TOPICS, {**before, "spec": {**before["spec"], "partitions": 9}})
    assert await scene.writer.write(TARGET)
    assert "status" not in scene.api.find(TOPICS, "kafka", "orders")
    seen(scene)
    written = asyncio.Event()
    scene.api.server.store.observers.append(lambda _: written.set())
    running = asyncio.ensure_future(scene.writer.run())
    await asyncio.wait_for(written.wait(), 30)
    assert shown(scene)["partitions"] == 15
    running.cancel()
    await asyncio.wait([running])


def restored(scene: Scene, backup: Backup) -> None:
    """etcd goes back to `backup`."""
    scene.api.server.store.restore(backup)


async def test_status_lost_with_etcd_is_rewritten(monkeypatch: pytest.MonkeyPatch):
    scene = Scene()
    seen(scene)
    backup = scene.api.server.store.backup()
    await scene.writer.write(TARGET)
    restored(scene, backup)
    assert not await scene.writer.write(TARGET), "the watch may be late"
    monkeypatch.setattr(status_writer, "LATE_SECONDS", 0)
    other = Scene()
    seen(other)
    backup = other.api.server.store.backup()
    await other.writer.write(TARGET)
    restored(other, backup)
    await other.writer.write(TARGET)
    assert shown(other)["partitions"] == 15


async def test_status_after_restored_etcd_is_written():
    scene = Scene()
    seen(scene)
    backup = scene.api.server.store.backup()
    await scene.writer.write(TARGET)
    restored(scene, backup)
    scene.partitions = 7
    await scene.writer.write(TARGET)
    assert "status" not in scene.api.find(TOPICS, "kafka", "orders"), "a conflict"
    await scene.writer.write(TARGET)
    assert shown(scene)["partitions"] == 7


async def conflicting(scene: Scene) -> None:
    """Two writes conflict: etcd went back, and the watch shows a version that is gone."""
    before = seen(scene)
    backup = scene.api.server.store.backup()
    scene.api.put(TOPICS, {**before, "metadata": {**before["metadata"], "labels": {"a": "b"}}})
    seen(scene)
    restored(scene, backup)
    for _ in range(CONFLICTS_SEEN):
        await scene.writer.write(TARGET)
        assert "status" not in scene.api.find(TOPICS, "kafka", "orders")


async def test_object_is_read_after_repeated_conflicts():
    scene = Scene()
    await conflicting(scene)
    for partitions in (7, 8):
        scene.partitions = partitions
        await scene.writer.write(TARGET)
        assert shown(scene)["partitions"] == partitions
    assert sum(verb == "get" for verb, _, _ in scene.api.calls) == 1


@pytest.mark.parametrize("namesake", [True, False])
async def test_read_object_differing_from_draft_is_left(namesake: bool):
    scene = Scene()
    await conflicting(scene)
    if namesake:
        made_again(scene)
    else:
        found = scene.api.find(TOPICS, "kafka", "orders")
        scene.api.put(TOPICS, {**found, "spec": {**found["spec"], "partitions": 9}})
    await scene.writer.write(TARGET)
    assert "status" not in scene.api.find(TOPICS, "kafka", "orders")


async def test_stalled_writer_reverts_nothing():
    scene = Scene()
    seen(scene)
    await scene.writer.write(TARGET)
    other = StatusWriter(scene.api, scene.render, wall_ms)
    found = scene.api.find(TOPICS, "kafka", "orders")
    late, scene.version = scene.version, found["metadata"]["resourceVersion"]
    scene.partitions = 7
    await other.write(TARGET)
    scene.partitions, scene.version = 3, late
    await scene.writer.write(TARGET)
    assert shown(scene)["partitions"] == 7
