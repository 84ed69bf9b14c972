"""Poll: a fetch of a consumer, or of a follower without a session, that waits until there is enough
to read.

Made by the fetch handler. A partition with new records wakes the Poll in the same turn of the event
loop; the Poll then reads all of its partitions again (a look). A Poll of many partitions reads in
time slices: each partition's part of the reply is as correct as if it had been requested alone.

`Growth`: counts the bytes that arrived for a parked fetch since its last look, to decide whether
another look is worthwhile. A look reads up to the largest reply: a Poll that waits for 16 MB would
read everything for each new record, and a client may have any number of Polls. So new bytes are
counted by their offsets, and read once there may be enough. `Growth` never answers a request.
Source: Kafka's `DelayedFetch`, which counts in the same way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from functools import partial

from plimsoll_broker.background import SLICE_S
from plimsoll_broker.handler_failures import Answering
from plimsoll_broker.handlers.fetch_reading import (
    RESPONSE_BYTES_MAX,
    WAIT_MS_MAX,
    Asked,
    Read,
    ReadsTo,
    fault,
    read,
    read_own_copy,
    reads_to,
)
from plimsoll_broker.handlers.long_work import Aside, in_turns, next_turn
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_broker.server.requests_and_replies import Granted
from plimsoll_broker.storage.disk import StorageError
from plimsoll_broker.storage.segment import SearchUnfinished
from plimsoll_core.errors import Code
from plimsoll_core.security.acl import AclOperation
from plimsoll_process.waits import set_within
from plimsoll_wire.fetch import (
    Buffer,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    Topic,
    encode_response,
)

_ANY = 2**62
"""A number of bytes above any limit: a partition of which nothing was read yet counts a first batch
of any size."""


class Growth:
    """Counts the bytes that arrived for one parked fetch since its partitions were last read (a
    look), to decide when to read them again. `reads_to`: the end of what the request may read."""

    __slots__ = ("_came", "_ends", "_missing", "_moved", "_reads_to", "_room", "_unknown")

    def __init__(self, reads_to: ReadsTo) -> None:
        self._reads_to = reads_to
        # The offset up to which each partition was looked at or counted.
        self._ends: dict[Hosted, int] = {}
        self._moved: dict[Hosted, None] = {}
        # Bytes of each partition that still count, within its limit; a first batch always counts.
        self._room: dict[Hosted, int] = {}
        self._came = self._missing = 0
        # True if the result of a look cannot be derived from the count.
        self._unknown = False

    def looked_at(self, hosted: Hosted) -> None:
        """Reset the partition's count to begin at its present end, since it is read in this turn of
        the event loop. Call `there` next: it sets how many further bytes of the partition may be
        counted."""
        self._room.pop(hosted, None)
        self._moved.pop(hosted, None)
        self._ends[hosted] = self._end(hosted)

    def found(self, size: int, missing: int) -> None:
        """Reset the count after a look that did not find enough. `size`: the bytes read. `missing`:
        how many more bytes the request needs before the next look; 0 if that is not known."""
        self._unknown = size == 0 and missing <= 1  # any new byte is enough, as for most readers
        self._missing = missing
        self._came = 0

    def there(self, hosted: Hosted, asked: FetchPartition, told: int) -> int:
        """Return the number of bytes from the fetch offset on that count for the request's minimum,
        within the partition's limit; and set how many further bytes of the partition may be
        counted. The result may exceed the bytes read (`told`), since a read ends at a segment's
        end."""
        end, size, most = self._end(hosted), told, asked.max_bytes
        if told < most and asked.offset < end:
            size = max(told, min(self._between(hosted, asked.offset, end), most))
        room = max(most - size, 0) if size else _ANY
        self._room[hosted] = self._room.get(hosted, 0) + room
        return size

    def there_is(self, looked: Iterable[tuple[Hosted, FetchPartition, int]]) -> int:
        """Return the sum of `there` over all partitions that are read in this turn. `looked`: each
        partition with its request and the number of bytes read."""
        found = list(looked)
        for hosted, _, _ in found:
            self.looked_at(hosted)
        return sum(self.there(*one) for one in found)

    def moved(self, hosted: Hosted) -> None:
        """Record that the partition has new records, which `count` is to count."""
        self._moved[hosted] = None

    @property
    def is_enough(self) -> bool:
        """True if enough bytes were counted for another look, or if the count cannot predict the
        look's result."""
        return self._unknown or self._came >= self._missing

    def take_moved(self) -> Iterable[Hosted]:
        """Remove and return the partitions with new records that are not counted yet."""
        moved, self._moved = self._moved, {}
        return moved

    def count(self, hosted: Hosted) -> None:
        """Add the bytes that arrived in the partition since its last look or count, within its
        limit. If they cannot be determined, `is_enough` becomes True."""
        before, end = self._ends.get(hosted), self._end(hosted)
        self._ends[hosted] = end
        if before is None or end < before:
            self._unknown = True
        elif end > before:
            came = self._between(hosted, before, end)
            if (room := self._room.get(hosted)) is not None:
                came = min(came, room)
                self._room[hosted] = room - came
            self._came += came

    def _between(self, hosted: Hosted, first: int, end: int) -> int:
        """Return the number of bytes from offset `first` to before `end` in the partition's log. If
        the log cannot be read or the search takes long, return 0 and make `is_enough` True, so that
        the next look reports the error or continues the search."""
        try:
            return hosted.log.reader.bytes_between(first, end)
        except (StorageError, SearchUnfinished):
            self._unknown = True
            return 0

    def _end(self, hosted: Hosted) -> int:
        if self._reads_to is ReadsTo.HIGH_WATERMARK:
            return hosted.replica.high_watermark
        if self._reads_to is ReadsTo.STABLE_OFFSET:
            return hosted.replica.last_stable_offset
        return hosted.log.log_end_offset


