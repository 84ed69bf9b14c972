"""DeleteRecords: a client moves the start of a partition's log forward, also to skip a bad batch.

Called by the sessions. The replica decides how far: never above the high watermark. The leader's
log starts there at once. The client is answered when the new start is on the leader's disk and the
replicas in sync have taken it over with their next fetch, or after its timeout. Retention removes
the segments. Source: KIP-107.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from functools import partial
from typing import Any, NamedTuple

from plimsoll_broker.handlers.forward import timeout_ms_of
from plimsoll_broker.handlers.long_work import THINGS_AT_ONCE, Aside, in_turns, is_short, things
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_broker.storage.disk import StorageError
from plimsoll_core.cluster.topic_names import is_internal
from plimsoll_core.errors import Code
from plimsoll_core.replica.commit import AckWaiter
from plimsoll_wire.messages import encode_response

TIMEOUT_MS_MAX = 10 * 60 * 1000


class _AskedDeletion(NamedTuple):
    topic: str
    partition: int
    offset: int


_Times = Counter[tuple[str, int]]
"""The number of times that a request names each partition, by topic and index."""


def _asked(request: Any) -> tuple[list[_AskedDeletion], _Times]:
    """Return the requested deletions in the client's order, and the number of times that the
    request names each partition. `offset` of a deletion: records below it are to be deleted."""
    asked = [
        _AskedDeletion(topic.name, partition.partition_index, partition.offset)
        for topic in request.topics
        for partition in topic.partitions
    ]
    return asked, Counter((each.topic, each.partition) for each in asked)


class _Waiting:
    """Counts the partitions of one request with records that are not deleted yet. `left`: that
    number, plus one until all deletions have begun. `all_answered` returns once it is zero."""

    def __init__(self) -> None:
        self.left = 1  # one until `all_answered`
        self._over = asyncio.Event()

    def one_less(self) -> None:
        self.left -= 1
        if not self.left:
            self._over.set()

    async def all_answered(self) -> None:
        self.one_less()
        await self._over.wait()


class _Deletion:
    """The deletion of records of one partition, and the token of its waiter. `code`: the error so
    far. `hosted`: the partition; None if the deletion was refused or failed. `required`: the log
    start offset that all replicas in sync must reach before the client is answered."""

    __slots__ = ("_waiting", "code", "hosted", "required")

    def __init__(self, code: Code, hosted: Hosted | None = None, required: int = 0) -> None:
        self.code = code
        self.hosted = hosted
        self.required = required
        self._waiting: _Waiting | None = None

    def wait(self, deadline_ms: int, waiting: _Waiting) -> None:
        assert self.hosted is not None
        self._waiting = waiting
        waiting.left += 1
        self.hosted.replica.waiters.for_start.add(AckWaiter(self.required, deadline_ms, self))

    def answer(self, code: int) -> None:
        self.code = Code(code)
        if self._waiting is not None:
            self._waiting.one_less()

    def told(self) -> tuple[int, Code]:
        """Return the low watermark and the error code. The low watermark is -1 if there is an
        error."""
        known = self.hosted is not None and self.code == Code.NONE
        return self.hosted.replica.low_watermark if known and self.hosted else -1, self.code


class DeleteRecordsHandler:
    """The handler of DeleteRecords; `__call__` serves a request."""

    def __init__(self, manager: ReplicaManager, aside: Aside | None = None) -> None:
        self._manager = manager
        self._aside = aside or Aside()

    def __call__(self, context: RequestContext) -> Awaitable[Reply]:
        """Serve a request. The log start of a short request moves in this call, so that any later
        request of its client (for example ListOffsets) sees it."""
        if not is_short(context):
            return self._long(context)
        request = context.decoded()
        asked, times = _asked(request)
        if len(asked) > THINGS_AT_ONCE:
            return self._begun_in_slices(context, request, asked, times)
        return self._ended(context, request, asked, [self._begin(each, times) for each in asked])

    async def _long(self, context: RequestContext) -> Reply:
        request = await self._aside.decoded(context)
        asked, times = await self._aside.some(things(context), partial(_asked, request))
        return await self._begun_in_slices(context, request, asked, times)

    async def _begun_in_slices(
        self, context: RequestContext, request: Any, asked: list[_AskedDeletion], times: _Times
    ) -> Reply:
        deletions = [self._begin(each, times) async for each in in_turns(asked)]
        return await self._ended(context, request, asked, deletions)

    async def _ended(
        self,
        context: RequestContext,
        request: Any,
        asked: list[_AskedDeletion],
        deletions: list[_Deletion],
    ) -> Reply:
        await self._save(deletions)
        await self._wait(deletions, timeout_ms_of(request))
        told = [deletion.told() async for deletion in in_turns(deletions)]
        return await self._aside.some(len(asked), partial(_reply, context, asked, told))

    def _begin(self, asked: _AskedDeletion, times: _Times) -> _Deletion:
        """Raise the log start of one partition to the requested offset, at most to the high
        watermark, if this broker leads it, and return the begun deletion. Otherwise return a
        deletion with the error: the request names the partition twice, the topic is internal or
        only compacted, or the replica refuses."""
        if times[asked.topic, asked.partition] > 1:
            return _Deletion(Code.INVALID_REQUEST)
        if is_internal(asked.topic):
            return _Deletion(Code.INVALID_TOPIC_EXCEPTION)
        manager = self._manager
        hosted = manager.by_name(asked.topic, asked.partition)
        if hosted is None:
            return _Deletion(manager.missing(manager.topic_id(asked.topic), asked.partition))
        # For a topic with compaction alone, clients may not delete records.
        if hosted.log.config.compact and not hosted.log.config.delete:
            return _Deletion(Code.POLICY_VIOLATION)
        required = hosted.replica.delete_records(asked.offset)
        if isinstance(required, Code):
            return _Deletion(required)
        manager.driver.advance_log_start(hosted, required)
        hosted.replica.start_moved()
        manager.touch(hosted)
        return _Deletion(Code.NONE, hosted, required)

    async def _save(self, deletions: list[_Deletion]) -> None:
        """Sync the new log starts to the disk before the client is answered, so that a crash does
        not undo them. If the disk fails, every deletion gets KAFKA_STORAGE_ERROR. Do nothing if all
        deletions were refused."""
        changed = [each.hosted.place for each in deletions if each.hosted is not None]
        if not changed:
            return
        try:
            await self._manager.log_start_saves.save(changed)
        except StorageError:
            for each in deletions:
                if each.hosted is not None:
                    each.code, each.hosted = Code.KAFKA_STORAGE_ERROR, None

    async def _wait(self, deletions: list[_Deletion], timeout_ms: int) -> None:
        deadline_ms = self._manager.now_ms() + min(max(timeout_ms, 0), TIMEOUT_MS_MAX)
        waiting = _Waiting()
        async for each in in_turns(deletions):
            if each.hosted is None:
                continue
            if each.hosted.replica.leader is None:  # no longer the leader
                each.code = Code.NOT_LEADER_OR_FOLLOWER
                continue
            each.wait(deadline_ms, waiting)
            self._manager.touch(each.hosted)
        await waiting.all_answered()


def _reply(
    context: RequestContext, asked: list[_AskedDeletion], told: list[tuple[int, Code]]
) -> Reply:
    """Encode the response. `told`: the low watermark and error code of each partition in
    `asked`."""
    topics: list[dict[str, Any]] = []
    for each, (low_watermark, code) in zip(asked, told, strict=True):
        if not topics or topics[-1]["name"] != each.topic:
            topics.append({"name": each.topic, "partitions": []})
        topics[-1]["partitions"].append(
            {
                "partition_index": each.partition,
                "low_watermark": low_watermark,
                "error_code": code,
            }
        )
    return encode_response(context.api_key, context.api_version, {"topics": topics})
