"""Reassignments of a local cluster: the files' are carried out, what is in no file goes back.

A file has no uid: an object is told from another by its name and what it moves, so an edited one is
another one.  How they are gets told in the log, since there is nobody to write a status to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from uuid import UUID, uuid5

import msgspec
from msgspec.structs import replace

from plimsoll_core.messages.reassignments import ReassignmentObjectGone, ReassignmentState
from plimsoll_core.messages.requests import Refused
from plimsoll_operator.api.reassignment import Reassignment
from plimsoll_operator.clocks import wall_ms
from plimsoll_operator.controller.runtime import Controller
from plimsoll_operator.reconcile.reassignment.request import FINAL, object_of, run_request

logger = logging.getLogger("plimsoll.local")

LOOK_MS = 1_000


def with_uid(found: Reassignment, names: UUID) -> Reassignment:
    """The same name and the same moves are the same object."""
    if found.metadata.uid:
        return found
    moves = msgspec.json.encode(found.spec.moves).decode()
    uid = str(uuid5(names, "/".join((*found.key, moves))))
    return replace(found, metadata=replace(found.metadata, uid=uid))


class Moves:
    """`look` once, or `run` for ever."""

    def __init__(self, controller: Controller, wanted: Sequence[Reassignment]) -> None:
        self._controller = controller
        self._wanted = {found.metadata.uid: found for found in wanted}
        self._said: dict[str, str] = {}

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_MS / 1000)

    async def look(self) -> None:
        rows = self._controller.image.reassignments
        for uid, row in rows.items():
            if uid not in self._wanted:
                request = ReassignmentObjectGone(object=row.object, wall_ms=wall_ms())
                self._say(row.object.name, await self._controller.request(request))
        for uid, found in self._wanted.items():
            known = rows.get(uid)
            if known is None or known.phase not in FINAL:
                answer = await self._controller.request(run_request(found, wall_ms()))
                self._say(object_of(found).name, answer)

    def _say(self, name: str, answer: object) -> None:
        text = ""
        if isinstance(answer, ReassignmentState):
            text = " ".join(filter(None, (answer.phase or "rolled back", answer.message)))
        elif isinstance(answer, Refused):
            text = answer.message
        if text and self._said.get(name) != text:
            self._said[name] = text
            logger.info("Reassignment %s: %s", name, text)
