"""AwaitedLeaders: holds a Metadata reply that would name a leader lost a moment ago.

Called by the Metadata handler. `awaited_fences` decides which fences are awaited and for how long.
Later replies to the same client wait behind a held one, so a reply that names no lost leader is not
held. It never answers a request itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from uuid import UUID

from plimsoll_broker.background.time_slices import in_slices
from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_core.cluster.awaited_fences import (
    AWAITED_MS,
    awaited,
    hosted_count,
    led_topics,
    not_fenced,
)
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId
from plimsoll_process.waits import heard

LOOK_AGAIN_MS = 25
"""How often lost leaders are looked up: a fetcher reconnects at the earliest after this time."""

Lost = frozenset[BrokerId]
_NOBODY: Lost = frozenset()
Named = Callable[[ClusterImage], frozenset[UUID] | None]
"""The topics of a reply; None: all."""


class _LedByLost(NamedTuple):
    """The topics that lost leaders lead, found once for all waiting requests."""

    image: ClusterImage
    lost: Lost
    topics: asyncio.Task[frozenset[UUID]]


class _Held(NamedTuple):
    """A held reply: its deadline, and the image and lost leaders for which it was held."""

    until_s: float
    image: ClusterImage
    lost: Lost


class AwaitedLeaders:
    """One for a broker."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._led: _LedByLost | None = None
        # Held replies, and the task that watches for them.
        self._waiting: dict[asyncio.Future[None], _Held] = {}
        self._watching: asyncio.Task[None] | None = None

    def some(self) -> Lost:
        """Return the leaders whose fences are awaited now."""
        lost = self._view.lost_leaders()
        found = awaited(self._view.image, lost) if lost else _NOBODY
        if not found:
            self._led = None  # it holds an image
        return found

    async def wait(self, things: int, named: Named) -> None:
        """Wait until the reply names no lost leader, or the time is over. `things`: the number of
        items that `named` visits. A lost leader may also be reached again."""
        view, loop = self._view, asyncio.get_running_loop()
        until_s = loop.time() + AWAITED_MS / 1000
        seen, topics = None, None
        while loop.time() < until_s and (lost := self.some()):
            image = view.image
            if image is not seen:
                seen, topics = image, await view.aside.some(things, partial(named, image))
            # A leader without partitions is not followed, so a reply about all topics names each
            # lost one.
            if topics is not None and topics.isdisjoint(await self._led_by(image, lost)):
                break
            await self._change(_Held(until_s, image, lost))

    def _change(self, held: _Held) -> asyncio.Future[None]:
        """Return a future that completes when leaders or lost brokers change, or at the
        deadline."""
        change = asyncio.get_running_loop().create_future()
        self._waiting[change] = held
        if self._watching is None:
            self._watching = asyncio.ensure_future(self._watch())
            self._watching.add_done_callback(heard)
        return change

    async def _watch(self) -> None:
        """Watch while replies are held. All clients of a dead broker ask another one at once: if
        each of a thousand looked for itself, the event loop would be busy for seconds."""
        view, loop, waiting = self._view, asyncio.get_running_loop(), self._waiting
        try:
            while waiting:
                await view.watch.wait_for(partial(_are_fenced, self.some()), LOOK_AGAIN_MS)
                image, lost, now_s = view.image, self.some(), loop.time()
                # Compared with what each saw: it may have changed while that one was looking.
                told = [
                    one
                    for one, held in waiting.items()
                    if held.until_s <= now_s or held.image is not image or held.lost != lost
                ]
                async for one in in_slices(told):
                    _tell(one)
                    del waiting[one]
        finally:
            self._watching = None
            for one in waiting:
                _tell(one)
            waiting.clear()

    async def _led_by(self, image: ClusterImage, lost: Lost) -> frozenset[UUID]:
        led = self._led
        if led is None or led.image is not image or led.lost != lost:
            find = partial(led_topics, image, lost)
            work = self._view.aside.some(hosted_count(image, lost), find)
            led = self._led = _LedByLost(image, lost, asyncio.ensure_future(work))
            led.topics.add_done_callback(heard)
        return await asyncio.shield(led.topics)


def _tell(change: asyncio.Future[None]) -> None:
    if not change.done():  # the waiting request may have gone
        change.set_result(None)


def _are_fenced(lost: Lost, image: ClusterImage) -> bool:
    return not not_fenced(image, lost)