class TooLong(Exception):
    """Raised if a look would hold the event loop for longer than a slice; a `LongPoll` serves the
    request instead."""


class Poll:
    """One Fetch request. It is answered at once or parked; while it is parked its partitions wake
    it. `asked`: its topics with their partitions."""

    __slots__ = (
        "_growth",
        "asked",
        "charges",
        "connection",
        "for_follower",
        "future",
        "manager",
        "reads_to",
        "request",
        "rights",
        "timer",
        "version",
        "watched",
    )

    def __init__(
        self,
        manager: ReplicaManager,
        context: RequestContext,
        request: FetchRequest,
        asked: list[tuple[FetchTopic, list[Asked]]],
    ) -> None:
        self.manager = manager
        self.version = context.api_version
        self.connection = context.connection
        self.rights = context.rights
        self.reads_to = reads_to(request)
        self.for_follower = self.reads_to is ReadsTo.LOG_END
        self.charges = None if self.for_follower else context.charges
        self.request = request
        self.asked = asked
        # None until a look finds too little: most requests are answered by their first look.
        self._growth: Growth | None = None
        # By hosted partition, once it waits.
        self.watched: dict[Hosted, Asked] = {}
        self.future: asyncio.Future[Reply | None] | None = None
        self.timer: asyncio.TimerHandle | None = None

    @property
    def growth(self) -> Growth:
        if self._growth is None:
            self._growth = Growth(self.reads_to)
        return self._growth

    @property
    def max_bytes(self) -> int:
        """The largest reply in bytes, by the request, the broker's limit and the client's quota. At
        least 1: the first batch is returned even above the limit (KIP-74)."""
        most = RESPONSE_BYTES_MAX
        if self.charges is not None and (quota := self.charges.fetch_bytes_max) is not None:
            most = min(most, quota)
        return max(1, min(self.request.max_bytes, most))

    # --- reading --------------------------------------------------------------------------------

    def read(self, *, cuts: bool = False) -> Read:
        """Read all partitions once, within the reply memory that the connection is granted, and
        return the result. Pass the result to `reply` or `drop`, which settle the memory. If that
        takes longer than SLICE_S seconds, raise TooLong. `cuts`: True to return the other
        partitions without records instead, as where a reply is full; the result is urgent."""
        wanted = self.max_bytes
        granted = self.connection.account.grant(wanted)
        try:
            return self._look(granted, wanted, cuts=cuts)
        except BaseException:
            self.connection.account.settle(granted, 0)
            raise

    def _look(self, granted: int, wanted: int, *, cuts: bool) -> Read:
        left = granted
        topics: list[Topic] = []
        size = 0
        urgent = is_cut = False
        starved = not granted
        until_s = 0.0
        for topic, asked in self.asked:
            fetched: list[FetchedPartition] = []
            for one in asked:
                if not until_s:
                    until_s = time.monotonic() + SLICE_S
                elif not is_cut:
                    is_cut = time.monotonic() >= until_s
                try:
                    result = self._looked(one, 0 if is_cut else left, starved=starved)
                except SearchUnfinished:
                    is_cut = True
                    result = self._looked(one, 0, starved=starved)
                if is_cut and not cuts:
                    raise TooLong
                if result.code != Code.NONE or result.diverging is not None:
                    urgent = True
                    if result.code != Code.NONE:
                        self.manager.traffic.errors["FETCH", result.code] += 1
                got = len(result.records)
                size += got
                left -= got
                fetched.append(result)
            topics.append((topic.name or "", topic.topic_id, fetched))
        urgent = urgent or is_cut
        there = size
        if 0 < size < min(self.request.min_bytes, wanted) and not urgent:
            found = (one for _, _, fetched in topics for one in fetched)
            there = self.growth.there_is(
                (one.hosted, one.partition, len(told.records))
                for one, told in zip(self._all(), found, strict=True)
                if one.hosted is not None
            )
        return Read(topics, size, urgent, granted, wanted, there)

    def _denied(self, one: Asked) -> FetchedPartition | None:
        """Return the refusal if the client may not read the topic at this time, or None if it may.
        A right that was revoked while the request waited no longer counts. Followers, and clients
        without authorization, are never refused."""
        rights = self.rights
        if rights is None or one.topic is None or self.for_follower:
            return None
        if rights.topic(AclOperation.READ, one.topic):
            return None
        return FetchedPartition(one.partition.partition, Code.TOPIC_AUTHORIZATION_FAILED)

    def _looked(self, one: Asked, left: int, *, starved: bool) -> FetchedPartition:
        """Return the result of one partition: a refusal, or at most `left` bytes of records.
        `starved`: True if no memory was granted. Raise SearchUnfinished if the next call continues
        the search for the records."""
        refused = one.refused if self.rights is None else self._denied(one) or one.refused
        if refused is not None:
            return refused
        assert one.hosted is not None, "a partition that is not here is refused"
        if self.request.own_copy:
            return read_own_copy(
                one.hosted, one.partition, left, starved=starved, reads_to=self.reads_to
            )
        return read(self.manager, one.hosted, one.partition, left, reads_to=self.reads_to)

    def reply(self, read: Read) -> Reply:
        if self.charges is not None and self.is_too_much(read):
            return self._encode([], None)
        return Granted(self._encode(read.topics, self._told(read)), read.size)

    def is_too_much(self, read: Read) -> bool:
        """Charge the reply to the client's quota and return False. If the quota does not permit it
        now, give back the memory of the read and return True: the client then gets an empty reply
        with a throttle time. Without a quota return False."""
        if self.charges is None or not read.size or self.charges.fetched(read.size):
            return False
        self.connection.account.settle(read.granted, 0)
        return True

    def _encode(self, topics: list[Topic], epoch: int | None) -> list[Buffer]:
        return encode_response(self.version, topics, controller_epoch=epoch)

    def _told(self, read: Read) -> int | None:
        """Count the reply in the traffic metrics and settle its memory with the connection's
        account. Return the controller epoch to report to a follower, or None for a consumer."""
        traffic = self.manager.traffic
        self.connection.account.settle(read.granted, read.size)
        epoch = None
        if self.for_follower:
            traffic.replicated_out += read.size
            self.connection.fetch_replied_ms = self.manager.now_ms()
            epoch = self.manager.controller_epoch
        else:
            traffic.bytes_out += read.size
            for (_, asked), (_, _, fetched) in zip(self.asked, read.topics, strict=True):
                for one, result in zip(asked, fetched, strict=True):
                    if one.hosted is not None:
                        one.hosted.bytes_out += len(result.records)
        return epoch

    def drop(self, read: Read) -> None:
        """Give back the memory of a read that did not find enough, and begin a new count of
        arriving bytes. If no memory was granted, have `wake` called when there may be some."""
        self.growth.found(read.size, read.missing(self.request.min_bytes))
        self.connection.account.settle(read.granted, 0)
        if read.starved:
            self.connection.account.wait(self)

    # --- waiting --------------------------------------------------------------------------------

    def park(self, read: Read) -> asyncio.Future[Reply | None]:
        loop = asyncio.get_running_loop()
        self.future = loop.create_future()
        self.future.add_done_callback(self._leave)
        wait_ms = min(self.request.max_wait_ms, WAIT_MS_MAX)
        self.timer = loop.call_later(wait_ms / 1000, self._expired)
        for one in self._all():
            self._watch(one)
        self._wait_again(read)
        return self.future

    def _wait_again(self, read: Read) -> None:
        self.drop(read)
        for hosted in self.watched:
            if not read.size:  # else `_look` noted it already
                self.growth.looked_at(hosted)
            self._listen_to(hosted)

    def _listen_to(self, hosted: Hosted) -> None:
        hosted.replica.parked.park(
            self,
            for_commit=not self.for_follower,
            for_stable=self.reads_to is ReadsTo.STABLE_OFFSET,
        )

    def _leave(self, future: asyncio.Future[Reply | None]) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.connection.account.forget(self)
        for hosted in self.watched:
            hosted.replica.parked.forget(self)

    def _watch(self, one: Asked) -> None:
        if one.hosted is not None:
            self.watched[one.hosted] = one

    def moved(self, hosted: Hosted) -> None:
        """Record that the partition has new records and no longer holds this Poll. The next `wake`
        counts them and parks this Poll at the partition again, or answers."""
        self.growth.moved(hosted)

    def wake(self) -> None:
        """Send the reply if there is enough to read now; otherwise stay parked. Called after
        `moved`, at most once in a turn of the event loop, or when memory may have become free."""
        self._answer(at_last=False)

    def _expired(self) -> None:
        self._answer(at_last=True)

    def _answer(self, *, at_last: bool) -> None:
        if self.future is None or self.future.done():
            return
        charges = self.charges
        if charges is not None:
            charges.resumes()
        with Answering(self.future):
            reply = self._reply(at_last=at_last)
            if charges is not None:
                charges.took()  # before the client is answered
            if reply is not None:
                self.future.set_result(reply)

    def _reply(self, *, at_last: bool) -> Reply | None:
        """Return the reply, or None if there is not enough to read; the request then stays parked.
        `at_last`: True if its wait time is over, so that the reply is returned however small it
        is."""
        if not at_last and not self._is_worth_a_look():
            return None
        read = self.read(cuts=True)
        if at_last or read.is_enough(self.request.min_bytes):
            return self.reply(read)
        self._wait_again(read)
        return None

    def _is_worth_a_look(self) -> bool:
        """Return True if the partitions should be read again: enough bytes arrived, a partition has
        an error, or the Poll was woken by free memory. Otherwise park the Poll again at the
        partitions that woke it, and return False."""
        growth = self.growth
        moved = growth.take_moved()
        if not moved or growth.is_enough or any(map(self._fails, moved)):
            return True
        for hosted in moved:
            self._listen_to(hosted)
            growth.count(hosted)
        return growth.is_enough

    def _fails(self, hosted: Hosted) -> bool:
        """Return True if this partition would get an error, a divergence or a denial, which must be
        sent at once."""
        one = self.watched[hosted]
        failing = fault(self.manager, hosted, one.partition, for_follower=self.for_follower)
        return failing is not None or self._denied(one) is not None

    def _all(self) -> Iterator[Asked]:
        for _, asked in self.asked:
            yield from asked


