"""Fetcher: replicates from one leader broker; one task, one connection, many partitions a request.

The replica manager assigns partitions to fetchers. A fetcher sends requests, checks the replies,
and has the LogWriter write the records. `plimsoll_core.replica` decides what to truncate and what
may be appended; `follower_session` decides what a request names. On a lost connection or a
malformed reply the fetcher reconnects with bounded backoff.

While a request waits at the leader, the fetcher also takes what the leader pushes (the tail
stream): it appends at once, and acknowledges. Whatever cannot be appended at once is asked for.

`FetcherPool`: the fetchers of this broker, and the assignment of partitions to them. The replica
manager states each partition's leader. There are connections only to leaders of followed
partitions. `FetcherPool` decides nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from plimsoll_broker.background import in_slices, in_thread
from plimsoll_broker.replication.follower_session import (
    BACKOFF_MS,
    BACKOFF_MS_MAX,
    Followed,
    FollowerSession,
    Question,
)
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.peer_connection import PeerConnection, PeerLost, open_to
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.storage.checkpoint_formats import Partition
from plimsoll_broker.storage.disk import StorageError
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.cluster.record_versions import PUSHES_SINCE
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.replica import follower
from plimsoll_core.replica.follower import ErrorAction, FetchPosition, Reset
from plimsoll_core.replica.replica_values import EndOffset
from plimsoll_core.replica.tail import may_take
from plimsoll_core.replica.throttle import Bucket
from plimsoll_process.waits import set_within
from plimsoll_wire.batches import BatchError, BatchHeader, check_crc, iter_headers
from plimsoll_wire.replication import (
    EARLIEST,
    LATEST,
    NEW_SESSION,
    FetchLimits,
    FetchSender,
    MalformedReply,
    PartitionReply,
    decode_fetch,
    decode_list_offsets,
    encode_fetch,
    encode_list_offsets,
)
from plimsoll_wire.tail_stream import (
    Acknowledgement,
    Push,
    decode_push,
    encode_acknowledgement,
)

logger = logging.getLogger("plimsoll.fetcher")
_SESSION_IS_OVER = (Code.FETCH_SESSION_ID_NOT_FOUND, Code.INVALID_FETCH_SESSION_EPOCH)
_IF_IT_REPEATS = (
    "; if that repeats, the leader's replica is damaged: see "
    'docs/operations.md, "Replace a damaged replica"'
)
COPIES_AT_ONCE = 32
NEW_AT_ONCE = 8
"""The most new logs of one reply that are made durable before their first append. Each takes two
syncs, and the other records of the reply wait for them."""
LIMITS = FetchLimits(wait_ms_max=500, bytes_max=4 * 2**20, partition_bytes_max=2**20)
SOON_MS, SOON_FOR_MS = 20, 1_000
"""Two times in ms. When the set of followed partitions changes, a request that waits for records is
abandoned and sent anew on another connection. For `SOON_FOR_MS` after that a request asks the
leader to wait at most `SOON_MS`, and further changes wait for its reply. Otherwise no request would
be answered while topics are being created, and acknowledgements would wait as long."""
CONNECT_S = 2.0
SILENCE_S = 10.0
"""The time in seconds after which a leader that sends nothing is abandoned. A whole reply may take
longer on a slow link."""


class _Lost(NamedTuple):
    """A partition with a log that cannot be continued from the leader's: the leader refused the
    fetch offset, or the local log is incomplete. `nothing_shared`: the two logs have no common
    prefix, so the local log is discarded. `question`: the fetch position that was requested."""

    question: Question
    nothing_shared: bool = False


class _Cut(NamedTuple):
    """A partition with a log that must be truncated to `offset`, where it diverges from the
    leader's log."""

    question: Question
    offset: int

    @property
    def hosted(self) -> Hosted:
        return self.question.followed.hosted


