"""One fetcher's partitions, and the fetch session that its leader keeps for them (KIP-227).

Called by the fetcher before and after each request.  The first request on a connection names every
partition; when the leader remembers them, the next ones name only what has changed since and what
is no longer followed.  A partition that was refused rests for a while, the others go on.  Whatever
goes wrong, the next request is a full one again.

Of what is copied under a limit only some are asked for at once, the others stand in line: a leader
looks at every partition of a request, and one that is copied soon is worth more than many that are
copied late.  Who joins makes room, and so does who was refused: it goes to the end of the line.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from plimsoll_broker.replication.hosted_partition import Hosted
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
"""Partitions that one request names, so that neither side is held up by a request for all of them:
what is left the next one names, which does not wait for records."""
SWEEP_MS = 5_000
"""So often all partitions are looked at: no event reports a log start or a broken disk."""
_EPOCH_MAX = 2**31 - 1

Key = tuple[bytes, int]
"""Topic id, as the wire has it, and index."""


@dataclass(slots=True, eq=False)
class Followed:
    """A partition that is fetched, and until when it is left alone."""

    hosted: Hosted
    delayed_until_ms: int = 0
    backoff_ms: int = BACKOFF_MS

    @property
    def key(self) -> Key:
        return self.hosted.topic_id_bytes, self.hosted.key.index


class Question(NamedTuple):
    """What was asked of one partition."""

    followed: Followed
    position: FetchPosition
    log_start: int


class Ask(NamedTuple):
    """A request: what it names, by topic, and what it takes back."""

    session: FetchSessionKey
    topics: Collection[tuple[bytes, list[PartitionFetch]]]
    forgotten: Collection[tuple[bytes, list[int]]]


class FollowerSession:
    """`asked` holds the newest question of every partition that the leader knows of.  `at_once`: so
    many partitions, or any number."""

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
        # Whose logs are not complete below their ends: those are not asked for, they begin again.
        self._lost: list[Question] = []

    def __len__(self) -> int:
        return len(self._followed) + len(self._line)

    # --- what is followed -----------------------------------------------------------------------

    def add(self, hosted: Hosted) -> bool:
        """Ask from where the log ends now, and at once.  False: it stands in line."""
        followed = Followed(hosted)
        if followed.key not in self._followed and self._full:
            self._line[followed.key] = followed
            return False
        self._followed[followed.key] = followed
        self._resting.pop(followed.key, None)
        self._changed[followed.key] = None
        return True

    def remove(self, hosted: Hosted) -> bool:
        """True: a waiting partition's turn has come."""
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
        return self._at_once is not None and len(self._followed) >= self._at_once

    def _let_in(self) -> bool:
        come = False
        while self._line and not self._full:
            key = next(iter(self._line))
            followed = self._followed[key] = self._line.pop(key)
            if followed.delayed_until_ms:
                self._resting[key] = followed  # it was refused before
            self._changed[key] = None
            come = True
        return come

    def _forget(self, key: Key) -> None:
        """The leader, too, begins anew with it when it is asked for again."""
        if self.asked.pop(key, None) is not None:
            self._forgotten[key] = None

    def current(self, followed: Followed) -> bool:
        return self._followed.get(followed.key) is followed

    def look_again(self, followed: Followed) -> None:
        """It was answered: the next request says where its log ends now."""
        self._changed[followed.key] = None

    def rest(self, followed: Followed, now_ms: int) -> None:
        """It was refused, or what came cannot be used."""
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
        """0: there is something to ask for.  None: there will not be before something changes."""
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
        """Not while its disk is broken, or after metadata that this fetcher was not told of."""
        return followed.hosted.replica.fetches_from == self._leader

    # --- the session ----------------------------------------------------------------------------

    def ask(self, now_ms: int) -> Ask:
        """The next request; it must be sent."""
        if self._session_id == 0:
            self.asked.clear()
            self._forgotten.clear()
            keys = list(self._followed)
            # Without a session a reply that is full leaves out the last ones, over and over.
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
        """Those that were to be asked for, and begin again instead."""
        lost, self._lost = self._lost, []
        return lost

    @property
    def has_more(self) -> bool:
        """Whether more was to be named than one request does."""
        return bool(self._changed)

    def _question(self, key: Key, now_ms: int) -> Question | None:
        followed = self._followed.get(key)
        if followed is None or key in self._resting:
            return None
        if not self._may(followed):
            self._rest_until(followed, now_ms + SWEEP_MS)
            return None
        hosted = followed.hosted
        if hosted.log.countable_end < hosted.log.log_end_offset:
            # To ask from the log's end says that all of it is on this disk, and a flush is due.
            self._rest_until(followed, now_ms + BACKOFF_MS)
            return None
        question = Question(followed, hosted.replica.position(), hosted.log.log_start_offset)
        if hosted.log.incomplete:
            # A leader would count what it asks from as all that lies before.
            self._lost.append(question)
            self.rest(followed, now_ms)
            return None
        return question

    def answered(self, session_id: int) -> None:
        """The leader took the request; what it remembers is what was asked."""
        if self._session_id == 0:
            self._session_id, self._epoch = session_id, 1
        elif session_id == self._session_id:
            self._epoch = self._epoch % _EPOCH_MAX + 1
        else:
            raise MalformedReply(f"a reply of session {session_id}, not {self._session_id}")

    def forget_session(self) -> None:
        """The leader remembers nothing: the connection is gone, or it says so."""
        self._session_id = 0
        self.asked.clear()
