"""`InternalTopics`: has the controller create an internal topic when a client first needs it. Its
task asks the controller; handlers only report the need and have their clients retry. The
controller decides how the topic is created.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from plimsoll_broker.control.controller_client import NoController
from plimsoll_core.messages.requests import Answer, Refused
from plimsoll_core.messages.topics import EnsureInternalTopic

logger = logging.getLogger("plimsoll.internal_topics")
ASK_MS_MAX = 10_000
AGAIN_S = 1.0
"""The pause in seconds between two requests for a topic that could not be created."""

EnsureTopic = Callable[[EnsureInternalTopic, int], Awaitable[Answer]]
"""Sends a request to the controller, with a timeout in ms, and returns the answer. Raises
NoController."""


class InternalTopics:
    """Has the controller create internal topics such as `__consumer_offsets` when a client first
    needs them. A broker has one such object."""

    def __init__(self, ask: EnsureTopic) -> None:
        self._ask = ask
        self._wanted: dict[str, None] = {}
        self._kick = asyncio.Event()
        # The last refusal, which is logged once.
        self._said = ""

    def want(self, name: str) -> None:
        """Queue a request to the controller to create the topic, which `run` sends; return at once.
        A topic that is queued already is requested once."""
        self._wanted[name] = None
        self._kick.set()

    async def run(self) -> None:
        """Send the queued requests for topics to the controller, one after another, until
        cancelled. After a refusal pause for AGAIN_S."""
        while True:
            await self._kick.wait()
            self._kick.clear()
            wanted, self._wanted = self._wanted, {}
            for name in wanted:
                await self._ensure(name)

    async def _ensure(self, name: str) -> None:
        try:
            answer = await self._ask(EnsureInternalTopic(name=name), ASK_MS_MAX)
        except NoController:
            return
        if isinstance(answer, Refused):
            if answer.message != self._said:
                self._said = answer.message
                logger.warning(
                    "the controller cannot create the internal topic %s, which its clients "
                    "need, so they wait; this broker asks again: %s",
                    name,
                    answer.message,
                )
            await asyncio.sleep(AGAIN_S)
