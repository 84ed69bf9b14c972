"""Asker and WaitingReplies: the receiver of a shard's answer, and replies that wait for a commit.

Made by shards; replicas hold the waits like those of produces (`AckWaiter`). A reply is sent once;
a failed wait becomes the coordinator's error code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from plimsoll_broker.handler_failures import Answering
from plimsoll_core.coordination.codes import told
from plimsoll_core.coordination.outcome import RefusedAsWhole, Reply
from plimsoll_core.errors import Code

ANSWERED_AT_ONCE = 50
"""Replies sent in one turn of the event loop: a few milliseconds, with the sessions' work."""


class Asker:
    """The `token` of a shard's operations. It keeps the first answer."""

    __slots__ = ("_future", "answer_value")

    def __init__(self) -> None:
        # The answer; None until there is one.
        self.answer_value: object | None = None
        self._future: asyncio.Future[object] | None = None

    def answer(self, value: object) -> None:
        """Set the answer, unless there is one. If the client has disconnected, its session has
        cancelled the future."""
        if self.answer_value is not None:
            return
        self.answer_value = value
        if self._future is not None and not self._future.done():
            with Answering(self._future):
                self._future.set_result(value)

    @property
    def answered(self) -> bool:
        return self.answer_value is not None

    def future(self) -> asyncio.Future[object]:
        """Return a future that completes with the answer."""
        self._future = asyncio.get_running_loop().create_future()
        if self.answer_value is not None:
            self._future.set_result(self.answer_value)
        return self._future


class ShardOfReply(Protocol):
    """The part of a shard that a waiting reply needs."""

    def may_tell(self) -> bool:
        """Return True if remembered state may be told to clients now."""


class WaitingReplies:
    """The replies of one outcome while they wait; the token of a replica's waiter.

    `written` is True if the outcome had records. Their commit proves the reply. A reply to a read
    needs the lease when it is sent. The members of a large group are answered a few at a time, so
    that other tasks run in between.
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
        """Send the replies: the wait is over with the replica's `code`."""
        heard = told(Code(code))
        self._leave(heard, 0)
        if self._then is not None:
            self._then(self._told_now(heard))

    def _leave(self, heard: Code, first: int) -> None:
        code, end = self._told_now(heard), first + ANSWERED_AT_ONCE
        for token, answer in self._replies[first:end]:
            assert isinstance(token, Asker)
            token.answer(answer if code is Code.NONE else RefusedAsWhole(code))
        if end < len(self._replies):
            asyncio.get_running_loop().call_soon(self._leave, heard, end)

    def _told_now(self, heard: Code) -> Code:
        if heard is Code.NONE and not self._written and not self._shard.may_tell():
            return Code.NOT_COORDINATOR
        return heard