class LongPoll(Poll):
    """A Fetch request of many partitions. `run` returns the reply; it visits the partitions in time
    slices."""

    __slots__ = ("_listening", "_woken")

    def __init__(
        self,
        manager: ReplicaManager,
        context: RequestContext,
        request: FetchRequest,
        asked: list[tuple[FetchTopic, list[Asked]]],
    ) -> None:
        super().__init__(manager, context, request, asked)
        self._woken = asyncio.Event()
        self._listening: dict[Hosted, None] = {}

    async def run(self, aside: Aside) -> Reply:
        loop = asyncio.get_running_loop()
        wait_ms = min(max(self.request.max_wait_ms, 0), WAIT_MS_MAX)
        end_s = loop.time() + wait_ms / 1000
        try:
            async for one in in_turns(self._all()):
                self._watch(one)
            while True:
                # A partition that moves during the read is looked at again.
                self._woken.clear()
                await self._listen()
                read = await self._look_slowly()
                if read.is_enough(self.request.min_bytes) or loop.time() >= end_s:
                    if self.is_too_much(read):
                        return self._encode([], None)
                    encode = partial(self._encode, read.topics, self._told(read))
                    return Granted(await aside.do(encode), read.size)
                self.drop(read)
                await self._worth_a_look(end_s)
        finally:
            self.connection.account.forget(self)
            for hosted in self._listening:
                hosted.replica.parked.forget(self)

    async def _listen(self) -> None:
        async for one in in_turns(self._all()):
            if one.hosted is not None and one.hosted not in self._listening:
                self._listen_to(one.hosted)

    def _listen_to(self, hosted: Hosted) -> None:
        self._listening[hosted] = None
        super()._listen_to(hosted)

    async def _worth_a_look(self, end_s: float) -> None:
        """Wait until the partitions should be read again, as `_is_worth_a_look` decides, at most
        until `end_s` (seconds of the loop's clock). Park this Poll again at partitions with too few
        new bytes."""
        loop, growth = asyncio.get_running_loop(), self.growth
        while loop.time() < end_s:
            await set_within(self._woken, end_s - loop.time())
            self._woken.clear()
            moved = growth.take_moved()
            if not moved or growth.is_enough:
                return
            async for hosted in in_turns(moved):
                self._listen_to(hosted)
                growth.count(hosted)
                if growth.is_enough or self._fails(hosted):
                    return

    async def _look_slowly(self) -> Read:
        wanted = self.max_bytes
        min_bytes = min(self.request.min_bytes, wanted)
        granted = self.connection.account.grant(wanted)
        size, there, urgent = 0, 0, False
        found: list[FetchedPartition] = []
        looked_at: set[Hosted] = set()
        try:
            async for one in in_turns(self._all()):
                if one.hosted is not None and one.hosted not in looked_at:
                    looked_at.add(one.hosted)
                    if one.hosted not in self._listening:  # it moved since `_listen`
                        self._listen_to(one.hosted)
                    self.growth.looked_at(one.hosted)
                result = await self._looked_slowly(one, granted - size, starved=not granted)
                urgent = urgent or result.code != Code.NONE or result.diverging is not None
                size += (told := len(result.records))
                if one.hosted is not None and size < min_bytes:
                    told = self.growth.there(one.hosted, one.partition, told)
                there += told
                found.append(result)
        except BaseException:
            self.connection.account.settle(granted, 0)
            raise
        results = iter(found)
        topics: list[Topic] = [
            (topic.name or "", topic.topic_id, [next(results) for _ in asked])
            for topic, asked in self.asked
        ]
        return Read(topics, size, urgent, granted, wanted, there)

    async def _looked_slowly(self, one: Asked, left: int, *, starved: bool) -> FetchedPartition:
        while True:
            try:
                return self._looked(one, left, starved=starved)
            except SearchUnfinished:
                await next_turn()

    def moved(self, hosted: Hosted) -> None:
        super().moved(hosted)
        self._listening.pop(hosted, None)

    def wake(self) -> None:
        self._woken.set()