class Fetcher:
    """Replicates partitions of one leader over one connection, until its task is cancelled.
    `bucket`: a rate limit for the bytes that the fetcher requests; None without a limit."""

    def __init__(
        self,
        manager: ReplicaManager,
        leader: BrokerId,
        epoch: Callable[[], BrokerEpoch],
        bucket: Bucket | None = None,
    ) -> None:
        self._manager = manager
        self._leader = leader
        self._epoch = epoch
        self._bucket = bucket
        self._following = FollowerSession(leader, None if bucket is None else COPIES_AT_ONCE)
        self._changed = asyncio.Event()
        self._connection: PeerConnection | None = None
        self._correlation_id = 0
        self._soon_until_ms = 0
        self._idle_poll = False
        self._interrupted = False  # True if this fetcher closed the connection itself
        self._lost_at_ms: int | None = None  # the first failure, or None while it answers

    def __len__(self) -> int:
        """Return the number of partitions that this fetcher is to fetch, including those that wait
        in line."""
        return len(self._following)

    def follow(self, hosted: Hosted) -> None:
        """Add a partition to be fetched from its log end, or again after its metadata changed. If
        it is requested next, abandon a request that waits at the leader for new records, so that
        this happens at once; otherwise it waits in line."""
        if self._following.add(hosted):
            self._ask_anew()

    def unfollow(self, hosted: Hosted) -> None:
        if self._following.remove(hosted):
            self._ask_anew()

    def _ask_anew(self) -> None:
        """Wake the task to send a request. If the present request waits at the leader for records,
        abandon it by closing its connection."""
        self._changed.set()
        self._soon_until_ms = self._manager.now_ms() + SOON_FOR_MS
        if self._idle_poll and self._connection is not None:
            self._interrupted = True
            self._connection.close()

    @property
    def lost_for_ms(self) -> int | None:
        """The time in ms for which the leader has been unreachable or has given no usable answer;
        None if it answers, was not asked yet, or the connection was closed to ask anew."""
        if self._lost_at_ms is not None:
            return self.silent_ms
        connection = None if self._interrupted else self._connection
        return None if connection is None else connection.lost_for_ms

    @property
    def silent_ms(self) -> int:
        """The time in ms since the first of the requests to the leader that have failed in a row; 0
        if the latest one succeeded or none was sent."""
        return 0 if self._lost_at_ms is None else self._manager.now_ms() - self._lost_at_ms

    def look_again(self) -> None:
        """Wake the task, so that it reads the changed rate of its bucket and waits accordingly."""
        self._changed.set()

    async def run(self) -> None:
        """Fetch until cancelled. After a lost connection or a malformed reply, reconnect with
        backoff."""
        backoff_ms = BACKOFF_MS
        while True:
            try:
                await self._converse()
                backoff_ms = BACKOFF_MS
                self._lost_at_ms = None
            except (PeerLost, MalformedReply) as error:
                logger.debug(
                    "this broker, a follower, cannot fetch from the leader, broker %d, and tries "
                    "again: %s",
                    self._leader,
                    error,
                )
                interrupted = self._interrupted
                self._drop_connection()
                if not interrupted:
                    if self._lost_at_ms is None:
                        self._lost_at_ms = self._manager.now_ms()
                    await asyncio.sleep(backoff_ms / 1000)
                    backoff_ms = min(backoff_ms * 2, BACKOFF_MS_MAX)
            except asyncio.CancelledError:
                self._drop_connection()
                raise

    def _drop_connection(self) -> None:
        self._idle_poll = self._interrupted = False
        self._following.forget_session()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- one request ----------------------------------------------------------------------------

    async def _converse(self) -> None:
        """Wait until a partition can be requested and the rate limit permits it; then send one
        fetch request and apply the reply. Raise PeerLost or MalformedReply."""
        await self._until(lambda: self._following.due_in_ms(self._manager.now_ms()))
        bucket = self._bucket
        if bucket is None:
            await self._exchange(LIMITS)
            return
        await self._until(lambda: bucket.due_in_ms(self._manager.now_ms()))
        piece, used = bucket.take(self._manager.now_ms()), 0
        try:
            used = await self._exchange(LIMITS._replace(bytes_max=piece))
        finally:
            bucket.settle(piece, used, self._manager.now_ms())

    async def _exchange(self, limits: FetchLimits) -> int:
        """Send one fetch request and apply the reply, after starting incomplete local logs anew.
        Return the bytes of records received; 0 if nothing was sent or the leader no longer has the
        fetch session, which the next request begins anew. Raise PeerLost or MalformedReply."""
        for question in self._following.take_lost():
            await self._start_again(_Lost(question, nothing_shared=True))
        connection = await self._connected()
        self._changed.clear()
        request = self._request(limits)
        if request is None:
            return 0
        reply = await connection.request(request, SILENCE_S)
        self._idle_poll = False
        code, replies, controller_epoch, session_id = decode_fetch(reply, self._correlation_id)
        if controller_epoch is not None:
            self._manager.heard_of_controller(controller_epoch)
        if code in _SESSION_IS_OVER:
            self._following.forget_session()
            return 0
        if code != Code.NONE:
            raise PeerLost(
                f"the leader refused this follower's whole Fetch request with error code {code}"
            )
        self._following.answered(session_id)
        size = sum(len(one.records) for one in replies)
        await self._take_up(replies)
        return size

    async def _until(self, due_in_ms: Callable[[], int | None]) -> None:
        """Wait until `due_in_ms` returns 0. `due_in_ms`: returns the ms to wait, or None to wait
        for an event. It is called again at the end of that time, and when the partitions to fetch
        or the rate limit change."""
        while (wait_ms := due_in_ms()) != 0:
            self._changed.clear()
            await set_within(self._changed, None if wait_ms is None else wait_ms / 1000)

    def _request(self, limits: FetchLimits) -> bytes | None:
        """Return the next encoded fetch request. Return None if a new session would name no
        partition."""
        manager = self._manager
        session, topics, forgotten = self._following.ask(manager.now_ms())
        if session == NEW_SESSION and not topics:
            return None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        soon = manager.now_ms() < self._soon_until_ms
        if self._following.has_more or self._lost_at_ms is not None:  # after a loss, at once
            limits = limits._replace(wait_ms_max=0)
        elif soon:
            limits = limits._replace(wait_ms_max=SOON_MS)
        self._idle_poll = limits.wait_ms_max > SOON_MS
        me = FetchSender(manager.settings.broker_id, self._epoch(), manager.controller_epoch)
        if limits.wait_ms_max > 0 and session != NEW_SESSION and self._takes_pushes:
            limits = limits._replace(takes_pushes=True)  # a push names the session
        return encode_fetch(self._correlation_id, me, limits, topics, session, forgotten)

    @property
    def _takes_pushes(self) -> bool:
        """True if the leader may push records while a request waits. A limited copy takes none, nor
        a broker that delays replies in a drill."""
        image = self._manager.image
        return (
            self._manager.settings.takes_pushes
            and self._bucket is None
            and not self._manager.peers.delay_s
            and image is not None
            and image.metadata_version >= PUSHES_SINCE
        )

    async def _connected(self) -> PeerConnection:
        """Return the connection to the leader. Open one if there is none or the peer's certificates
        have changed. Raise PeerLost."""
        connection, peers = self._connection, self._manager.peers
        if connection is not None and peers.is_outdated(connection.link):
            self._drop_connection()
        if self._connection is None:
            image = self._manager.image
            self._connection = await open_to(self._leader, image, peers, CONNECT_S)
            self._connection.take_push = self._pushed
        return self._connection

    # --- what the leader pushes -----------------------------------------------------------------

    def _pushed(self, frame: memoryview) -> tuple[int, bytes] | None:
        """Append what the leader has pushed, and return the slot of the partition and the
        acknowledgement. If it cannot be appended at once, have the acknowledgement ask for the
        reply. Return None if nothing may be acknowledged: the partition is no longer fetched in
        this session, or its records are not on the disk as far as flush.messages requires. Raise
        MalformedReply."""
        push = decode_push(frame)
        following = self._following
        question = following.asked.get((push.reply.topic_id, push.reply.partition))
        if question is None or push.session_id != following.session_id:
            return None
        followed, position, _ = question
        hosted = followed.hosted
        replica, log = hosted.replica, hosted.log
        if not following.current(followed) or not replica.expects(self._leader, position):
            following.look_again(followed)
            return None
        took = may_take(position, push.leader_epoch, push.base_offset, log) and self._took(
            followed, push
        )
        if log.countable_end < log.log_end_offset or replica.fetches_from != self._leader:
            # It is flushed first, and the next request names it; or the disk failed.
            self._manager.touch(hosted)
            following.look_again(followed)
            return None
        now_at = replica.position()
        following.asked[followed.key] = Question(followed, now_at, log.log_start_offset)
        said = Acknowledgement(push.session_id, push.slot, not took, *now_at, log.log_start_offset)
        return push.slot, encode_acknowledgement(said)

    def _took(self, followed: Followed, push: Push) -> bool:
        """Append the records of a push, and return True if all of them could be appended."""
        hosted, reply = followed.hosted, push.reply
        if self._manager.store.new_logs.among((hosted.place,)):
            return False
        headers = self._usable(hosted, reply)
        if headers and hosted.log.must_be_flushed(headers[-1].next_offset):
            return False  # what a reply has is flushed before the next fetch
        return self._append(hosted, reply, headers) and (
            sum(header.length for header in headers) == len(reply.records)
        )

    # --- one partition's answer -----------------------------------------------------------------

    async def _take_up(self, replies: Iterable[PartitionReply]) -> None:
        """Apply the reply of each partition: append, truncate or start the log anew. Return when
        the appended records are on the disk as far as flush.messages requires. Other tasks run
        meanwhile, so each partition is checked again before its log is changed."""
        replies = self._within_syncs(replies)
        places = [place for each in replies if (place := self._place(each)) is not None]
        await self._manager.flusher.make_durable(self._manager.store, places)
        cuts: list[_Cut] = []
        lost: list[_Lost] = []
        appended: list[Hosted] = []
        work = (self._take(reply) for reply in replies)
        for result in [each async for each in in_slices(work)] if len(replies) > 1 else work:
            match result:
                case Hosted() as hosted:
                    appended.append(hosted)
                case _Cut() as cut:
                    cuts.append(cut)
                case _Lost() as one:
                    lost.append(one)
        if cuts:
            await self._cut(cuts)
        for one in lost:
            await self._start_again(one)
        if self._bucket is not None:  # copies are many gigabytes
            await self._manager.driver.write_back(appended)
        # The next fetch acknowledges these records: they must be on the disk by then.
        await self._manager.flusher.settle(appended)

    def _place(self, reply: PartitionReply) -> Partition | None:
        """Return the topic name and index of the reply's partition. Return None if the reply has no
        records or its partition is no longer fetched."""
        question = self._following.asked.get((reply.topic_id, reply.partition))
        return question.followed.hosted.place if question and reply.records else None

    def _within_syncs(self, replies: Iterable[PartitionReply]) -> list[PartitionReply]:
        """Return the replies for logs that are durable, and for the first NEW_AT_ONCE newly made
        logs; the first append to a new log waits for two syncs. Partitions of the replies left out
        are fetched again after their backoff time."""
        taken, new_logs, left = [], self._manager.store.new_logs, NEW_AT_ONCE
        for reply in replies:
            place = self._place(reply)
            if place is not None and new_logs.among((place,)):
                left -= 1
                if left < 0:
                    question = self._following.asked[reply.topic_id, reply.partition]
                    self._back_off(question.followed)
                    continue
            taken.append(reply)
        return taken

    async def _cut(self, cuts: Iterable[_Cut]) -> None:
        """Truncate logs to the offsets where they diverge from the leader's, and sync that. All
        checkpoints are lowered in one write before any log is truncated; if that fails, no log is,
        and the partitions are fetched again later."""
        manager, cuts = self._manager, list(cuts)
        places = {cut.hosted.place: cut.offset for cut in cuts}
        if not await self._lowered(places, all_goes=False):
            for cut in cuts:
                self._back_off(cut.question.followed)
            return
        async for cut in in_slices(cuts):
            hosted, position = cut.hosted, cut.question.position
            if manager.is_here(hosted) and hosted.replica.expects(self._leader, position):
                manager.driver.truncate(hosted, cut.offset)
                if hosted.replica.position() == position:
                    # Nothing was cut: asking again at once cannot help.
                    self._back_off(cut.question.followed)
        await manager.flusher.settle_cuts([cut.hosted for cut in cuts])

    async def _lowered(self, places: Mapping[tuple[str, int], int], *, all_goes: bool) -> bool:
        """Lower the checkpoints of these logs on the disk to the given offsets, before the logs are
        truncated or, if `all_goes`, discarded. Return False if the write failed: then the logs must
        not be changed."""
        try:
            await in_thread(self._manager.store.begin_lower(places, discarded=all_goes))
        except StorageError as error:
            logger.error(
                "this broker cannot write its checkpoint files and tries again; until then %d of "
                "its replicas copy no records, because they must first be truncated to match "
                "their leaders; if this lasts, check the broker's volume: %s",
                *(len(places), error),
            )
            return False
        return True

    def _take(self, reply: PartitionReply) -> Hosted | _Cut | _Lost | None:
        """Apply one partition's reply, except truncations. Return the partition if records were
        appended, or a `_Cut` or `_Lost` if its log must be truncated or started anew. Return None
        if there is nothing more to do: no records, an outdated reply, or an error after which the
        partition is dropped or fetched again later."""
        following = self._following
        question = following.asked.get((reply.topic_id, reply.partition))
        if question is None:
            return None
        followed, position, _ = question
        hosted = followed.hosted
        following.look_again(followed)
        if not following.current(followed) or not hosted.replica.expects(self._leader, position):
            return None
        if reply.code != Code.NONE:
            return _Lost(question) if self._refused(followed, reply.code) else None
        if reply.diverging is not None:
            # The reply's high watermark does not apply to a log that is about to be truncated.
            end, least = EndOffset(*reply.diverging), hosted.replica.compacted_copy.least_cut
            offset = follower.truncation_offset(hosted.log, end, least)
            if offset is None:
                self._back_off(followed)
                return _Lost(question, nothing_shared=True)
            return _Cut(question, offset)
        headers = self._usable(hosted, reply) if reply.records else []
        if not self._append(hosted, reply, headers):
            self._back_off(followed)
            return None
        followed.backoff_ms = BACKOFF_MS
        return hosted if reply.records else None

    def _append(self, hosted: Hosted, reply: PartitionReply, headers: list[BatchHeader]) -> bool:
        """Append the batches with these headers, and adopt the leader's high watermark and log
        start. Return False if the reply has records and none can be used, or the disk failed; the
        caller then fetches the partition again later."""
        driver, end = self._manager.driver, hosted.log.log_end_offset
        if reply.records:
            if not headers:
                return False
            size = sum(header.length for header in headers)
            if not driver.append_fetched(hosted, reply.records[:size], headers):
                return False
            traffic = self._manager.traffic
            traffic.replicated_in += size
            if self._bucket is not None:
                traffic.moved_in += size
        compacted = hosted.log.holes and follower.shows_compaction(headers, end)
        hosted.replica.replicated(reply.high_watermark, shows_compaction=compacted)
        driver.advance_log_start(hosted, reply.log_start)
        return True

    def _usable(self, hosted: Hosted, reply: PartitionReply) -> list[BatchHeader]:
        """Return the headers of the reply's leading batches that are whole, have a valid CRC and
        continue the local log. Return an empty list if there is none."""
        replica = hosted.replica
        leader = replica.partition.leader
        headers: list[BatchHeader] = []
        position = 0
        try:
            for header in iter_headers(reply.records):
                if not check_crc(reply.records, position, header.length):
                    logger.warning(
                        "%r: the record batch that this broker, a follower, fetched from "
                        "leader %s at offset %d is corrupt; the broker fetches it again by "
                        "itself%s",
                        *(hosted, leader, header.base_offset, _IF_IT_REPEATS),
                    )
                    break
                headers.append(header)
                position += header.length
        except BatchError as error:
            logger.warning(
                "%r: a record batch that this broker, a follower, fetched from leader %s is "
                "corrupt; the broker fetches it again by itself%s: %s",
                *(hosted, leader, _IF_IT_REPEATS, error),
            )
        count = follower.appendable(headers, replica.partition.leader_epoch, hosted.log)
        if count is None:
            logger.error(
                "%r: the record batches that this broker, a follower, fetched from leader %d do "
                "not begin where its log ends, so the broker does not append them and fetches "
                "again; if this repeats, report it as a bug",
                *(hosted, self._leader),
            )
            return []
        return headers[:count]

    def _refused(self, followed: Followed, code: int) -> bool:
        """Apply a partition's error code: remove the partition from this fetcher for good, or leave
        it out of requests for a while. Return True if the fetch offset is out of range, so that the
        leader must be asked for its log start and end."""
        action = follower.on_error(code)
        if action is ErrorAction.STOP:
            followed.hosted.replica.halt()
            self.unfollow(followed.hosted)
        else:
            self._back_off(followed)
        return action is ErrorAction.ASK_OFFSETS

    def _back_off(self, followed: Followed) -> None:
        self._following.rest(followed, self._manager.now_ms())

    async def _start_again(self, lost: _Lost) -> None:
        """Request the leader's log start and end. Then discard the local log and begin at the
        leader's log start, or truncate the local log to the leader's end, after lowering the
        checkpoints. Do nothing if the leader refuses either request, or the partition changed
        meanwhile; the partition is requested again later. Raise PeerLost or MalformedReply."""
        hosted, asked = lost.question.followed.hosted, lost.question.position
        end = await self._offset(hosted, asked, LATEST)
        start = await self._offset(hosted, asked, EARLIEST)
        if end is None or start is None or not hosted.replica.expects(self._leader, asked):
            return
        least = hosted.replica.compacted_copy.least_cut
        reset: Reset | None = follower.begin_again(start)
        if not lost.nothing_shared:
            reset = follower.reset(hosted.log, start, end, least)
        if reset is None:
            return
        leaving = hosted.replica.leaving
        if not hosted.replica.may_reset(reset):
            if not leaving:
                logger.warning(
                    "%r: this broker, a follower, cannot continue its log from the leader's log; "
                    "once the controller has removed the replica from the ISR, the broker "
                    "discards its log and copies the leader's; nothing needs to be done",
                    hosted,
                )
                self._manager.report_due.set()
            self._back_off(lost.question.followed)
            return
        if not await self._lowered({hosted.place: reset.offset}, all_goes=reset.discard):
            self._back_off(lost.question.followed)
        elif self._manager.is_here(hosted) and hosted.replica.expects(self._leader, asked):
            self._manager.driver.reset(hosted, reset)
            await self._manager.flusher.settle_cuts([hosted])

    async def _offset(self, hosted: Hosted, asked: FetchPosition, timestamp: int) -> int | None:
        """Ask the leader for the partition's offset by a ListOffsets request. `timestamp`: LATEST
        for the log end, EARLIEST for the log start. Return None if the leader answers with an
        error."""
        connection = await self._connected()
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        me, epoch = self._manager.settings.broker_id, asked.leader_epoch
        frame = encode_list_offsets(
            self._correlation_id, me, hosted.name, hosted.key.index, epoch, timestamp
        )
        reply = await connection.request(frame, SILENCE_S)
        code, offset = decode_list_offsets(reply, self._correlation_id)
        return offset if code == Code.NONE and offset >= 0 else None


