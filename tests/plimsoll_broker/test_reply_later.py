"""A reply that comes later is told in the turn in which it is made, once, whatever happened."""

import asyncio

import pytest

from plimsoll_broker.server.requests_and_replies import ReplyLater


def test_reply_is_delivered_before_its_maker_continues():
    later, told = ReplyLater(), []
    later.add_done_callback(told.append)
    assert not later.done()
    later.set_result(b"reply")
    assert told == [later]
    assert (later.done(), later.cancelled(), later.result()) == (True, False, b"reply")


def test_existing_reply_is_delivered_to_new_listener():
    later, told = ReplyLater(), []
    later.set_result(None)
    later.add_done_callback(told.append)
    assert told == [later]


def test_reply_that_nobody_waits_for_is_cancelled_once():
    later, told = ReplyLater(), []
    later.add_done_callback(told.append)
    later.cancel()
    later.cancel()
    assert told == [later]
    assert later.cancelled()
    with pytest.raises(asyncio.CancelledError):
        later.result()


def test_reply_that_was_made_is_not_cancelled():
    later = ReplyLater()
    later.set_result(b"reply")
    later.cancel()
    assert not later.cancelled()


def test_reply_whose_making_failed_says_why():
    later = ReplyLater()
    later.set_exception(ValueError("bug"))
    assert isinstance(later.exception(), ValueError)
    with pytest.raises(ValueError, match="bug"):
        later.result()


async def test_reply_may_be_awaited_before_or_after():
    later = ReplyLater()
    waiting = [asyncio.ensure_future(_of(later)) for _ in range(2)]
    gone = asyncio.ensure_future(_of(later))
    await asyncio.sleep(0)
    gone.cancel()
    later.set_result(b"reply")
    assert await asyncio.gather(*waiting) == [b"reply", b"reply"]
    assert await later == b"reply"


async def _of(later):
    return await later
