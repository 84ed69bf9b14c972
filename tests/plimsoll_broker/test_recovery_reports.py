"""Reports of logs without a leader to the controller: news at once, the rest repeatedly."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from uuid import UUID

import pytest

from plimsoll_broker.control.controller_client import NoController
from plimsoll_broker.reporting import replica_reports
from plimsoll_broker.reporting.replica_reports import REPEAT_MS, RecoveryReports
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.messages.requests import Done, ReportReplicaLogs

TOPIC = UUID(int=7)


class Scene:
    """A broker whose partitions, clock and controller are all played."""

    def __init__(self) -> None:
        self.clock_ms = 1_000
        self.image = ClusterImage(cluster_id=UUID(int=1))
        self.broken: dict[PartitionKey, str] = {}
        self.hosted: list[SimpleNamespace] = []
        self.heard: list[ReportReplicaLogs] = []
        self.deaf = False
        self.report_due = asyncio.Event()
        self.reports = RecoveryReports(self, self, (2, 20))  # type: ignore[arg-type]

    def now_ms(self) -> int:
        return self.clock_ms

    def __iter__(self):
        return iter(self.hosted)

    async def command(self, request, timeout_ms):
        if self.deaf:
            raise NoController("no answer")
        self.heard.append(request)
        return Done()

    def log(self, index: int, end: int, leader: int | None = None) -> SimpleNamespace:
        position = SimpleNamespace(leader_epoch=4, last_fetched_epoch=3, fetch_offset=end)
        partition = SimpleNamespace(leader=leader)
        return SimpleNamespace(
            key=PartitionKey(TOPIC, index),
            replica=SimpleNamespace(
                failed=False, leaving=False, partition=partition, position=lambda: position
            ),
        )

    async def look(self, *, epoch: int | None = None) -> list[tuple[int, int]]:
        """What is told when the broker looks again: (partition, log end) each."""
        before = len(self.heard)
        new = ClusterImage(
            cluster_id=self.image.cluster_id,
            controller_epoch=self.image.controller_epoch if epoch is None else epoch,
            partitions=self.image.partitions.set(PartitionKey(TOPIC, 99), None),
        )
        self.reports.update(self.image, new)
        self.image = ClusterImage(cluster_id=new.cluster_id, controller_epoch=new.controller_epoch)
        for _ in range(10):
            await asyncio.sleep(0)
        return [(log.index, log.log_end_offset) for one in self.heard[before:] for log in one.logs]


@asynccontextmanager
async def looking() -> AsyncIterator[Scene]:
    scene = Scene()
    task = asyncio.ensure_future(scene.reports.run())
    try:
        yield scene
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_leaderless_partitions_are_all_reported():
    async with looking() as scene:
        scene.hosted = [scene.log(0, 10), scene.log(1, 11, leader=0), scene.log(2, 12)]
        assert await scene.look() == [(0, 10), (2, 12)]
        (request,) = scene.heard
        assert (request.broker_id, request.broker_epoch) == (2, 20)
        assert (request.logs[0].leader_epoch, request.logs[0].last_written_epoch) == (4, 3)


async def test_unchanged_recovery_report_is_repeated_after_interval():
    async with looking() as scene:
        scene.hosted = [scene.log(0, 10), scene.log(1, 11)]
        await scene.look()
        scene.clock_ms += REPEAT_MS - 1
        assert await scene.look() == []
        scene.clock_ms += 1
        assert await scene.look() == [(0, 10), (1, 11)]


async def test_changed_recovery_report_is_sent_at_once():
    async with looking() as scene:
        scene.hosted = [scene.log(0, 10)]
        await scene.look()
        scene.hosted = [scene.log(0, 10), scene.log(1, 11)]
        assert await scene.look() == [(1, 11)]
        scene.hosted = [scene.log(0, 9), scene.log(1, 11)]
        assert await scene.look() == [(0, 9)]


async def test_another_controller_is_told_everything():
    """S29: soft state is rebuilt."""
    async with looking() as scene:
        scene.hosted = [scene.log(0, 10)]
        await scene.look()
        assert await scene.look(epoch=5) == [(0, 10)]


async def test_recovery_report_without_controller_is_sent_later():
    async with looking() as scene:
        scene.hosted = [scene.log(0, 10)]
        scene.deaf = True
        assert await scene.look() == []
        scene.deaf = False
        assert await scene.look() == [(0, 10)]


async def test_reports_of_many_logs_take_several_requests(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replica_reports, "LOGS_MAX", 2)
    async with looking() as scene:
        scene.hosted = [scene.log(index, 10) for index in range(5)]
        assert len(await scene.look()) == 5
        assert [len(request.logs) for request in scene.heard] == [2, 2, 1]
