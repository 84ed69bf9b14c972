"""The logs of one process together bound the requests that are not urgent, such as new slots."""

from __future__ import annotations

import asyncio
import uuid

from tests.plimsoll_operator.metalog.fake_api import DirectApi
from tests.plimsoll_operator.metalog.shells import FAST, RingShell
from tests.plimsoll_operator.metalog.writer import Writer

from plimsoll_operator.metalog.kube_objects import AT_ONCE, Answer, Place
from plimsoll_operator.metalog.kubernetes_log import RingLog

CLUSTERS = 10


class CountingApi(DirectApi):
    """Lets other requests come in between, and notes the most that were under way at a time."""

    under_way = 0
    most = 0
    made = 0

    async def request(
        self, method: str, path: str, *, params: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self.made += method == "POST"
        try:
            await asyncio.sleep(0)
            return await super().request(method, path, params=params, body=body)
        finally:
            self.under_way -= 1


def logs_of(api: CountingApi, bulk: asyncio.Semaphore | None) -> list[RingLog]:
    return [RingLog(api, place(number), FAST, bulk) for number in range(CLUSTERS)]


def place(number: int) -> Place:
    identity = uuid.UUID(int=(number + 1) << 80)
    return Place(namespace="default", cluster_name=f"c{number}", cluster_id=identity)


async def opened(ring: RingShell, bulk: asyncio.Semaphore | None) -> CountingApi:
    """All logs are opened for the first time, at the same time."""
    api = CountingApi(ring.faults)
    logs = logs_of(api, bulk)
    await asyncio.gather(*(log.open() for log in logs))
    assert api.made == CLUSTERS * FAST.slots
    for log in logs:
        await log.close()
    return api


async def test_new_logs_of_process_share_bulk_bound(ring: RingShell) -> None:
    assert (await opened(ring, asyncio.Semaphore(AT_ONCE))).most <= AT_ONCE


async def test_new_logs_without_shared_bound_add_up(ring: RingShell) -> None:
    assert (await opened(ring, None)).most > AT_ONCE


async def test_append_does_not_wait_for_bulk(ring: RingShell) -> None:
    bulk = asyncio.Semaphore(AT_ONCE)
    writer = Writer(RingLog(DirectApi(ring.faults), place(0), FAST, bulk))
    await writer.take_over()
    for _ in range(AT_ONCE):
        await bulk.acquire()
    await writer.put("a")
    await writer.log.close()
