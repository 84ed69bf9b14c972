"""InternalTopics: has the controller create an internal topic when a client first needs it.

Its task asks the controller; handlers only report the need and have their clients retry. The
controller decides how the topic is created.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from plimsoll_broker.control.controller_client import NoController
from plimsoll_core.messages.requests import Answer, Refused
from plimsoll_core.messages.topic_changes import EnsureInternalTopic

logger = logging.getLogger("plimsoll.coordinator")

ASK_MS_MAX = 10_000
AGAIN_S = 1.0
"""The pause between two requests for a topic that could not be created."""

EnsureTopic = Callable[[EnsureInternalTopic, int], Awaitable[Answer]]
"""Ask the controller, with a timeout in milliseconds; raises NoController."""


class InternalTopics:
    """One for a broker."""

    def __init__(self, ask: EnsureTopic) -> None:
        self._ask = ask
        self._wanted: dict[str, None] = {}
        self._kick = asyncio.Event()
        # The last refusal, which is logged once.
        self._said = ""

    def want(self, name: str) -> None:
        """Ask the controller to create the topic; concurrent callers share one request."""
        self._wanted[name] = None
        self._kick.set()

    async def run(self) -> None:
        """Run until cancelled."""
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
                logger.warning("%s cannot be made: %s", name, answer.message)
            await asyncio.sleep(AGAIN_S)
