"""Who asked a shard something, and the reply that waits until what it tells is committed.

Made by shards; replicas hold the waits like those of produces (`AckWaiter`).  A reply leaves once,
and a failed wait becomes the coordinator's code for it.
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
"""Replies that leave in one turn of the event loop: a few milliseconds, with what sessions do."""


class Asker:
    """What a shard's `token` is: it hears one answer, the first."""

    __slots__ = ("_future", "answer_value")

    def __init__(self) -> None:
        # What it heard; None until then.
        self.answer_value: object | None = None
        self._future: asyncio.Future[object] | None = None

    def answer(self, value: object) -> None:
        """The client may have gone: its session cancelled the future then."""
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
        """Completes with the answer."""
        self._future = asyncio.get_running_loop().create_future()
        if self.answer_value is not None:
            self._future.set_result(self.answer_value)
        return self._future


class ShardOfReply(Protocol):
    """What a waiting reply needs of its shard."""

    def may_tell(self) -> bool:
        """Whether what is only remembered may be told now."""


class WaitingReplies:
    """The replies of one outcome, while they wait; what a replica's waiter holds.

    `written`: the outcome had records, so that their commit is proof enough; what was only read
    needs the lease when it leaves.  The members of a large group hear it a few at a time, so that
    others are heard in between."""

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
        """The wait is over: `code` is the replica's."""
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
