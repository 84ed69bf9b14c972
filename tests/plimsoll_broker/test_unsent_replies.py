"""Replies on a connection's account: only while the kernel has not taken them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from plimsoll_broker.server.client_memory import MemoryAccount, Pool
from plimsoll_broker.server.requests_and_replies import Granted, ReplySender
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import RequestHeader

HEADER = RequestHeader(ApiKey.HEARTBEAT, 0, 7, None, None)


class Transport:
    """It takes what there is `room` for."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self.write(piece)

    def get_write_buffer_size(self) -> int:
        return max(self.written - self.room, 0)


def sender(transport: Any) -> tuple[ReplySender, Pool, MemoryAccount]:
    pool = Pool(10_000, lambda: None)
    account = MemoryAccount(pool, 5_000)
    made = ReplySender(account, asyncio.get_running_loop())
    made.connected(transport)
    return made, pool, account


@pytest.mark.parametrize("reply", [b"x" * 100, b"x" * 9_000, [b"x" * 60, b"y" * 40]])
async def test_reply_that_the_kernel_takes_is_never_held(reply: Any) -> None:
    sending, pool, _ = sender(transport := Transport(room=10_000))
    size = sending.send(HEADER, reply, None)
    assert size == transport.written == 8 + (100 if isinstance(reply, list) else len(reply))
    assert pool.used == 0


async def test_reply_is_held_until_kernel_takes_it() -> None:
    sending, pool, _ = sender(transport := Transport(room=50))
    sending.send(HEADER, b"x" * 100, None)
    assert pool.used == 100
    transport.room = 108
    sending.settle()
    assert pool.used == 0


async def test_granted_reply_bytes_are_returned() -> None:
    sending, pool, account = sender(Transport(room=1_000))
    for waits in (False, True):
        granted = account.grant(300)
        reply = Granted([b"h" * 20, b"r" * granted], granted)
        held = sending.hold(reply) if waits else None
        sending.send(HEADER, reply, held)
        assert pool.used == 0
