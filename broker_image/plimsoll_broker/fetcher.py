"""Followers' fetches: one task and one connection per leader broker, many partitions per request.

The replica manager says who follows whom; a fetcher asks, checks what came, and has the driver
write it.  What to cut and what may be appended is the core's to say (`plimsoll_core.replica`).
A peer that is gone or talks nonsense is left and called again with bounded backoff; a partition
that is refused is left out of the next requests for a while, the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from plimsoll_broker.hosted import Hosted
from plimsoll_broker.peer import PeerConnection, PeerLost
from plimsoll_broker.replicas import ReplicaManager
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.model import PartitionKey
from plimsoll_core.replica import follower
from plimsoll_core.replica.follower import ErrorAction, FetchPosition
from plimsoll_core.replica.values import Code, EndOffset
from plimsoll_wire.batches import BatchError, BatchHeader, check_crc, iter_headers
from plimsoll_wire.replication import (
    EARLIEST,
    LATEST,
    FetchLimits,
    MalformedReply,
    PartitionFetch,
    PartitionReply,
    Sender,
    decode_fetch,
    decode_list_offsets,
    encode_fetch,
    encode_list_offsets,
)

logger = logging.getLogger("plimsoll.fetcher")

LIMITS = FetchLimits(wait_ms_max=500, bytes_max=4 * 2**20, partition_bytes_max=2**20)
CONNECT_S = 2.0
REPLY_S = 10.0
BACKOFF_MS = 25
BACKOFF_MS_MAX = 1_000


@dataclass(slots=True)
class _Followed:
    """A partition that this fetcher fetches, and until when it is left alone."""

    hosted: Hosted
    delayed_until_ms: int = 0
    backoff_ms: int = BACKOFF_MS


class _Question(NamedTuple):
    """What was asked of one partition."""

    followed: _Followed
    position: FetchPosition


Asked = dict[tuple[bytes, int], _Question]
"""By topic id, as the wire has it, and index."""


class Fetcher:
    """One leader's followers here.  Ends by itself once it has been cancelled, never before."""

    def __init__(
        self, manager: ReplicaManager, leader: BrokerId, epoch: Callable[[], BrokerEpoch]
    ) -> None:
        self._manager = manager
        self._leader = leader
        self._epoch = epoch
        self._followed: dict[PartitionKey, _Followed] = {}
        self._changed = asyncio.Event()
        self._connection: PeerConnection | None = None
        self._correlation_id = 0
        self._idle_poll = False

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, hosted: Hosted) -> None:
        """Newer metadata: ask from where the log ends now, and do not wait for a long poll that
        does not know of this partition."""
        self._followed[hosted.key] = _Followed(hosted)
        self._changed.set()
        if self._idle_poll and self._connection is not None:
            self._connection.close()

    def unfollow(self, hosted: Hosted) -> None:
        self._followed.pop(hosted.key, None)

    async def run(self) -> None:
        backoff_ms = BACKOFF_MS
        while True:
            try:
                await self._converse()
                backoff_ms = BACKOFF_MS
            except (PeerLost, MalformedReply) as error:
                logger.debug("leader %d: %s", self._leader, error)
                interrupted = self._idle_poll and self._changed.is_set()
                self._drop_connection()
                if not interrupted:
                    await asyncio.sleep(backoff_ms / 1000)
                    backoff_ms = min(backoff_ms * 2, BACKOFF_MS_MAX)
            except asyncio.CancelledError:
                self._drop_connection()
                raise

    def _drop_connection(self) -> None:
        self._idle_poll = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- one request ----------------------------------------------------------------------------

    async def _converse(self) -> None:
        """Ask once for everything that may be asked for, and take up the answers."""
        await self._until_due()
        connection = await self._connected()
        asked = self._questions()
        if not asked:
            return
        self._changed.clear()
        self._idle_poll = True
        reply = await connection.request(self._request(asked), REPLY_S)
        self._idle_poll = False
        code, replies, controller_epoch = decode_fetch(reply, self._correlation_id)
        if controller_epoch is not None:
            self._manager.saw_controller_epoch(controller_epoch)
        if code != Code.NONE:
            raise PeerLost(f"fetch refused with {code}")
        lost = [question for one in replies if (question := self._take(asked, one))]
        for question in lost:
            await self._ask_offsets(question)

    async def _until_due(self) -> None:
        """Wait until there is a partition to ask for."""
        while True:
            now_ms = self._manager.now_ms()
            delays = [f.delayed_until_ms - now_ms for f in self._followed.values() if self._may(f)]
            if delays and min(delays) <= 0:
                return
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(delays) / 1000 if delays else None):
                    await self._changed.wait()

    def _questions(self) -> Asked:
        """Every other request begins with another partition: a reply that is full leaves out the
        last ones."""
        now_ms = self._manager.now_ms()
        followed = list(self._followed.values())
        first = self._correlation_id % max(len(followed), 1)
        return {
            (one.hosted.topic_id_bytes, one.hosted.key.index): _Question(
                one, one.hosted.replica.position()
            )
            for one in (*followed[first:], *followed[:first])
            if one.delayed_until_ms <= now_ms and self._may(one)
        }

    def _may(self, followed: _Followed) -> bool:
        """Not while its disk is broken, or after metadata that this fetcher was not told of."""
        return followed.hosted.replica.fetches_from == self._leader

    def _request(self, asked: Asked) -> bytes:
        topics: dict[bytes, list[PartitionFetch]] = {}
        for (topic_id, index), (followed, position) in asked.items():
            log_start = followed.hosted.log.log_start_offset
            topics.setdefault(topic_id, []).append(PartitionFetch(index, *position, log_start))
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        manager = self._manager
        me = Sender(manager.settings.broker_id, self._epoch(), manager.controller_epoch)
        return encode_fetch(self._correlation_id, me, LIMITS, topics.items())

    async def _connected(self) -> PeerConnection:
        if self._connection is None:
            image = self._manager.image
            broker = None if image is None else image.brokers.get(self._leader)
            if broker is None or not broker.endpoints:
                raise PeerLost("the leader has no address")
            endpoint = broker.endpoints[0]
            self._connection = await PeerConnection.open(endpoint.host, endpoint.port, CONNECT_S)
        return self._connection

    # --- one partition's answer -----------------------------------------------------------------

    def _take(self, asked: Asked, reply: PartitionReply) -> _Question | None:
        """Do what the reply says; the question comes back when its offset is out of range."""
        question = asked.get((reply.topic_id, reply.partition))
        if question is None:
            return None
        followed, position = question
        hosted = followed.hosted
        current = self._followed.get(hosted.key) is followed
        if not current or not hosted.replica.expects(self._leader, position):
            return None
        if reply.code != Code.NONE:
            return question if self._refused(followed, reply.code) else None
        if reply.diverging is not None:
            # The reply's high watermark says nothing about a log that is about to be cut.
            offset = follower.truncation_offset(hosted.log, EndOffset(*reply.diverging))
            self._manager.driver.truncate(hosted, offset)
            if hosted.replica.position() == position:
                self._back_off(followed)  # nothing was cut: asking again at once cannot help
        elif self._append(hosted, reply):
            followed.backoff_ms = BACKOFF_MS
        else:
            self._back_off(followed)
        return None

    def _append(self, hosted: Hosted, reply: PartitionReply) -> bool:
        """False: what came cannot be used; ask again later."""
        driver = self._manager.driver
        if reply.records:
            headers = self._usable(hosted, reply)
            if not headers:
                return False
            size = sum(header.length for header in headers)
            if not driver.append_fetched(hosted, reply.records[:size], headers):
                return False
            self._manager.traffic.replicated_in += size
        hosted.replica.replicated(reply.high_watermark)
        driver.advance_log_start(hosted, reply.log_start)
        return True

    def _usable(self, hosted: Hosted, reply: PartitionReply) -> list[BatchHeader]:
        """The leading batches that are whole, sealed as their producer sealed them, and fit."""
        replica = hosted.replica
        headers: list[BatchHeader] = []
        position = 0
        try:
            for header in iter_headers(reply.records):
                if not check_crc(reply.records, position, header.length):
                    logger.warning("%r: a batch at %d is damaged", hosted, header.base_offset)
                    break
                headers.append(header)
                position += header.length
        except BatchError as error:
            logger.warning("%r: %s", hosted, error)
        count = follower.appendable(headers, replica.partition.leader_epoch, hosted.log)
        if count is None:
            logger.error("%r: leader %d sent batches that do not fit", hosted, self._leader)
            return []
        return headers[:count]

    def _refused(self, followed: _Followed, code: int) -> bool:
        """True: ask the leader where its log begins and ends."""
        action = follower.on_error(code)
        if action is ErrorAction.STOP:
            followed.hosted.replica.stopped = True
            self.unfollow(followed.hosted)
        else:
            self._back_off(followed)
        return action is ErrorAction.ASK_OFFSETS

    def _back_off(self, followed: _Followed) -> None:
        followed.delayed_until_ms = self._manager.now_ms() + followed.backoff_ms
        followed.backoff_ms = min(followed.backoff_ms * 2, BACKOFF_MS_MAX)

    async def _ask_offsets(self, question: _Question) -> None:
        """Out of range: start where the leader's log starts, or end where it ends."""
        hosted, asked = question.followed.hosted, question.position
        end = await self._offset(hosted, asked, LATEST)
        start = await self._offset(hosted, asked, EARLIEST)
        if end is None or start is None or not hosted.replica.expects(self._leader, asked):
            return
        reset = follower.reset(hosted.log, start, end)
        if reset is not None:
            self._manager.driver.reset(hosted, reset)

    async def _offset(self, hosted: Hosted, asked: FetchPosition, timestamp: int) -> int | None:
        connection = await self._connected()
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = encode_list_offsets(
            self._correlation_id,
            self._manager.settings.broker_id,
            hosted.name,
            (hosted.key.index, asked.leader_epoch),
            timestamp,
        )
        reply = await connection.request(frame, REPLY_S)
        code, offset = decode_list_offsets(reply, self._correlation_id)
        return offset if code == Code.NONE and offset >= 0 else None


