"""DeleteRecords: a client has a partition begin later, which is also how it gets past a bad batch.

Called by the sessions.  How far a log may be shortened is the replica's to say: never above what is
committed.  The leader's log begins there at once; the client hears of it when that is on the
leader's disk and the replicas in sync have taken it over with their next fetch, or after its
timeout.  Segments go with the next retention.  Source: KIP-107.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, NamedTuple

from plimsoll_broker.dispatch import Reply, RequestContext
from plimsoll_broker.handlers.forward import timeout_ms_of
from plimsoll_broker.hosted import Hosted
from plimsoll_broker.replicas import ReplicaManager
from plimsoll_broker.storage.disk import StorageError
from plimsoll_broker.threads import in_thread
from plimsoll_core.replica.values import Code
from plimsoll_core.replica.waiting import AckWaiter
from plimsoll_wire.messages import decode_request, encode_response

TIMEOUT_MS_MAX = 10 * 60 * 1000
AT_ONCE_MAX = 100
"""Partitions whose logs are shortened without hearing anybody else in between."""


class _Asked(NamedTuple):
    topic: str
    partition: int
    offset: int


class _Deletion:
    """One partition's, on its way; what its waiter holds.  `required`: where the log begins."""

    __slots__ = ("_done", "code", "hosted", "required")

    def __init__(self, code: Code, hosted: Hosted | None = None, required: int = 0) -> None:
        self.code = code
        self.hosted = hosted
        self.required = required
        self._done: asyncio.Future[int] | None = None

    def wait(self, deadline_ms: int) -> asyncio.Future[int]:
        assert self.hosted is not None
        self._done = asyncio.get_running_loop().create_future()
        self.hosted.replica.waiters.for_start.add(AckWaiter(self.required, deadline_ms, self))
        return self._done

    def answer(self, code: int) -> None:
        self.code = Code(code)
        # The client may have gone.
        if self._done is not None and not self._done.done():
            self._done.set_result(code)

    @property
    def low_watermark(self) -> int:
        """-1: not known to be anywhere."""
        told = self.hosted is not None and self.code == Code.NONE
        return self.hosted.replica.low_watermark if told and self.hosted is not None else -1


class DeleteRecordsHandler:
    """`__call__` is the route's handler."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager

    async def __call__(self, context: RequestContext) -> Reply:
        request = decode_request(context.api_key, context.api_version, context.body)
        asked = [
            _Asked(topic.name, partition.partition_index, partition.offset)
            for topic in request.topics
            for partition in topic.partitions
        ]
        times = Counter((each.topic, each.partition) for each in asked)
        deletions = []
        for number, each in enumerate(asked, 1):
            if number % AT_ONCE_MAX == 0:
                await asyncio.sleep(0)
            again = times[each.topic, each.partition] > 1
            deletions.append(_Deletion(Code.INVALID_REQUEST) if again else self._begin(each))
        await self._save(deletions)
        await self._wait(deletions, timeout_ms_of(request))
        return _reply(context, asked, deletions)

    def _begin(self, asked: _Asked) -> _Deletion:
        """The leader's own log begins there from now on."""
        manager = self._manager
        hosted = manager.by_name(asked.topic, asked.partition)
        if hosted is None:
            return _Deletion(manager.missing(manager.topic_id(asked.topic), asked.partition))
        if not hosted.log.config.delete:
            return _Deletion(Code.POLICY_VIOLATION)
        required = hosted.replica.delete_records(asked.offset)
        if isinstance(required, Code):
            return _Deletion(required)
        manager.driver.advance_log_start(hosted, required)
        hosted.replica.start_moved()
        manager.touch(hosted)
        return _Deletion(Code.NONE, hosted, required)

    async def _save(self, deletions: list[_Deletion]) -> None:
        """Nobody hears of a deletion that a crash would take back here."""
        if not any(each.hosted for each in deletions):
            return
        try:
            await in_thread(self._manager.store.begin_log_starts())
        except StorageError:
            for each in deletions:
                if each.hosted is not None:
                    each.code, each.hosted = Code.KAFKA_STORAGE_ERROR, None

    async def _wait(self, deletions: list[_Deletion], timeout_ms: int) -> None:
        deadline_ms = self._manager.now_ms() + min(max(timeout_ms, 0), TIMEOUT_MS_MAX)
        waiting = []
        for each in deletions:
            if each.hosted is None:
                continue
            if each.hosted.replica.leader is None:  # the term may have ended while it was saved
                each.code = Code.NOT_LEADER_OR_FOLLOWER
                continue
            waiting.append(each.wait(deadline_ms))
            self._manager.touch(each.hosted)
        if waiting:
            await asyncio.wait(waiting)


def _reply(context: RequestContext, asked: list[_Asked], deletions: list[_Deletion]) -> Reply:
    topics: list[dict[str, Any]] = []
    for each, deletion in zip(asked, deletions, strict=True):
        if not topics or topics[-1]["name"] != each.topic:
            topics.append({"name": each.topic, "partitions": []})
        topics[-1]["partitions"].append(
            {
                "partition_index": each.partition,
                "low_watermark": deletion.low_watermark,
                "error_code": deletion.code,
            }
        )
    return encode_response(context.api_key, context.api_version, {"topics": topics})
