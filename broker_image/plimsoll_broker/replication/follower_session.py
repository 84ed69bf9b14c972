"""FollowerSession: one fetcher's partitions, and the fetch session at their leader (KIP-227).

Called by the fetcher before and after each request. The first request on a connection names every
partition. Once the leader has a session, later requests name only changes and partitions no longer
followed. A refused partition is left out for a while; the others continue. After any error the next
request is a full one.

Of the copies under a rate limit only some are fetched at a time; further ones wait in line. A
leader looks at every partition of a request, and a few complete copies are worth more than many
late ones. A replica that joins the ISR makes room for the next, and a refused one goes to the end
of the line.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_core.ids import BrokerId
from plimsoll_core.replica.follower import FetchPosition
from plimsoll_wire.replication import (
    NEW_SESSION,
    FetchSessionKey,
    MalformedReply,
    PartitionFetch,
)

BACKOFF_MS = 25
BACKOFF_MS_MAX = 1_000
NAMED_AT_ONCE = 1_000
"""The most partitions that one request names, so that a request for all of them holds up neither
side. The next request names further ones and does not wait for records."""
SWEEP_MS = 5_000
"""The interval in ms at which the positions of all partitions are compared with those sent last,
since no event reports a changed log start or a failed disk."""
_EPOCH_MAX = 2**31 - 1

Key = tuple[bytes, int]
"""Topic id as bytes, and partition index."""


@dataclass(slots=True, eq=False)
class Followed:
    """A partition that the fetcher fetches. Requests leave it out before `delayed_until_ms`
    (monotonic clock). `backoff_ms`: the time in ms for which the next refusal delays it."""

    hosted: Hosted
    delayed_until_ms: int = 0
    backoff_ms: int = BACKOFF_MS

    @property
    def key(self) -> Key:
        return self.hosted.topic_id_bytes, self.hosted.key.index


class Question(NamedTuple):
    """The fetch position (offset and leader epoch) and log start that a request sends for one
    partition."""

    followed: Followed
    position: FetchPosition
    log_start: int


class Ask(NamedTuple):
    """The contents of one fetch request. `topics`: the partitions that it names, by topic id.
    `forgotten`: the partitions that the leader must remove from the session."""

    session: FetchSessionKey
    topics: Collection[tuple[bytes, list[PartitionFetch]]]
    forgotten: Collection[tuple[bytes, list[int]]]


class FollowerSession:
    """Decides which partitions a fetcher names in its next request to one leader. `asked`: for
    every partition in the leader's fetch session, the position sent last, by topic id and index.
    `at_once`: the most partitions that are fetched at a time; None for all."""

    def __init__(self, leader: BrokerId, at_once: int | None = None) -> None:
        self._leader = leader
        self._at_once = at_once
        self._line: dict[Key, Followed] = {}
        self._followed: dict[Key, Followed] = {}
        self._resting: dict[Key, Followed] = {}
        self._changed: dict[Key, None] = {}
        self._forgotten: dict[Key, None] = {}
        self._session_id = 0
        self._epoch = 0
        self._fulls = 0
        self._sweep_ms = 0
        self.asked: dict[Key, Question] = {}
        # Partitions with incomplete logs: their logs are discarded and copied from the start.
        self._lost: list[Question] = []

    def __len__(self) -> int:
        """Return the number of partitions to fetch, including those that wait in line."""
        return len(self._followed) + len(self._line)

    # --- what is followed -----------------------------------------------------------------------

    def add(self, hosted: Hosted) -> bool:
        """Have the next request name the partition with its log end, and return True. Return False
        if `at_once` other partitions are fetched already, so that this one waits in line."""
        followed = Followed(hosted)
        if followed.key not in self._followed and self._full:
            self._line[followed.key] = followed
            return False
        self._followed[followed.key] = followed
        self._resting.pop(followed.key, None)
        self._changed[followed.key] = None
        return True

    def remove(self, hosted: Hosted) -> bool:
        """Stop fetching a partition, or remove it from the line. Return True if a partition that
        waited in line is fetched from now on."""
        key = Followed(hosted).key
        self._line.pop(key, None)
        self._leave(key)
        return self._let_in()

    def _leave(self, key: Key) -> None:
        self._followed.pop(key, None)
        self._resting.pop(key, None)
        self._forget(key)

    @property
    def _full(self) -> bool:
        """True if no more partitions may be fetched at a time."""
        return self._at_once is not None and len(self._followed) >= self._at_once

    def _let_in(self) -> bool:
        """Move partitions from the line, the first one first, to the fetched ones while fewer than
        `at_once` are fetched. Return True if any was moved."""
        come = False
        while self._line and not self._full:
            key = next(iter(self._line))
            followed = self._followed[key] = self._line.pop(key)
            if followed.delayed_until_ms:
                self._resting[key] = followed  # refused earlier
            self._changed[key] = None
            come = True
        return come

    def _forget(self, key: Key) -> None:
        """Have the next request remove the partition from the leader's fetch session. Do nothing if
        that session does not have it."""
        if self.asked.pop(key, None) is not None:
            self._forgotten[key] = None

    def current(self, followed: Followed) -> bool:
        """Return True if the partition is being fetched with this object, not with a later one that
        replaced it."""
        return self._followed.get(followed.key) is followed

    def look_again(self, followed: Followed) -> None:
        """Name the partition in the next request, with its new log end."""
        self._changed[followed.key] = None

    def rest(self, followed: Followed, now_ms: int) -> None:
        """Leave the partition out of requests for its backoff time, and double that time: the
        leader refused it, or its records cannot be used. If partitions wait in line it goes to the
        end of the line."""
        self._rest_until(followed, now_ms + followed.backoff_ms)
        followed.backoff_ms = min(followed.backoff_ms * 2, BACKOFF_MS_MAX)

    def _rest_until(self, followed: Followed, until_ms: int) -> None:
        followed.delayed_until_ms = until_ms
        if self.current(followed):
            self._resting[followed.key] = followed
            self._forget(followed.key)
            if self._line:
                self._leave(followed.key)
                self._line[followed.key] = followed
                self._let_in()

    def due_in_ms(self, now_ms: int) -> int | None:
        """Return 0 if a partition can be requested now, or the ms until one can. Return None if no
        partition is fetched. Partitions with a delay that is over at `now_ms` (monotonic clock) are
        named in the next request."""
        for key, followed in list(self._resting.items()):
            if followed.delayed_until_ms <= now_ms:
                if self._may(followed):
                    del self._resting[key]
                    self._changed[key] = None
                else:
                    self._rest_until(followed, now_ms + SWEEP_MS)
        if len(self._followed) > len(self._resting):
            return 0
        waits = [followed.delayed_until_ms - now_ms for followed in self._resting.values()]
        return min(waits, default=None)

    def _may(self, followed: Followed) -> bool:
        """Return True if the replica still fetches from this leader. Return False if its disk has
        failed or newer metadata name another leader."""
        return followed.hosted.replica.fetches_from == self._leader

    # --- the session ----------------------------------------------------------------------------

    def ask(self, now_ms: int) -> Ask:
        """Return the contents of the next request, and record them as sent: a full request without
        a session, otherwise the changes, at most NAMED_AT_ONCE partitions. The caller must send it,
        or call `forget_session`."""
        if self._session_id == 0:
            self.asked.clear()
            self._forgotten.clear()
            keys = list(self._followed)
            # Without a session a full reply would omit the same last partitions every time.
            turn = NAMED_AT_ONCE if len(keys) > NAMED_AT_ONCE else 1
            first = self._fulls * turn % max(len(keys), 1)
            self._changed = dict.fromkeys([*keys[first:], *keys[:first]])
            self._fulls += 1
            self._sweep_ms = now_ms + SWEEP_MS
        elif now_ms >= self._sweep_ms:
            self._changed |= dict.fromkeys(self._followed)
            self._sweep_ms = now_ms + SWEEP_MS
        keys = list(islice(self._changed, NAMED_AT_ONCE))
        for key in keys:
            del self._changed[key]
        topics: dict[bytes, list[PartitionFetch]] = {}
        for key in keys:
            question = self._question(key, now_ms)
            if question is not None and question != self.asked.get(key):
                self.asked[key] = question
                one = PartitionFetch(key[1], *question.position, question.log_start)
                topics.setdefault(key[0], []).append(one)
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, index in self._forgotten:
            forgotten.setdefault(topic_id, []).append(index)
        self._forgotten.clear()
        session = NEW_SESSION
        if self._session_id:
            session = FetchSessionKey(self._session_id, self._epoch)
        return Ask(session, topics.items(), forgotten.items())

    def take_lost(self) -> list[Question]:
        """Return the questions of the partitions that `ask` left out because their logs are
        incomplete or copied in part, and clear the list. Each such log must be discarded and copied
        from the leader's log start."""
        lost, self._lost = self._lost, []
        return lost

    @property
    def has_more(self) -> bool:
        """True if changed partitions remain that the last request had no room to name."""
        return bool(self._changed)

    def _question(self, key: Key, now_ms: int) -> Question | None:
        """Return the position to send for a partition. If the partition cannot be requested now,
        return None: it is delayed already or removed; or it has another leader or waits for a
        flush, and is delayed now; or its log must be copied anew, and it is delayed and added to
        the list of `take_lost`."""
        followed = self._followed.get(key)
        if followed is None or key in self._resting:
            return None
        if not self._may(followed):
            self._rest_until(followed, now_ms + SWEEP_MS)
            return None
        hosted = followed.hosted
        if hosted.log.countable_end < hosted.log.log_end_offset:
            # A fetch from the log end says that the whole log is on this disk, and a flush is
            # pending.
            self._rest_until(followed, now_ms + BACKOFF_MS)
            return None
        question = Question(followed, hosted.replica.position(), hosted.log.log_start_offset)
        if hosted.log.incomplete or hosted.replica.compacted_copy.must_begin_again:
            # A leader would count everything below the fetch offset as present, and might propose
            # the replica for the ISR.
            self._lost.append(question)
            self.rest(followed, now_ms)
            return None
        return question

    def answered(self, session_id: int) -> None:
        """Record that the leader accepted the request in the fetch session with this id: begin the
        session, or advance its epoch. Raise MalformedReply if another session is present."""
        if self._session_id == 0:
            self._session_id, self._epoch = session_id, 1
        elif session_id == self._session_id:
            self._epoch = self._epoch % _EPOCH_MAX + 1
        else:
            raise MalformedReply(
                f"the leader answered this follower in fetch session {session_id} instead of "
                f"{self._session_id}"
            )

    @property
    def session_id(self) -> int:
        """The id of the leader's fetch session; 0 if there is none."""
        return self._session_id

    def forget_session(self) -> None:
        """Forget the leader's fetch session, because the connection is lost or the leader no longer
        knows it. The next request is a full one, in a new session."""
        self._session_id = 0
        self.asked.clear()
