"""Asker and WaitingReplies: the receiver of a group shard's answer, and the replies that wait for a
commit.

Shards make both. A replica holds a WaitingReplies as it holds a produce that waits for its commit
(`AckWaiter`). Each reply is sent once; if the wait fails, the client gets the coordinator's error
code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from plimsoll_broker.handler_failures import Answering
from plimsoll_core.coordination.outcome import RefusedAsWhole, Reply, told
from plimsoll_core.errors import Code

ANSWERED_AT_ONCE = 50
"""The most replies sent in one turn of the event loop. Together with the work of their connections
they take a few milliseconds."""


class Asker:
    """Receives the answer to one operation of a group shard, and passes it to the request handler
    that asked. Later answers than the first are dropped. `answer_value`: the answer; None until
    there is one."""

    __slots__ = ("_future", "answer_value")

    def __init__(self) -> None:
        # The answer; None until there is one.
        self.answer_value: object | None = None
        self._future: asyncio.Future[object] | None = None

    def answer(self, value: object) -> None:
        """Set the answer, unless there is one, and complete the future. The future may be cancelled
        already, since a client that disconnects cancels it."""
        if self.answer_value is not None:
            return
        self.answer_value = value
        if self._future is not None and not self._future.done():
            with Answering(self._future):
                self._future.set_result(value)

    @property
    def answered(self) -> bool:
        """True if there is an answer."""
        return self.answer_value is not None

    def future(self) -> asyncio.Future[object]:
        """Return a future that completes with the answer."""
        self._future = asyncio.get_running_loop().create_future()
        if self.answer_value is not None:
            self._future.set_result(self.answer_value)
        return self._future


class ShardOfReply(Protocol):
    """The part of `GroupShard` that `WaitingReplies` needs."""

    def may_tell(self) -> bool:
        """Return True if replies may reveal the shard's state now: this broker leads the shard's
        partition and holds the leader lease. Otherwise return False; the client then gets
        NOT_COORDINATOR."""


class WaitingReplies:
    """The replies of one operation. They wait until the partition's high watermark reaches the
    records that the operation wrote or read. A replica holds this object as the token of an
    `AckWaiter`.

    `written`: True if the operation wrote records. Their commit proves that this broker was the
    leader; without records the broker must hold the leader lease when it sends the replies. `then`:
    called with the error code after the replies, or None. The members of a large group are answered
    a few at a time, so that other tasks run in between.
    """

    __slots__ = ("_replies", "_shard", "_then", "_written")

    def __init__(
        self,
        shard: ShardOfReply,
        replies: tuple[Reply, ...],
        then: Callable[[Code], None] | None,
        *,
        written: bool,
    ) -> None:
        self._shard = shard
        self._replies = replies
        self._then = then
        self._written = written

    def answer(self, code: int) -> None:
        """Send the replies, ANSWERED_AT_ONCE in a turn of the event loop, then call `then`, if any,
        with the error code. `code`: the replica's error code, NONE if the records are committed.
        With an error all askers get the coordinator's error code in place of their replies."""
        heard = told(Code(code))
        self._leave(heard, 0)
        if self._then is not None:
            self._then(self._told_now(heard))

    def _leave(self, heard: Code, first: int) -> None:
        """Send the replies from number `first` on: ANSWERED_AT_ONCE now, further ones in later
        turns of the event loop. `heard`: the error code from `answer`."""
        code, end = self._told_now(heard), first + ANSWERED_AT_ONCE
        for token, answer in self._replies[first:end]:
            assert isinstance(token, Asker)
            token.answer(answer if code is Code.NONE else RefusedAsWhole(code))
        if end < len(self._replies):
            asyncio.get_running_loop().call_soon(self._leave, heard, end)

    def _told_now(self, heard: Code) -> Code:
        """Return the error code to send: `heard`, or NOT_COORDINATOR if the replies need the leader
        lease and this broker does not hold it now."""
        if heard is Code.NONE and not self._written and not self._shard.may_tell():
            return Code.NOT_COORDINATOR
        return heard
