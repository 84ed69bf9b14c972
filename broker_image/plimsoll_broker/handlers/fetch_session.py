"""FetchSession: the leader's side of a follower's fetch session (KIP-227).

The fetch handler makes one for a connection that requests one; it ends with the connection. A
request names only partitions with changes; a reply contains only partitions with records, an error,
a divergence, or a new high watermark or log start. A fetch still acknowledges the offsets of all
partitions of the session.

A partition is *open* or *settled*. An open one is visited in every request, as if the request had
named it. In a settled one the follower has all records and knows the high watermark and the log
start. It costs nothing until its log end, log start, leader epoch or ISR changes. Source: KIP-227;
the protocol's rules for a leader's side of a fetch.

To a follower that takes pushes, what is appended is sent while its fetch waits, without answering
that (the tail stream). What cannot be pushed is in the reply, as ever. `plimsoll_core.replica.tail`
decides which.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from itertools import count
from typing import NamedTuple
from uuid import UUID

from plimsoll_broker.handler_failures import Answering
from plimsoll_broker.handlers.fetch_reading import (
    RESPONSE_BYTES_MAX,
    WAIT_MS_MAX,
    FollowerIdentity,
    ReadsTo,
    arrive,
    missing,
    read,
)
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.server.connection_state import CloseConnection, ConnectionState
from plimsoll_broker.server.dispatch import Reply
from plimsoll_broker.server.requests_and_replies import ReplyLater
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_core.replica.follower import FetchPosition
from plimsoll_core.replica.leader import FollowerProgress, Leader, Presence
from plimsoll_core.replica.tail import Pushed, SendWindow, may_push
from plimsoll_wire.batches import end_of
from plimsoll_wire.fetch import FetchedPartition, FetchPartition, FetchRequest, encode_response
from plimsoll_wire.tail_stream import PushedTo, decode_acknowledgement, encode_push

PARTITIONS_MAX = 100_000
FOUND_MAX = 1_000
"""The most partitions with records in one reply; the others follow in the next one."""
_REPLY_PART = 4
"""The part of a fetch's bytes that a reply may have however much is pushed and not acknowledged: a
quarter. Otherwise partitions that are copied would wait behind those with pushes."""
_EPOCH_MAX = 2**31 - 1


def partitions_named(request: FetchRequest) -> int:
    named = 0
    for topic in request.topics:  # of most requests there is one
        named += len(topic.partitions)
    return named


class _Followed:
    """One partition of a session. `asked`: the follower's last request for it. `refused`: the
    error, if the partition cannot be read. `said`: the high watermark and log start in the last
    reply; None if they must be sent. `hosted`: the partition on this broker, or None. `parked`:
    True if the session is registered at the replica to be woken by changes of the partition.
    `settled`: the follower's progress if the partition is settled, or None. `slot`: its number in
    the session's pushes, `pushed`: how far they reach."""

    __slots__ = ("asked", "hosted", "key", "parked", "pushed", "refused", "said", "settled", "slot")

    def __init__(self, key: PartitionKey, asked: FetchPartition, slot: int) -> None:
        self.key = key
        self.asked = asked
        self.slot = slot
        self.pushed = Pushed()
        self.hosted: Hosted | None = None
        self.refused: FetchedPartition | None = None
        self.said: tuple[int, int] | None = None
        self.parked = False
        self.settled: FollowerProgress | None = None


class _Pushing(Enum):
    """What became of a partition's turn to push."""

    DONE = "all was pushed"
    MORE = "a piece was pushed, and there is more"
    HELD = "an acknowledgement will show what is next: there is no room before, or no push"
    NOT_PLAIN = "the fetch that waits may have to be answered"


class _Look(NamedTuple):
    """The result of reading all open partitions once. `found`: the partitions to put into the
    reply. `size`: bytes of records. `urgent`: True if there is an error or a divergence."""

    found: list[tuple[_Followed, FetchedPartition]]
    size: int
    urgent: bool


def _reply_with_the_rest(followed: _Followed, leader: Leader | None) -> _Pushing:
    """Return what becomes of a partition that cannot be pushed on now. A reply has the rest, but
    not while pushes are unacknowledged: then their acknowledgement is awaited, unless this broker
    no longer leads in the leader epoch of the fetch, which the reply must tell."""
    leads = leader is not None and leader.epoch == followed.asked.leader_epoch
    return _Pushing.HELD if leads and followed.pushed.outstanding else _Pushing.NOT_PLAIN