class Source(NamedTuple):
    """The key of one fetcher: a connection to `leader`, either with a `number` below
    num.replica.fetchers, or for the copies under the rate limit with the name `limit`. Copies under
    a rate limit have a connection of their own for each limit, so that no other partition waits
    behind them."""

    leader: BrokerId
    number: int
    limit: str | None = None


class FetcherPool:
    """Starts and stops this broker's fetchers, and assigns each followed partition to one of them.
    A leader has up to num.replica.fetchers of them, each with a share of the partitions. `failed`:
    a future that gets the exception of a fetcher that dies of a bug."""

    def __init__(self, manager: ReplicaManager, epoch: Callable[[], BrokerEpoch]) -> None:
        self._manager = manager
        self._epoch = epoch
        self._fetchers: dict[Source, Fetcher] = {}
        self._tasks: dict[Source, asyncio.Task[None]] = {}
        self._following: dict[PartitionKey, Source] = {}
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _source(self, key: PartitionKey, leader: BrokerId, limit: str | None) -> Source:
        """Return the connection for a partition; always the same for the same arguments. A copy
        under a rate limit gets the leader's connection of that limit. All other partitions of a
        topic are distributed over the leader's connections in turn."""
        if limit is not None:
            return Source(leader, 0, limit)
        number = (key.topic_id.int + key.index) % self._manager.settings.fetchers_per_leader
        return Source(leader, number)

    def follow(self, hosted: Hosted, leader: BrokerId, limit: str | None = None) -> None:
        self.unfollow(hosted)
        source = self._source(hosted.key, leader, limit)
        fetcher = self._fetchers.get(source)
        if fetcher is None:
            fetcher = self._start(source)
        self._following[hosted.key] = source
        fetcher.follow(hosted)

    def _start(self, source: Source) -> Fetcher:
        leader, number, limit = source
        bucket = None if limit is None else self._manager.copy_buckets.bucket(limit)
        fetcher = self._fetchers[source] = Fetcher(self._manager, leader, self._epoch, bucket)
        name = f"fetcher-{leader}-{number}" if limit is None else f"mover-{leader}-{limit}"
        task = asyncio.create_task(fetcher.run(), name=name)
        task.add_done_callback(self._ended)
        self._tasks[source] = task
        return fetcher

    def unfollow(self, hosted: Hosted) -> None:
        source = self._following.pop(hosted.key, None)
        if source is None:
            return
        fetcher = self._fetchers.get(source)
        if fetcher is None:
            # The fetcher stopped this partition itself, and ended when it lost the rest.
            return
        fetcher.unfollow(hosted)
        if not fetcher:
            # The last partition is gone: close the connection to a leader that may never come back.
            del self._fetchers[source]
            self._tasks.pop(source).cancel()

    def silent_ms(self, key: PartitionKey) -> int:
        """Return the time in ms for which requests to the partition's leader have failed. Return 0
        if the leader answers or the partition is not followed."""
        source = self._following.get(key)
        fetcher = self._fetchers.get(source) if source is not None else None
        return 0 if fetcher is None else fetcher.silent_ms

    def lost_leaders(self) -> dict[BrokerId, int]:
        """Return the leaders from which this broker fetches and that it cannot reach, each with the
        least time in ms for which one of its fetchers has not reached it."""
        lost: dict[BrokerId, int] = {}
        for source, fetcher in self._fetchers.items():
            if (ms := fetcher.lost_for_ms) is not None:
                lost[source.leader] = min(ms, lost.get(source.leader, ms))
        return lost

    def limits_changed(self) -> None:
        """Have fetchers under a rate limit read the rate again."""
        for source, fetcher in self._fetchers.items():
            if source.limit is not None:
                fetcher.look_again()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def close(self) -> None:
        """Cancel all fetchers and wait for their ends."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        self._fetchers.clear()
        self._following.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not self.failed.done():
            self.failed.cancel()
