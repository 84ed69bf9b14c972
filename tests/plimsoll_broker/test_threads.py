"""Work in a thread has ended when its caller goes on, and neither an error nor a cancel is lost."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.plimsoll_broker.trio import WAIT_S

from plimsoll_broker.background import in_thread
from plimsoll_broker.replication.flush_schedule import several


class Work:
    """Ends when it is let; with an error, if so."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.ended = False
        self._error = error

    def __call__(self) -> str:
        self.begun.set()
        assert self.may_end.wait(WAIT_S)
        self.ended = True
        if self._error is not None:
            raise self._error
        return "done"


async def cancelled(task: asyncio.Task[object], work: Work, *, times: int = 1) -> None:
    """Cancel it while it works, and let it end."""
    await asyncio.to_thread(work.begun.wait, WAIT_S)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    work.may_end.set()


@pytest.mark.parametrize("times", [1, 2])
async def test_work_ends_before_its_callers_cancellation(times: int) -> None:
    work = Work()
    task: asyncio.Task[object] = asyncio.ensure_future(in_thread(work))
    await cancelled(task, work, times=times)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.ended


async def test_work_error_reaches_cancelled_caller() -> None:
    """A chore that took the error for one like any other went on for ever, and the broker's stop
    waited for it."""
    work = Work(OSError("a disk"))
    heard: list[str] = []

    async def chore() -> None:
        while True:
            try:
                await in_thread(work)
            except OSError as error:
                heard.append(str(error))
            await asyncio.sleep(0)

    task: asyncio.Task[object] = asyncio.ensure_future(chore())
    await cancelled(task, work)
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert heard == ["a disk"]


async def test_error_of_one_reaches_cancelled_caller() -> None:
    work = Work(OSError("a disk"))

    async def one(_: int) -> None:
        await in_thread(work)

    async def chore() -> None:
        await several([1], one)

    task: asyncio.Task[object] = asyncio.ensure_future(chore())
    await cancelled(task, work)
    with pytest.raises(BaseExceptionGroup) as group:
        await task
    assert [str(error) for error in group.value.exceptions] == ["a disk"]