class FetchSession:
    """The fetch session of one follower, on one connection."""

    for_follower = True

    def __init__(
        self,
        manager: ReplicaManager,
        connection: ConnectionState,
        session_id: int,
        request: FetchRequest,
        version: int,
    ) -> None:
        assert request.replica_id is not None
        assert request.replica_epoch is not None
        self.id = session_id
        self._manager = manager
        self._connection = connection
        self._version = version
        self._broker = BrokerId(request.replica_id), request.replica_epoch
        self._request = request
        self._next_epoch = 0
        self._presence = Presence()
        self._followed: dict[PartitionKey, _Followed] = {}
        self._open: dict[_Followed, None] = {}
        self._follower = FollowerIdentity(*self._broker, None)
        self._by_slot: dict[int, _Followed] = {}
        self._slots = count()
        self._window = SendWindow()
        # The partitions that may have something to push to the fetch that waits.
        self._moved: dict[_Followed, None] = {}
        self._future: ReplyLater | None = None
        # The deadline of the waiting request. The timer may fire earlier, for a request that has
        # been answered, and is set anew then.
        self._until_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._followed)

    # --- requests -------------------------------------------------------------------------------

    def is_of(self, request: FetchRequest) -> bool:
        sender = request.replica_id, request.replica_epoch
        return request.session_id == self.id and sender == self._broker

    def has_room(self, request: FetchRequest) -> bool:
        return len(self._followed) + partitions_named(request) <= PARTITIONS_MAX

    def is_next(self, request: FetchRequest) -> bool:
        """Return True if the request has the next session epoch. Otherwise a request was lost or
        repeated, and the caller must end the session."""
        return request.session_epoch == self._next_epoch

    def fetch(self, request: FetchRequest) -> Reply | ReplyLater:
        """Serve the next request of the session: add and remove the partitions that it names,
        record the fetch offsets of all, and return the reply, or a later reply if there is not
        enough to send and the request permits a wait. A request that still waits is answered
        first."""
        if self._future is not None and not self._future.done():
            self._future.set_result(self._reply(self._look()))  # one request at a time
        self._request = request
        self._next_epoch = self._next_epoch % _EPOCH_MAX + 1
        for topic_id, indexes in request.forgotten:
            for index in indexes:
                self._forget(topic_id, index)
        for topic in request.topics:
            for partition in topic.partitions:
                self._put(topic.topic_id, partition)
        # Partitions that were removed or named keep the times of the previous fetch: this one
        # states their positions itself.
        acknowledged_ms = self._connection.fetch_replied_ms
        self._presence.fetch_ms = self._manager.now_ms()
        self._presence.acknowledged_ms = acknowledged_ms
        self._follower = FollowerIdentity(*self._broker, acknowledged_ms)
        self._window.begin(min(request.max_bytes, RESPONSE_BYTES_MAX) if self._pushes else 0)
        for followed in self._open:
            followed.pushed.begin(followed.asked.offset)
            self._arrive(followed)
        if self._pushes and request.max_wait_ms > 0:
            self._moved = dict(self._open)
            if self._push():
                return self._park()
        look = self._look()
        if self._is_enough(look) or request.max_wait_ms <= 0:
            return self._reply(look)
        return self._park()

    def _put(self, topic_id: UUID | None, partition: FetchPartition) -> None:
        key = PartitionKey(topic_id or UUID(int=0), partition.partition)
        followed = self._followed.get(key)
        if followed is None:
            slot = next(self._slots)
            followed = self._followed[key] = self._by_slot[slot] = _Followed(key, partition, slot)
        followed.asked = partition
        followed.said = None
        self._reopen(followed)

    def _forget(self, topic_id: UUID | None, index: int) -> None:
        followed = self._followed.pop(PartitionKey(topic_id or UUID(int=0), index), None)
        if followed is not None:
            self._leave(followed)
            self._open.pop(followed, None)
            self._moved.pop(followed, None)
            del self._by_slot[followed.slot]

    def _arrive(self, followed: _Followed) -> None:
        hosted = self._manager.hosted(followed.key)
        if followed.hosted is not hosted:
            self._leave(followed)
            followed.hosted = hosted
        if hosted is None:
            followed.refused = missing(self._manager, *followed.key)
        else:
            now_ms = self._presence.fetch_ms
            followed.refused = arrive(
                *(self._manager, hosted, self._follower, followed.asked, now_ms)
            )

    # --- the tail stream ------------------------------------------------------------------------

    @property
    def _pushes(self) -> bool:
        """True if the waiting fetch permits pushes. A broker with links that a drill slows pushes
        nothing, since no push would be late."""
        return self._request.takes_pushes and not self._manager.peers.delay_s

    def _push(self) -> bool:
        """Push what the moved partitions have appended, a piece of each in turn, as far as the
        window permits. Return False if one may have something to say that cannot be pushed; the
        caller then looks whether the waiting fetch must be answered."""
        plain = True
        turn = list(self._moved)
        while turn:
            left: list[_Followed] = []
            for followed in turn:
                pushing = self._push_piece(followed)
                if pushing is _Pushing.MORE:
                    left.append(followed)
                    continue
                self._listen(followed)
                if pushing is not _Pushing.HELD:
                    del self._moved[followed]
                    plain = plain and pushing is _Pushing.DONE
            turn = left
        return plain

    def _push_piece(self, followed: _Followed) -> _Pushing:
        hosted, asked, pushed = followed.hosted, followed.asked, followed.pushed
        if hosted is None or followed.refused is not None or asked.leader_epoch is None:
            return _Pushing.NOT_PLAIN
        replica, log = hosted.replica, hosted.log
        position = FetchPosition(asked.leader_epoch, asked.offset, asked.last_fetched_epoch)
        if not may_push(replica.leader, self._broker[0], position, pushed, log):
            return _reply_with_the_rest(followed, replica.leader)
        end, room = log.log_end_offset, self._window.room
        if pushed.sent >= end:
            return _Pushing.DONE
        if room <= 0:
            return _Pushing.HELD  # an acknowledgement makes room
        records = log.recent.read(pushed.sent, min(asked.max_bytes, room), end)
        if records is None or not len(records):
            return _reply_with_the_rest(followed, replica.leader)
        said = replica.high_watermark, log.log_start_offset
        place = PushedTo(self.id, followed.slot, hosted.topic_id_bytes, hosted.key.index)
        frame = encode_push(place, asked.leader_epoch, pushed.sent, *said, records)
        if not self._connection.push(frame):
            return _Pushing.HELD
        pushed.pushed_at(end, self._manager.now_ms())
        self._window.push(pushed, end_of(records), len(records))
        followed.said = said
        self._manager.traffic.replicated_out += len(records)
        return _Pushing.DONE if pushed.sent >= end else _Pushing.MORE

    def acknowledge(self, frame: bytearray) -> None:
        """Record a follower's acknowledgement of pushes, which is a fetch from there. Raise
        MalformedMessage, or CloseConnection if no follower can say so."""
        said = decode_acknowledgement(frame)
        followed = self._by_slot.get(said.slot)
        if said.session_id != self.id or followed is None or followed.hosted is None:
            return
        if followed.refused is not None:
            return  # an earlier acknowledgement was; the next fetch states the position
        pushed = followed.pushed
        if not self._window.acknowledge(pushed, said.offset):
            raise CloseConnection("not-pushed")
        followed.asked = followed.asked._replace(
            leader_epoch=said.leader_epoch,
            offset=said.offset,
            last_fetched_epoch=said.last_fetched_epoch,
            log_start_offset=said.log_start,
        )
        manager, hosted = self._manager, followed.hosted
        now_ms = manager.now_ms()
        followed.refused = arrive(
            *(manager, hosted, self._follower, followed.asked, now_ms, pushed.had_all_ms)
        )
        if said.asks or followed.refused is not None:
            pushed.begin(said.offset)
            self._answer(at_last=True)
        elif self._moved:
            self.wake()

    # --- looking and answering ------------------------------------------------------------------

    def _look(self) -> _Look:
        most = min(self._request.max_bytes, RESPONSE_BYTES_MAX)
        left = max(most - self._window.unacknowledged, most // _REPLY_PART)
        found: list[tuple[_Followed, FetchedPartition]] = []
        size = 0
        urgent = False
        for followed in self._open:
            result = followed.refused
            if result is None:
                assert followed.hosted is not None, "a partition that is not here is refused"
                result = read(
                    self._manager, followed.hosted, followed.asked, left, reads_to=ReadsTo.LOG_END
                )
            got = 0 if followed.pushed.outstanding else len(result.records)
            size += got
            left -= got
            if result.code or result.diverging is not None:
                urgent = True
            elif followed.pushed.outstanding:
                continue  # the follower may have the records already
            elif not got and followed.said == (result.high_watermark, result.log_start_offset):
                continue
            found.append((followed, result))
            if size and len(found) >= FOUND_MAX:
                break
        return _Look(found, size, urgent)

    def _is_enough(self, look: _Look) -> bool:
        return look.urgent or look.size >= self._request.min_bytes

    def _reply(self, look: _Look) -> Reply:
        manager = self._manager
        topics: dict[UUID, list[FetchedPartition]] = {}
        for followed, result in look.found:
            topics.setdefault(followed.key.topic_id, []).append(result)
            failed = result.code or result.diverging is not None
            followed.said = None if failed else (result.high_watermark, result.log_start_offset)
            if len(result.records):
                # A full reply omits the last partitions: move these to the end for the next one.
                del self._open[followed]
                self._open[followed] = None
        for followed in list(self._open):
            self._settle(followed)
        manager.traffic.replicated_out += look.size
        self._connection.fetch_replied_ms = manager.now_ms()
        return encode_response(
            self._version,
            [("", topic_id, partitions) for topic_id, partitions in topics.items()],
            controller_epoch=manager.controller_epoch,
            session_id=self.id,
        )

    # --- open and settled -----------------------------------------------------------------------

    def _settle(self, followed: _Followed) -> None:
        hosted = followed.hosted
        if hosted is None or followed.refused is not None:
            return
        replica, log, asked = hosted.replica, hosted.log, followed.asked
        leader, end = replica.leader, log.log_end_offset
        if (
            leader is None
            or leader.epoch != asked.leader_epoch
            or asked.offset != end
            or followed.said != (replica.high_watermark, log.log_start_offset)
        ):
            return
        progress = leader.settled(self._broker[0], end, replica.high_watermark)
        if progress is not None:
            progress.settle(self._presence)
            followed.settled = progress
            del self._open[followed]
            self._listen(followed)

    def _reopen(self, followed: _Followed) -> None:
        if followed.settled is not None:
            followed.settled.unsettle(self._presence)
            followed.settled = None
        self._open[followed] = None

    def _listen(self, followed: _Followed) -> None:
        if followed.hosted is not None and not followed.parked:
            followed.parked = True
            followed.hosted.replica.parked.park(self, for_commit=False)

    def _leave(self, followed: _Followed) -> None:
        """Unregister the session at this partition's replica, and end the partition's settled
        state."""
        if followed.settled is not None:
            followed.settled.unsettle(self._presence)
            followed.settled = None
        if followed.hosted is not None and followed.parked:
            followed.parked = False
            followed.hosted.replica.parked.forget(self)

    # --- waiting --------------------------------------------------------------------------------

    def _park(self) -> ReplyLater:
        self._future = ReplyLater()
        loop = self._loop
        self._until_s = loop.time() + min(self._request.max_wait_ms, WAIT_MS_MAX) / 1000
        if self._timer is None or self._until_s < self._timer.when():
            self._set_timer()
        self._listen_again()
        return self._future

    def _set_timer(self) -> None:
        """Set the session's timer to the deadline of the waiting request. One timer serves many
        requests, since a timer for each would cost more than the request."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._until_s, self._expired)

    def _listen_again(self) -> None:
        for followed in self._open:
            self._listen(followed)

    def moved(self, hosted: Hosted) -> None:
        """Open the partition again: its log end, log start, leader epoch or ISR has changed."""
        followed = self._followed.get(hosted.key)
        if followed is not None and followed.hosted is hosted:
            followed.parked = False
            self._reopen(followed)
            self._moved[followed] = None

    def wake(self) -> None:
        """Push what was appended to a follower that takes pushes. Otherwise, or if something cannot
        be pushed, send the reply of the waiting request if there is enough to send; otherwise it
        keeps waiting. Called once in a turn of the event loop, after `moved` for all partitions
        that changed."""
        if self._future is None or self._future.done():
            return
        if not self._pushes or not self._push():
            self._answer(at_last=False)

    def _expired(self) -> None:
        self._timer = None
        if self._future is None or self._future.done():
            return
        if self._loop.time() < self._until_s:
            self._set_timer()
        else:
            self._answer(at_last=True)

    def _answer(self, *, at_last: bool) -> None:
        if self._future is None or self._future.done():
            return
        with Answering(self._future):
            look = self._look()
            if at_last or self._is_enough(look):
                self._future.set_result(self._reply(look))
            else:
                self._listen_again()

    def close(self) -> None:
        """End the session: answer the waiting request, if any, and remove all partitions. Called
        when the connection is lost or the follower begins another session."""
        self._answer(at_last=True)
        if self._timer is not None:
            self._timer.cancel()
        for followed in self._followed.values():
            self._leave(followed)
        self._followed.clear()
        self._by_slot.clear()
        self._open.clear()
        self._moved.clear()