class FetcherPool:
    """One fetcher per leader.  `failed` completes when a fetcher dies, which is our own bug."""

    def __init__(self, manager: ReplicaManager, epoch: Callable[[], BrokerEpoch]) -> None:
        self._manager = manager
        self._epoch = epoch
        self._fetchers: dict[BrokerId, Fetcher] = {}
        self._tasks: dict[BrokerId, asyncio.Task[None]] = {}
        self._following: dict[PartitionKey, BrokerId] = {}
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def follow(self, hosted: Hosted, leader: BrokerId) -> None:
        self.unfollow(hosted)
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = Fetcher(self._manager, leader, self._epoch)
            task = asyncio.create_task(fetcher.run(), name=f"fetcher-{leader}")
            task.add_done_callback(self._ended)
            self._tasks[leader] = task
        self._following[hosted.key] = leader
        fetcher.follow(hosted)

    def unfollow(self, hosted: Hosted) -> None:
        leader = self._following.pop(hosted.key, None)
        if leader is None:
            return
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            # It had stopped this partition by itself, and then lost the rest of them.
            return
        fetcher.unfollow(hosted)
        if not fetcher:
            # A leader of nothing is not called any more; it may never come back.
            del self._fetchers[leader]
            self._tasks.pop(leader).cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        self._fetchers.clear()
        self._following.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not self.failed.done():
            self.failed.cancel()
