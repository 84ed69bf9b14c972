"""OffsetForLeaderEpoch: the end offset of a leader epoch in a log (KIP-320).

Called by the sessions. The replica decides what a consumer may see.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any

from plimsoll_broker.background.time_slices import in_slices
from plimsoll_broker.handlers.large_messages import Aside, is_short
from plimsoll_broker.handlers.list_offsets import leader_epoch_of
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_core.errors import Code
from plimsoll_wire.messages import decode_request, encode_response


class OffsetForLeaderEpochHandler:
    """`__call__` is the route's handler."""

    def __init__(self, manager: ReplicaManager, aside: Aside | None = None) -> None:
        self._manager = manager
        self._aside = aside or Aside()

    def __call__(self, context: RequestContext) -> Reply | Awaitable[Reply]:
        if not is_short(context):
            return self._later(context)
        request = decode_request(context.api_key, context.api_version, context.body)
        topics = [
            {
                "topic": topic.topic,
                "partitions": [self._partition(topic.topic, asked) for asked in topic.partitions],
            }
            for topic in request.topics
        ]
        return encode_response(context.api_key, context.api_version, {"topics": topics})

    async def _later(self, context: RequestContext) -> Reply:
        """Serve a long request, in time slices."""
        request = await self._aside.decoded(context)
        topics: list[dict[str, Any]] = []
        async for topic in in_slices(request.topics):
            partitions = [
                self._partition(topic.topic, asked) async for asked in in_slices(topic.partitions)
            ]
            topics.append({"topic": topic.topic, "partitions": partitions})
        values = {"topics": topics}
        encoded = partial(encode_response, context.api_key, context.api_version, values)
        return await self._aside.do(encoded)

    def _partition(self, name: str, asked: Any) -> dict[str, Any]:
        index = asked.partition
        hosted = self._manager.by_name(name, index)
        code, epoch, end_offset = Code.NONE, -1, -1
        if hosted is None:
            code = self._manager.missing(self._manager.topic_id(name), index)
        else:
            found = hosted.replica.end_offset_for(
                asked.leader_epoch, leader_epoch_of(asked.current_leader_epoch)
            )
            if isinstance(found, Code):
                code = found
            elif not self._manager.may_serve(hosted):
                code = Code.NOT_LEADER_OR_FOLLOWER
            elif found is not None and asked.leader_epoch >= 0:
                epoch, end_offset = found
        return {
            "partition": index,
            "error_code": code,
            "leader_epoch": epoch,
            "end_offset": end_offset,
        }
